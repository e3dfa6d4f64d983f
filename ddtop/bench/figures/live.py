"""What the load generator says of a window under way, as figures to show. Pure.

The generator counts latencies in fine bins (agent/loadgen/window/live.py); here they become percentiles, by the rules of
finished cells (`bounds.py`), and a coarse histogram that is small enough to be recorded each second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.agent.loadgen.window.live import PER_DECADE
from ddtop.bench.figures.bounds import bounded_summary
from ddtop.bench.figures.stats import CERTIFIED, shown_percentile, weighted_summary
from ddtop.events import LatencySeen

MOST_BINS = 32
"""Of the histogram; its bins are widened until they suffice."""


def progress_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of CellProgress from one report of the generator; of an older agent those it gives."""
    done, total = _whole(item.get("done")), _whole(item.get("requests"))
    phase = str(item.get("phase") or "")
    out: dict[str, Any] = {"phase": phase, "in_flight": _whole(item.get("in_flight"))}
    live = item.get("live")
    if isinstance(live, Mapping):
        if phase == "running":
            out["phase"] = str(live.get("phase") or phase)
        total = _whole(live.get("total")) or total
        out |= {
            "failed": _whole(live.get("failed")),
            "tok_s": _number(live.get("rate")),
            "now_tok_s": _number(live.get("now")),
            "tokens": _whole(live.get("tokens")),
            "about": bool(live.get("about")),
            "left_s": _number(live.get("left")),
            "settled": str(live.get("by") or ""),
            "ttft": latency(live.get("ttft")),
            "tpot": latency(live.get("tpot")),
        }
        burst, spec = _pair(live.get("burst")), _pair(live.get("spec"))
        out["burst"] = burst
        if spec is not None and spec[1] > 0:
            out["spec_tokens"], out["spec_steps"] = spec
    if done is not None and total is not None:
        total = max(total, done)  # the two are not always of one moment
    out["requests_done"], out["requests_total"] = done, total
    left, span = out.get("left_s"), _number(live.get("s")) if isinstance(live, Mapping) else None
    if left is not None and span:
        out["pct"] = round(100.0 * span / (span + left), 1)
    elif done is not None and total:
        out["pct"] = round(min(100.0, 100.0 * done / total), 1)
    return out


def latency(flat: Any) -> LatencySeen | None:
    """A histogram (bin, count, bin, count, …) of the generator as percentiles and at most MOST_BINS bins."""
    if not isinstance(flat, Sequence) or isinstance(flat, str) or len(flat) < 2:
        return None
    bins = sorted((int(flat[at]), int(flat[at + 1])) for at in range(0, len(flat) - 1, 2))
    stats = _stats(bins)
    p90, p99 = (shown_percentile(stats, name) for name in CERTIFIED)
    width = 1
    while bins[-1][0] // width - bins[0][0] // width >= MOST_BINS:
        width *= 2
    first = bins[0][0] // width
    counts = [0] * (bins[-1][0] // width - first + 1)
    for place, count in bins:
        counts[place // width - first] += count
    return LatencySeen(
        n=int(stats["n"]),
        p50=_short(stats["p50"]),
        p90=None if p90 is None else _short(p90[1]),
        p99=None if p99 is None else _short(p99[1]),
        most=_short(stats["max"]),
        per_decade=PER_DECADE // width,
        first=first,
        counts=tuple(counts),
    )


def _stats(bins: Sequence[tuple[int, int]]) -> dict[str, float]:
    pairs = [(10 ** ((place + 0.5) / PER_DECADE), count) for place, count in bins]
    if sum(count for _, count in pairs) > max(CERTIFIED.values()):
        return weighted_summary(pairs)
    return bounded_summary([value for value, count in pairs for _ in range(count)])


def _short(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _pair(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        return None
    return int(value[0]), int(value[1])
