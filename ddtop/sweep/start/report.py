"""What is recorded of a start: parts of the gate and phases when they change, the running phase each second."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.events import GateSeen, Moving, Phase, PhaseSeen
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.start.evidence.phases import OnePhase, Phases, eta_s, rank
from ddtop.sweep.start.evidence.progress import Mark, Progress
from ddtop.sweep.start.gate import Gate
from ddtop.sweep.start.readings import StartReadings
from ddtop.sweep.start.silence import quiet_limit_s

RUNNING_EVERY_S = 1.0


class StartReport:
    """Emits what is new of one start since the last call."""

    def __init__(self, ctx: SweepContext, attempt_id: str, began: float) -> None:
        self.ctx = ctx
        self.attempt_id = attempt_id
        self.began = began
        self._gate: dict[str, tuple[str, str]] = {}
        self._phases: dict[str, tuple[bool, bool, int, int]] = {}
        self._running_at = 0.0

    def gate(self, result: Gate, now: float) -> None:
        for part in result.parts:
            before = self._gate.get(part.part)
            if part.state == "pending" and (before is None or before[0] != "ok"):
                continue
            key = (part.state, part.evidence.text)
            if before == key:
                continue
            # What was proven and no longer holds (the listener died with its process) is reported as well.
            self._gate[part.part] = key
            self.ctx.emit(
                GateSeen,
                attempt_id=self.attempt_id,
                part=part.part,
                ok={"ok": True, "no": False, "pending": False, "unknown": None}[part.state],
                evidence=part.evidence,
                elapsed_s=round(now - self.began, 3),
            )

    def phases(self, phases: Phases, r: StartReadings, now: float, *, note: str | None, end: bool) -> None:
        """`note` replaces the running phase's detail; `end`: the start is over, the last state is reported at once."""
        due = now - self._running_at >= RUNNING_EVERY_S or end
        for one in _in_order(phases):
            key = (one.running, one.failed, one.count, int(one.pct or 0))
            if self._phases.get(one.phase) == key and not (due and one.running):
                continue
            self._phases[one.phase] = key
            self._running_at = now if one.running else self._running_at
            self._phase(one, phases, r, now, note)

    def _phase(self, one: OnePhase, phases: Phases, r: StartReadings, now: float, note: str | None) -> None:
        eta = eta_s(phases, now, r.limits.slow_note) if one.running else None
        self.ctx.emit(
            PhaseSeen,
            attempt_id=self.attempt_id,
            phase=one.phase,
            state="running" if one.running else "failed" if one.failed else "done",
            elapsed_s=round(one.elapsed_s(now), 3),
            pct=one.pct,
            detail=(note if one.running else None) or one.detail,
            eta_s=None if eta is None else round(eta, 1),
            quiet_s=round(r.progress.quiet_s(now) if one.running else one.gap_s, 3),
            limit_s=quiet_limit_s(r, now) if one.running else None,
            moving=moving(r.progress) if one.running else None,
        )


def moving(p: Progress) -> Moving:
    """The counters of a start's processes as they stand."""

    def value(mark: Mark | None) -> float | None:
        return None if mark is None else round(mark.value, 1)

    return Moving(
        read_mib=None if p.read_b is None else round(p.read_b / 2**20, 1),
        gpu_mem_mib=value(p.gpu),
        rss_mib=value(p.rss),
        cpu_s=value(p.cpu),
        new_files=p.new_files,
        what=p.what,
    )


def _in_order(phases: Phases) -> Sequence[OnePhase]:
    """Phases that ended before those that run, each in the usual order."""
    names: list[Phase] = sorted(phases.of, key=lambda p: (phases.of[p].running, rank(p)))
    return [phases.of[name] for name in names]
