"""Processes on the GPUs as nvidia-smi lists them: `pmon`, and `--query-compute-apps`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ddtop.sources.gpu.smi.query_csv import field_name
from ddtop.sources.gpu.smi.value import number, read_cell


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
