"""A plan → its cells, in the order in which they will run, each with an id that only its content decides."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ddtop.events import CellSpec
from ddtop.plan.launch import BenchSpec, LaunchSpec, PlannedCell
from ddtop.plan.model import (
    AA,
    Config,
    LoadPoint,
    Plan,
    Sampling,
    Scalar,
    SkipRule,
    Workload,
    lengths_words,
)
from ddtop.plan.placeholders import fill

ID_LENGTH = 12
LEAST_CONVERSATIONS = 2
"""Of each stream of a closed loop, where conversations have several turns."""
NO_LIMIT_STREAMS = 4096
"""`{concurrency}` for a benchmark of the user's own at a rate, which limits no streams."""


def expand(plan: Plan) -> tuple[PlannedCell, ...]:
    """All cells of `plan`, those to be skipped included.

    All cells of one server start stand together. `restart-cheapest`: TP by TP, the baseline first, then the
    configurations as written; starts that turn out the same are shared. A cell that reaches server and client
    exactly as an earlier one (a TP that the command does not use) is left out: it would be the same cell.

    With `starts`, this is done in rounds: each visits every configuration once, and begins one configuration
    later than the round before, so that time of day and heat hit all alike. Inside a start the loads stand in an
    order that their content and the round decide, the same for every configuration; the first one is measured
    again as the last (the sentinel). The cells of the first round have the ids that they have without `starts`.
    """
    unique: dict[str, PlannedCell] = {}
    for cell in all_cells(plan):
        unique.setdefault(cell.spec.id, cell)
    return tuple(unique.values())


def all_cells(plan: Plan) -> tuple[PlannedCell, ...]:
    """As `expand`, duplicates included."""
    groups: dict[str, list[tuple[Config, LaunchSpec]]] = {}
    for tp in plan.matrix.tp:
        for config, launch in _arms(plan, tp):
            groups.setdefault(launch.restart_key, []).append((config, launch))
    loads, in_order = _loads(plan), list(groups.values())
    return tuple(
        cell
        for start in range(plan.matrix.starts)
        for group in _rotated(in_order, start)
        for config, launch in group
        for cell in _cells_of_start(plan, config, _in_round(launch, start), loads, start)
    )


def _arms(plan: Plan, tp: int) -> Iterable[tuple[Config, LaunchSpec]]:
    """What one round starts at one TP, in order: the configurations, and the baseline once more for A/A."""
    configs = list(plan.configs)
    if plan.matrix.order == "restart-cheapest":
        configs.sort(key=lambda c: c.name != plan.matrix.baseline)
    for config in configs:
        yield config, launch_of(plan, config, tp)
    if plan.matrix.aa:
        base = next(c for c in configs if c.name == plan.matrix.baseline)
        launch, name = launch_of(plan, base, tp), base.name + AA
        key = f"{launch.restart_key}{AA}"
        yield (
            msgspec.structs.replace(base, name=name),
            msgspec.structs.replace(launch, config=name, restart_key=key),
        )


def _rotated(
    groups: list[list[tuple[Config, LaunchSpec]]], start: int
) -> list[list[tuple[Config, LaunchSpec]]]:
    first = start % len(groups) if groups else 0
    return groups[first:] + groups[:first]


def _in_round(launch: LaunchSpec, start: int) -> LaunchSpec:
    """The launch with the restart key of its round: one key is one start of a server."""
    return msgspec.structs.replace(launch, restart_key=f"{launch.restart_key}+{start}") if start else launch


def _cells_of_start(
    plan: Plan, config: Config, launch: LaunchSpec, loads: list[Load], start: int
) -> list[PlannedCell]:
    if plan.matrix.starts == 1:
        return [_cell(plan, config, launch, load) for load in loads]
    # By a hash: nobody chose the order, and a load that is added to the plan leaves the others' as it was.
    mixed = sorted(loads, key=lambda load: _digest([*load.content, start]))
    cells = [_cell(plan, config, launch, load, start) for load in mixed]
    first = next(
        (
            load
            for load, cell in zip(mixed, cells, strict=True)
            if cell.spec.skip_reason is None and load.point.search is None
        ),
        None,
    )
    return [*cells, _cell(plan, config, launch, first, start, sentinel=True)] if first else cells


