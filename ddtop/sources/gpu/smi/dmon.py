"""Read `nvidia-smi dmon` (scrolling and CSV, with or without headers, with GPM columns) and `--query-compute-apps`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.query_csv import field_name
from ddtop.sources.gpu.smi.value import number, read_cell

# dmon head word -> attribute of GpuSample
DMON_COLUMNS: dict[str, str] = {
    "gpu": "index",
    "pwr": "power_w",
    "gtemp": "temp_c",
    "temp": "temp_c",
    "mtemp": "mem_temp_c",
    "sm": "util_gpu_pct",
    "mem": "util_mem_pct",
    "enc": "util_enc_pct",
    "dec": "util_dec_pct",
    "mclk": "mem_clock_mhz",
    "pclk": "sm_clock_mhz",
    "fb": "mem_used_mib",
    "pviol": "power_violation_pct",
    "tviol": "thermal_violation",
    "smutil": "sm_active_pct",
    "smocc": "sm_occupancy_pct",
    "mmaact": "tensor_active_pct",
    "dram": "dram_active_pct",
}
# Columns of `-s` letters (driver 580) and of the GPM ids ddtop asks for, for outputs without a head.
_GROUPS: dict[str, tuple[str, ...]] = {
    "p": ("pwr", "gtemp", "mtemp"),
    "u": ("sm", "mem", "enc", "dec", "jpg", "ofa"),
    "c": ("mclk", "pclk"),
    "v": ("pviol", "tviol"),
    "m": ("fb", "bar1", "ccpm"),
    "e": ("sbecc", "dbecc", "pci"),
    "t": ("rxpci", "txpci"),
}
_GPM = {"2": "smutil", "3": "smocc", "5": "mmaact", "10": "dram"}
DMON_FIELDS_ARGS = ("-s", "pucvm", "-d", "1", "-o", "T", "--format", "csv", "--gpm-metrics", "2,3,5,10")
"""The GPM metrics that ddtop requests from dmon (Hopper and later)."""


def dmon_columns(command: str | Sequence[str]) -> list[str]:
    """Column names of a dmon command: `-o DT`, `-s` letters in order, then GPM ids in order.

    >>> dmon_columns("nvidia-smi dmon -s pu -o T --gpm-metrics 5,10")
    ['time', 'gpu', 'pwr', 'gtemp', 'mtemp', 'sm', 'mem', 'enc', 'dec', 'jpg', 'ofa', 'mmaact', 'dram']
    """
    text = command if isinstance(command, str) else " ".join(command)

    def option(pattern: str) -> str:
        found = re.search(pattern, text)
        return found[1] if found else ""

    stamps = option(r"(?:^|\s)(?:-o|--options)[ =]{0,2}([DT]{1,2})")
    letters = option(r"(?:^|\s)(?:-s|--select)[ =]{0,2}([a-z]{1,9})") or "puc"
    ids = option(r"--gpm-metrics[ =]{1,2}([\d,]{1,200})").split(",")
    names = [{"D": "date", "T": "time"}[s] for s in "DT" if s in stamps] + ["gpu"]
    names += [column for letter in letters for column in _GROUPS.get(letter, ())]
    return names + [_GPM.get(i, f"gpm{i}") for i in ids if i]


def guess_columns(row: Sequence[str]) -> list[str] | None:
    """Columns of a dmon row without a header, by its form: a leading time, then the number of the others.

    Only the usual selections are known: default and all letters, each with or without ddtop's four GPM columns.
    """
    cells = list(row)
    stamps: list[str] = []
    if cells and re.fullmatch(r"\d{8}", cells[0]):
        stamps.append("date")
        cells = cells[1:]
    if cells and re.fullmatch(r"\d{1,2}:\d{2}:\d{2}", cells[0]):
        stamps.append("time")
        cells = cells[1:]
    for letters in ("puc", "pucv", "pucvm", "pucvmet"):
        for gpm in ("", "2,3,5,10"):
            names = dmon_columns(f"dmon -s {letters}" + (f" --gpm-metrics {gpm}" if gpm else ""))
            if len(names) == len(cells):
                return [*stamps, *names]
    return None


def dmon_head(line: str) -> list[str] | None:
    """Column names of a dmon header (`# gpu pwr gtemp …`, or `#gpu, pwr, …`); None for other lines, such as the units."""
    if not line.lstrip().startswith("#"):
        return None
    words = [w.strip().lower() for w in re.split(r"[,\s]+", line.lstrip().lstrip("#").strip()) if w.strip()]
    return (
        words
        if "gpu" in words and "pid" not in words and sum(w in DMON_COLUMNS for w in words) >= 2
        else None
    )


def parse_dmon_line(columns: Sequence[str], line: str) -> GpuSample | None:
    """One row; None for headers, units, blank and short lines. `-` is an unknown value (a GPM stream begins with two)."""
    if not line.strip() or line.lstrip().startswith("#"):
        return None
    cells = [c.strip() for c in (line.split(",") if "," in line else line.split())]
    if len(cells) < len(columns):
        return None
    got: dict[str, Any] = {}
    absent: list[str] = []
    stamp: list[str] = []
    for column, text in zip(columns, cells, strict=False):
        if column in {"date", "time"}:
            stamp.append(text)
            continue
        attribute = DMON_COLUMNS.get(column)
        if attribute is None:
            continue
        value = None if read_cell(text).problem else number(text)
        if value is None:
            absent.append(attribute)
        else:
            got[attribute] = int(value) if attribute == "index" else value
    if "index" not in got:
        return None
    if "power_w" in got:
        got["power_source"] = "dmon"
    return GpuSample(**got, stamp=" ".join(stamp) or None, absent_fields=tuple(absent))


def parse_dmon(text: str, columns: Sequence[str] | None = None) -> list[tuple[int, GpuSample]]:
    """All rows with their 1-based line numbers. A header in the text wins over `columns` and may be repeated."""
    names = list(columns) if columns else None
    out: list[tuple[int, GpuSample]] = []
    for at, line in enumerate(text.splitlines(), 1):
        head = dmon_head(line)
        if head:
            names = head
            continue
        if names is None and line.strip() and not line.lstrip().startswith("#"):
            names = guess_columns([c.strip() for c in (line.split(",") if "," in line else line.split())])
            if names is None:
                return []
        sample = parse_dmon_line(names, line) if names else None
        if sample is not None:
            out.append((at, sample))
    return out


def parse_pmon(text: str) -> list[tuple[int, dict[str, Any]]] | None:
    """Processes of `nvidia-smi pmon` with their line numbers; None for other text. A `-` row is a GPU without one."""
    columns: list[str] | None = None
    out: list[tuple[int, dict[str, Any]]] = []
    for at, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            words = line.lstrip(" #").lower().split()
            columns = words if {"gpu", "pid", "command"} <= set(words) else columns
            continue
        cells = line.split(None, len(columns) - 1) if columns else []
        if columns and len(cells) == len(columns):
            got = dict(zip(columns, cells, strict=True))
            if got["pid"].isascii() and got["pid"].isdigit():
                out.append(
                    (at, {"gpu": number(got["gpu"]), "pid": int(got["pid"]), "name": got["command"].strip()})
                )
    return out if columns else None


class Apps(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of `--query-compute-apps`: (line, row). A row has no `used_mib` if that is unknown."""

    rows: tuple[tuple[int, dict[str, Any]], ...]
    skipped: tuple[tuple[int, str], ...]


