"""`[bench]`: how a cell is measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, cast

import jmespath
import jmespath.exceptions

from ddtop.events import LATENCIES
from ddtop.plan.model import BENCH_FORMATS, BENCH_KINDS, MIN_WINDOW_S, Bench, Config
from ddtop.plan.placeholders import BENCH_NAMES, check_all
from ddtop.plan.problems import Problems, shown, suggest
from ddtop.plan.read.configs import check_env
from ddtop.plan.read.fields import Fields

_METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
DEFAULT_WARM_UP: Literal["handover"] = "handover"
"""It was 1 request before there was a hand-over: recordings begun then go on with that (`recorded.as_begun`)."""
_REDUCERS = ("mean", "max", "min", "sum", "last")
"""As `ddtop.bench.metric_paths` knows them."""


def read_bench(fields: Fields) -> Bench:
    """`[bench]`."""
    kind = cast(Literal["builtin", "command"], fields.choice("kind", BENCH_KINDS, "builtin"))
    argv, format_ = fields.texts("argv"), fields.choice("format", BENCH_FORMATS, "auto") or "auto"
    metrics, env = fields.named("metrics"), fields.named("env")
    slo = read_slo(fields)
    warmup: int | Literal["handover"] = DEFAULT_WARM_UP
    if not isinstance(fields.data.get("warmup"), str) and fields.has("warmup"):
        warmup = fields.whole("warmup", 1, 0, 1_000_000)
    else:
        fields.choice("warmup", ("handover",), "handover")
    limit_s = fields.number("time_limit_s", 600.0, 1, 604_800, "s")
    # Where nobody chose it, it leaves room for the warm-up. It reaches the client, so it is in a cell's id; the limit is not.
    short = min(MIN_WINDOW_S, limit_s / 4) if warmup == "handover" else 0.0
    bench = Bench(
        kind=kind,
        requests_per_stream=fields.whole("requests_per_stream", 8, 1, 1_000_000),
        warmup=warmup,
        warmup_written=fields.has("warmup"),
        min_window_s=fields.number("min_window_s", short, 0, 86_400, "s"),
        settle_pct=fields.number("settle_pct", 5.0, 0.1, 100, "%"),
        time_limit_s=limit_s,
        request_timeout_s=fields.number("request_timeout_s", 600.0, 1, 604_800, "s"),
        nonce=fields.flag("nonce", True),
        flush_cache=fields.flag("flush_cache", True),
        slo=slo,
        argv=argv or (),
        env=env,
        format=format_,
        metrics=metrics,
    )
    fields.done()
    check_env(fields.problems, (*fields.path, "env"), env)
    _check_metrics(fields, metrics)
    if fields.has("min_window_s") and bench.min_window_s >= bench.time_limit_s and kind == "builtin":
        fields.problems.fault(
            (*fields.path, "min_window_s"),
            f"found {bench.min_window_s:g}, and time_limit_s is {bench.time_limit_s:g}",
            "allowed: less than time_limit_s, which holds the warm-up too",
        )
    if kind == "command" and not argv:
        fields.missing("argv", 'the benchmark and its arguments, for kind = "command"')
    if kind == "command" and argv and not any("{result}" in word for word in argv):
        fields.problems.warn(
            (*fields.path, "argv"),
            "has no {result}",
            "the benchmark's standard output is then read as its result; {result} is a file ddtop names",
        )
    if kind == "builtin":
        for key in ("argv", "format", "metrics", "env"):
            if fields.has(key):
                fields.problems.fault(
                    (*fields.path, key),
                    'is not used by kind = "builtin"',
                    'allowed with kind = "command" only',
                )
    return bench


def check_bench_argv(bench: Bench, configs: tuple[Config, ...], problems: Problems) -> None:
    """Placeholders of `bench.argv`: those that every configuration can fill."""
    shared = [set(c.values) for c in configs]
    values = sorted(set.intersection(*shared)) if shared else []
    check_all(problems, ("bench", "argv"), bench.argv, (*BENCH_NAMES, *values))


def read_slo(fields: Fields) -> dict[str, float]:
    """`slo`: limits in ms by their names; empty where there are none. A limit that the others rule out is a fault."""
    table = fields.table("slo")
    if table is None:
        return {}
    out = {name: table.number(name, 0.0, 0.001, 1e9, "ms") for name in LATENCIES}
    table.done()
    slo = {name: limit for name, limit in out.items() if limit > 0}
    e2e_ms, ttft_ms = slo.get("e2e_ms"), slo.get("ttft_ms")
    if e2e_ms is not None and ttft_ms is not None and e2e_ms < ttft_ms:
        table.fault(
            "e2e_ms", e2e_ms, f"at least ttft_ms ({ttft_ms:g}): a response ends after its first token"
        )
    return slo


def _check_metrics(fields: Fields, metrics: dict[str, str]) -> None:
    compile_: Callable[[str], Any] = jmespath.compile
    for name, path in metrics.items():
        where = (*fields.path, "metrics", name)
        if not _METRIC.match(name):
            fields.problems.fault(where, "is not a metric name", "such as output_tok_s or ttft_ms.p50")
        head, found, tail = path.partition(":")
        prefix = head.strip() if found and head.strip().isalpha() else ""
        expression = tail.strip() if prefix else path
        if prefix and prefix not in _REDUCERS:
            fields.problems.fault(
                where, f"found {shown(path)}", f"before the colon: {suggest(prefix, _REDUCERS)}"
            )
            continue
        try:
            compile_(expression)
        except (jmespath.exceptions.JMESPathError, RecursionError, ValueError) as error:
            first = (str(error).strip().splitlines() or [""])[0]
            fields.problems.fault(
                where, f"{shown(expression)} is not valid JMESPath: {first}", "see jmespath.org"
            )
