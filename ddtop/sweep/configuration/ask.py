"""Asking the viewers about an alert: a viewer's decision, else the policy's."""

from __future__ import annotations

from collections.abc import Callable

from ddtop.events import AnyCommand
from ddtop.sweep.shared.ask import ask
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.policy import Decision
from ddtop.sweep.shared.requests import Requests


async def ask_about_alert(
    ctx: SweepContext,
    requests: Requests,
    ident: str,
    policy: Decision,
    meaning: Callable[[AnyCommand], Decision],
    settled: Callable[[], bool],
) -> tuple[Decision, str]:
    """(decision, who decided): a viewer's, else the policy's. `meaning` turns a command into a decision."""
    with requests.questions.asked(ident):
        command: AnyCommand | None = await ask(
            ctx, requests, lambda: requests.questions.take(ident), settled=settled
        )
    return (policy, "policy") if command is None else (meaning(command), command.viewer)
