"""The vocabulary of ddtop: every event and every command, and the small values they carry.

Everything ddtop knows is an event, everything it shows is a fold of events, everything a viewer asks for is a
command. An event is written to the journal before it is shown, so it must be complete in itself: it names its host,
says when it happened, and never refers to a live object.

Each event has two times. `at_s` is wall time (seconds since 1970, for people); `mono_s` is the
monotonic clock of the runner that wrote it (seconds, for durations; comparable within one run segment only,
see `RunStarted`). Clocks of hosts are never compared with ours.

Units are in the names. A value that is not known is `None`, never zero.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

SCHEMA = 1
"""Version of this vocabulary. Fields are only ever added, with defaults; anything else is a migration."""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the small frozen values that events carry."""


# ------------------------------------------------------------------------------------------------ values

CellState = Literal["planned", "running", "done", "failed", "broken", "skipped", "interrupted"]
"""`done` has a result; `failed` may be retried; `broken` is known bad and not run again unless a viewer retries it."""

Validity = Literal["VALID", "SUSPECT", "INVALID"]

CauseKind = Literal["transient", "config", "bug", "host", "slow", "unknown"]
"""What kind of cause it is decides the policy: a `config` cause is never answered by a retry."""

Verdict = Literal[
    "failed",
    "crash-loop",
    "never-began",
    "refused",
    "old-server",
    "wrong-arguments",
    "stalled",
    "hung-gpu",
    "no-tokens",
    "slow",
    "lost-host",
    "rebooted",
    "foreign",
    "model-missing",
    "staging-failed",
    "measuring-failed",
    "interrupted",
    "unknown",
]
"""The verdict words of READINESS, and those of the sweep around it."""

