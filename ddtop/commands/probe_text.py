"""What `ddtop connect HOST --once` prints: the probe, for people or as JSON. What is not known is absent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ddtop.errors import plain
from ddtop.sources.gpu.sample import GpuSample, sample_dict
from ddtop.sources.gpu.smi.query_csv import parse_query_csv
from ddtop.sweep.tell.lease_words import lease_line
from ddtop.words import duration, unknown_words

SCHEMA = 1
GIB = 1 << 30


def gpus_of(probe: Mapping[str, Any]) -> tuple[GpuSample, ...]:
    """The GPUs of a probe, from nvidia-smi's own text (or NVML's readings); empty where neither could be asked."""
    gpus = probe.get("gpus")
    if isinstance(gpus, tuple):
        return gpus
    if not isinstance(gpus, Mapping) or not isinstance(gpus.get("csv"), str):
        return ()
    return tuple(sample for _, sample in parse_query_csv(gpus["csv"].splitlines(), gpus.get("fields")))


def probe_json(host: str, target: str, probe: Mapping[str, Any], rtt_ms: float | None) -> str:
    """The probe as one JSON object, with the GPUs parsed."""
    gpus = probe.get("gpus")
    shown: Any = [sample_dict(s) for s in gpus_of(probe)]
    if isinstance(gpus, Mapping) and "error" in gpus:
        shown = {"error": gpus["error"]}
    out = {"schema": SCHEMA, "host": host, "target": target, "rtt_ms": rtt_ms, **probe, "gpus": shown}
    return json.dumps({k: v for k, v in out.items() if v is not None}, indent=1, ensure_ascii=False)


def probe_text(host: str, target: str, probe: Mapping[str, Any], rtt_ms: float | None) -> str:
    """The probe as text: uptime, GPUs, services, port, model, disks, jobs, and what could not be read."""
    head = (
        f"{host} ({target}) up {duration(probe['uptime_s'])}" if "uptime_s" in probe else f"{host} ({target})"
    )
    lines = [
        head + (f" · rtt {rtt_ms:.1f} ms" if rtt_ms is not None else "") + f" · {probe.get('kernel', '')}"
    ]
    lines += _gpu_lines(probe)
    lines += [_unit_line(name, props) for name, props in _table(probe.get("units")).items()]
    lines += [_server_line(s) for s in _rows(probe.get("servers"))]
    model = probe.get("model")
    if isinstance(model, Mapping):
        why = model.get("cause") or model.get("error")
        lines.append(
            f"model     {model.get('path', '')} {model.get('verdict', 'unknown')}{f' ({why})' if why else ''}"
        )
    for path, disk in _table(probe.get("disks")).items():
        if "free_b" in disk:
            kind = " tmpfs" if disk.get("tmpfs") else ""
            lines.append(
                f"disk      {path} {disk['free_b'] / GIB:.1f} of {disk['size_b'] / GIB:.1f} GiB free{kind}"
            )
    lines += [f"job       {j.get('job')} {j.get('state')}" for j in _rows(probe.get("jobs"))]
    lines += [f"override  {o.get('path')} of run {o.get('run')}" for o in _rows(probe.get("overrides"))]
    lease = _mapping(probe.get("lease"))
    if holder := _mapping(lease.get("holder")):
        lines.append(f"lease     {lease_line(holder)}: {holder.get('why')}")
    lines += [f"waits     {lease_line(x)}" for x in _rows(lease.get("line"))]
    lines += [f"unknown   {word}: {why}" for word, why in unknown_words(probe).items()]
    for section, value in probe.items():
        if (
            isinstance(value, Mapping)
            and set(value) <= {"error", "code"}
            and section != "gpus"
            and "error" in value
        ):
            if section == "gpu_apps" and "error" in _mapping(probe.get("gpus")):
                continue
            lines.append(f"{section:9} not read: {value['error']}")
    return plain("\n".join(lines))


def _gpu_lines(probe: Mapping[str, Any]) -> list[str]:
    gpus = _mapping(probe.get("gpus"))
    if "error" in gpus:
        return [f"GPUs      not read: {gpus['error']}"]
    lines = []
    for s in gpus_of(probe):
        parts = [
            f"{s.power_w:.0f} W" if s.power_w is not None else None,
            f"{s.mem_used_mib:.0f}/{s.mem_total_mib:.0f} MiB"
            if s.mem_used_mib is not None and s.mem_total_mib is not None
            else None,
            f"{s.util_gpu_pct:.0f}%" if s.util_gpu_pct is not None else None,
            f"{s.temp_c:.0f}°" if s.temp_c is not None else None,
        ]
        lines.append(
            f"GPU {s.index if s.index is not None else '?':<5} {s.name or ''} · {' · '.join(p for p in parts if p)}"
        )
    for process in _rows(probe.get("gpu_procs")):
        owner = process.get("unit") or process.get("cgroup") or "no unit"
        lines.append(f"  held by {process.get('comm')} (pid {process.get('pid')}, {owner})")
    return lines


def _unit_line(name: str, props: Mapping[str, str]) -> str:
    if props.get("LoadState") == "not-found":
        return f"service   {name} is not installed there"
    pid = props.get("MainPID", "0")
    tail = f", pid {pid}" if pid not in ("", "0") else ""
    result = props.get("Result", "")
    why = f" ({result})" if result not in ("", "success") else ""
    return f"service   {name} {props.get('ActiveState', 'unknown')}/{props.get('SubState', '?')}{why}{tail}"


def _server_line(server: Mapping[str, Any]) -> str:
    return (
        f"server    {server.get('engine')} · pid {server.get('pid')} · port {server.get('port') or '?'} · "
        f"{server.get('model') or 'model not named'} · {server.get('unit') or 'no unit'}"
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _table(value: Any) -> dict[str, Mapping[str, Any]]:
    return {k: v for k, v in _mapping(value).items() if isinstance(v, Mapping)}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []
