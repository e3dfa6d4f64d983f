"""Notifications: the plan's command and webhook, called once for each alert and at the end of the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import deque
from collections.abc import Callable
from typing import Any

from ddtop.events import AlertRaised, Event, RunEnded

LIMIT_S = 15.0
DRAIN_S = 20.0


class Notifier:
    """`see` takes events, `run` sends beside the sweep. A hook that fails does not disturb the sweep; each kind of failure
    is reported once to `failed`."""

    def __init__(self, command: tuple[str, ...], webhook_env: str | None, plan: str = "") -> None:
        self._plan = plan
        self._command = command
        self._url = os.environ.get(webhook_env) if webhook_env else None
        self._notified: set[str] = set()
        self._waiting: deque[dict[str, str]] = deque()
        self._new = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self.failure = ""
        """The last failure."""
        self._failures: set[str] = set()
        self.failed: Callable[[str], object] = lambda what: None
        """Called with each new failure, without the webhook's URL: that may be a secret."""

    def see(self, event: Event) -> None:
        """Queues what is worth a message."""
        if not self._command and not self._url:
            return
        if isinstance(event, AlertRaised) and event.alert_id not in self._notified:
            self._notified.add(event.alert_id)
            self._put(
                event,
                title=event.title,
                cause=event.cause_text,
                verdict=event.verdict,
                advice=event.advice,
                unit=event.unit or "",
                alert=event.alert_id,
            )
        elif isinstance(event, RunEnded):
            words = event.reason or event.outcome
            self._put(event, title="RUN ENDED", cause=words, verdict=event.outcome)

    def _put(self, event: Event, **words: str) -> None:
        """Queues a message with every placeholder that a plan may use; those that do not apply are empty."""
        empty = dict.fromkeys(("title", "cause", "verdict", "advice", "unit", "alert"), "")
        self._waiting.append({**empty, "host": event.host, "plan": self._plan, **words})
        self._new.set()

    async def run(self) -> None:
        """Sends queued messages until cancelled; one under way then is left to `drain`."""
        while True:
            await self._new.wait()
            self._new.clear()
            while self._sending or self._waiting:
                await self._next()

    async def drain(self) -> None:
        """Sends what is still queued at the end, for DRAIN_S seconds at most."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while self._sending or self._waiting:
                    await self._next()
        except TimeoutError:
            assert self._sending is not None
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _next(self) -> None:
        """Waits for the message under way, or sends the next one. Each is sent once, whichever waiter is cancelled."""
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(self._waiting.popleft()))
        await asyncio.shield(self._sending)
        self._sending = None

    def _fail(self, what: str) -> None:
        self.failure = what
        if what not in self._failures:
            self._failures.add(what)
            self.failed(what)

    async def _send(self, message: dict[str, str]) -> None:
        if self._command:
            await self._run(message)
        if self._url:
            await self._post(message)

    async def _run(self, message: dict[str, str]) -> None:
        argv = [fill(word, message) for word in self._command]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a log line
            self._fail(f"{argv[0]}: {getattr(error, 'strerror', None) or error}")
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                if await process.wait():
                    self._fail(f"{argv[0]} ended with exit code {process.returncode}")
        except TimeoutError:
            self._fail(f"{argv[0]} took longer than {LIMIT_S:.0f} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _post(self, message: dict[str, Any]) -> None:
        import httpx

        try:
            async with httpx.AsyncClient(timeout=LIMIT_S) as client:
                reply = await client.post(self._url or "", json=message)
                if reply.status_code >= 400:
                    self._fail(f"the webhook returned HTTP {reply.status_code}")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            self._fail(f"the webhook could not be reached: {type(error).__name__}")


def fill(word: str, message: dict[str, str]) -> str:
    """One argument with its placeholders filled in. Other braces stay, also those within a value.

    >>> fill("{title}: {cause} {x}", {"title": "NO TOKENS {cause}", "cause": "0"})
    'NO TOKENS {cause}: 0 {x}'
    """
    return re.sub(r"\{(\w+)\}", lambda found: message.get(found[1], found[0]), word)