def launch_of(plan: Plan, config: Config, tp: int) -> LaunchSpec:
    """How the server of `config` at `tp` is started."""
    service = plan.service
    port = config.port if config.port is not None else service.port
    values = _server_values(plan, config, tp)
    command = config.command if config.command is not None else service.command
    configure = config.configure if config.configure is not None else service.configure
    unit = fill(config.unit or service.unit, values)
    argv = tuple(fill(word, values) for word in (*command, *config.args))
    env = {name: fill(text, values) for name, text in {**service.env, **config.env}.items()}
    cwd = config.cwd or service.cwd
    launch = LaunchSpec(
        restart_key="",
        config=config.name,
        tp=tp,
        kind=service.kind,
        unit=unit,
        engine=config.engine or service.engine,
        port=port,
        argv=argv,
        env=env,
        stop_units=_stop_units(plan, config, values, unit, port),
        configure=tuple(fill(word, values) for word in configure) if service.kind == "command" else (),
        timeout_s=service.timeout_s,
        user=service.user,
        cwd=fill(cwd, values) if cwd else None,
        model_path=plan.model.path if plan.model else None,
    )
    return msgspec.structs.replace(launch, restart_key=_digest(_server_content(launch)))


def _server_values(plan: Plan, config: Config, tp: int) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {
        **config.values,
        "port": config.port if config.port is not None else plan.service.port,
        "tp": tp,
        "config": config.name,
    }
    if plan.model is not None:
        values |= {"model.path": plan.model.path, "model.name": plan.model.name}
    return values


def _stop_units(
    plan: Plan, config: Config, values: dict[str, Scalar], unit: str, port: int
) -> tuple[str, ...]:
    """Those named, and all other units of the plan on this port; never the unit itself."""
    named = config.stop_units if config.stop_units is not None else plan.service.stop_units
    found = dict.fromkeys(fill(name, values) for name in named)
    for other in plan.configs:
        other_port = other.port if other.port is not None else plan.service.port
        if other_port == port:
            other_values = _server_values(plan, other, values["tp"] if isinstance(values["tp"], int) else 1)
            found[fill(other.unit or plan.service.unit, other_values)] = None
    return tuple(name for name in found if name != unit)


def _server_content(launch: LaunchSpec) -> dict[str, Any]:
    """What decides how the server behaves: what reaches it, not its names in the plan."""
    return {
        "kind": launch.kind,
        "unit": launch.unit,
        "engine": launch.engine,
        "port": launch.port,
        "argv": launch.argv,
        "env": launch.env,
        "configure": launch.configure,
        "user": launch.user,
        "cwd": launch.cwd,
    }


def _digest(content: Any) -> str:
    canonical = msgspec.json.encode(content, order="sorted")
    return hashlib.sha256(canonical).hexdigest()[:ID_LENGTH]


class Load(NamedTuple):
    """What is asked of one server in one cell."""

    workload: Workload
    prompts: str
    """Hash of the workload's prompts."""
    tokens: int
    context: int
    point: LoadPoint
    repeat: int
    sampling: Sampling
    drawn_context: dict[str, Any]
    """The distribution of which each conversation has its context; empty: `context` is for all."""

    @property
    def name(self) -> str:
        """The workload as cells name it: `mixed`, of a variant `mixed/greedy`, of a group alone `mixed/greedy:coding`."""
        workload = self.workload
        if not self.sampling.name:
            return workload.name
        return f"{workload.base}/{self.sampling.name}" + (f":{workload.group}" if workload.group else "")

    @property
    def content(self) -> tuple[Any, ...]:
        """What is asked, as values that can be hashed."""
        shared = self.workload.sharing
        more: tuple[Any, ...] = (sorted(shared.items()),) if shared else ()
        more = (*more, self.sampling.name) if self.sampling.name else more
        more = (*more, sorted(self.drawn_context.items())) if self.drawn_context else more
        return (self.prompts, self.tokens, self.context, _which(self.point), self.repeat, *more)


def _loads(plan: Plan) -> list[Load]:
    """What is asked of every configuration, in running order."""
    digests = {w.name: _digest(w.prompts) for w in plan.workloads}
    return [
        Load(workload, digests[workload.name], tokens, context, point, repeat, sampling, drawn)
        for repeat in range(plan.matrix.repeats)
        for workload in plan.workloads
        for drawn in (plan.matrix.context_lengths if workload.trace is None else {},)
        for sampling in plan.samplings
        for tokens in workload.output_tokens
        for context in (plan.matrix.context if workload.trace is None else (0,))
        for point in (plan.matrix.points if workload.trace is None else workload.trace.points)
    ]


