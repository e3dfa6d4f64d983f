"""Reconcile: what the recording says, compared with what the host shows → steps with reasons. Pure.

A step that costs neither a restart nor a copy needs no consent. What cannot be read is named as unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtop.events import Generation, Step
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import RestartView
from ddtop.journal.read.select import key_of
from ddtop.services.kinds import OUTSIDE_SYSTEMD
from ddtop.services.readings import UnitReading, read_unit
from ddtop.sweep.recovery.foreign import gpu_holders, holder
from ddtop.sweep.recovery.probe import is_ours
from ddtop.sweep.recovery.probe_gpus import comparable_facts, used_mib
from ddtop.sweep.shared.plan import Sweep, next_key, open_cells
from ddtop.words import unknown_words

KEEP_JOBS = 5
SPENT_KINDS = ("loadgen", "exec", "stage", "selftest")
"""Kinds of job that end by themselves; a server is none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The last start that became ready, by the recording."""

    key: str
    config: str
    generation: Generation
    engine_version: str | None = None


def last_ready(state: State) -> Server | None:
    """The server that ddtop last saw ready; None where there was none, or a later start was tried."""
    for restart in reversed(state.restarts):
        if restart.outcome != "ready":
            return None
        key = key_of(state, restart.cell_ids)
        if restart.generation is None or key is None:
            return None
        return Server(
            key=key,
            config=restart.config,
            generation=restart.generation,
            engine_version=restart.engine_version,
        )
    return None


def units_of(probe: Mapping[str, Any]) -> dict[str, UnitReading]:
    """The probe's units as readings; empty where that section failed."""
    section = probe.get("units")
    if not isinstance(section, Mapping) or "error" in section:
        return {}
    return {
        unit: read_unit(unit, props, 0.0) for unit, props in section.items() if isinstance(props, Mapping)
    }


def unreadable(probe: Mapping[str, Any]) -> list[str]:
    """Sections of the probe that failed, or that this login may not read, in words."""
    # `gpm` is unknown until its stream was tried once in this boot: that is no question of rights.
    words = [f"{w}: {why}" for w, why in unknown_words(probe).items() if w != "gpm"]
    for name in ("gpus", "units", "model", "jobs", "overrides", "listeners", "disks"):
        section = probe.get(name)
        if isinstance(section, Mapping) and isinstance(section.get("error"), str):
            words.append(f"{name}: {section['error']}")
    return words


def running_server(state: State, probe: Mapping[str, Any], sweep: Sweep) -> Server | None:
    """The last ready server, if the same start still runs."""
    server = last_ready(state)
    if server is None or server.key not in sweep.launches:
        return None
    unit = units_of(probe).get(sweep.launches[server.key].unit)
    if unit is None or not unit.running or unit.active != "active" or unit.need_reload:
        return None
    same = probe.get("boot") == server.generation.boot and unit.generation is not None
    return server if same and server.generation.id.startswith(unit.generation or "?") else None


def start_under_way(state: State, probe: Mapping[str, Any], sweep: Sweep) -> RestartView | None:
    """A restart whose watcher was lost (connection or runner) while the new process lives on; None otherwise."""
    last = state.restart
    if last is None or last.outcome not in ("running", "interrupted") or last.cause is not None:
        return None
    unit = units_of(probe).get(last.unit)
    key = key_of(state, last.cell_ids)
    if unit is None or not unit.running or unit.generation is None or key not in sweep.launches:
        return None
    before = last.generation_before
    if before is not None and (before.boot != probe.get("boot") or before.id.startswith(unit.generation)):
        return None
    if before is None and state.host.reboots:
        return None
    return None if unit.need_reload else last


def reconcile(
    state: State, probe: Mapping[str, Any], sweep: Sweep, *, run_id: str, resumed: bool = True
) -> tuple[Step, ...]:
    """The steps that lead from here to the next cell, in the order in which they are done.

    `resumed` False: the first start of a run that a person has just ordered; copying and restarting need no consent.
    """
    steps: list[Step] = []
    todo = open_cells([(c.spec, c.state) for c in state.plan_cells])
    server = running_server(state, probe, sweep)
    jobs = _jobs(probe, run_id)
    steps += _warnings(state, probe, sweep)
    steps += _job_steps(state, jobs)
    steps += _override_steps(probe, run_id, sweep)
    steps += _foreign_steps(probe, sweep)
    alive = next((j for j in jobs if j.get("state") == "running" and j.get("kind") == "loadgen"), None)
    if alive is not None and server is not None:
        return tuple(steps)
    if not todo:
        return tuple(steps)
    key = next_key(todo, server.key if server else None)
    launch = sweep.launches[key] if key else None
    if server is not None and key == server.key:
        reason = (
            f"{sweep.launches[key].unit} still runs the start that was ready ({server.generation.id[:12]})"
        )
        steps.append(_step("go-on", f"go on with the next cell of {server.config}", reason))
        return tuple(steps)
    pending = start_under_way(state, probe, sweep)
    if pending is not None and key == key_of(state, pending.cell_ids):
        reason = f"{pending.unit} was restarted just before and runs a new start: it is watched, not restarted again"
        steps.append(_step("go-on", f"go on watching the start of {pending.config}", reason))
        return tuple(steps)
    steps += _model_steps(probe, sweep, consent=resumed)
    if launch is not None:
        steps.append(_restart_step(state, probe, launch.config, launch.unit, sweep, resumed))
    return tuple(steps)


