"""A plan → its cells, in the order in which they will run, each with an id that only its content decides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ddtop.events import CellSpec
from ddtop.plan.launch import BenchSpec, LaunchSpec, PlannedCell
from ddtop.plan.model import Config, Plan, Scalar, SkipRule, Workload
from ddtop.plan.placeholders import fill
from ddtop.plan.problems import Problems

MAX_CELLS = 20_000
ID_LENGTH = 12


def expand(plan: Plan) -> tuple[PlannedCell, ...]:
    """All cells of `plan`, those to be skipped included.

    All cells of one server start stand together. `restart-cheapest`: TP by TP, the baseline first, then the
    configurations as written; starts that turn out the same are shared. A cell that reaches server and client
    exactly as an earlier one (a TP that the command does not use) is left out: it would be the same cell.
    """
    unique: dict[str, PlannedCell] = {}
    for cell in _all_cells(plan):
        unique.setdefault(cell.spec.id, cell)
    return tuple(unique.values())


def _all_cells(plan: Plan) -> tuple[PlannedCell, ...]:
    groups: dict[str, list[PlannedCell]] = {}
    for tp in plan.matrix.tp:
        for config in _ordered(plan):
            launch = launch_of(plan, config, tp)
            groups.setdefault(launch.restart_key, []).extend(_cells_of(plan, config, launch))
    return tuple(cell for group in groups.values() for cell in group)


def _ordered(plan: Plan) -> list[Config]:
    configs = list(plan.configs)
    if plan.matrix.order == "restart-cheapest":
        configs.sort(key=lambda c: c.name != plan.matrix.baseline)
    return configs


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
    """What decides how the server behaves: what reaches it, never how it is called in the plan."""
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


def _cells_of(plan: Plan, config: Config, launch: LaunchSpec) -> Iterator[PlannedCell]:
    for repeat in range(plan.matrix.repeats):
        for workload in plan.workloads:
            for tokens in workload.output_tokens:
                for context in plan.matrix.context:
                    for concurrency in plan.matrix.concurrency:
                        yield _cell(plan, config, launch, workload, tokens, context, concurrency, repeat)


def _cell(
    plan: Plan,
    config: Config,
    launch: LaunchSpec,
    workload: Workload,
    tokens: int,
    context: int,
    concurrency: int,
    repeat: int,
) -> PlannedCell:
    url = f"http://127.0.0.1:{launch.port}"
    if plan.bench.kind == "builtin":
        content, bench = _builtin(plan, launch, url, workload, tokens, context, concurrency, repeat)
    else:
        values: dict[str, Scalar] = {
            **_server_values(plan, config, launch.tp),
            "workload": workload.name,
            "output_tokens": tokens,
            "concurrency": concurrency,
            "context": context,
            "repeat": repeat,
            "url": url,
        }
        argv = tuple(fill(word, values) for word in plan.bench.argv)
        content = {
            "argv": argv,
            "env": plan.bench.env,
            "format": plan.bench.format,
            "metrics": plan.bench.metrics,
        }
        bench = BenchSpec(
            kind="command",
            argv=argv,
            env=plan.bench.env,
            format=plan.bench.format,
            metrics=plan.bench.metrics,
            time_limit_s=plan.bench.time_limit_s,
        )
    cell_id = _digest({"server": _server_content(launch), "client": content, "repeat": repeat})
    if plan.bench.kind == "builtin":
        bench = msgspec.structs.replace(bench, load={"id": cell_id, **bench.load})
    spec = CellSpec(
        id=cell_id,
        config=config.name,
        tp=launch.tp,
        workload=workload.name,
        output_tokens=tokens,
        concurrency=concurrency,
        context=context,
        repeat=repeat,
        restart_key=launch.restart_key,
        baseline=config.name == plan.matrix.baseline,
    )
    reason = next((rule.reason for rule in plan.matrix.skip if _matches(rule, spec)), None)
    if reason is not None:
        spec = msgspec.structs.replace(spec, skip_reason=reason)
    return PlannedCell(spec=spec, launch=launch, bench=bench)


def _builtin(
    plan: Plan,
    launch: LaunchSpec,
    url: str,
    workload: Workload,
    tokens: int,
    context: int,
    concurrency: int,
    repeat: int,
) -> tuple[dict[str, Any], BenchSpec]:
    """What reaches the client (it decides the id), and the whole LoadSpec (with limits, which do not)."""
    asked: dict[str, Any] = {
        "url": url,
        "engine": launch.engine,
        "endpoint": plan.sampling.endpoint,
        "prompts": workload.prompts,
        "context": context,
        "output_tokens": tokens,
        "exact_tokens": plan.sampling.ignore_eos,
        "temperature": plan.sampling.temperature,
        "extra_body": plan.sampling.extra_body,
        "mode": "closed",
        "concurrency": concurrency,
        "requests": plan.bench.requests_per_stream * concurrency,
        "warmup": plan.bench.warmup,
        "flush_cache": plan.bench.flush_cache,
    }
    if plan.bench.nonce:
        # The same for the same request of every configuration: it must not depend on the server's side.
        asked["nonce"] = _digest([workload.prompts, tokens, context, concurrency, repeat])
    limits = {
        "time_limit_s": plan.bench.time_limit_s,
        "request_timeout_s": plan.bench.request_timeout_s,
    }
    load = {**asked, "prompts": list(workload.prompts), **limits}
    return asked, BenchSpec(
        kind="builtin", load=load, slo=plan.bench.slo, time_limit_s=plan.bench.time_limit_s
    )


def _matches(rule: SkipRule, spec: CellSpec) -> bool:
    pairs: tuple[tuple[tuple[Any, ...], Any], ...] = (
        (rule.config, spec.config),
        (rule.workload, spec.workload),
        (rule.tp, spec.tp),
        (rule.concurrency, spec.concurrency),
        (rule.context, spec.context),
        (rule.output_tokens, spec.output_tokens),
    )
    return all(not wanted or value in wanted for wanted, value in pairs)


def count_cells(plan: Plan) -> int:
    """How many cells `expand` would make, without making them."""
    matrix = plan.matrix
    loads = sum(len(w.output_tokens) for w in plan.workloads)
    size = len(plan.configs) * len(matrix.tp) * len(matrix.concurrency) * len(matrix.context)
    return size * loads * matrix.repeats


def check_cells(plan: Plan, problems: Problems) -> None:
    """Faults that only the cells show: too many, two that are the same, a skip rule that skips nothing."""
    count = count_cells(plan)
    if count > MAX_CELLS:
        problems.fault(("matrix",), f"makes {count} cells", f"allowed: at most {MAX_CELLS}")
        return
    cells = _all_cells(plan)
    seen: dict[str, CellSpec] = {}
    for cell in cells:
        other = seen.setdefault(cell.spec.id, cell.spec)
        if other is not cell.spec:
            _explain_twins(plan, problems, other, cell.spec)
    for index, rule in enumerate(plan.matrix.skip):
        if not any(_matches(rule, cell.spec) for cell in cells):
            problems.warn(("matrix", "skip", index), "skips nothing", "no cell of this plan matches it")
    if cells and all(cell.spec.skip_reason is not None for cell in cells):
        problems.fault(("matrix", "skip"), "skips every cell", "leave some to run")
    if plan.bench.kind == "builtin":
        _check_prompts(plan, problems)


def _explain_twins(plan: Plan, problems: Problems, first: CellSpec, second: CellSpec) -> None:
    """Why two cells reach server and client alike: say which key has no effect."""
    script = plan.service.kind == "command"
    if first.config != second.config:
        problems.fault(
            ("configs",),
            f"{first.config} and {second.config} reach the server exactly alike",
            "their cells would be duplicates: use their values in args, command or env"
            if not script
            else "their cells would be duplicates: use their values in service.configure",
        )
    elif first.tp != second.tp:
        where = "service.configure" if script else "command or args"
        problems.warn(
            ("configs", first.config),
            f"{first.config} does not use {{tp}}: its cells at TP {second.tp} would be those at TP {first.tp}",
            f"put {{tp}} into its {where}; as it is, they are left out",
        )
    elif first.workload != second.workload:
        problems.fault(
            ("workload",),
            f"{first.workload} and {second.workload} ask exactly the same",
            "other prompts or output_tokens, or one of the two",
        )
    else:
        keys = ("output_tokens", "context", "concurrency", "repeat")
        key = next((k for k in keys if getattr(first, k) != getattr(second, k)), "repeat")
        problems.fault(
            ("bench", "argv"),
            f"does not use {{{key}}}",
            f"its values would give the same cell: add {{{key}}}",
        )


def _check_prompts(plan: Plan, problems: Problems) -> None:
    if plan.sampling.endpoint == "chat":
        return
    for index, workload in enumerate(plan.workloads):
        if any(isinstance(p, dict) and "messages" in p for p in workload.prompts):
            problems.fault(
                ("workload", index, "prompts_file"),
                f'holds messages, but sampling.endpoint is "{plan.sampling.endpoint}"',
                'endpoint = "chat", or plain prompts',
            )
