"""The phases of one start: a set with counters, not a line. Pure.

With a draft model load, kv and capture come twice; newer SGLang sizes its KV cache after capture. So a phase may be
entered again: its duration adds up and its counter rises. Each keeps the longest time without evidence of progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ddtop.events import PHASES, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class OnePhase:
    phase: Phase
    entered_at: float
    """When it was entered last."""
    before_s: float = 0.0
    """Seconds of earlier visits."""
    count: int = 1
    running: bool = True
    failed: bool = False
    """The start ended in it."""
    pct: float | None = None
    pct_at: float | None = None
    first_pct: float | None = None
    first_pct_at: float | None = None
    eta_reported_s: float | None = None
    detail: str | None = None
    gap_s: float = 0.0

    def elapsed_s(self, now: float) -> float:
        return self.before_s + (now - self.entered_at if self.running else 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Phases:
    current: Phase | None = None
    of: Mapping[Phase, OnePhase] = field(default_factory=dict)

    @property
    def now(self) -> OnePhase | None:
        return self.of.get(self.current) if self.current else None


def enter(p: Phases, phase: Phase, at: float, *, detail: str | None = None, gap_s: float = 0.0) -> Phases:
    """`p` with `phase` running. The one before is done; `gap_s` is its longest time without evidence.

    Entering the running phase again changes its detail only.
    """
    if p.current == phase:
        return replace(p, of={**p.of, phase: replace(p.of[phase], detail=detail)}) if detail else p
    of = dict(leave(p, at, gap_s=gap_s).of)
    old = of.get(phase)
    if old is None:
        of[phase] = OnePhase(phase=phase, entered_at=at, detail=detail)
    else:
        of[phase] = replace(
            old,
            entered_at=at,
            running=True,
            failed=False,
            count=old.count + 1,
            pct=None,
            pct_at=None,
            first_pct=None,
            first_pct_at=None,
            eta_reported_s=None,
            detail=detail,
        )
    return Phases(current=phase, of=of)


def leave(p: Phases, at: float, *, gap_s: float = 0.0, failed: bool = False) -> Phases:
    """`p` with the running phase done, or `failed` in it."""
    now = p.now
    if now is None or not now.running:
        return p
    done = replace(now, running=False, failed=failed, before_s=now.elapsed_s(at), gap_s=max(now.gap_s, gap_s))
    return replace(p, of={**p.of, now.phase: done})


def bar(
    p: Phases, phase: Phase, pct: float, at: float, *, eta_s: float | None = None, detail: str | None = None
) -> Phases:
    """`p` after a progress bar of `phase` stood at `pct`. The ETA comes from the pace since the bar was first seen."""
    p = enter(p, phase, at)
    one = p.of[phase]
    if one.pct is not None and pct < one.pct:
        # Another bar began (the draft model, another rank).
        one = replace(one, first_pct=None, first_pct_at=None)
    first, first_at = (pct, at) if one.first_pct is None else (one.first_pct, one.first_pct_at)
    one = replace(
        one,
        pct=pct,
        pct_at=at,
        first_pct=first,
        first_pct_at=first_at,
        eta_reported_s=eta_s,
        detail=detail or one.detail,
    )
    return replace(p, of={**p.of, phase: one})


def eta_s(p: Phases, now: float, usual: Mapping[Phase, float] | None = None) -> float | None:
    """Seconds until the running phase ends: by its bar's pace, else its usual duration; None if neither is known."""
    one = p.now
    if one is None:
        return None
    if one.pct is not None and one.pct_at is not None:
        if one.pct >= 100:
            return 0.0
        if one.first_pct is not None and one.first_pct_at is not None and one.pct > one.first_pct:
            pace = (one.pct - one.first_pct) / max(one.pct_at - one.first_pct_at, 1e-6)
            return max(0.0, (100 - one.pct) / pace - (now - one.pct_at))
        if one.eta_reported_s is not None:
            return max(0.0, one.eta_reported_s - (now - one.pct_at))
    expected = (usual or {}).get(one.phase)
    return max(0.0, expected - one.elapsed_s(now)) if expected is not None else None


def rank(phase: Phase | None) -> int:
    """Place of a phase in the usual order; -1 for none."""
    return PHASES.index(phase) if phase else -1
