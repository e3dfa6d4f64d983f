"""`nvidia-smi -q` as text: sections by indentation, in the wording of old and new drivers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.query_csv import build_sample
from ddtop.sources.gpu.smi.value import flag, read_cell

# (section, key) in lower case -> query name. The section is the nearest heading; "" is the GPU itself.
_KEYS: dict[tuple[str, str], str] = {
    ("", "product name"): "name",
    ("", "gpu uuid"): "uuid",
    ("", "fan speed"): "fan.speed",
    ("", "performance state"): "pstate",
    ("", "persistence mode"): "persistence_mode",
    ("", "compute mode"): "compute_mode",
    ("", "gpu recovery action"): "gpu_recovery_action",
    ("mig mode", "current"): "mig.mode.current",
    ("fb memory usage", "total"): "memory.total",
    ("fb memory usage", "used"): "memory.used",
    ("fb memory usage", "free"): "memory.free",
    ("fb memory usage", "reserved"): "memory.reserved",
    ("utilization", "gpu"): "utilization.gpu",
    ("utilization", "memory"): "utilization.memory",
    ("temperature", "gpu current temp"): "temperature.gpu",
    ("temperature", "memory current temp"): "temperature.memory",
    ("clocks", "sm"): "clocks.current.sm",
    ("clocks", "graphics"): "clocks.current.graphics",
    ("clocks", "memory"): "clocks.current.memory",
    ("max clocks", "sm"): "clocks.max.sm",
    ("max clocks", "graphics"): "clocks.max.graphics",
    ("remapped rows", "pending"): "remapped_rows.pending",
    ("remapped rows", "remapping failure occurred"): "remapped_rows.failure",
}
_POWER = {
    "power draw": "power.draw",
    "average power draw": "power.draw.average",
    "instantaneous power draw": "power.draw.instant",
    "current power limit": "enforced.power.limit",
    "enforced power limit": "enforced.power.limit",
    "requested power limit": "power.limit",
    "power limit": "power.limit",
    "default power limit": "power.default_limit",
    "min power limit": "power.min_limit",
    "max power limit": "power.max_limit",
}
_REASONS = {
    "idle": "gpu_idle",
    "applications clocks setting": "applications_clocks_setting",
    "sw power cap": "sw_power_cap",
    "hw slowdown": "hw_slowdown",
    "hw thermal slowdown": "hw_thermal_slowdown",
    "hw power brake slowdown": "hw_power_brake_slowdown",
    "sync boost": "sync_boost",
    "sw thermal slowdown": "sw_thermal_slowdown",
    "display clock setting": "display_clocks_setting",
}
_GPU = re.compile(r"^GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s{0,4}$")
_ROW = re.compile(r"^(?P<indent>\s{4,40})(?P<key>\S.{0,80}?)\s{0,60}(?::\s(?P<value>.{0,200}))?$")


def parse_q_text(text: str) -> list[tuple[int, GpuSample]]:
    """The GPUs of a `-q` output (complete, or sections by `-d`), each with its first line; [] for other text."""
    out: list[tuple[int, GpuSample]] = []
    values: list[tuple[str, str]] | None = None
    start = 0
    for at, line, section, key, value in _rows(text):
        if section is None:
            if values is not None:
                out.append((start, build_sample(values, {"index": len(out)})))
            values, start = [("pci.bus_id", line)], at
        elif values is not None and (name := _name(section, key, value)):
            values.append((name, value))
    if values is not None:
        out.append((start, build_sample(values, {"index": len(out)})))
    return out


def _name(section: str, key: str, value: str) -> str | None:
    if section in {"gpu power readings", "power readings"}:
        return _POWER.get(key)
    if section in {"clocks event reasons", "clocks throttle reasons", "hw slowdown"}:
        known = key in _REASONS and flag(value) is not None
        return f"clocks_event_reasons.{_REASONS[key]}" if known else None
    name = _KEYS.get((section, key))
    return name if name != "gpu_recovery_action" or read_cell(value).problem is None else None


def _rows(text: str) -> Iterator[tuple[int, str, str | None, str, str]]:
    """(line number, bus id or line, section or None at a GPU's head, key, value)."""
    headings: list[tuple[int, str]] = []
    for at, line in enumerate(text.splitlines(), 1):
        if len(line) > 400:
            continue
        if head := _GPU.match(line):
            headings = []
            yield at, head["bus"], None, "", ""
            continue
        row = _ROW.match(line.rstrip())
        if not row:
            continue
        indent = len(row["indent"])
        while headings and headings[-1][0] >= indent:
            headings.pop()
        key = row["key"].strip().lower()
        if row["value"] is None:
            headings.append((indent, key))
            continue
        yield at, line, headings[-1][1] if headings else "", key, row["value"].strip()
        if key == "hw slowdown":
            headings.append((indent, key))