def _step(
    action: str, title: str, reason: str, *, consent: bool = False, detail: str | None = None, key: str = ""
) -> Step:
    return Step(
        id=f"{action}:{key}" if key else action,
        action=action,
        title=title,
        reason=reason,
        needs_consent=consent,
        detail=detail,
    )


def _jobs(probe: Mapping[str, Any], run_id: str) -> list[Mapping[str, Any]]:
    section = probe.get("jobs")
    if not isinstance(section, list):
        return []
    return [j for j in section if j.get("run") == run_id]


def _job_steps(state: State, jobs: list[Mapping[str, Any]]) -> list[Step]:
    """Jobs of this run with results that are not recorded: waited for, or collected."""
    steps = []
    for job in jobs:
        if not _measures(state, job):
            continue
        name = str(job.get("job"))
        if job.get("state") == "running":
            steps.append(
                _step(
                    "wait-job", f"wait for {name}", "it is still measuring on the host", detail=name, key=name
                )
            )
        elif not _collected(state, job):
            reason = (
                f"it ended ({job.get('state')}) while no runner watched; it has {job.get('results')} results"
            )
            steps.append(_step("collect", f"collect {name}", reason, detail=name, key=name))
    return steps


def _measures(state: State, job: Mapping[str, Any]) -> bool:
    """Whether a job measures cells: of commands, scripts that set up a service do not."""
    if job.get("kind") != "exec":
        return job.get("kind") == "loadgen"
    return any(attempt.job == job.get("job") for cell in state.cells.values() for attempt in cell.attempts)


def _collected(state: State, job: Mapping[str, Any]) -> bool:
    name = str(job.get("job"))
    return int(job.get("results") or 0) <= sum(cell.has_result_of(name) for cell in state.cells.values())


def spent_jobs(state: State, jobs: Sequence[Mapping[str, Any]], run_id: str) -> list[str]:
    """Ended jobs of this run of which the host need keep no files: all their results are recorded. The newest KEEP_JOBS stay,
    whose logs a person may want to read. `jobs`: the oldest first."""
    ended = [
        job
        for job in jobs
        if job.get("run") == run_id and job.get("kind") in SPENT_KINDS and job.get("state") != "running"
    ]
    older = ended[: max(0, len(ended) - KEEP_JOBS)]
    return [str(job["job"]) for job in older if not _measures(state, job) or _collected(state, job)]


def _override_steps(probe: Mapping[str, Any], run_id: str, sweep: Sweep) -> list[Step]:
    section = probe.get("overrides")
    if not isinstance(section, list):
        return []
    steps = []
    now = float(probe.get("at_s") or 0.0)
    for row in section:
        if row.get("run") == run_id:
            continue
        expired = float(row.get("expires_at_s") or 0.0) < now
        why = "its run is over" if expired else f"it belongs to run {row.get('run')}, which may still run"
        if not expired and row.get("unit") not in sweep.units:
            continue
        steps.append(
            _step(
                "restore",
                f"remove the override of {row.get('unit')}",
                why,
                consent=not expired,
                detail=str(row.get("path")),
                key=f"{'user ' if row.get('user') else ''}{row.get('unit')}",
            )
        )
    return steps


def _foreign_steps(probe: Mapping[str, Any], sweep: Sweep) -> list[Step]:
    """Waits for processes on the GPUs or the port that belong to none of the plan's units."""
    ours = set(sweep.units)
    on_gpu = gpu_holders(probe, sweep, units_of(probe))
    steps = []
    named: set[Any] = set()
    listeners = probe.get("listeners")
    # Of a plain process or a container the probe knows the main pid only: a listener may be a child of it.
    plain = {x.unit for x in sweep.launches.values() if x.kind in OUTSIDE_SYSTEMD}
    plain_runs = any(unit in plain and reading.running for unit, reading in units_of(probe).items())
    for row in listeners if isinstance(listeners, list) else []:
        if is_ours(row, ours, probe.get("containers")) or row.get("pid") is None or plain_runs:
            continue
        # One server that has both is one thing to wait for: its GPU memory goes when it does.
        both = [
            g
            for g in on_gpu
            if g.get("pid") == row["pid"] or (row.get("unit") and g.get("unit") == row["unit"])
        ]
        named |= {g.get("pid") for g in both}
        mib = sum(float(g.get("mem_mib") or 0) for g in both)
        steps.append(
            _step(
                "ask",
                f"wait for {holder({**row, **(both[0] if both else {})})} to leave port {row.get('port')}",
                (f"it holds {mib:.0f} MiB of GPU memory too and" if both else "it")
                + " belongs to none of the plan's units",
                consent=True,
                detail=f"pid {row.get('pid')}",
                key=f"port{row.get('port')}",
            )
        )
    return steps + [
        _step(
            "ask",
            f"wait for {holder(row)} to leave the GPUs",
            f"it holds {row.get('mem_mib'):.0f} MiB and belongs to none of the plan's units",
            consent=True,
            detail=f"pid {row.get('pid')}",
            key=f"pid{row.get('pid')}",
        )
        for row in on_gpu
        if row.get("pid") not in named
    ]


