"""SIMULATED: how fast the demo's engine is. Pure.

A step reads all weights once, and computes for every token that it verifies: with few tokens it takes as long as the
memory needs, with many as long as the arithmetic does. A draft of many tokens is therefore nearly free for one stream,
and dear for a batch of them: which configuration is best depends on the load, as on a real GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STEP_S = 1 / 26
"""One forward pass: without speculation 26 tok/s, the figure of the real machine this is modelled on."""
RIDGE_TOKENS = 40
"""Tokens in a step at which its arithmetic takes as long as reading the weights."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One configuration: tokens accepted a step, tokens verified a step for each stream, and seconds that a step of
    one token takes."""

    acceptance: float
    nodes: int
    alone_s: float

    @classmethod
    def of(
        cls, *, algorithm: str | None, draft_tokens: int | None, budget: int | None, step_s: float = STEP_S
    ) -> Speed:
        """The speed of a drafter; each further draft token is worth less than the one before."""
        if budget:
            return cls(round(1 + 5.9 * (1 - 0.93**budget), 2), budget + 1, step_s)
        if algorithm:
            drafted = draft_tokens or 8
            return cls(round(1 + 4.2 * (1 - 0.86**drafted), 2), drafted, step_s)
        return cls(1.0, 1, step_s)

    def load(self, running: int) -> float:
        """Arithmetic of a step over its memory time, with `running` streams."""
        return running * self.nodes / RIDGE_TOKENS

    def step_s(self, running: int) -> float:
        """Seconds that a step takes with `running` streams."""
        return self.alone_s * math.hypot(1.0, self.load(max(1, running)))

    def busy(self, running: int) -> tuple[float, float]:
        """Shares of a step's time in which memory, and arithmetic, are at work."""
        load = self.load(running)
        return 1 / math.hypot(1.0, load), load / math.hypot(1.0, load)

    def power_share(self, running: int) -> float:
        """Share of the power range that the GPU draws."""
        return min(1.0, 0.35 + 0.2 * self.load(running))
