"""Metrics a person can look at: where each stands in a cell's `metrics`, its unit, and which way is better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ddtop.dashboard.draw.text import UNKNOWN
from ddtop.journal.read.select import metric_value


@dataclass(frozen=True)
class Metric:
    """One metric. `names` are the places it may stand at, the first present one counts."""

    names: tuple[str, ...]
    label: str
    unit: str
    digits: int = 1
    lower_is_better: bool = False
    short: str = ""
    """Label of the second line of a matrix."""

    @property
    def key(self) -> str:
        return self.names[0]

    def value(self, metrics: dict[str, Any]) -> float | None:
        """The metric's value, or None where it was not measured, or says nothing."""
        for name in self.names:
            found = metric_value(metrics, name)
            if found is not None:
                return found
        return None

    def shown(self, metrics: dict[str, Any]) -> str:
        """The value as text, without its unit."""
        return self.text(self.value(metrics))

    def text(self, value: float | None, *, short: bool = False) -> str:
        """A value of this metric without its unit; `short`: no more than three digits that count.

        >>> [TOK_S.text(v, short=s) for v in (146.71, 26.14) for s in (False, True)], J_TOKEN.text(2.814, short=True)
        (['146.7', '147', '26.1', '26.1'], '2.81')
        """
        if value is None:
            return UNKNOWN
        digits = 0 if self.digits == 1 and abs(value) >= 1000 else self.digits
        if short and value:
            digits = min(digits, max(0, 2 - math.floor(math.log10(abs(value)))))
        return f"{value:,.{digits}f}"


TOK_S = Metric(("output_tok_s",), "tok/s", "tok/s", short="tok/s")
TTFT = Metric(("ttft_ms.p50",), "TTFT p50", "ms", 0, lower_is_better=True, short="TTFT")
ITL = Metric(("itl_ms.p50",), "ITL p50", "ms", 2, lower_is_better=True, short="ITL")
TPOT = Metric(("tpot_ms.p50",), "TPOT p50", "ms", 2, lower_is_better=True, short="TPOT")
ACCEPT = Metric(
    ("acceptance_length", "accept_length", "accept_len"), "accept", "tokens/step", 2, short="accept"
)
J_TOKEN = Metric(
    ("j_per_token", "energy_j_per_token"), "J/token", "J", 2, lower_is_better=True, short="J/token"
)
POWER = Metric(("power_w", "power_mean_w", "power_avg_w"), "power", "W", 0, lower_is_better=True)
DECODE = Metric(("decode_tok_s.p50", "decode_tok_s"), "decode/req", "tok/s")

KNEE = Metric(("knee",), "knee", "load", 1)

SHOWN: tuple[Metric, ...] = (TOK_S, DECODE, TTFT, TPOT, ACCEPT, J_TOKEN, KNEE)
"""The metrics that `m` goes through in the matrix. Time per token is TPOT: it is right however chunks come."""

COLUMNS: tuple[Metric, ...] = (TOK_S, TTFT, TPOT, ACCEPT, J_TOKEN, DECODE, ITL, POWER, KNEE)
"""The columns of the results list, the most asked for first."""

SECOND: tuple[Metric, ...] = (ACCEPT, J_TOKEN, TTFT, TPOT)
"""The metrics that a second line in the matrix may show."""


def metric_of(key: str) -> Metric:
    """The metric with this key; of one that has no name here, its key is its label."""
    return next((m for m in (*SHOWN, *COLUMNS) if m.key == key), Metric((key,), key, ""))
