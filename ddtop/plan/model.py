"""A checked plan, as frozen values: one struct for each table of the TOML file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ddtop.datasets.use import Use
from ddtop.events import Search
from ddtop.stats.race import Rules

Scalar = str | int | float
"""What a placeholder may stand for."""

ServiceKind = Literal["systemd", "process", "command", "docker"]
Engine = Literal["sglang", "vllm", "llamacpp"]
Endpoint = Literal["chat", "completions", "generate"]

SERVICE_KINDS: tuple[ServiceKind, ...] = ("systemd", "process", "command", "docker")
ENGINES: tuple[Engine, ...] = ("sglang", "vllm", "llamacpp")
ENDPOINTS: tuple[Endpoint, ...] = ("chat", "completions", "generate")
AA = "-aa"
"""Ends the name under which the baseline is measured against itself."""
ORDERS = ("restart-cheapest", "as-written")
BENCH_KINDS = ("builtin", "command")
BENCH_FORMATS = (
    "auto",
    "sglang",
    "vllm",
    "aiperf",
    "guidellm",
    "genai-bench",
    "inference-perf",
    "llama-benchy",
)


def lengths_words(lengths: dict[str, Any]) -> str:
    """A distribution of lengths in words: `lognormal, mean 300, p99 2,000`."""
    parts = [
        f"{key} {value:,g}" if not isinstance(value, list) else f"of {len(value)} values"
        for key, value in lengths.items()
        if key != "dist"
    ]
    return ", ".join([lengths["dist"], *parts])


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts of a plan."""


class Model(Part, frozen=True, kw_only=True):
    """`[model]`: what is served, where it must lie, and where it may be copied from."""

    name: str = ""
    path: str
    sources: tuple[str, ...] = ()
    """In order of preference: folders on the host, or `hf:org/name@rev`."""


class Service(Part, frozen=True, kw_only=True):
    """`[service]`: how a server process is run; defaults for every configuration."""

    kind: ServiceKind
    engine: Engine
    unit: str
    """Unit (systemd, command), container (docker), or name of the process."""
    port: int = 30000
    command: tuple[str, ...] = ()
    """Arguments with placeholders; empty where the unit or a script has its own."""
    env: dict[str, str] = {}
    stop_units: tuple[str, ...] = ()
    configure: tuple[str, ...] = ()
    timeout_s: float = 1000.0
    user: bool = False
    """A unit of the login's own manager (`systemctl --user`)."""
    cwd: str | None = None


class Config(Part, frozen=True, kw_only=True):
    """One configuration, after its `for` was expanded. None: as in `[service]`."""

    name: str
    args: tuple[str, ...] = ()
    values: dict[str, Scalar] = {}
    """Of `set`, and this one's of `for`: placeholders by these names."""
    unit: str | None = None
    command: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    """Over those of `[service]`."""
    stop_units: tuple[str, ...] | None = None
    configure: tuple[str, ...] | None = None
    engine: Engine | None = None
    port: int | None = None
    cwd: str | None = None


class SkipRule(Part, frozen=True, kw_only=True):
    """One entry of `matrix.skip`: cells that match every given field are skipped. Empty: any value."""

    reason: str
    config: tuple[str, ...] = ()
    workload: tuple[str, ...] = ()
    tp: tuple[int, ...] = ()
    concurrency: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
    output_tokens: tuple[int, ...] = ()
    rate: tuple[float, ...] = ()
    search: tuple[str, ...] = ()
    """What is searched by: `concurrency`, `rate`."""
    sampling: tuple[str, ...] = ()
    repeat: tuple[int, ...] = ()
    """Of `repeats`, counted from 1."""


class LoadPoint(Part, frozen=True, kw_only=True):
    """One load of `[matrix]`: a concurrency, a rate, or a search for the knee of one of them."""

    concurrency: int = 0
    rate: float | None = None
    duration_s: float = 60.0
    """For how long requests are sent at `rate`."""
    search: Search | None = None
    speed: float | None = None
    """Of a trace's clock; None: requests come at random times."""


class Trace(Part, frozen=True, kw_only=True):
    """Requests that were really sent, to be replayed by their own clock."""

    name: str
    requests: tuple[dict[str, Any], ...] = ()
    """{"at_ms", "input_tokens", "output_tokens", "hash_ids"}, in order of time."""
    speeds: tuple[float, ...] = (1.0,)
    block_tokens: int = 512
    """What a hash id stands for."""

    @property
    def points(self) -> tuple[LoadPoint, ...]:
        """Its loads: one for each speed, with the mean rate that this makes."""
        if not self.requests:
            return ()
        span_s = (self.requests[-1]["at_ms"] - self.requests[0]["at_ms"]) / 1e3
        return tuple(
            LoadPoint(
                rate=float(f"{len(self.requests) / max(span_s / speed, 1.0):.3g}"),
                duration_s=max(span_s / speed, 1.0),
                speed=speed,
            )
            for speed in self.speeds
        )

    @property
    def output_tokens(self) -> int:
        """Of a request, on average."""
        total = sum(int(one["output_tokens"]) for one in self.requests)
        return max(1, round(total / max(1, len(self.requests))))


