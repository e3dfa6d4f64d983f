"""The parts of `State` that views read: one small class for each thing on the screen.

Only the fold (`apply.py`, `sweep.py`) changes instances; all others read. Times ending in
`_at_s` are wall time (seconds since 1970); durations were taken from the monotonic clock within one run
segment. What is not known is None, never zero.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ddtop.events import (
    AlertDecided,
    AlertRaised,
    AlertResolved,
    AllocationSeen,
    CauseKind,
    CellOutputs,
    CellProgress,
    CellSpec,
    CellState,
    GateSeen,
    Generation,
    GpuReading,
    HostRebooted,
    LatencySeen,
    LogLine,
    Moving,
    Phase,
    PlanSource,
    RunEnded,
    SearchStep,
    ServiceStatus,
    StageProgress,
    StartProvenance,
    Validity,
    Verdict,
)
from ddtop.journal.fold.series import GPU_HISTORY, FigureSeries, LiveSeries

LOG_TAIL = 5000
"""Lines kept for each unit; older ones are in the journal, by their seq."""


@dataclass(slots=True)
class RunView:
    """Which run this is, and whether it has ended."""

    run_id: str = ""
    name: str = ""
    mode: Literal["sweep", "monitor"] = "monitor"
    segment: int = 0
    simulated: bool = False
    attended: bool = False
    schema: int = 0
    ddtop_version: str = ""
    plan_toml: str | None = None
    plan_path: str | None = None
    plan_source: PlanSource | None = None
    pid: int | None = None
    baseline: str | None = None
    rule: str = ""
    """By what configurations are started no more: `race`, `precision`; empty: all planned cells are measured."""
    started_at_s: float | None = None
    segment_at_s: float | None = None
    """When the present segment began: the last resume."""
    ended: RunEnded | None = None
    """None while it runs, and again after a resume."""
    before: RunEnded | None = None
    """How the segment before this one ended; None where it was cut off, or there was none."""


LinkState = Literal["idle", "connecting", "connected", "lost"]


@dataclass(slots=True)
class HostView:
    """The connection to the host, and who we are there."""

    name: str = ""
    link: LinkState = "idle"
    since_at_s: float | None = None
    """Since when `link` is what it is."""
    target: str = ""
    attempt: int = 0
    retry_in_s: float | None = None
    error: str | None = None
    means: str = ""
    do: str = ""
    final: bool = False
    """True where trying again cannot help."""
    rtt_ms: float | None = None
    agent: str = ""
    python: str = ""
    uid: int | None = None
    user: str = ""
    can: tuple[str, ...] = ()
    boot: str = ""
    clock_offset_s: float | None = None
    rebooted: HostRebooted | None = None
    """The last reboot seen, until a server is ready again."""
    reboots: int = 0

    @property
    def state(self) -> Literal["idle", "connecting", "connected", "lost", "rebooted"]:
        """One word for the header: a connected host that came back from a reboot is `rebooted`."""
        if self.rebooted is not None and self.link == "connected":
            return "rebooted"
        return self.link


@dataclass(slots=True)
class AllocationView:
    """One Slurm allocation of this run."""

    seen: AllocationSeen
    """The last word on it."""
    began_at_s: float | None = None
    """When it was first seen to run."""
    ended_at_s: float | None = None
    """When it was first seen to be over."""
    ends_at_s: float | None = None
    """When its walltime ends, or would have ended."""

    @property
    def waits(self) -> bool:
        return self.seen.state in ("PENDING", "CONFIGURING")

    @property
    def ended(self) -> bool:
        return self.ended_at_s is not None

    def hours(self, now_s: float) -> float:
        """How long it has run by now. One whose end nobody saw ran to the end of its walltime at most."""
        if self.began_at_s is None:
            return 0.0
        end_s = self.ended_at_s if self.ended_at_s is not None else now_s
        end_s = min(end_s, self.ends_at_s) if self.ends_at_s is not None else end_s
        return max(0.0, end_s - self.began_at_s) / 3600.0


class GpuPoint(NamedTuple):
    """One point of a GPU's history."""

    at_s: float
    power_w: float | None
    util_pct: float | None
    mem_mib: float | None