def _cell(
    plan: Plan, config: Config, launch: LaunchSpec, load: Load, start: int = 0, *, sentinel: bool = False
) -> PlannedCell:
    make = _builtin if plan.bench.kind == "builtin" else _command
    content, bench = make(plan, config, launch, load)
    aa = plan.matrix.aa and config.name == plan.matrix.baseline + AA
    # What is not asked for is left out of the hash: ids stay as they were before these could be asked for.
    more = {"start": start, "sentinel": sentinel, "aa": aa}
    cell_id = _digest(
        {"server": _server_content(launch), "client": content, "repeat": load.repeat}
        | {name: value for name, value in more.items() if value}
    )
    if sentinel and "nonce" in bench.load:
        # Other text than the first time: the same server would have it in its prefix cache.
        nonce = _digest([bench.load["nonce"], "sentinel"])
        bench = msgspec.structs.replace(bench, load={**bench.load, "nonce": nonce})
    if bench.load:
        bench = msgspec.structs.replace(bench, load={"id": cell_id, **bench.load})
    spec = CellSpec(
        id=cell_id,
        config=config.name,
        tp=launch.tp,
        workload=load.name,
        group=load.workload.group,
        sampling=load.sampling.name,
        output_tokens=load.tokens,
        concurrency=load.point.concurrency,
        rate=load.point.rate,
        search=load.point.search,
        context=load.context,
        repeat=load.repeat,
        restart_key=launch.restart_key,
        start=start,
        sentinel=sentinel,
        aa=aa,
        baseline=config.name == plan.matrix.baseline,
        shape=_shape(load),
    )
    reason = next((rule.reason for rule in plan.matrix.skip if matches(rule, spec)), None)
    if reason is not None:
        spec = msgspec.structs.replace(spec, skip_reason=reason)
    return PlannedCell(spec=spec, launch=launch, bench=bench)


def _url(launch: LaunchSpec) -> str:
    """The load comes from the host itself."""
    return f"http://127.0.0.1:{launch.port}"


def _command(plan: Plan, config: Config, launch: LaunchSpec, load: Load) -> tuple[dict[str, Any], BenchSpec]:
    """A benchmark of the user's own: what decides the id, and how it is called."""
    values: dict[str, Scalar] = {
        **_server_values(plan, config, launch.tp),
        "workload": load.workload.name,
        "output_tokens": load.tokens,
        "concurrency": load.point.concurrency if load.point.rate is None else NO_LIMIT_STREAMS,
        "rate": "inf" if load.point.rate is None else load.point.rate,
        "context": load.context,
        "repeat": load.repeat,
        "url": _url(launch),
    }
    bench = BenchSpec(
        kind="command",
        argv=tuple(fill(word, values) for word in plan.bench.argv),
        env=plan.bench.env,
        format=plan.bench.format,
        metrics=plan.bench.metrics,
        time_limit_s=plan.bench.time_limit_s,
    )
    content = {"argv": bench.argv, "env": bench.env, "format": bench.format, "metrics": bench.metrics}
    return content, bench


def _builtin(plan: Plan, _config: Config, launch: LaunchSpec, load: Load) -> tuple[dict[str, Any], BenchSpec]:
    """What reaches the client (it decides the id), and the whole LoadSpec (with limits, which do not)."""
    asked: dict[str, Any] = {
        "url": _url(launch),
        "engine": launch.engine,
        "endpoint": load.sampling.endpoint,
        "context": load.context if not load.drawn_context else 0,
        "output_tokens": load.tokens,
        **({"context_lengths": load.drawn_context} if load.drawn_context else {}),
        **load.workload.sharing,
        "exact_tokens": load.sampling.ignore_eos
        if load.workload.stop is None
        else load.workload.stop == "length",
        "temperature": load.sampling.temperature,
        "extra_body": load.sampling.extra_body,
        **_how_much(plan, load),
        **_warm_up(plan, load.point),
        "flush_cache": plan.bench.flush_cache,
    }
    if plan.bench.nonce:
        # Every configuration gets the same nonce for the same request, so it must not depend on the server.
        asked["nonce"] = _digest(load.content)
    limits = {
        "time_limit_s": plan.bench.time_limit_s,
        "request_timeout_s": plan.bench.request_timeout_s,
    }
    bench = BenchSpec(
        kind="builtin",
        load={**asked, "prompts": list(load.workload.prompts), **limits},
        slo=plan.bench.slo,
        time_limit_s=_at_most_s(plan, load.point),
    )
    content = {**asked, "prompts": load.prompts}
    if load.point.search is not None:
        content["search"] = msgspec.structs.asdict(load.point.search)
    return content, bench


