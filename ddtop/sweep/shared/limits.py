"""How long each phase of a start may be quiet: learned from this host, else from a table. Pure.

The table holds proposals made from public logs (SGLang, vLLM) and the engines' own time limits; a start that
has succeeded here teaches better: three times the longest gap seen in that phase, at least 30 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddtop.events import Phase

if TYPE_CHECKING:
    from ddtop.journal.fold.views import RestartView
    from ddtop.journal.history.store import History

TABLE_S: Mapping[Phase, float] = {
    "stopping": 120.0,  # systemd's own TimeoutStopSec goes before it
    "stopped": 60.0,
    "launching": 180.0,  # imports, after an image pull
    "initialising": 120.0,  # NCCL init takes < 10 s; a P2P hang never ends
    "loading": 600.0,
    "kv": 180.0,
    "capturing": 900.0,  # the bar has no newline: silence is normal
    "listening": 60.0,
    "warming": 600.0,  # the engine's own limit
    "answering": 60.0,
}
"""Seconds without evidence of progress that count as stalled, where nothing was learned."""

JIT_S = 1800.0
COMPILE_S = 1200.0
LEARNED_FACTOR = 3.0
LEARNED_MIN_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Quiet limits of one start. `learned` comes from starts that became ready on this host."""

    learned: Mapping[Phase, float] = field(default_factory=dict)
    """Longest gap without evidence seen in each phase, seconds."""
    slow_note: Mapping[Phase, float] = field(default_factory=dict)
    """Usual duration of each phase, seconds: longer is shown as slow, never as an alarm."""
    start_s: float | None = None
    """How long a whole start usually takes, by earlier runs; seconds."""
    jit: bool = False
    compile: bool = False
    """The log says that a JIT or torch.compile runs: those take minutes without a word."""

    def quiet_limit_s(self, phase: Phase) -> float:
        """Seconds of quiet that `phase` may have."""
        gap = self.learned.get(phase)
        base = TABLE_S.get(phase, 180.0) if gap is None else max(LEARNED_MIN_S, LEARNED_FACTOR * gap)
        if self.jit:
            base = max(base, JIT_S)
        if self.compile:
            base = max(base, COMPILE_S)
        return base


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
    """What earlier runs on this host taught of starts of this model."""
    facts: dict[str, Any] = {"host": host, "model": model, "tp": tp, "engine": engine}
    gaps: dict[Phase, float] = {}
    usual: dict[Phase, float] = {}
    for phase in TABLE_S:
        gap = history.longest_quiet_s(phase, **facts)
        if gap is not None:
            gaps[phase] = gap
        took = history.expected_phase_s(phase, **facts)
        if took is not None:
            usual[phase] = took
    return Limits(learned=gaps, slow_note=usual, start_s=history.expected_start_s(**facts))


def merged(first: Limits, prior: Limits | None) -> Limits:
    """This run's own lessons over earlier ones'; of two gaps the longer one holds."""
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
