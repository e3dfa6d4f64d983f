"""genai-perf and AIPerf as they print: a table in box-drawing characters, or the same as CSV. Pure.

Columns are named (`avg min max p99 p90 p75 …`, in any order); the unit stands behind a metric's name. genai-perf of 2024
gives nanoseconds, later ones milliseconds; the lines below its table give the rates.
"""

from __future__ import annotations

import csv
import re
from typing import Any

from ddtop.bench.importers.common import Fields
from ddtop.bench.importers.others import from_aiperf

_STATS = re.compile(r"(?:avg|min|max|std|p\d{1,2}(?:\.\d+)?)$")
_NAME = re.compile(r"(?P<name>[A-Za-z][A-Za-z ()/]*?)\s*(?:\((?P<unit>[^()]{1,24})\))?$")
_BELOW = re.compile(r"^(?P<name>[A-Za-z ]{5,60}) \((?P<unit>[^()]{1,24})\): (?P<value>[\d,.]+)$")
_KEYS = {
    "request latency": "request_latency",
    "time to first token": "time_to_first_token",
    "time to second token": "time_to_second_token",
    "inter token latency": "inter_token_latency",
    "output token throughput": "output_token_throughput",
    "request throughput": "request_throughput",
    "request count": "request_count",
    "benchmark duration": "benchmark_duration",
}
_LENGTHS = {
    "num output token": "output_len_mean",
    "output sequence length": "output_len_mean",
    "num input token": "input_len_mean",
    "input sequence length": "input_len_mean",
}


def from_table(text: str) -> Fields | None:
    """The figures of a printed table or its CSV; None where there is none of them."""
    rows = [_cells(line) for line in text.splitlines()]
    data: dict[str, Any] = {}
    lengths: Fields = {}
    columns: list[str] = []
    for cells in rows:
        if len(cells) > 2 and all(_STATS.match(c.lower()) for c in cells[1:]):
            columns = [c.lower() for c in cells[1:]]
        elif columns and len(cells) == len(columns) + 1:
            _row(cells, columns, data, lengths)
        elif len(cells) == 2:
            _row(cells, ["avg"], data, lengths)
    for line in text.splitlines():
        below = _BELOW.match(line.strip())
        if below is not None and below["name"].strip().lower() in _KEYS:
            data.setdefault(_KEYS[below["name"].strip().lower()], {"avg": _number(below["value"])})
    if not set(data) - {"request_throughput"}:
        return None
    return {**from_aiperf(data), **lengths, "tool": "aiperf" if "AIPerf" in text else "genai-perf"}


_CSV_HEADS = (
    {"completed", "output_throughput"},
    {"avg_ts", "n_gen"},
    {"tput_per_gpu", "conc"},
    {"speed_tg", "pl"},
)


def csv_rows(text: str) -> list[dict[str, Any]]:
    """The rows of a CSV whose columns are the keys of a JSON result (a sweep's table of runs), else []."""
    lines = text.strip().splitlines()
    for delimiter in (",", "\t", ";"):
        head = {name.strip().strip('"') for name in lines[0].split(delimiter)} if lines else set()
        if any(keys <= head for keys in _CSV_HEADS):
            return [dict(row) for row in csv.DictReader(lines, delimiter=delimiter)]
    return []


def _cells(line: str) -> list[str]:
    if line.lstrip()[:1] in ("│", "┃", "|"):
        return [c.strip() for c in re.split(r"[│┃|]", line.strip())[1:-1]]
    if "," in line and '":' not in line and len(line) < 4_000:
        row = next(csv.reader([line]), [])
        return [c.strip() for c in row]
    return []


def _row(cells: list[str], columns: list[str], data: dict[str, Any], lengths: Fields) -> None:
    found = _NAME.match(cells[0])
    if found is None:
        return
    name = found["name"].strip().lower()
    values = {c: _number(v) for c, v in zip(columns, cells[1:], strict=True)}
    if name in _LENGTHS and values.get("avg") is not None:
        lengths[_LENGTHS[name]] = values["avg"]
    elif name in _KEYS:
        data[_KEYS[name]] = {
            **{c: v for c, v in values.items() if v is not None},
            "unit": (found["unit"] or "ms").lower(),
        }


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