_APP_FIELDS = {
    "timestamp",
    "gpu_name",
    "name",
    "gpu_bus_id",
    "pci.bus_id",
    "gpu_serial",
    "serial",
    "gpu_uuid",
    "uuid",
    "pid",
    "process_name",
    "used_gpu_memory",
    "used_memory",
}


def is_apps_header(line: str) -> bool:
    """Whether a line is the header of a compute-apps query."""
    names = [field_name(c) for c in line.split(",")]
    return "pid" in names and all(n in _APP_FIELDS for n in names)


def parse_apps(lines: Sequence[str], fields: Sequence[str] | None = None) -> Apps | None:
    """Rows of a compute-apps query, by header or by the queried `fields`; None if neither gives the columns.

    The CSV is not quoted: the process name is all that stands between the fields before and after it. A row
    without a pid (no permission) or too short is skipped and counted; one without a memory value is kept.
    """
    names = [field_name(f) for f in fields] if fields else None
    rows: list[tuple[int, dict[str, Any]]] = []
    skipped: list[tuple[int, str]] = []
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if is_apps_header(line):
            names = [field_name(c) for c in line.split(",")]
            continue
        if names is None:
            return None
        row = _app_row(names, line)
        if row is None:
            skipped.append((at, line.strip()))
        else:
            rows.append((at, row))
    return Apps(rows=tuple(rows), skipped=tuple(skipped)) if names else None


def _app_row(names: Sequence[str], line: str) -> dict[str, Any] | None:
    cells = line.split(",")
    surplus = len(cells) - len(names)
    if surplus < 0 or "pid" not in names:
        return None
    if surplus:
        place = names.index("process_name") if "process_name" in names else len(names) - 1
        cells[place : place + surplus + 1] = [",".join(cells[place : place + surplus + 1])]
    got = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    if not re.fullmatch(r"\d{1,9}", got["pid"]):
        return None
    row: dict[str, Any] = {"pid": int(got["pid"])}
    if "process_name" in got:
        row["name"] = got["process_name"]
    if "uuid" in got:
        row["uuid"] = got["uuid"]
    memory = got.get("used_gpu_memory", got.get("used_memory", ""))
    if read_cell(memory).problem is None and (used := number(memory)) is not None:
        row["used_mib"] = used
    return row