@dataclass(slots=True)
class GpuView:
    """One GPU: its latest reading and its bounded history."""

    index: int
    reading: GpuReading
    at_s: float
    history: deque[GpuPoint] = field(default_factory=lambda: deque(maxlen=GPU_HISTORY))


@dataclass(slots=True)
class ServiceView:
    status: ServiceStatus
    at_s: float


class TailLine(NamedTuple):
    """One line of a log tail, and the seq of its event in the journal."""

    seq: int
    line: LogLine
    gap: bool = False
    """True where lines are missing here: `line.text` then is the reason."""


@dataclass(slots=True)
class LogTail:
    """The last lines of one unit, by arrival. `total` counts all lines ever seen."""

    unit: str
    lines: deque[TailLine] = field(default_factory=lambda: deque(maxlen=LOG_TAIL))
    total: int = 0
    at_s: float | None = None
    """When the last line arrived."""


@dataclass(slots=True)
class AttemptView:
    """One try at a cell."""

    number: int
    started_at_s: float | None = None
    started_mono_s: float | None = None
    segment: int = 0
    job: str | None = None
    generation: Generation | None = None
    measured_at_s: float | None = None
    ended_at_s: float | None = None
    """When the cell's state was set for this attempt."""
    seconds: float | None = None
    """How long it took: by the host's clock or as its runner saw it, as `_took_s` says. None where neither is known."""
    state: CellState | None = None
    reason: str = ""
    cause: str | None = None
    validity: Validity | None = None
    reasons: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    host_span_s: tuple[float, float] | None = None
    """Its start and end by the host's clock, where the load generator stamped both (Unix time, seconds)."""
    window_mono_s: tuple[float, float] | None = None
    """Begin and end of the measured window by the host's monotonic clock, seconds."""
    figures: FigureSeries = field(default_factory=FigureSeries)
    """What the server said of its load meanwhile, warm-up included; the last hour of it."""
    live: LiveSeries = field(default_factory=LiveSeries)
    """What the load generator said each second, with the GPUs' power beside it; thinned once it is over."""
    ttft: LatencySeen | None = None
    tpot: LatencySeen | None = None
    """Of the phase that the generator reported last."""
    kept: bool = False
    """Whether a CellSeries in the recording has all of `figures` and `live`."""


@dataclass(slots=True)
class CellView:
    """One cell of the sweep. `metrics` and what belongs to them are those of the last measured attempt."""

    spec: CellSpec
    state: CellState = "planned"
    reason: str = ""
    cause: str | None = None
    signature_id: str | None = None
    by: str = "plan"
    state_at_s: float | None = None
    attempts: list[AttemptView] = field(default_factory=list)
    validity: Validity | None = None
    reasons: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    engine: str = ""
    engine_version: str | None = None
    driver: str | None = None
    generation: Generation | None = None
    outputs: CellOutputs | None = None
    """The answers of a baseline's cell, with which others are compared. Other cells' stay in the recording alone."""
    ladder: list[SearchStep] = field(default_factory=list)
    """The loads that its search has tried, the last one last."""
    searched: bool = False
    """The ladder is over and has given a result; the next step begins a new one."""
    progress: CellProgress | None = None
    """Of the attempt in flight; None once it was measured or ended."""
    hidden: bool = False
    """True where an edited plan no longer names it; its results are kept."""

    @property
    def id(self) -> str:
        return self.spec.id

    def has_result_of(self, job: str) -> bool:
        """Whether the result of `job` is recorded; a search has one for each load it tried."""
        measured = any(a.job == job and a.measured_at_s is not None for a in self.attempts)
        return measured or any(step.job == job for step in self.ladder)

    @property
    def seconds(self) -> float | None:
        """Duration of the last measured attempt, warm-up included; of a search with all its loads."""
        return next((a.seconds for a in reversed(self.attempts) if a.measured_at_s is not None), None)