class Matrix(Part, frozen=True, kw_only=True):
    """`[matrix]`: what every configuration is measured at."""

    tp: tuple[int, ...] = (1,)
    concurrency: tuple[int, ...] = (1,)
    """Empty where only `load` is given."""
    load: tuple[LoadPoint, ...] = ()
    """Further loads, and searches."""
    context: tuple[int, ...] = (0,)
    """Tokens before the prompt; with `context_lengths` their mean."""
    context_lengths: dict[str, Any] = {}
    """A distribution, of which each conversation has its own context."""
    repeats: int = 1
    """Of each cell inside one start."""
    starts: int = 1
    """Rounds: each starts every configuration's server once. With `rounds`, the most of them."""
    rounds: Rules | None = None
    """When configurations are started no more before that; None: all are started `starts` times."""
    aa: bool = False
    """The baseline is started once more in every round, under the name of `AA`."""
    refine: str | None = None
    """`break-even`: further concurrencies are measured around a crossing (plan/refine.py)."""
    baseline: str
    skip: tuple[SkipRule, ...] = ()
    order: str = "restart-cheapest"

    @property
    def points(self) -> tuple[LoadPoint, ...]:
        """Every load, in running order."""
        return (*(LoadPoint(concurrency=streams) for streams in self.concurrency), *self.load)


class Workload(Part, frozen=True, kw_only=True):
    """One `[[workload]]`: an ordered set of prompts and how many tokens to ask for."""

    name: str
    prompts: tuple[Any, ...] = ()
    """Strings, or {"prompt": …} / {"messages": […]} with an optional output_tokens."""
    output_tokens: tuple[int, ...] = (0,)
    """0: the user's own benchmark decides. With `output_lengths`, or of a trace, their mean."""
    output_lengths: dict[str, Any] = {}
    """A distribution, of which each request has its own length."""
    trace: Trace | None = None
    """What is replayed; `prompts` are its requests."""
    turns: int = 1
    """Requests of a conversation: its own answers are sent back."""
    think_ms: float = 0.0
    """Between an answer and the turn that follows."""
    shared_prefix_tokens: int = 0
    """Of text that all prompts of a cell begin with."""
    license: str | None = None
    """Under which the prompts may be given away; for the record alone."""
    dataset: Use | None = None
    """What the prompts are of; None: the plan or a file of it has them."""
    group: str = ""
    """The only group of its prompts, where each group is a workload of its own."""
    stop: str | None = None
    """`eos`: an answer ends where the model ends it, and `output_tokens` is a cap; `length`: it never ends before. None: as
    `[sampling]` says."""

    @property
    def base(self) -> str:
        """Its name in the plan."""
        return self.name.removesuffix(f":{self.group}") if self.group else self.name

    @property
    def sharing(self) -> dict[str, Any]:
        """What prompts have in common, as the load generator takes it; empty where nothing is."""
        usual: tuple[tuple[str, Any], ...] = (
            ("turns", 1),
            ("think_ms", 0.0),
            ("shared_prefix_tokens", 0),
            ("output_lengths", {}),
        )
        return {name: value for name, none in usual if (value := getattr(self, name)) != none}

    @property
    def shape(self) -> str:
        """The same in words; empty where requests are single prompts."""
        words = []
        if self.turns > 1:
            words.append(f"{self.turns} turns" + (f", {self.think_ms:g} ms apart" if self.think_ms else ""))
        if self.shared_prefix_tokens:
            words.append(f"{self.shared_prefix_tokens:,} tokens shared by all prompts")
        if self.output_lengths:
            words.append(f"output {lengths_words(self.output_lengths)}")
        if self.trace is not None:
            words.append(f"trace {self.trace.name}, {len(self.trace.requests):,} requests")
        return "; ".join(words)


class Sampling(Part, frozen=True, kw_only=True):
    """`[sampling]`: what is sent with every request. It decides speculative results."""

    name: str = ""
    """Of a variant: `[[sampling]]`."""
    endpoint: Endpoint = "chat"
    temperature: float = 0.0
    ignore_eos: bool = True
    extra_body: dict[str, Any] = {}


MIN_WINDOW_S = 10.0


