"""How a start ended: ready, failed with a verdict, or cancelled by a viewer. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.events import Generation
from ddtop.sweep.shared.verdict import Judgement


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A server that passed the gate."""

    attempt_id: str
    generation: Generation
    engine_version: str | None = None
    model: str = ""
    main_pid: int | None = None
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NotStarted:
    """A start that failed, with the verdict. `fault_seen_s`: seconds since the host's first sign of it."""

    attempt_id: str
    judgement: Judgement
    fault_seen_s: float | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A viewer wants something else."""
