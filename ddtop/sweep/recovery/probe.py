"""The probe from the sweep's side: what it asks of the host, and what is wrong with the host by its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ddtop.hosts.base import Host
from ddtop.services.base import Service, read_listener
from ddtop.services.containers import container_name, inspect_container
from ddtop.services.kinds import OUTSIDE_SYSTEMD
from ddtop.services.readings import UnitReading, read_unit
from ddtop.services.unit.systemctl_show import exec_argv
from ddtop.sweep.recovery.probe_gpus import recovery_actions
from ddtop.sweep.shared.limits import PROBE_S
from ddtop.sweep.shared.plan import Sweep


def probe_args(sweep: Sweep | None) -> dict[str, Any]:
    """Arguments of the agent's `probe` for a plan; of a host alone without one."""
    if sweep is None:
        return {"units": [], "timeout_s": PROBE_S}
    units = [u for u in sweep.units if not is_outside_systemd(sweep, u)]
    model = sweep.model
    return {
        "units": units,
        "port": sweep.port,
        "model": model.path if model else None,
        "sources": [s for s in model.sources if not s.startswith("hf:")] if model else [],
        "results": [],
        "disks": [model.path] if model else [],
        "timeout_s": PROBE_S,
    }


def is_outside_systemd(sweep: Sweep, unit: str) -> bool:
    """Whether `unit` is no unit of the system's manager, so that systemctl cannot be asked about it."""
    return any(x.unit == unit and (x.kind in OUTSIDE_SYSTEMD or x.user) for x in sweep.launches.values())


async def probe(host: Host, sweep: Sweep | None, services: Iterable[Service] = ()) -> dict[str, Any]:
    """Probes the whole host in one round trip. Raises HostLostError, AgentError.

    `services` are those that the system's manager does not have (processes, containers, a user's units): they are
    read one by one and stand in `units` beside the others.
    """
    found = await host.call("probe", **probe_args(sweep))
    plain = {service.unit: as_props(await service.read(host)) for service in services}
    if plain:
        units = found.get("units")
        found["units"] = {**(units if isinstance(units, dict) and "error" not in units else {}), **plain}
    if containers := await _containers(host, found):
        found["containers"] = containers
    return found


async def _containers(host: Host, found: Mapping[str, Any]) -> dict[str, str]:
    """unit → `ID@StartedAt@IP,IP` of the container that its `docker run` holds: what runs there is ours."""
    units = found.get("units")
    ids: dict[str, str] = {}
    for unit, props in units.items() if isinstance(units, dict) else ():
        if not isinstance(props, dict):
            continue
        reading = read_unit(unit, props, 0.0)
        name = container_name(exec_argv(reading.argv))
        if name is not None and reading.running and (shown := await inspect_container(host, *name)):
            ids[unit] = shown
    return ids


def as_props(reading: UnitReading) -> dict[str, str]:
    """A reading as systemctl's properties, in which the probe gives units."""
    return {
        "LoadState": reading.load or "",
        "ActiveState": reading.active or "",
        "SubState": reading.sub or "",
        "Result": reading.result or "",
        "MainPID": str(reading.main_pid or 0),
        "InvocationID": reading.generation or "",
        "NeedDaemonReload": "yes" if reading.need_reload else "no",
    }


def host_problems(probe: Mapping[str, Any], sweep: Sweep) -> list[str]:
    """What is wrong with the host, in words; empty when a sweep can go on."""
    wrong: list[str] = []
    gpus = probe.get("gpus")
    if isinstance(gpus, Mapping) and "error" in gpus and "no nvidia-smi" not in str(gpus["error"]):
        wrong.append(f"GPUs: {gpus['error']}")
    elif isinstance(gpus, Mapping) and any(
        word in str(gpus.get("csv", ""))
        for word in ("requires reset", "ERR!", "Unknown Error", "GPU is lost")
    ):
        wrong.append("a GPU needs a reset or is lost")
    wrong += [f"GPU {index}: the driver asks for {action}" for index, action in recovery_actions(probe)]
    model = probe.get("model")
    if (
        sweep.model is not None
        and isinstance(model, Mapping)
        and model.get("verdict") not in (None, "complete")
    ):
        wrong.append(f"model {model.get('verdict')} in {sweep.model.path}")
    disks = probe.get("disks")
    for path, disk in (disks if isinstance(disks, Mapping) else {}).items():
        if isinstance(disk, Mapping) and disk.get("free_b") is not None and disk["free_b"] < 16 << 20:
            wrong.append(f"no space left at {path}")
    if not _any_outside_systemd(sweep):
        ours = set(sweep.units)
        listeners = probe.get("listeners")
        wrong += [
            f"port {row.get('port')} belongs to {row.get('comm')} (pid {row.get('pid')})"
            for row in (listeners if isinstance(listeners, list) else [])
            if row.get("pid") is not None
            and not is_ours(row, ours, probe.get("containers"))
            and row.get("port") == sweep.port
        ]
    return wrong


def is_ours(row: Mapping[str, Any], units: Collection[str], containers: Any) -> bool:
    """Whether a process or listener of the probe belongs to one of `units`, or to a container of theirs."""
    unit = str(row.get("unit") or "")
    if unit in units:
        return True
    for shown in containers.values() if isinstance(containers, Mapping) else ():
        ident, _, rest = str(shown).partition("@")
        if ident and (ident == row.get("docker") or f"-{ident}." in unit):
            return True
        if row.get("proxy_to") and row["proxy_to"] in rest.partition("@")[2].split(","):
            return True
    return False


def _any_outside_systemd(sweep: Sweep) -> bool:
    return any(x.kind in OUTSIDE_SYSTEMD for x in sweep.launches.values())


def foreign_on_port(reply: Mapping[str, Any], service: Service, unit: UnitReading | None) -> str | None:
    """The foreign process that listens on the port, in words; None where there is none."""
    for row in reply["listeners"]:
        item = read_listener(service, row, unit)
        if item.owned is False:
            return item.who
    return None
