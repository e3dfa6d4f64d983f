"""A checked plan, as the sweep runs it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

import msgspec

from ddtop.plan.cells import expand
from ddtop.plan.launch import LaunchSpec
from ddtop.plan.model import Plan
from ddtop.plan.refine import further
from ddtop.services.base import Launch
from ddtop.sweep.shared.plan import Bench, ModelWanted, Sweep
from ddtop.sweep.shared.policy import Policy


def unit_name(name: str, kind: str) -> str:
    """A unit as systemd names it; the names of other kinds are left as they are.

    >>> unit_name("kimi", "command"), unit_name("kimi.service", "systemd"), unit_name("kimi", "process")
    ('kimi.service', 'kimi.service', 'kimi')
    """
    if kind in ("systemd", "command") and "." not in PurePosixPath(name).name:
        return f"{name}.service"
    return name


def launch_from(spec: LaunchSpec, own: Collection[str] = ()) -> Launch:
    """One start of a server. `own`: the plan's servers, run as this one is; what else must be stopped is a systemd unit."""
    return Launch(
        key=spec.restart_key,
        config=spec.config,
        tp=spec.tp,
        kind=spec.kind,
        unit=unit_name(spec.unit, spec.kind),
        engine=spec.engine,
        port=spec.port,
        argv=spec.argv,
        env=spec.env,
        stop_units=tuple(unit_name(u, spec.kind if u in own else "systemd") for u in spec.stop_units),
        configure=spec.configure,
        timeout_s=spec.timeout_s,
        user=spec.user,
        cwd=spec.cwd,
        model_path=spec.model_path,
    )


def sweep_from(plan: Plan) -> Sweep:
    """The whole plan: cells in running order, launches by restart key, and how each cell is measured."""
    planned, more = expand(plan), further(plan)
    command = plan.bench.kind == "command"
    bench = Bench(
        kind="command" if command else "loadgen",
        cells={} if command else {c.spec.id: c.bench.load for c in (*planned, *more)},
        commands={c.spec.id: c.bench.argv for c in (*planned, *more)} if command else {},
        format=plan.bench.format,
        metrics=plan.bench.metrics,
        time_limit_s=plan.bench.time_limit_s,
        env=plan.bench.env,
        slo=plan.bench.slo,
    )
    launches: dict[str, Launch] = {}
    own = {cell.launch.unit for cell in planned}
    for cell in planned:
        launches.setdefault(cell.launch.restart_key, launch_from(cell.launch, own))
    model = plan.model
    return Sweep(
        name=plan.name,
        cells=tuple(c.spec for c in planned),
        further=tuple(c.spec for c in more),
        launches=launches,
        baseline=plan.matrix.baseline,
        rounds=plan.matrix.rounds,
        model=ModelWanted(path=model.path, sources=model.sources, name=model.name) if model else None,
        bench=bench,
        policy=Policy(**msgspec.structs.asdict(plan.policy)),
        slurm=plan.slurm,
        endpoint=plan.sampling.endpoint,
        log_mib=plan.record.log_mib,
        selftest=plan.record.selftest,
        notify_command=plan.notify.command,
        webhook_env=plan.notify.webhook_env,
        plan_toml=plan.text or None,
        plan_path=plan.path,
        plan_files=plan.files,
        plan_env=plan.env,
        plan_datasets=plan.datasets,
    )
