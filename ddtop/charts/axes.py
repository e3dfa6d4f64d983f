"""What can stand on an axis or split the points: names, units, scales. Names of metrics are those of `report --json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ddtop.charts.model import Axis
from ddtop.charts.ticks import Scale
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import metric_value
from ddtop.journal.results.matrix import usable

LOG_FROM = 4.0
"""A value that was set (streams, a budget) is on a log2 axis where its largest is this many times its smallest."""
WIDE = 20.0
"""A latency is on a log10 axis where its largest is more than this many times its smallest."""


class Kind(NamedTuple):
    """One name for an axis."""

    label: str
    unit: str = ""
    scale: Scale = "linear"
    """The scale it has where its values spread far."""


PLACES = {
    "concurrency": Kind("concurrency", "streams", "log2"),
    "rate": Kind("request rate", "req/s", "log2"),
    "context": Kind("context", "tokens", "log2"),
    "output_tokens": Kind("output length", "tokens", "log2"),
    "tp": Kind("TP", "GPUs", "log2"),
}
"""Numbers that a plan sets. Its own variables come to these."""
NAME_NUMBER = "number_in_name"
"""The number at the end of a configuration's name, where the plan has no variable."""
SPLITS = ("config", "tp", "workload", "context", "load")
"""What tells fields apart; a picture holds still what neither an axis nor its series show."""
METRICS = {
    "output_tok_s": Kind("throughput", "tok/s"),
    "speedup": Kind("speed-up", "×"),
    "ttft_ms.p50": Kind("TTFT p50", "ms", "log10"),
    "ttft_ms.p90": Kind("TTFT p90", "ms", "log10"),
    "ttft_ms.p99": Kind("TTFT p99", "ms", "log10"),
    "tpot_ms.p50": Kind("TPOT p50", "ms", "log10"),
    "tpot_ms.p90": Kind("TPOT p90", "ms", "log10"),
    "tpot_ms.p99": Kind("TPOT p99", "ms", "log10"),
    "e2e_ms.p50": Kind("request duration p50", "ms", "log10"),
    "acceptance_length": Kind("acceptance length", "tokens/step"),
    "j_per_token": Kind("energy", "J/token"),
    "power_mean_w": Kind("power", "W"),
    "requests_s": Kind("requests", "req/s"),
    "tok_s_gpu": Kind("throughput per GPU", "tok/s/GPU"),
    "tok_s_user": Kind("speed per user", "tok/s/user"),
}
"""What was measured, the most asked for first. Any other number of a result can be named too."""
DERIVED = ("speedup", "tok_s_gpu", "tok_s_user")
"""Made from results of several cells, so not a number in one of them."""


def axis_of(name: str, values: Iterable[float]) -> Axis:
    """The axis that shows these values of `name`."""
    kind = METRICS.get(name) or PLACES.get(name) or Kind(_plain(name))
    shown = list(values)
    spread = max(shown) / min(shown) if shown and min(shown) > 0 else 1.0
    if name in METRICS or name not in PLACES:
        log = kind.scale if spread > WIDE else "linear"
        return Axis(kind.label, kind.unit, log, zero=bool(shown) and min(shown) >= 0)
    return Axis(kind.label, kind.unit, kind.scale if spread >= LOG_FROM else "linear", whole=_whole(shown))


def set_axis(name: str, values: Iterable[float]) -> Axis:
    """The axis of a plan's variable."""
    shown = list(values)
    spread = max(shown) / min(shown) if shown and min(shown) > 0 else 1.0
    return Axis(_plain(name), "", "log2" if spread >= LOG_FROM else "linear", whole=_whole(shown))


def _whole(values: Iterable[float]) -> bool:
    return all(value.is_integer() for value in values)


def _plain(name: str) -> str:
    return name.replace("_", " ")


def measured(state: State) -> list[str]:
    """Names of the metrics that some result of the plan has, those of METRICS first."""
    found: dict[str, None] = {}
    for cell in state.plan_cells:
        if usable(cell):
            found |= dict.fromkeys(_numbers(cell.metrics))
    known = [n for n in METRICS if n in found or (n in DERIVED and "output_tok_s" in found)]
    return [*known, *sorted(n for n in found if n not in METRICS)]


def _numbers(metrics: dict[str, Any]) -> Iterable[str]:
    """`output_tok_s`, `ttft_ms.p50`: every number of one result, at most one level deep."""
    for name, value in metrics.items():
        if isinstance(value, dict):
            yield from (f"{name}.{k}" for k in value if metric_value(metrics, f"{name}.{k}") is not None)
        elif metric_value(metrics, name) is not None:
            yield name