Phase = Literal[
    "stopping",
    "stopped",
    "launching",
    "initialising",
    "loading",
    "kv",
    "capturing",
    "listening",
    "warming",
    "answering",
    "ready",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of a start, in their usual order."""

GatePartName = Literal["generation", "listener", "mark", "arguments", "token"]
"""The five parts of the readiness gate, in the order of READINESS."""


class Evidence(Value, frozen=True, kw_only=True):
    """One reading or log line that a verdict rests on."""

    source: str
    """Where it was read: `log`, `systemctl`, `ss`, `http`, `gpu`, `kernel`, `proc`, `job`, `rule`, …"""
    text: str
    at_s: float | None = None
    cursor: str | None = None
    """Cursor of the log line, so that a view can open the log there."""


LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms", "icl_ms")
"""What a service level may limit, in ms: as the load generator knows them (agent/loadgen/spec.py)."""


class Search(Value, frozen=True, kw_only=True):
    """A search for the knee: the highest load at which `share` of the requests meet every limit of `slo`."""

    by: Literal["concurrency", "rate"]
    """What is raised: streams of a closed loop, or requests per second of an open one."""
    slo: dict[str, float] = {}
    """Limits in ms, by the names of LATENCIES. Empty: the load is raised while the throughput grows."""
    share: float = 0.95
    start: float = 1.0
    """The first load tried."""
    most: float = 256.0
    """No load above it is tried."""
    point_s: float = 60.0
    """A load that is not decided by then is taken as its requests so far say."""
    confirm_s: float = 60.0
    """How long the knee is measured at the end; 0: it is not."""

    @property
    def unit(self) -> str:
        return "streams" if self.by == "concurrency" else "requests/s"

    @property
    def limits(self) -> str:
        """The objective in words: `95% with TTFT ≤ 500 ms, TPOT ≤ 30 ms`."""
        named = [f"{name[:-3].upper()} ≤ {self.slo[name]:g} ms" for name in LATENCIES if name in self.slo]
        return f"{100 * self.share:g}% with {', '.join(named)}" if named else "while throughput grows"

    @property
    def short(self) -> str:
        """The objective in a cell's name: `knee c ttft≤500 tpot≤30`."""
        named = [f" {name[:-3]}≤{self.slo[name]:g}" for name in LATENCIES if name in self.slo]
        share = "" if self.share == 0.95 else f" {100 * self.share:g}%"
        return f"knee {'c' if self.by == 'concurrency' else 'req/s'}{''.join(named)}{share}"


class CellSpec(Value, frozen=True, kw_only=True):
    """One cell: a configuration × TP × workload × output tokens × load × context × repeat × start.

    The load is a concurrency, a rate, or the search for the knee of one of them.
    """

    id: str
    config: str
    """Name of the configuration, such as `b15`."""
    tp: int
    workload: str
    output_tokens: int
    concurrency: int
    """Streams; 0 where the load is a rate or a search."""
    context: int
    repeat: int = 0
    restart_key: str
    """Cells with the same key share one server start (same unit, command, arguments, environment, round)."""
    start: int = 0
    """Round in which it is measured: every round starts each configuration's server once."""
    sentinel: bool = False
    """The first load of a start measured again as its last: it shows drift, and is in no average."""
    refines: tuple[int, int] | None = None
    """Measured only because a speed-up crosses 1 between these two concurrencies."""
    sampling: str = ""
    """The variant of sampling, where the plan has several; `workload` then has `/name` behind its own."""
    group: str = ""
    """The only group of prompts in it, where each group is a cell of its own; `workload` then ends in `:group`."""
    aa: bool = False
    """The baseline once more, under another name: what it differs by is what cannot be told from nothing."""
    baseline: bool = False
    skip_reason: str | None = None
    """Why the plan says not to run it, if it does."""
    rate: float | None = None
    """Requests per second of an open loop; None in a closed one."""
    search: Search | None = None
    """The knee that is searched for, in place of one load."""
    shape: str = ""
    """How its requests differ from single prompts of one length, in words: `4 turns, 500 ms apart`."""

    @property
    def load_name(self) -> str:
        """The load in a word: `c8`, `4 req/s`, `knee c ttft≤500`."""
        return name_load(self.concurrency, self.rate, self.search.short if self.search is not None else "")

    @property
    def label(self) -> str:
        """The cell in words: `b15 fib@256 tp1 c8`."""
        extra = (f" ctx{self.context}" if self.context else "") + (f" #{self.repeat}" if self.repeat else "")
        extra += (f" start {self.start + 1}" if self.start else "") + (" sentinel" if self.sentinel else "")
        return f"{self.config} {self.workload}@{self.output_tokens} tp{self.tp} {self.load_name}{extra}"

    @property
    def load(self) -> tuple[object, ...]:
        """What is asked of the server, whatever its configuration and round."""
        return (
            *(self.tp, self.workload, self.output_tokens, self.context, self.load_name),
            *(self.repeat, self.sentinel),
        )

    @property
    def server(self) -> str:
        """The restart key less its round: what a configuration's starts have in common."""
        return server_of(self.restart_key)


def name_load(concurrency: int, rate: float | None = None, search: str = "") -> str:
    """The load of a cell in a word.

    >>> name_load(8), name_load(0, 4.0), name_load(0, None, "knee c ttft≤500")
    ('c8', '4 req/s', 'knee c ttft≤500')
    """
    return search or (f"{rate:g} req/s" if rate is not None else f"c{concurrency}")


def server_of(restart_key: str) -> str:
    """The part of a restart key that all rounds of a configuration share.

    >>> server_of("3f2a9c+2"), server_of("3f2a9c")
    ('3f2a9c', '3f2a9c')
    """
    return restart_key.partition("+")[0]


class Generation(Value, frozen=True, kw_only=True):
    """One start of a server process: (boot, invocation), (boot, container) or (boot, pid, start)."""

    boot: str
    """boot_id and the start time of PID 1, joined: inside a container boot_id alone is the machine's."""
    id: str
    """InvocationID under systemd; `container@StartedAt` under docker; `pid@starttime` for a plain process."""
    main_pid: int | None = None


class GpuReading(Value, frozen=True, kw_only=True, gc=False):
    """One sample of one GPU. Absent is None, never 0."""

    index: int
    uuid: str | None = None
    name: str | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    mem_used_mib: float | None = None
    mem_total_mib: float | None = None
    util_gpu_pct: float | None = None
    util_mem_pct: float | None = None
    temp_c: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    dram_active_pct: float | None = None
    tensor_active_pct: float | None = None
    sm_active_pct: float | None = None
    energy_j: float | None = None
    error: str | None = None
    """The error text the driver gave instead of a value, if any."""


class LogLine(Value, frozen=True, kw_only=True, gc=False):
    """One line of a service's log, placed by the time stamp its writer gave, never by arrival."""

    text: str
    at_s: float | None = None
    cursor: str | None = None
    invocation: str | None = None
    pid: int | None = None
    priority: int | None = None


class Step(Value, frozen=True, kw_only=True):
    """One thing ddtop proposes to do, with its reason. `action` is a word of `StepAction`."""

    id: str
    action: str
    """collect | wait-job | stage | override | restart | restore | go-on | warn | stop-foreign | ask"""
    title: str
    reason: str
    needs_consent: bool = False
    detail: str | None = None
    """The exact command, unit or path it will touch."""


class ServiceStatus(Value, frozen=True, kw_only=True):
    """What is known of one service, whatever runs it."""

    unit: str
    kind: str = "systemd"
    load: str | None = None
    active: str | None = None
    """`active`, `activating`, `deactivating`, `failed`, `inactive`, or None when it cannot be read."""
    sub: str | None = None
    result: str | None = None
    main_pid: int | None = None
    generation: Generation | None = None
    n_restarts: int | None = None
    need_reload: bool | None = None
    exit_code: str | None = None
    """Such as `exited/203` or `killed/9`."""
    note: str | None = None


class Action(Value, frozen=True, kw_only=True):
    """One thing a person can do about an alert, by one key."""

    key: str
    label: str
    """As shown: `retry b15`, `resume at b15`."""
    command: str
    """Tag of the command it sends: see the commands below."""
    args: dict[str, Any] = {}


# ------------------------------------------------------------------------------------------------ events


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of all events."""

    at_s: float
    mono_s: float
    host: str = ""


class RunStarted(Event, frozen=True, kw_only=True, tag="run-started"):
    """A runner opened this journal: at the first start, and again at each resume (a new `segment`)."""

    run_id: str
    name: str
    mode: Literal["sweep", "monitor"]
    segment: int
    """0 at first; `mono_s` is comparable within one segment only."""
    schema: int = SCHEMA
    ddtop_version: str = ""
    plan_toml: str | None = None
    plan_path: str | None = None
    pid: int | None = None
    attended: bool = False
    simulated: bool = False
    """True where the GPUs and the engine are stand-ins; every view then says SIMULATED."""


class PlanSource(Event, frozen=True, kw_only=True, tag="plan-source"):
    """What the plan's text refers to on the client, so that the plan can be read again elsewhere."""

    files: dict[str, str] = {}
    """`prompts_file`, or a dataset that may be given away, as the plan writes it → its text."""
    datasets: dict[str, dict[str, Any]] = {}
    """Each dataset, as the plan writes it → what it is: revision, sha256, licence, shareable, origin."""
    env: dict[str, str] = {}
    """Variables that `{env.NAME}` stood for."""


class CellsPlanned(Event, frozen=True, kw_only=True, tag="cells-planned"):
    """The plan as cells, in the order in which they will run. Sent again when the plan was edited, or refined."""

    cells: tuple[CellSpec, ...]
    baseline: str | None = None
    """Name of the baseline configuration."""
    rule: Literal["", "race", "precision"] = ""
    """By what configurations are started no more (RaceRound): then fewer cells than these are measured."""


class TimesLearned(Event, frozen=True, kw_only=True, tag="times-learned"):
    """How long cells and starts like these took on this host in earlier runs; those never seen are left out. Seconds."""

    cells: dict[str, float] = {}
    """By cell id."""
    starts: dict[str, float] = {}
    """By restart key, from the call to ready."""


class RunEnded(Event, frozen=True, kw_only=True, tag="run-ended"):
    outcome: Literal["done", "some-failed", "host-lost", "refused", "stopped", "interrupted", "crashed"]
    exit_code: int
    reason: str = ""
    left_behind: tuple[str, ...] = ()
    """What could not be undone on the host, in words."""


class HostConnecting(Event, frozen=True, kw_only=True, tag="host-connecting"):
    attempt: int = 1
    target: str = ""
    """As in `root@10.0.0.5:22 via jump`."""
    retry_in_s: float | None = None
    error: str | None = None


class HostConnected(Event, frozen=True, kw_only=True, tag="host-connected"):
    agent: str
    """First 12 hex digits of the agent's hash."""
    python: str
    uid: int
    user: str
    can: tuple[str, ...] = ()
    """What this login may do: restart, override, journal, ports, processes, jobs, …"""
    boot: str = ""
    clock_offset_s: float | None = None
    rtt_ms: float | None = None


class HostLost(Event, frozen=True, kw_only=True, tag="host-lost"):
    what: str
    means: str = ""
    do: str = ""
    final: bool = False
    """True where trying again cannot help (changed host key, permission denied)."""


class HostRebooted(Event, frozen=True, kw_only=True, tag="host-rebooted"):
    boot_before: str
    boot_now: str
    consequences: tuple[str, ...] = ()
    """In words: GPUs 0 MiB, service inactive, model missing in tmpfs, …"""


class AllocationSeen(Event, frozen=True, kw_only=True, tag="allocation"):
    """What Slurm says of the allocation that is the host, whenever it says something new."""

    job: str
    state: str
    """Slurm's own word: PENDING, RUNNING, TIMEOUT, PREEMPTED, NODE_FAIL, CANCELLED, …; GONE: Slurm has forgotten it."""
    reason: str = ""
    """Why it waits, by Slurm; of one that has ended, how it ended, in words."""
    start_estimate: float | None = None
    """Wall time at which Slurm expects a waiting one to begin."""
    nodes: tuple[str, ...] = ()
    ends_at: float | None = None
    """Wall time at which its walltime is over."""
    account: str = ""
    partition: str = ""
    gpus: int | None = None
    """GPUs of the whole allocation; None where none were asked for."""


class RttMeasured(Event, frozen=True, kw_only=True, tag="rtt"):
    rtt_ms: float


class ProbeTaken(Event, frozen=True, kw_only=True, tag="probe"):
    """The answer of the one-round-trip probe, as the agent gave it (see agent/wire.py)."""

    probe: dict[str, Any]


class GpuSampled(Event, frozen=True, kw_only=True, tag="gpu"):
    """All GPUs of a host at one moment. The journal keeps these in typed columns, one row a GPU."""

    gpus: tuple[GpuReading, ...]
    source: str = "nvidia-smi"


class ServerFigures(Event, frozen=True, kw_only=True, tag="server-figures"):
    """What the measured server says of itself at one moment, from its own `/metrics`, read on the host once a second.

    All engines and data-parallel ranks together; what this engine does not say is None.
    """

    unit: str
    running: float | None = None
    """Requests in a batch."""
    queued: float | None = None
    """Requests that wait for one."""
    kv_pct: float | None = None
    """Used part of the KV cache, of the fullest rank."""
    prefix_hit_pct: float | None = None
    """Prompt tokens found in the prefix cache, of those that were asked since the last reading; None where none were."""
    prompt_tokens: float | None = None
    """Prompt tokens since the last reading, which `prefix_hit_pct` is of."""
    spec_tokens: float | None = None
    spec_steps: float | None = None
    """Tokens and verification steps of speculative decoding since the last reading; None where it says no steps, or none were
    made (SGLang counts them at the end of a request)."""
    host_mono_s: float | None = None
    """The host's monotonic clock, as in the load generator's window."""
    took_ms: float | None = None
    """What the server took to answer."""


class BoundDiagnosed(Event, frozen=True, kw_only=True, tag="bound"):
    """What limited the GPUs over the seconds before it, and what that means for the sweep."""

    verdict: str
    strength: Literal["strong", "weak", "none"] = "none"
    why: str = ""
    """Medians over `window_s`, so not the readings of this moment."""
    meaning: str = ""
    window_s: float | None = None
    """Seconds that it rests on; None in recordings that do not say it."""


class LogRead(Event, frozen=True, kw_only=True, tag="log"):
    unit: str
    lines: tuple[LogLine, ...]


class LogGap(Event, frozen=True, kw_only=True, tag="log-gap"):
    unit: str
    reason: str


class KernelFault(Event, frozen=True, kw_only=True, tag="kernel"):
    """An Xid or an OOM kill in the kernel log, joined to the cell it hit."""

    kind: str
    text: str
    code: int | None = None
    cell_id: str | None = None
    severity: str = "error"
    advice: str = ""


class ServiceSeen(Event, frozen=True, kw_only=True, tag="service"):
    status: ServiceStatus


class StepsPlanned(Event, frozen=True, kw_only=True, tag="steps-planned"):
    """What reconcile proposes. `answer_by_s` (wall time): when the policy decides if no viewer has."""

    plan_id: str
    steps: tuple[Step, ...]
    why: str
    answer_by_s: float | None = None


class StepTaken(Event, frozen=True, kw_only=True, tag="step"):
    plan_id: str
    step_id: str
    action: str
    title: str
    reason: str
    by: str
    """`policy`, `automatic`, or the viewer that consented."""
    state: Literal["started", "done", "failed", "left-out"]
    detail: str | None = None


class StageProgress(Event, frozen=True, kw_only=True, tag="stage"):
    target: str
    source: str | None = None
    state: Literal["checking", "copying", "downloading", "done", "failed"]
    bytes_done: int | None = None
    bytes_total: int | None = None
    rate_mib_s: float | None = None
    eta_s: float | None = None
    file: str | None = None
    error: str | None = None


class RestartStarted(Event, frozen=True, kw_only=True, tag="restart-started"):
    attempt_id: str
    config: str
    tp: int
    unit: str
    argv: tuple[str, ...] = ()
    generation_before: Generation | None = None
    cell_ids: tuple[str, ...] = ()
    expected_s: float | None = None
    """Learned duration of such a start; None where there is no history."""
    usual: dict[Phase, float] = {}
    """Learned seconds of each of its phases; empty where there is no history."""


class Moving(Value, frozen=True, kw_only=True):
    """Counters of a start's processes: what moves while it starts. Absent is None, never 0."""

    read_mib: float | None = None
    """Read from storage since they began."""
    gpu_mem_mib: float | None = None
    rss_mib: float | None = None
    cpu_s: float | None = None
    """CPU time of all of them."""
    new_files: int | None = None
    """Files that appeared in compile caches."""
    what: str = ""
    """The last evidence of progress, in words."""


class PhaseSeen(Event, frozen=True, kw_only=True, tag="phase"):
    """A start entered a phase, progressed in it, ended it or failed in it."""

    attempt_id: str
    phase: Phase
    state: Literal["running", "done", "skipped", "failed"]
    elapsed_s: float = 0.0
    """Seconds in this phase so far."""
    pct: float | None = None
    eta_s: float | None = None
    detail: str | None = None
    quiet_s: float | None = None
    """Seconds since the last evidence of progress."""
    limit_s: float | None = None
    """Seconds of quiet after which this phase counts as stalled."""
    moving: Moving | None = None
    """Of the running phase, where its processes can be read."""


class GateSeen(Event, frozen=True, kw_only=True, tag="gate"):
    attempt_id: str
    part: GatePartName
    ok: bool | None
    """None: cannot be known (rights); the gate then refuses and names the remedy."""
    evidence: Evidence
    elapsed_s: float = 0.0


class RestartReady(Event, frozen=True, kw_only=True, tag="restart-ready"):
    attempt_id: str
    generation: Generation
    ready_s: float
    engine: str = ""
    engine_version: str | None = None
    resolved_args: dict[str, Any] = {}
    overridden: tuple[str, ...] = ()
    """Parameters the engine silently changed, in words: those cells would be duplicates."""
    meant_for_cpu: bool = False
    """Its arguments, its log or its build say that it shall run on the CPU."""
    acceptance_simulated: str | None = None
    """What says that its acceptance is simulated; empty: nothing does. None: its environment could not be read, or an older
    ddtop did not ask."""
    read_mib: float | None = None
    """What its processes read from storage while it started."""
    new_cache_files: int | None = None
    """Files that appeared in the host's compile caches meanwhile."""
    compile_cache: Literal["hit", "miss"] | None = None
    """What its log says of its compile cache; a miss where anything was compiled."""


class StartProvenance(Event, frozen=True, kw_only=True, tag="provenance"):
    """What a ready server runs on, as its host said in one look after the gate."""

    attempt_id: str
    gpus: tuple[int, ...] | None = None
    """Indices of the GPUs on which the server's processes hold memory; None where that cannot be told."""
    facts: dict[str, Any] = {}
    """Sections of the agent's op `provenance`: gpu, machine, packages, image, environment, command, model."""
    unknown: dict[str, str] = {}
    """Section → why it could not be read."""


class SelftestDone(Event, frozen=True, kw_only=True, tag="selftest"):
    """The load generator's own error on this host, measured once for a run whose plan asks for it."""

    result: dict[str, Any]
    """As `ddtop selftest --json`: fit, problems, itl_error_us, ttft_error_ms, load, …"""


class RestartFailed(Event, frozen=True, kw_only=True, tag="restart-failed"):
    attempt_id: str
    verdict: Verdict
    cause: str
    kind: CauseKind
    alert_id: str | None = None


class AlertRaised(Event, frozen=True, kw_only=True, tag="alert"):
    """Something that needs attention, such as NOT STARTING?. Open until an AlertResolved with its id."""

    alert_id: str
    title: str
    """`NOT STARTING?`, `HOST LOST`, `REBOOTED`, `NO TOKENS`, …"""
    verdict: Verdict
    cause: str
    """A slug of the table of causes, such as `cuda-graph-oom`."""
    cause_text: str
    """The cause in a sentence for people, naming host and unit."""
    kind: CauseKind
    advice: str
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[Action, ...] = ()
    """First is the advised one."""
    attempt_id: str | None = None
    cell_ids: tuple[str, ...] = ()
    unit: str | None = None
    fault_seen_s: float | None = None
    """Seconds between the host's first sign of the fault (on the agent's clock) and this event."""
    signature_id: str | None = None
    answer_by_s: float | None = None
    """Wall time at which the policy decides if no viewer has; None where no answer is awaited."""
    seen_before: str | None = None
    """`seen twice on this host; last time fixed by re-staging`, where true."""
    policy: str | None = None
    """What the policy will do, in words."""


class AlertDecided(Event, frozen=True, kw_only=True, tag="alert-decided"):
    """What is done about an open alert, and who decided it: a viewer, or `policy`. The alert stays open until that worked."""

    alert_id: str
    what: str
    by: str


class AlertResolved(Event, frozen=True, kw_only=True, tag="alert-resolved"):
    alert_id: str
    how: str
    by: str


class CellStarted(Event, frozen=True, kw_only=True, tag="cell-started"):
    cell_id: str
    attempt: int
    job: str | None = None
    generation: Generation | None = None


class LatencySeen(msgspec.Struct, frozen=True, array_like=True):
    """The latencies of a window so far, in ms; written as an array, to be small. None where too few requests have ended."""

    n: int
    p50: float
    p90: float | None
    p99: float | None
    """`p90` and `p99` as they may be shown: with few samples an upper bound (bench/figures/stats.py)."""
    most: float
    per_decade: int
    """Bins to a power of ten."""
    first: int
    """Bin b holds 10^(b/per_decade) to 10^((b+1)/per_decade) ms."""
    counts: tuple[int, ...]
    """Requests in bin `first` and those after it."""


class CellProgress(Event, frozen=True, kw_only=True, tag="cell-progress"):
    """How a cell goes, as the load generator says once a second; what it did not say is None."""

    cell_id: str
    requests_done: int | None = None
    """Requests of the window that have ended, well or not."""
    requests_total: int | None = None
    tok_s: float | None = None
    """Output tokens a second since the window began (`phase` settling: since the load began)."""
    pct: float | None = None
    phase: str = ""
    """`preparing`, `context`, `warming up`, `settling` (under load, before the window), `window`, `draining` (what is under way
    ends), `asking again`; empty in recordings of an older ddtop."""
    in_flight: int | None = None
    failed: int | None = None
    now_tok_s: float | None = None
    """Output tokens a second since the last report."""
    tokens: int | None = None
    """Output tokens since the window began."""
    about: bool = False
    """The server counts a response's tokens only at its end: those of responses under way are estimated."""
    left_s: float | None = None
    """Until the last response, by those so far."""
    settled: str = ""
    """What began the window: `settled`, `requests` or `time` (it had not); empty before, and without a hand-over."""
    burst: tuple[int, int] | None = None
    """Requests that have ended before the window, and after how many it begins in any case."""
    spec_tokens: int | None = None
    spec_steps: int | None = None
    """Tokens and verification steps, where the server's responses say them: their quotient is the acceptance length."""
    ttft: LatencySeen | None = None
    tpot: LatencySeen | None = None
    """None also where nothing has changed since the last event."""


class CellMeasured(Event, frozen=True, kw_only=True, tag="cell-measured"):
    """A result, committed with synchronous=FULL before anyone sees it."""

    cell_id: str
    attempt: int
    validity: Validity
    reasons: tuple[str, ...] = ()
    metrics: dict[str, Any] = {}
    """Names of MEASURING with units, such as output_tok_s, ttft_ms {p50, p90, …}."""
    raw: dict[str, Any] = {}
    """What the load generator gave, less the bulky parts, for later judgement. Empty in a second result of the same
    attempt, which changes the judgement alone."""
    engine: str = ""
    engine_version: str | None = None
    driver: str | None = None
    generation: Generation | None = None


class SearchStep(Event, frozen=True, kw_only=True, tag="search-step"):
    """One load that a search has tried, and what follows. The next load is derived from these alone."""

    parent: str
    """Id of the cell that is the search."""
    number: int
    """Place in the search; 0 begins it anew."""
    tried: float
    """The load: streams, or requests per second."""
    confirm: bool = False
    """The knee measured again, for the whole of `confirm_s`."""
    verdict: Literal["met", "missed", "undecided", "over-saturated", "failed", "flat"]
    """`undecided`: the requests so far are taken for it; `failed`: the server gave no usable result at this load;
    `flat`: without limits, the throughput grew no more."""
    low: float | None = None
    """The highest load that was met so far."""
    high: float | None = None
    """The lowest above it that was not."""
    next: float | None = None
    """The load that is tried next; None where the search is over."""
    job: str = ""
    generation: Generation | None = None
    """The server; a search that began on another one begins anew."""
    validity: Validity = "VALID"
    reasons: tuple[str, ...] = ()
    metrics: dict[str, Any] = {}
    """As those of a cell; `slo` has attained, n and the interval of the share."""
    host_span_s: tuple[float, float] | None = None
    """Its start and end by the host's clock (Unix time, seconds)."""


class CellOutputs(Event, frozen=True, kw_only=True, tag="cell-outputs"):
    """The server's answers in a cell at temperature 0, recorded before its result, for the accuracy guard."""

    cell_id: str
    attempt: int
    texts: str
    """base64 of zlib of the JSON {request index: [text of each choice]}, whole answers alone."""
    again: str | None = None
    """The same for the first requests sent a second time to a baseline: how far it agrees with itself."""


class CellStateSet(Event, frozen=True, kw_only=True, tag="cell-state"):
    """The only event that changes a cell's state."""

    cell_id: str
    state: CellState
    reason: str = ""
    cause: str | None = None
    signature_id: str | None = None
    engine_version: str | None = None
    by: str = "sweep"
    attempt: int | None = None


class CellSeries(Event, frozen=True, kw_only=True, tag="cell-series"):
    """What was reported each second of a try at a cell that is over, as the fold holds it, so that whoever opens the recording
    need not read every report again. It says nothing new: a reader that does not know its `form` reads the reports."""

    cell_id: str
    attempt: int
    form: int
    figures: dict[str, bytes] = {}
    """The server's own figures, by field of FigurePoint: float64, little-endian, NaN where not known (base64 in JSON)."""
    live: dict[str, bytes] = {}
    """The load generator's reports, by column of LiveSeries: `at_s` as float64, the others as float32."""
    bound: tuple[tuple[int, str], ...] = ()
    """What limited the GPUs at those moments: how many in a row, and what."""
    step_s: float = 0.0
    weight: int = 1
    ttft: LatencySeen | None = None
    tpot: LatencySeen | None = None


class RaceRound(Event, frozen=True, kw_only=True, tag="race-round"):
    """What follows a round of starts at one TP: which configurations are started again, and why the others are not."""

    start: int
    """The round that ended, 0 the first. Decided by its results and those of the rounds before it."""
    tp: int
    rule: Literal["race", "precision"]
    go_on: tuple[str, ...] = ()
    left: dict[str, str] = {}
    """Configuration → why it is not started again, with numbers."""
    ended: str = ""
    """Why there is no further round; empty while it goes on."""
    leaders: dict[str, str] = {}
    """Load → the configuration that leads there; empty where precision is the rule."""

    @property
    def words(self) -> str:
        """What follows the round, without the reasons."""
        follows = self.ended or f"started again: {', '.join(self.go_on)}"
        return f"after start {self.start + 1} at tp{self.tp}: {follows}"


class SweepPaused(Event, frozen=True, kw_only=True, tag="paused"):
    by: str
    reason: str = ""


class SweepResumed(Event, frozen=True, kw_only=True, tag="resumed"):
    by: str


class CommandSeen(Event, frozen=True, kw_only=True, tag="command"):
    """The answer to a command: accepted (stored as `obeyed`), refused with the reason, or too late."""

    command_id: str
    viewer: str
    command: str
    outcome: Literal["obeyed", "refused", "late"]
    reason: str = ""
    args: dict[str, Any] = {}


class ViewersSeen(Event, frozen=True, kw_only=True, tag="viewers"):
    """How many dashboards are open on the run. With at least one, the run is attended and asks before it acts."""

    count: int


class Note(Event, frozen=True, kw_only=True, tag="note"):
    """Something worth a line in the record: a warning, a changed driver, an override restored."""

    level: Literal["info", "warn", "error"]
    text: str


AnyEvent = (
    RunStarted
    | PlanSource
    | CellsPlanned
    | TimesLearned
    | RunEnded
    | HostConnecting
    | HostConnected
    | HostLost
    | HostRebooted
    | AllocationSeen
    | RttMeasured
    | ProbeTaken
    | GpuSampled
    | ServerFigures
    | BoundDiagnosed
    | LogRead
    | LogGap
    | KernelFault
    | ServiceSeen
    | StepsPlanned
    | StepTaken
    | StageProgress
    | RestartStarted
    | PhaseSeen
    | GateSeen
    | RestartReady
    | StartProvenance
    | SelftestDone
    | RestartFailed
    | AlertRaised
    | AlertDecided
    | AlertResolved
    | CellStarted
    | CellProgress
    | CellOutputs
    | SearchStep
    | CellMeasured
    | CellStateSet
    | CellSeries
    | RaceRound
    | SweepPaused
    | SweepResumed
    | CommandSeen
    | ViewersSeen
    | Note
)

DURABLE: tuple[type[Event], ...] = (
    RunStarted,
    CellsPlanned,
    RunEnded,
    CellMeasured,
    SearchStep,
    CellStateSet,
    CellStarted,
    RaceRound,
    AlertRaised,
    AlertDecided,
    AlertResolved,
    RestartStarted,
    RestartReady,
    RestartFailed,
    StepTaken,
    CommandSeen,
    HostRebooted,
    AllocationSeen,
)
"""Events whose loss would lose work: the journal commits these with synchronous=FULL at once."""


# ------------------------------------------------------------------------------------------------ commands


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of all commands. Idempotent by `id`; refused as late after `deadline_s` seconds."""

    id: str
    viewer: str
    at_s: float
    """Wall time at which it was given."""
    deadline_s: float = 10.0


class Attend(Command, frozen=True, kw_only=True, tag="attend"):
    """A dashboard is open; repeated every 5 s. An Attend older than 15 s no longer counts."""

    leaving: bool = False


class Approve(Command, frozen=True, kw_only=True, tag="approve"):
    """Do the proposed steps of `plan_id`, less those in `leave_out`."""

    plan_id: str
    leave_out: tuple[str, ...] = ()


class Resume(Command, frozen=True, kw_only=True, tag="resume"):
    """Resume the sweep after an alert or an interruption: reconcile and propose the steps.

    With `now` the steps are done without asking again.
    """

    alert_id: str | None = None
    now: bool = False


class Retry(Command, frozen=True, kw_only=True, tag="retry"):
    """Run a cell (or all not-done cells of a configuration) again: failed, skipped or broken alike."""

    alert_id: str | None = None
    cell_id: str | None = None
    config: str | None = None


class Restage(Command, frozen=True, kw_only=True, tag="restage"):
    """Check the model directory and copy what is missing or damaged."""

    alert_id: str | None = None


class Skip(Command, frozen=True, kw_only=True, tag="skip"):
    alert_id: str | None = None
    cell_id: str | None = None
    config: str | None = None


class MarkBroken(Command, frozen=True, kw_only=True, tag="mark-broken"):
    cell_id: str | None = None
    config: str | None = None
    alert_id: str | None = None
    broken: bool = True


class Pause(Command, frozen=True, kw_only=True, tag="pause"):
    """After the cell in flight."""


class GoOn(Command, frozen=True, kw_only=True, tag="go-on"):
    pass


class RestartService(Command, frozen=True, kw_only=True, tag="restart-service"):
    unit: str | None = None


class StopRun(Command, frozen=True, kw_only=True, tag="stop-run"):
    leave_running: bool = False


class Wait(Command, frozen=True, kw_only=True, tag="wait"):
    """Give a stalled start more time: its limit counts from now on."""

    alert_id: str


class Undo(Command, frozen=True, kw_only=True, tag="undo"):
    """Take back the last skip, mark or retry of this viewer."""


AnyCommand = (
    Attend
    | Approve
    | Resume
    | Retry
    | Restage
    | Skip
    | MarkBroken
    | Pause
    | GoOn
    | RestartService
    | StopRun
    | Wait
    | Undo
)

_event_decoder = msgspec.json.Decoder(AnyEvent)
_command_decoder = msgspec.json.Decoder(AnyCommand)
_encoder = msgspec.json.Encoder()


def encode(message: Event | Command) -> bytes:
    """JSON of an event or command, with its tag in `type`."""
    return _encoder.encode(message)


def decode_event(data: bytes | str) -> AnyEvent:
    """The event in `data`. Raises msgspec.ValidationError with the path of what is wrong."""
    event: AnyEvent = _event_decoder.decode(data)
    return event


def decode_command(data: bytes | str) -> AnyCommand:
    """The command in `data`. Raises msgspec.ValidationError with the path of what is wrong."""
    command: AnyCommand = _command_decoder.decode(data)
    return command
