"""Read `nvidia-smi --query-gpu=… --format=csv…` of any driver: columns by name, in any order, with or without units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.value import Problem, flag, number, read_cell, reasons

# Synonymous query names -> the one that ddtop uses (help_query_gpu.txt of driver 580 and older).
ALIASES: dict[str, str] = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.gr": "clocks.current.graphics",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "gpu.utilization": "utilization.gpu",
    "temperature": "temperature.gpu",
    "temperature_gpu": "temperature.gpu",
    "temperature_memory": "temperature.memory",
}

# query name -> (attribute of GpuSample, kind of value)
COLUMNS: dict[str, tuple[str, str]] = {
    "index": ("index", "int"),
    "uuid": ("uuid", "text"),
    "name": ("name", "text"),
    "serial": ("serial", "text"),
    "pci.bus_id": ("bus_id", "text"),
    "timestamp": ("stamp", "text"),
    "count": ("count", "int"),
    "driver_version": ("driver_version", "text"),
    "compute_cap": ("compute_cap", "text"),
    "power.draw": ("power_draw_w", "number"),
    "power.draw.instant": ("power_instant_w", "number"),
    "power.draw.average": ("power_average_w", "number"),
    "enforced.power.limit": ("power_enforced_limit_w", "number"),
    "power.limit": ("power_requested_limit_w", "number"),
    "power.default_limit": ("power_default_limit_w", "number"),
    "power.min_limit": ("power_min_limit_w", "number"),
    "power.max_limit": ("power_max_limit_w", "number"),
    "memory.used": ("mem_used_mib", "number"),
    "memory.total": ("mem_total_mib", "number"),
    "memory.free": ("mem_free_mib", "number"),
    "memory.reserved": ("mem_reserved_mib", "number"),
    "utilization.gpu": ("util_gpu_pct", "number"),
    "utilization.memory": ("util_mem_pct", "number"),
    "utilization.encoder": ("util_enc_pct", "number"),
    "utilization.decoder": ("util_dec_pct", "number"),
    "temperature.gpu": ("temp_c", "number"),
    "temperature.memory": ("mem_temp_c", "number"),
    "fan.speed": ("fan_pct", "number"),
    "clocks.current.sm": ("sm_clock_mhz", "number"),
    "clocks.current.graphics": ("gfx_clock_mhz", "number"),
    "clocks.current.memory": ("mem_clock_mhz", "number"),
    "clocks.max.sm": ("sm_clock_max_mhz", "number"),
    "clocks.max.graphics": ("gfx_clock_max_mhz", "number"),
    "pstate": ("pstate", "text"),
    "mig.mode.current": ("mig", "flag"),
    "persistence_mode": ("persistence", "flag"),
    "compute_mode": ("compute_mode", "text"),
    "gpu_recovery_action": ("recovery_action", "text"),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", "int"),
    "remapped_rows.pending": ("remap_pending", "flag"),
    "remapped_rows.failure": ("remap_failure", "flag"),
    "pcie.link.gen.current": ("pcie_gen", "number"),
    "pcie.link.width.current": ("pcie_width", "number"),
    "fabric.state": ("fabric_state", "text"),
    "clocks_event_reasons.active": ("throttle_reasons", "reasons"),
    "clocks_throttle_reasons.active": ("throttle_reasons", "reasons"),
}
_REASON_PREFIXES = ("clocks_event_reasons.", "clocks_throttle_reasons.")
_UNIT = re.compile(r"\s{0,8}\[[^\]]{0,16}\]\s{0,8}$")
_QUERY_OPTION = re.compile(
    r"--(?:query-gpu|query-compute-apps|query-accounted-apps)[= ]\s{0,4}['\"]?([\w.,\- ]{1,4000})"
)


@lru_cache(maxsize=2048)
def field_name(column: str) -> str:
    """The canonical query name of a header cell: unit bracket, case and synonym removed.

    >>> field_name(" power.draw [W]"), field_name("gpu_name")
    ('power.draw', 'name')
    """
    plain = _UNIT.sub("", column.strip().strip("\ufeff")).strip().strip('"').lower()
    return ALIASES.get(plain, plain)


def is_known_field(name: str) -> bool:
    """Whether a canonical name is one that `GpuSample` has a field for."""
    return name in COLUMNS or name.startswith(_REASON_PREFIXES)


def is_header(cells: Sequence[str]) -> bool:
    """Whether a row is a header: at least half of its cells are known names, and none is a number."""
    if any(number(cell) is not None for cell in cells):  # the quickest sign of a row of readings
        return False
    names = [field_name(cell) for cell in cells]
    known = sum(map(is_known_field, names))
    if not known:
        return False
    return 2 * known >= len(names) or all(re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", n) for n in names if n)


def fields_of_command(command: str) -> list[str] | None:
    """The field list of a command line such as `nvidia-smi --query-gpu=index,name …`, or None."""
    found = _QUERY_OPTION.search(command)
    if not found:
        return None
    listed = found[1].split(" --")[0].strip().strip("'\"")
    return [part.strip() for part in listed.split(",") if part.strip()]


def split_row(line: str, width: int, names: Sequence[str]) -> list[str] | None:
    """Split one row into `width` cells; None if it has fewer. Only a GPU's name may contain a comma: surplus cells are
    joined to it."""
    cells = [cell.strip() for cell in line.split(",")]
    surplus = len(cells) - width
    if surplus < 0:
        return None
    if surplus:
        place = names.index("name") if "name" in names else width - 1
        cells[place : place + surplus + 1] = [", ".join(cells[place : place + surplus + 1])]
    return cells


def build_sample(values: Iterable[tuple[str, str]], extra: Mapping[str, Any] | None = None) -> GpuSample:
    """A `GpuSample` from (query name, printed text) pairs. Unknown names are skipped; values that cannot be
    read become None and are named in `absent_fields`, `denied_fields` or `error_fields` by attribute."""
    got: dict[str, Any] = {}
    lists: dict[Problem, list[str]] = {problem: [] for problem in Problem}
    flags: dict[str, bool] = {}
    for column, text in values:
        attribute, kind = _place(column)
        if kind == "reason":
            state = flag(text)
            if state is not None:
                flags[attribute] = state
            continue
        if not kind:
            continue
        cell = read_cell(text)
        value, problem = (None, cell.problem) if cell.problem else _convert(cell.text, kind)
        if attribute == "recovery_action" and cell.text.strip("[]").lower() == "none":
            value, problem = "none", None
        if problem is not None:
            lists[problem].append(attribute)
        elif got.get(attribute) is None:
            got[attribute] = value
    if flags and got.get("throttle_reasons") is None:
        got["throttle_reasons"] = tuple(name for name, on in flags.items() if on)
    got.update(extra or {})
    return _finish(got, lists)


@lru_cache(maxsize=2048)
def _place(column: str) -> tuple[str, str]:
    """Where a column's values go: (attribute, kind), (throttle reason, "reason"), or ("", "") if nowhere."""
    name = field_name(column)
    prefix = next((p for p in _REASON_PREFIXES if name.startswith(p)), None)
    if prefix and not name.endswith((".active", ".supported")):
        return name[len(prefix) :], "reason"
    return COLUMNS.get(name, ("", ""))


