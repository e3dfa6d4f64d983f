"""`State`: what the dashboard, the plain progress, the report and the controller know after some events.

It is changed by `fold.apply` alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ddtop.events import (
    BoundDiagnosed,
    CommandSeen,
    KernelFault,
    Note,
    RaceRound,
    StepsPlanned,
    SweepPaused,
    TimesLearned,
)
from ddtop.journal.fold.track import Track
from ddtop.journal.fold.views import (
    AlertView,
    AllocationView,
    AttemptView,
    CellView,
    GpuView,
    HostView,
    LogTail,
    RestartView,
    RunView,
    ServiceView,
    StageView,
    StepView,
)


@dataclass(slots=True)
class State:
    """What is known after the events so far. Read it; never change it."""

    seq: int = 0
    """Journal seq of the last event applied."""
    at_s: float = 0.0
    mono_s: float = 0.0
    run: RunView = field(default_factory=RunView)
    host: HostView = field(default_factory=HostView)
    allocations: dict[str, AllocationView] = field(default_factory=dict)
    """By job id, the present or last one last; empty on a host that is no Slurm allocation."""
    probe: dict[str, Any] = field(default_factory=dict)
    probe_at_s: float | None = None
    gpus: dict[int, GpuView] = field(default_factory=dict)
    """By index. The age of a reading is now − `at_s`."""
    gpus_at_s: float | None = None
    gpu_source: str = ""
    bound: BoundDiagnosed | None = None
    services: dict[str, ServiceView] = field(default_factory=dict)
    """By unit."""
    logs: dict[str, LogTail] = field(default_factory=dict)
    """By unit."""
    kernel: deque[KernelFault] = field(default_factory=lambda: deque(maxlen=200))
    cells: dict[str, CellView] = field(default_factory=dict)
    """By id, in the order in which they will run; hidden ones last."""
    learned: TimesLearned | None = None
    """How long earlier runs took; None where no runner has looked."""
    restarts: list[RestartView] = field(default_factory=list)
    """All of them, the present or latest one last."""
    races: list[RaceRound] = field(default_factory=list)
    """What followed each round of starts, the oldest first."""
    alerts: dict[str, AlertView] = field(default_factory=dict)
    """By id, in the order in which they were raised; open and resolved."""
    proposed: StepsPlanned | None = None
    """Steps that wait for an answer."""
    steps: dict[tuple[str, str], StepView] = field(default_factory=dict)
    """(plan id, step id) → what became of it, in the order taken."""
    stages: dict[str, StageView] = field(default_factory=dict)
    """By target."""
    paused: SweepPaused | None = None
    viewers: int = 0
    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=1000))
    commands: deque[CommandSeen] = field(default_factory=lambda: deque(maxlen=200))
    """Outcomes of the last commands, the newest last."""
    selftest: dict[str, Any] | None = None
    """The load generator's own error on this host; None where it was not measured."""
    measuring: AttemptView | None = None
    """The try at a cell that is under way."""
    track: Track = field(default_factory=Track)
    """What was at work when: the run as one line."""
    strays: int = 0
    """Events that named an unknown cell, restart or alert."""

    @property
    def allocation(self) -> AllocationView | None:
        """The present Slurm allocation, else the last one."""
        return next(reversed(self.allocations.values()), None)

    @property
    def restart(self) -> RestartView | None:
        """The present restart, else the latest one."""
        return self.restarts[-1] if self.restarts else None

    @property
    def restarting(self) -> RestartView | None:
        """The restart under way, if one is."""
        last = self.restart
        return last if last is not None and last.outcome == "running" else None

    @property
    def open_alerts(self) -> list[AlertView]:
        """Unresolved alerts, the oldest first."""
        return [a for a in self.alerts.values() if a.resolved is None]

    @property
    def stage(self) -> StageView | None:
        """The staging under way, else the latest one."""
        active = [s for s in self.stages.values() if s.active]
        pool = active or list(self.stages.values())
        return max(pool, key=lambda s: s.at_s) if pool else None

    @property
    def plan_cells(self) -> list[CellView]:
        """The cells of the present plan, in running order."""
        return [c for c in self.cells.values() if not c.hidden]