class Bench(Part, frozen=True, kw_only=True):
    """`[bench]`: how a cell is measured."""

    kind: Literal["builtin", "command"] = "builtin"
    requests_per_stream: int = 8
    warmup: int | Literal["handover"] = "handover"
    """A number: so many requests, which drain before the window begins."""
    warmup_written: bool = False
    """The plan says it; else it is the default of the version that reads the plan."""
    min_window_s: float = MIN_WINDOW_S
    """More requests are sent where those of a closed loop take less; 0 with a number of warm-up requests."""
    settle_pct: float = 5.0
    time_limit_s: float = 600.0
    request_timeout_s: float = 600.0
    nonce: bool = True
    """A leading nonce in each prompt, where the prefix cache must not help."""
    flush_cache: bool = True
    slo: dict[str, float] = {}
    """Limits in ms for goodput: ttft_ms, tpot_ms, e2e_ms, icl_ms."""
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    format: str = "auto"
    metrics: dict[str, str] = {}
    """Metric name → JMESPath, with `mean:`, `max:`, `sum:` or `last:` before it."""


class Policy(Part, frozen=True, kw_only=True):
    """`[policy]`: what happens without a person. Words of READINESS; see docs/plan.md."""

    transient: str = "retry-once"
    bug: str = "retry-once-then-broken"
    config: str = "fail-and-go-on"
    host: str = "wait-clean"
    host_lost_wait_min: float = 60.0
    reboot: str = "restage-and-resume"
    zero_tokens: str = "retry-once-then-broken"
    foreign: str = "wait-10min-then-stop"
    invalid_client: str = "rerun-twice"
    answer_s: float = 60.0
    allocation: str = "requeue-and-resume"
    """What a Slurm allocation that ends before the sweep does means."""


class SlurmSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """`[hosts.NAME.slurm]` in config.toml, or `[slurm]` in a plan. All optional."""

    partition: str = ""
    gpus: int | str = 0
    """GPUs of each node, as a number or with their kind: `8`, `"h200:8"`. 0: none are asked for."""
    nodes: int = 1
    """Nodes of the allocation. The agent and the servers run on the first."""
    time: int | str = ""
    """The walltime, as Slurm reads it: minutes, or `"4:00:00"`."""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    extra: tuple[str, ...] = ()
    """More options of salloc, as they are."""

    @property
    def gpus_in_all(self) -> int:
        """How many GPUs the whole allocation has; 0 where none are asked for.

        >>> SlurmSettings(gpus="h200:8", nodes=2).gpus_in_all
        16
        """
        count = str(self.gpus).rpartition(":")[2]
        return int(count) * max(1, self.nodes) if count.isdigit() else 0

    def over(self, other: SlurmSettings | None) -> SlurmSettings:
        """These settings, with those of `other` where these say nothing."""
        if other is None:
            return self
        return SlurmSettings(**(msgspec.to_builtins(other) | msgspec.to_builtins(self)))


class Record(Part, frozen=True, kw_only=True):
    """`[record]`."""

    log_mib: float = 512.0
    selftest: bool = False
    """Measure the load generator's own error on the host, once for the run."""


class Report(Part, frozen=True, kw_only=True):
    """`[report]`: what reports need to know that is not measured."""

    usd_per_gpu_hour: float | None = None


class Notify(Part, frozen=True, kw_only=True):
    """`[notify]`: how a headless run reaches a person."""

    command: tuple[str, ...] = ()
    webhook_env: str | None = None
    """Name of the environment variable that holds the URL."""


class Plan(Part, frozen=True, kw_only=True):
    """A plan that can be run."""

    name: str
    host: str | None = None
    model: Model | None = None
    service: Service
    configs: tuple[Config, ...]
    """In the order of the file, `for` expanded."""
    matrix: Matrix
    workloads: tuple[Workload, ...]
    samplings: tuple[Sampling, ...] = (Sampling(),)
    """Variants that each workload is measured with; one without a name where the plan has no variants."""
    bench: Bench = Bench()
    policy: Policy = Policy()
    record: Record = Record()
    report: Report = Report()
    notify: Notify = Notify()
    slurm: SlurmSettings | None = None
    text: str = ""
    """The TOML as read, for the record."""
    path: str | None = None
    files: dict[str, str] = {}
    """Prompt files and datasets by the names that the plan uses → their texts."""
    datasets: dict[str, dict[str, Any]] = {}
    """Datasets by the names that the plan uses → what they are."""
    env: dict[str, str] = {}
    """Variables of this machine that `{env.NAME}` stood for."""

    @property
    def sampling(self) -> Sampling:
        """The first of them."""
        return self.samplings[0]