def _shape(load: Load) -> str:
    words = [load.workload.shape]
    if load.point.speed is not None and load.point.speed != 1:
        words[0] += f" at {load.point.speed:g} times its speed"
    if load.drawn_context:
        words.append(f"context {lengths_words(load.drawn_context)}")
    return "; ".join(word for word in words if word)


def _which(point: LoadPoint) -> Any:
    """What tells a load from the others of its workload."""
    if point.speed is not None:
        return ["trace", point.speed]
    if point.search is not None:
        return point.search.short
    return point.concurrency if point.rate is None else [point.rate]


def _warm_up(plan: Plan, point: LoadPoint) -> dict[str, Any]:
    """What comes before the window, and how long it lasts at least. A rate has its own duration, a search its own times."""
    bench = plan.bench
    if point.speed is not None:  # it has a beginning of its own, which nothing may precede
        return {"warmup": 1 if bench.warmup == "handover" else bench.warmup}
    out: dict[str, Any] = {"warmup": bench.warmup}
    if bench.warmup == "handover":
        out["settle_pct"] = bench.settle_pct
    if bench.min_window_s and point.rate is None and point.search is None:
        out["min_window_s"] = bench.min_window_s
    return out


def _how_much(plan: Plan, load: Load) -> dict[str, Any]:
    """Streams and requests of a closed loop, or the rate and requests of an open one; a search sets them by itself."""
    point = load.point
    if point.search is not None:
        return (
            {"mode": "closed"} if point.search.by == "concurrency" else {"mode": "open", "seed": load.repeat}
        )
    trace = load.workload.trace
    if trace is not None:
        out: dict[str, Any] = {"mode": "open", "arrival": "trace", "rate": point.rate, "speed": point.speed}
        return {**out, "requests": len(trace.requests), "block_tokens": trace.block_tokens}
    if point.rate is not None:
        # The same arrivals for every configuration, others in each repeat.
        requests = math.ceil(point.rate * point.duration_s) * load.workload.turns
        return {"mode": "open", "rate": point.rate, "seed": load.repeat, "requests": requests}
    each, turns = plan.bench.requests_per_stream, load.workload.turns
    if turns > 1:  # whole conversations; of one alone most turns would be cut off at the window's close
        each = max(LEAST_CONVERSATIONS, -(-each // turns)) * turns
    requests = each * point.concurrency
    if load.workload.dataset is not None:
        # Each prompt as often as any other: a category's figures rest on all of its prompts.
        once = len(load.workload.prompts) * turns
        requests = once * math.ceil(requests / once)
    return {"mode": "closed", "concurrency": point.concurrency, "requests": requests}


def _at_most_s(plan: Plan, point: LoadPoint) -> float:
    """How long a cell may be measured: a search at each load of its doublings and halvings, and at the confirmation."""
    search = point.search
    if search is None:
        return plan.bench.time_limit_s
    loads = math.ceil(math.log2(search.most / search.start)) + 4
    return loads * search.point_s + (plan.bench.time_limit_s if search.confirm_s else 0.0)


def base_name(spec: CellSpec) -> str:
    """The workload's name in the plan."""
    name = spec.workload.removesuffix(f":{spec.group}") if spec.group else spec.workload
    return name.removesuffix(f"/{spec.sampling}") if spec.sampling else name


def matches(rule: SkipRule, spec: CellSpec) -> bool:
    """Whether `rule` skips this cell."""
    pairs: tuple[tuple[tuple[Any, ...], Any], ...] = (
        (rule.config, spec.config),
        (rule.workload, base_name(spec)),
        (rule.tp, spec.tp),
        (rule.concurrency, spec.concurrency),
        (rule.context, spec.context),
        (rule.output_tokens, spec.output_tokens),
        (rule.rate, spec.rate),
        (rule.sampling, spec.sampling),
        (rule.repeat, spec.repeat + 1),
        (rule.search, spec.search.by if spec.search is not None else None),
    )
    return all(not wanted or value in wanted for wanted, value in pairs)
