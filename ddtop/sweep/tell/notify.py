"""Notifications: the plan's command and webhook, called once for each alert and at the end of the run.

What is worth a message is decided here; notify_queue.py tries again, notify_ways.py knows the two ways.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable

from ddtop.events import AlertRaised, Event, RunEnded, RunStarted
from ddtop.journal.act.now import UNDELIVERED
from ddtop.sweep.tell.notify_queue import Level, Message, Patience, Queue
from ddtop.sweep.tell.notify_ways import Webhook, run_command

DRAIN_S = 10.0
"""How long the end of a run waits for messages that are not delivered yet."""


class Notifier:
    """`see` takes events, `run` sends beside the sweep, `drain` sends what is left at the end.

    Command and webhook are independent: one that hangs does not delay the other, and neither the sweep.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        webhook_env: str | None,
        plan: str = "",
        *,
        patience: Patience | None = None,
    ) -> None:
        """`webhook_env` names the variable that holds the URL: it may be a secret, so it is neither shown nor recorded."""
        self._plan, self._run, self._segment = plan, "", 0
        self._notified: set[str] = set()
        self.said: Callable[[Level, str], object] = lambda level, what: None
        """Called with a level and a sentence where messages are late, delivered again, or given up; without the URL."""
        patience = patience or Patience()
        self._queues: list[Queue] = []
        if command:
            self._queues.append(
                Queue("the command", lambda message: run_command(command, message), patience, self._say)
            )
        url = os.environ.get(webhook_env) if webhook_env else None
        if url:
            self._queues.append(Queue("the webhook", Webhook(url).send, patience, self._say))
        self.problem = ""
        """Why messages that the plan asks for cannot be sent at all; empty where they can."""
        if webhook_env and not url:
            self.problem = (
                f"{UNDELIVERED}: the variable {webhook_env} that [notify] webhook_env names is not set"
            )

    def _say(self, level: Level, what: str) -> None:
        self.said(level, what)

    def see(self, event: Event) -> None:
        """Queues what is worth a message."""
        if isinstance(event, RunStarted):
            self._run, self._segment = event.run_id, event.segment
        elif isinstance(event, AlertRaised) and event.alert_id not in self._notified:
            self._notified.add(event.alert_id)
            self._put(
                event,
                event.alert_id,
                title=event.title,
                cause=event.cause_text,
                verdict=event.verdict,
                advice=event.advice,
                unit=event.unit or "",
                alert=event.alert_id,
                choices="; ".join(f"{action.key}: {action.label}" for action in event.actions),
                default=event.policy or "",
            )
        elif isinstance(event, RunEnded):
            words = event.reason or event.outcome
            ident = f"ended {self._segment}"
            self._put(event, ident, title="RUN ENDED", cause=words, verdict=event.outcome)

    def _put(self, event: Event, ident: str, **words: str) -> None:
        """Queues a message with every placeholder that a plan may use; those that do not apply are empty."""
        names = ("title", "cause", "verdict", "advice", "unit", "alert", "choices", "default")
        empty = dict.fromkeys(names, "")
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at_s))
        # The same for every try, and for another runner that raises the same alert: receivers drop what they have.
        message_id = hashlib.sha256(f"{self._run}\0{ident}".encode()).hexdigest()[:16]
        more = {"host": event.host, "plan": self._plan, "run": self._run, "at": at, "id": message_id}
        for queue in self._queues:
            queue.put(Message({**empty, **more, **words}, queue.now()))

    async def run(self) -> None:
        """Sends queued messages until cancelled; one under way then is left to `drain`."""
        if self._queues:
            await asyncio.gather(*(queue.run() for queue in self._queues))
        else:
            await asyncio.Event().wait()

    async def drain(self) -> None:
        """Sends what is left at the end, for DRAIN_S seconds at most; says what could not be delivered."""
        await asyncio.gather(*(queue.drain(DRAIN_S) for queue in self._queues))