@dataclass(slots=True)
class PhaseView:
    """One phase of a restart."""

    phase: Phase
    state: Literal["running", "done", "skipped", "failed"]
    first_at_s: float
    """When this phase was first seen."""
    at_s: float
    """When it was last heard of."""
    elapsed_s: float = 0.0
    pct: float | None = None
    eta_s: float | None = None
    detail: str | None = None
    quiet_s: float | None = None
    limit_s: float | None = None
    longest_quiet_s: float = 0.0
    """Longest time without evidence of progress that was reported in this phase."""


@dataclass(slots=True)
class RestartView:
    """One restart of a server, from the call to ready or to a verdict."""

    attempt_id: str
    config: str = ""
    tp: int = 0
    unit: str = ""
    argv: tuple[str, ...] = ()
    cell_ids: tuple[str, ...] = ()
    generation_before: Generation | None = None
    expected_s: float | None = None
    usual: dict[Phase, float] = field(default_factory=dict)
    """Seconds that each phase usually takes, as learned on this host; empty where there is no history."""
    started_at_s: float = 0.0
    started_mono_s: float = 0.0
    segment: int = 0
    seq: int = 0
    """Place in the recording where it began: log lines before it are of an earlier start."""
    phases: dict[Phase, PhaseView] = field(default_factory=dict)
    """In the order in which they were entered."""
    moves: deque[tuple[float, Moving]] = field(default_factory=lambda: deque(maxlen=120))
    """(wall time, counters of its processes), about one a second; the last two minutes."""
    gate: dict[str, GateSeen] = field(default_factory=dict)
    """Gate part → its last verdict, with evidence."""
    outcome: Literal["running", "ready", "failed", "interrupted"] = "running"
    ended_at_s: float | None = None
    seconds: float | None = None
    """From the call to the outcome; None where the runner changed in between."""
    ready_s: float | None = None
    generation: Generation | None = None
    engine: str = ""
    engine_version: str | None = None
    resolved_args: dict[str, Any] = field(default_factory=dict)
    overridden: tuple[str, ...] = ()
    meant_for_cpu: bool = False
    acceptance_simulated: str | None = None
    provenance: StartProvenance | None = None
    """What it runs on; None where it was not asked."""
    read_mib: float | None = None
    new_cache_files: int | None = None
    compile_cache: Literal["hit", "miss"] | None = None
    verdict: Verdict | None = None
    cause: str | None = None
    kind: CauseKind | None = None
    alert_id: str | None = None

    @property
    def stuck(self) -> PhaseView | None:
        """The phase in which the start ended, until it is decided what to do about it."""
        if self.outcome != "running":
            return None
        return next((p for p in self.phases.values() if p.state == "failed"), None)

    @property
    def failed_after_s(self) -> float | None:
        """From the call to the end of the phase that failed; what a person took to decide comes after that."""
        ended = next((p for p in self.phases.values() if p.state == "failed"), None)
        return self.seconds if ended is None else max(0.0, ended.at_s - self.started_at_s)

    @property
    def phase(self) -> PhaseView | None:
        """The phase that is moving now, else the last one seen."""
        running = [p for p in self.phases.values() if p.state == "running"]
        if running:
            return running[-1]
        return next(reversed(self.phases.values()), None)


@dataclass(slots=True)
class AlertView:
    """One alert. Open until `resolved` is there."""

    raised: AlertRaised
    at_s: float
    """When it was first raised."""
    decided: AlertDecided | None = None
    """What is done about it, since it was last raised."""
    resolved: AlertResolved | None = None

    @property
    def id(self) -> str:
        return self.raised.alert_id

    @property
    def open(self) -> bool:
        return self.resolved is None


@dataclass(slots=True)
class StepView:
    """One step that was taken, is being taken, or was left out."""

    plan_id: str
    step_id: str
    action: str
    title: str
    reason: str
    by: str
    state: Literal["started", "done", "failed", "left-out"]
    detail: str | None
    at_s: float
    """When it was first heard of."""
    ended_at_s: float | None = None
    seq: int = 0
    """Place in the recording where it was last heard of."""


@dataclass(slots=True)
class StageView:
    """Staging of one target directory or file."""

    progress: StageProgress
    started_at_s: float
    at_s: float

    @property
    def active(self) -> bool:
        return self.progress.state in ("checking", "copying", "downloading")
