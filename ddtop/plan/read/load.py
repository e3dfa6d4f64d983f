"""`[matrix] load`: concurrencies and rates."""

from __future__ import annotations

from ddtop.plan.model import LoadPoint
from ddtop.plan.read.fields import Fields

MAX_CONCURRENCY = 100_000
MIN_RATE, MAX_RATE = 0.001, 100_000.0
MAX_REQUESTS = 1_000_000
"""Of one cell at a rate."""
KINDS = ("concurrency", "rate")
EXAMPLE = "{ rate = 4.0 }"


def read_loads(tables: list[Fields], concurrency: tuple[int, ...]) -> tuple[LoadPoint, ...]:
    """The entries of `load`. `concurrency`: those that `[matrix] concurrency` has already."""
    out: list[LoadPoint] = []
    for table in tables:
        faults = len(table.problems.faults)
        point = _read(table)
        if point is None or len(table.problems.faults) > faults:
            continue
        if point in out or point.concurrency in concurrency:
            table.problems.fault(table.path, "is listed twice", "list each load once; to repeat: repeats = N")
        else:
            out.append(point)
    return tuple(out)


def _read(fields: Fields) -> LoadPoint | None:
    """One entry; None where it is none."""
    kinds = [kind for kind in KINDS if fields.has(kind)]
    if len(kinds) != 1:
        found = f"has {' and '.join(kinds)}" if kinds else "names no load"
        fields.problems.fault(fields.path, found, f"exactly one of {', '.join(KINDS)}, such as {EXAMPLE}")
        return None
    if kinds == ["concurrency"]:
        streams = fields.whole("concurrency", 1, 1, MAX_CONCURRENCY)
        fields.done()
        return LoadPoint(concurrency=streams)
    return _read_rate(fields)


def _read_rate(fields: Fields) -> LoadPoint:
    rate = fields.number("rate", 1.0, MIN_RATE, MAX_RATE, "requests/s")
    duration_s = fields.number("duration_s", 60.0, 1, 604_800, "s")
    fields.done()
    if rate * duration_s > MAX_REQUESTS:
        fields.fault("duration_s", duration_s, f"at most {MAX_REQUESTS:,} requests in all")
    return LoadPoint(rate=rate, duration_s=duration_s)
