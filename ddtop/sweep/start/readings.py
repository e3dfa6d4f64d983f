"""What is known of one start under way, as the watchdog judges it. Frozen; every `at` is the runner's monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from ddtop.events import Phase
from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.sweep.shared.learned_limits import Limits
from ddtop.sweep.shared.verdict import CauseReading
from ddtop.sweep.start.answers import Refusals
from ddtop.sweep.start.evidence.busy_gpus import GpuLook
from ddtop.sweep.start.evidence.progress import Progress
from ddtop.sweep.start.gate import ArgsReading, TokenReading


@dataclass(frozen=True, kw_only=True, slots=True)
class CallReading:
    """What the restart's last call (systemctl, the owner's script) returned. Its success proves nothing."""

    asked_at: float
    returned_at: float | None = None
    rc: int | None = None
    error: str = ""
    do: str = ""
    what: str = "the restart"
    by_script: bool = False
    timed_out: bool = False
    refused: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PortOwner:
    """Which start the listener on the port belongs to."""

    at: float
    owner: str
    """`new`, `old`, `foreign`, `unknown`."""
    who: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartReadings:
    """All that is known of one start, as last read."""

    unit_name: str
    port: int
    call: CallReading
    before: UnitReading | None
    """The unit as it was when the restart was asked for."""
    unit: UnitReading | None
    progress: Progress
    phase: Phase
    phase_since: float
    limits: Limits = field(default_factory=Limits)
    base_restarts: int = 0
    """NRestarts just before (systemd resets it at a manual start)."""
    old_gone_at: float | None = None
    port_owner: PortOwner | None = None
    listeners: tuple[ListenerReading, ...] = ()
    args: ArgsReading | None = None
    token: TokenReading | None = None
    refusals: Refusals | None = None
    """Trial requests that failed, one after the other."""
    elsewhere: tuple[ListenerReading, ...] = ()
    """Where the service listens instead, once that is certain."""
    cause: CauseReading | None = None
    cause_at: float | None = None
    """When the log first named a cause."""
    last_lines: tuple[str, ...] = ()
    last_is_nccl: bool = False
    start_limit_hit: bool = False
    """The log said `Start request repeated too quickly`."""
    skipped: str = ""
    """systemd's line that it did not start the unit because a condition of it was not met."""
    gpu: GpuLook | None = None
    expected_s: float | None = None
    waited_until: float = 0.0
    """A viewer said `wait` at this moment: the quiet limit counts from it."""
    gone_since: float | None = None
    """Since when the unit has been failed or inactive without a break."""
    seen_new: bool = False
    """A new process was seen during this start."""
