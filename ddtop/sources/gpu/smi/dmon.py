"""Read `nvidia-smi dmon`: scrolling and CSV, with or without headers, with GPM columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ddtop.sources.gpu.sample import GpuSample
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
