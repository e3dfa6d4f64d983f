"""Metrics a person can look at: where each stands in a cell's `metrics`, its unit, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddtop.dashboard.draw.text import UNKNOWN, rate
from ddtop.journal.read.select import metric_value


@dataclass(frozen=True)
class Metric:
    """One metric. `names` are the places it may stand at, the first present one counts."""

    names: tuple[str, ...]
    label: str
    unit: str
    digits: int = 1
    lower_is_better: bool = False

    @property
    def key(self) -> str:
        return self.names[0]

    def value(self, metrics: dict[str, Any]) -> float | None:
        """The metric's value, or None where it was not measured."""
        for name in self.names:
            found = metric_value(metrics, name)
            if found is not None:
                return found
        return None

    def shown(self, metrics: dict[str, Any]) -> str:
        """The value as text, without its unit."""
        found = self.value(metrics)
        if found is None:
            return UNKNOWN
        return rate(found) if self.digits == 1 else f"{found:,.{self.digits}f}"


TOK_S = Metric(("output_tok_s",), "tok/s", "tok/s")
TTFT = Metric(("ttft_ms.p50",), "TTFT p50", "ms", 0, lower_is_better=True)
ITL = Metric(("itl_ms.p50",), "ITL p50", "ms", 2, lower_is_better=True)
TPOT = Metric(("tpot_ms.p50",), "TPOT p50", "ms", 2, lower_is_better=True)
ACCEPT = Metric(("acceptance_length", "accept_length", "accept_len"), "accept", "tokens/step", 2)
J_TOKEN = Metric(("j_per_token", "energy_j_per_token"), "J/token", "J", 2, lower_is_better=True)
POWER = Metric(("power_w", "power_mean_w", "power_avg_w"), "power", "W", 0)
DECODE = Metric(("decode_tok_s.p50", "decode_tok_s"), "decode/req", "tok/s")

KNEE = Metric(("knee",), "knee", "load", 1)

SHOWN: tuple[Metric, ...] = (TOK_S, DECODE, TTFT, ITL, ACCEPT, J_TOKEN, KNEE)
"""The metrics that `m` goes through in the matrix."""

COLUMNS: tuple[Metric, ...] = (TOK_S, TTFT, ITL, ACCEPT, J_TOKEN, DECODE, TPOT, POWER, KNEE)
"""The columns of the results list, the most asked for first."""