def _convert(text: str, kind: str) -> tuple[Any, Problem | None]:
    if kind == "text":
        return text, None
    value: Any
    if kind in {"number", "int"}:
        value = number(text)
        if kind == "int" and value is not None:
            value = int(value)
    elif kind == "flag":
        value = flag(text)
    else:
        value = reasons(text)
    return value, (Problem.ERROR if value is None else None)


_POWER = (("draw", "power_draw_w"), ("instant", "power_instant_w"), ("average", "power_average_w"))
_LIMIT = ("power_enforced_limit_w", "power_requested_limit_w")


def _finish(got: dict[str, Any], lists: dict[Problem, list[str]]) -> GpuSample:
    """Choose power and limit from their several readings, and name what is missing by the chosen attribute."""
    for source, attribute in _POWER:
        if got.get(attribute) is not None:
            got["power_w"], got["power_source"] = got[attribute], source
            break
    for attribute in _LIMIT:
        if got.get(attribute) is not None:
            got.setdefault("power_limit_w", got[attribute])
    troubled = any(lists.values())
    merged = {"power_draw_w": "power_w", **dict.fromkeys(_LIMIT, "power_limit_w")}
    for attribute in ("power_draw_w", *_LIMIT):
        got.pop(attribute, None)
    for problem, names in lists.items() if troubled else ():
        kept = [merged.get(name, name) for name in names]
        lists[problem] = [n for n in dict.fromkeys(kept) if got.get(n) is None]
    fault = next((p.value for p in (Problem.LOST, Problem.RESET) if lists[p]), None)
    got.setdefault("fault", fault)
    if not troubled:
        return GpuSample(**got)
    failed = (Problem.ERROR, Problem.RESET, Problem.LOST)
    return GpuSample(
        **got,
        absent_fields=tuple(lists[Problem.ABSENT]),
        denied_fields=tuple(lists[Problem.DENIED]),
        error_fields=tuple(name for problem in failed for name in lists[problem]),
    )


def parse_query_csv(lines: Sequence[str], fields: Sequence[str] | None = None) -> list[tuple[int, GpuSample]]:
    """Samples of a `--query-gpu` output with their 1-based line numbers.

    `fields` are the queried names, for an output without header; a header in the text wins over them.
    Blank lines, repeated headers and rows with too few cells are skipped.
    Raises ValueError if neither a header nor `fields` gives the columns.
    """
    names = [field_name(f) for f in fields] if fields else None
    out: list[tuple[int, GpuSample]] = []
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        cells = line.split(",")
        if is_header(cells):
            names = [field_name(cell) for cell in cells]
            continue
        if names is None:
            raise ValueError("no header line, and the queried fields were not given")
        row = split_row(line, len(names), names)
        if row is not None:
            out.append((at, build_sample(zip(names, row, strict=True))))
    return out