def _model_steps(probe: Mapping[str, Any], sweep: Sweep, *, consent: bool) -> list[Step]:
    model = probe.get("model")
    if sweep.model is None or not isinstance(model, Mapping):
        return []
    path = sweep.model.path
    if "error" in model:
        return [_step("warn", f"the model at {path} could not be checked", str(model["error"]), key="model")]
    verdict = model.get("verdict")
    if verdict == "complete":
        return []
    source = next((s for s in model.get("sources", []) if s.get("verdict") == "complete"), None)
    origin = source["path"] if source else next((s for s in sweep.model.sources if s.startswith("hf:")), None)
    if origin is None:
        reason = _not_whole(model, path, sweep.model.sources)
        return [_step("ask", f"the model at {path} is not complete", reason, consent=True, key="model")]
    bad = {name for key in ("missing", "truncated", "sparse", "corrupt") for name in model.get(key) or ()}
    count = len(bad) + int(model.get("pointer_files") or 0)
    part = (
        f"{count} {'files are' if count != 1 else 'file is'} missing or damaged"
        if model.get("present_shards") and count
        else str(model.get("cause", verdict))
    )
    return [
        _step(
            "stage",
            f"re-stage {sweep.model.name or path} from {origin}",
            f"{path}: {part}",
            consent=consent,
            detail=path,
        )
    ]


def _not_whole(model: Mapping[str, Any], path: str, sources: Iterable[str]) -> str:
    """Why the model cannot be staged: what is wrong here, and with each source that the plan names."""
    named = [s for s in sources if not s.startswith("hf:")]
    words = [
        f"{path}: {_bad_files(model)}",
        *(f"source {source.get('path')}: {_bad_files(source)}" for source in model.get("sources", [])),
    ]
    if not named:
        words.append("the plan names no source: name one in [model] sources")
    return "; ".join(words)


def _bad_files(model: Mapping[str, Any]) -> str:
    """What is wrong with a copy of a model, its first bad file by name."""
    for key in ("truncated", "corrupt", "sparse", "missing"):
        names = [str(n) for n in model.get(key) or ()]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            return f"{names[0]}{more} {'is' if len(names) == 1 else 'are'} {key}"
    return str(model.get("error") or model.get("cause") or model.get("verdict") or "not complete")


def _restart_step(
    state: State, probe: Mapping[str, Any], config: str, unit: str, sweep: Sweep, resumed: bool
) -> Step:
    reading = units_of(probe).get(unit)
    last = state.restart
    before = (last.generation or last.generation_before) if last is not None else None
    rebooted = before is not None and before.boot != probe.get("boot")
    if rebooted:
        reason = "the host was rebooted: the run-time override is gone and must be written again"
    elif reading is None:
        reason = f"the state of {unit} is not known"
    elif not reading.running:
        reason = f"{unit} is {reading.active or 'unknown'}"
    elif reading.need_reload:
        reason = f"{unit} runs old arguments (NeedDaemonReload=yes)"
    else:
        reason = f"{unit} does not run {config}"
    return _step("restart", f"restart {unit} for {config}", reason, consent=resumed, detail=unit)


def _warnings(state: State, probe: Mapping[str, Any], sweep: Sweep) -> list[Step]:
    """What changed on the host since the last probe, and what cannot be read."""
    steps = [
        _step("warn", f"unknown: {word}", "it could not be read", key=f"unknown-{i}")
        for i, word in enumerate(unreadable(probe))
    ]
    old = state.probe
    if not old:
        return steps
    if old.get("kernel") and probe.get("kernel") and old["kernel"] != probe["kernel"]:
        steps.append(
            _step("warn", "the kernel changed", f"{old['kernel']} → {probe['kernel']}", key="kernel")
        )
    before, now = comparable_facts(old), comparable_facts(probe)
    steps += [
        _step("warn", f"{name} changed", f"{before[name]} → {now[name]}", key=name)
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    ]
    return steps


def consequences(probe: Mapping[str, Any], sweep: Sweep | None) -> tuple[str, ...]:
    """What a reboot did, in words: GPU memory, units, the model in tmpfs."""
    words = []
    used = used_mib(probe)
    if used:
        words.append("GPUs " + ", ".join(dict.fromkeys(f"{mib:.0f} MiB" for mib in used)))
    for unit, reading in units_of(probe).items():
        words.append(f"{unit} {reading.active or 'unknown'}")
    model = probe.get("model")
    if isinstance(model, Mapping) and sweep is not None and sweep.model is not None and "verdict" in model:
        state = (
            "complete"
            if model["verdict"] == "complete"
            else "MISSING"
            if not model.get("present_shards")
            else str(model["verdict"])
        )
        words.append(f"model {state} in {sweep.model.path}")
    return tuple(words)
