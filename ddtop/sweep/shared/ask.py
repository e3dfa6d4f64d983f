"""Asking the viewers: a question waits for a decision as long as `[policy] answer_s`, then the policy decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.requests import Requests

T = TypeVar("T")


async def ask(
    ctx: SweepContext,
    requests: Requests,
    take: Callable[[], T | None],
    *,
    settled: Callable[[], bool] = lambda: False,
) -> T | None:
    """Waits until `take` gives a decision. None: the time is over, nobody attends any more, or `settled` holds.

    Raises StopSweepError where the run was stopped, HostLostError where the connection is gone.
    """
    until = ctx.mono() + ctx.policy.answer_s
    while True:
        # Before all else: the viewer may have left in the moment after its decision.
        found = take()
        if found is not None:
            return found
        requests.check_stop()
        if ctx.mono() >= until or not requests.attended or settled():
            return None
        ctx.check_link()
        await ctx.wait(1.0)
