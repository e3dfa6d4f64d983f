"""`[matrix] load`: concurrencies, rates, and searches for the knee under an objective."""

from __future__ import annotations

import math
from typing import Literal, cast

from ddtop.events import Search, name_load
from ddtop.plan.model import Bench, LoadPoint, Workload
from ddtop.plan.problems import Path, shown
from ddtop.plan.read.bench import read_slo
from ddtop.plan.read.fields import Fields
from ddtop.words import many

MAX_CONCURRENCY = 100_000
MIN_RATE, MAX_RATE = 0.001, 100_000.0
MAX_REQUESTS = 1_000_000
"""Of one cell at a rate."""
FEW = 5
"""With fewer requests a result is SUSPECT, as `ddtop.bench.judge.sanity` says."""
KINDS = ("concurrency", "rate", "search")
EXAMPLE = '{ search = "concurrency", slo = { ttft_ms = 500 }, share = 0.95, max = 256 }'


def read_loads(
    tables: list[Fields], concurrency: tuple[int, ...], workloads: tuple[Workload, ...], bench: Bench
) -> tuple[LoadPoint, ...]:
    """The entries of `load`. `concurrency`: those that `[matrix] concurrency` has already."""
    out: list[LoadPoint] = []
    for table in tables:
        faults = len(table.problems.faults)
        point = _read(table, workloads, bench)
        if point is None or len(table.problems.faults) > faults:
            continue
        name = name_of(point)
        if point.concurrency in concurrency or name in {name_of(other) for other in out}:
            table.problems.fault(table.path, "is listed twice", "list each load once; to repeat: repeats = N")
        else:
            out.append(point)
    return tuple(out)


def name_of(point: LoadPoint) -> str:
    """What the cells of a load are told apart by."""
    return name_load(point.concurrency, point.rate, point.search.short if point.search is not None else "")


def _read(fields: Fields, workloads: tuple[Workload, ...], bench: Bench) -> LoadPoint | None:
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
    if kinds == ["rate"]:
        return _read_rate(fields, bench)
    return _read_search(fields, workloads, bench)


def _read_rate(fields: Fields, bench: Bench) -> LoadPoint:
    rate = fields.number("rate", 1.0, MIN_RATE, MAX_RATE, "requests/s")
    duration_s = fields.number("duration_s", 60.0, 1, 604_800, "s")
    fields.done()
    if rate * duration_s > MAX_REQUESTS:
        fields.fault("duration_s", duration_s, f"at most {MAX_REQUESTS:,} requests in all")
    elif bench.kind == "builtin":
        key = (*fields.path, "duration_s" if fields.has("duration_s") else "rate")
        if rate * duration_s < FEW:
            sent = math.ceil(rate * duration_s)
            what = f"sends {many(sent, 'request')} in {duration_s:g} s"
            fields.problems.warn(key, what, f"of fewer than {FEW} the result is SUSPECT (few-samples)")
        _warn_of_limit(fields, key, duration_s, bench)
    return LoadPoint(rate=rate, duration_s=duration_s)


def _warn_of_limit(fields: Fields, key: Path, seconds: float, bench: Bench) -> None:
    if seconds >= bench.time_limit_s:
        what = f"lasts {seconds:g} s, and bench.time_limit_s is {bench.time_limit_s:g}"
        fields.problems.warn(key, what, "the limit ends the cell, and the result is SUSPECT (time-limit)")


def _read_search(fields: Fields, workloads: tuple[Workload, ...], bench: Bench) -> LoadPoint | None:
    by = cast(Literal["concurrency", "rate"] | None, fields.choice("search", KINDS[:2], None))
    slo = read_slo(fields) if fields.has("slo") else dict(bench.slo)
    least, most = (1.0, float(MAX_CONCURRENCY)) if by != "rate" else (MIN_RATE, MAX_RATE)
    start = fields.number("start", 1.0, least, most)
    limit = fields.number("max", 256.0, least, most)
    search = Search(
        by=by or "concurrency",
        slo=slo,
        share=fields.number("share", 0.95, 0.5, 0.999),
        start=start,
        most=limit,
        point_s=fields.number("point_s", 60.0, 1, 86_400, "s"),
        confirm_s=fields.number("confirm_s", 60.0, 0, 86_400, "s"),
    )
    fields.done()
    if bench.kind == "command":
        fields.problems.fault(
            (*fields.path, "search"),
            'needs ddtop\'s own load generator, but bench.kind is "command"',
            "give concurrencies or rates, or leave out bench.kind",
        )
    elif not slo and not fields.has("slo"):
        fields.missing("slo", "what the knee must meet, such as slo = { ttft_ms = 500, tpot_ms = 30 }")
    elif fields.data.get("slo") == {}:
        fields.problems.fault(
            (*fields.path, "slo"), "has no limit", "at least one, such as { ttft_ms = 500 }"
        )
    if by == "concurrency":
        for key, value in (("start", start), ("max", limit)):
            if value != int(value):
                fields.fault(key, value, "a whole number of streams")
    confirm = (*fields.path, "confirm_s" if fields.has("confirm_s") else "search")
    _warn_of_limit(fields, confirm, search.confirm_s, bench)
    if limit < start:
        fields.fault("max", limit, f"at least start ({start:g})")
    short = next((w.name for w in workloads if 1 in w.output_tokens), None)
    for name in ("tpot_ms", "icl_ms"):
        if name in slo and short is not None:
            fields.problems.fault(
                (*fields.path, "slo"),
                f"limits {name}, but workload {shown(short)} asks for 1 output token",
                "a first token alone has no time per token: limit ttft_ms or e2e_ms",
            )
    return LoadPoint(search=search) if by is not None else None
