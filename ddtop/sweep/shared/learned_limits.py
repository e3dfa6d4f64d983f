"""How long each phase of a start may be quiet: learned from starts that became ready here, else by `limits`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddtop.events import Phase, Verdict
from ddtop.sweep.shared import limits

if TYPE_CHECKING:
    from ddtop.journal.fold.views import RestartView
    from ddtop.journal.history.store import History


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Quiet limits of one start."""

    learned: Mapping[Phase, float] = field(default_factory=dict)
    """Longest gap without evidence seen in each phase, seconds."""
    slow_note: Mapping[Phase, float] = field(default_factory=dict)
    """Usual duration of each phase, seconds: longer is shown as slow, never as an alarm."""
    start_s: float | None = None
    """How long a whole start usually takes, by earlier runs; seconds."""
    jit: bool = False
    compile: bool = False
    """The log says that a JIT or torch.compile runs: those take minutes without a log line."""
    moved: bool = False
    """Memory or bytes have moved in the present phase, and its processes are known not to wait for a disk or a mount."""
    storage_wait: bool = False
    """They do wait for one."""
    http_live: bool = False
    """The server responds that it is not ready yet."""
    blind: bool = False
    """The log says nothing of this start: which phase it is in is not known."""
    patience: float = 1.0
    """How many times as long as usual: earlier tries of this configuration were called hung."""

    def quiet_limit_s(self, phase: Phase) -> float:
        """Seconds of quiet that `phase` may have."""
        gap = self.learned.get(phase)
        if gap is None:
            base = limits.TABLE_S.get(phase, limits.OTHER_PHASE_S)
        else:
            floor = limits.FLOOR_S.get(phase, limits.OTHER_FLOOR_S)
            if phase == "loading" and self.moved:
                floor = limits.LOADING_MOVED_S
            base = max(floor, limits.LEARNED_FACTOR * gap)
        if self.storage_wait and phase == "loading":
            base = max(base, limits.STORAGE_WAIT_S)
        if self.http_live and phase in HTTP_PHASES:
            base = max(base, limits.HTTP_LIVE_S)
        if self.blind:
            base = max(base, limits.TABLE_S["loading"])
        if self.jit:
            base = max(base, limits.JIT_S)
        if self.compile:
            base = max(base, limits.COMPILE_S)
        return base * self.patience


HTTP_PHASES: tuple[Phase, ...] = ("loading", "kv", "capturing", "listening", "warming", "answering")
"""Phases in which a server may already respond to HTTP."""
HUNG: tuple[Verdict, ...] = ("stalled", "hung-gpu")


def patience(restarts: Iterable[RestartView], key: tuple[str, int]) -> float:
    """How many times as long the next start of (configuration, TP) may be quiet: twice for each try that was called
    hung since the last one that became ready."""
    tries = 0
    for start in restarts:
        if (start.config, start.tp) == key:
            tries = 0 if start.outcome == "ready" else tries + (start.verdict in HUNG)
    return min(2.0**tries, limits.SECOND_TRY_MOST)


def for_start(restarts: Sequence[RestartView], prior: Limits | None, *, config: str, tp: int) -> Limits:
    """Limits of the next start of a configuration: learned from its own starts here, else from any of the host's."""
    own = learn([r for r in restarts if (r.config, r.tp) == (config, tp)])
    limits_ = merged(own if own.learned else learn(restarts), prior)
    return replace(limits_, patience=patience(restarts, (config, tp)))


def learn(restarts: Iterable[RestartView], tp: int | None = None) -> Limits:
    """Limits from earlier starts that became ready. The `done` event of a phase carries its longest gap."""
    gaps: dict[Phase, float] = {}
    usual: dict[Phase, list[float]] = {}
    for start in restarts:
        if start.outcome != "ready" or (tp is not None and start.tp != tp):
            continue
        for name, phase in start.phases.items():
            if phase.state == "done" and phase.quiet_s is not None:
                gaps[name] = max(gaps.get(name, 0.0), phase.quiet_s)
                usual.setdefault(name, []).append(phase.elapsed_s)
    return Limits(learned=gaps, slow_note={k: sorted(v)[len(v) // 2] for k, v in usual.items()})


def prior_limits(history: History, *, host: str, model: str, tp: int, engine: str) -> Limits:
    """Limits learned from earlier runs' starts of this model on this host."""
    facts: dict[str, Any] = {"host": host, "model": model, "tp": tp, "engine": engine}
    gaps: dict[Phase, float] = {}
    usual: dict[Phase, float] = {}
    for phase in limits.TABLE_S:
        gap = history.longest_quiet_s(phase, **facts)
        if gap is not None:
            gaps[phase] = gap
        took = history.expected_phase_s(phase, **facts)
        if took is not None:
            usual[phase] = took
    return Limits(learned=gaps, slow_note=usual, start_s=history.expected_start_s(**facts))


def merged(first: Limits, prior: Limits | None) -> Limits:
    """Limits learned in this run over those of earlier runs; of two gaps the longer one holds."""
    if prior is None:
        return first
    gaps = {**prior.learned}
    for phase, gap in first.learned.items():
        gaps[phase] = max(gap, gaps.get(phase, 0.0))
    return replace(
        first, learned=gaps, slow_note={**prior.slow_note, **first.slow_note}, start_s=prior.start_s
    )


def expected_start_s(restarts: Iterable[RestartView], tp: int | None = None) -> float | None:
    """Median duration of earlier starts that became ready, in seconds; None without any."""
    took = sorted(
        r.ready_s for r in restarts if r.outcome == "ready" and r.ready_s and (tp is None or r.tp == tp)
    )
    return took[len(took) // 2] if took else None
