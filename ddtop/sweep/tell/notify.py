"""Reaching a person who is not looking: the plan's command and webhook, once for each alert and at the end of the run."""

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
    """`see` events, `run` beside the sweep. A hook that fails costs the sweep nothing, and is told to `failed`, once for
    each kind of failure."""

    def __init__(self, command: tuple[str, ...], webhook_env: str | None, plan: str = "") -> None:
        self._plan = plan
        self._command = command
        self._url = os.environ.get(webhook_env) if webhook_env else None
        self._told: set[str] = set()
        self._waiting: deque[dict[str, str]] = deque()
        self._new = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None
        self.failure = ""
        """What went wrong last."""
        self._failures: set[str] = set()
        self.failed: Callable[[str], object] = lambda what: None
        """Called with what went wrong, without the webhook's URL: that may be a secret."""

    def see(self, event: Event) -> None:
        """Queues what is worth a message."""
        if not self._command and not self._url:
            return
        if isinstance(event, AlertRaised) and event.alert_id not in self._told:
            self._told.add(event.alert_id)
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
        """Every name that a plan may use is there; what does not apply is empty."""
        empty = dict.fromkeys(("title", "cause", "verdict", "advice", "unit", "alert"), "")
        self._waiting.append({**empty, "host": event.host, "plan": self._plan, **words})
        self._new.set()

    async def run(self) -> None:
        """Sends what comes, until cancelled; a message under way then is left to `drain`."""
        while True:
            await self._new.wait()
            self._new.clear()
            while self._telling or self._waiting:
                await self._next()

    async def drain(self) -> None:
        """Sends what still waits, at the end: DRAIN_S at most."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while self._telling or self._waiting:
                    await self._next()
        except TimeoutError:
            assert self._telling is not None
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def _next(self) -> None:
        """Waits for the message under way, or sends the next one. Each is sent once, whoever is cancelled."""
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell(self._waiting.popleft()))
        await asyncio.shield(self._telling)
        self._telling = None

    def _fail(self, what: str) -> None:
        self.failure = what
        if what not in self._failures:
            self._failures.add(what)
            self.failed(what)

    async def _tell(self, message: dict[str, str]) -> None:
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
        except (OSError, ValueError) as error:  # ValueError: a NUL in what a log line said
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
                answer = await client.post(self._url or "", json=message)
                if answer.status_code >= 400:
                    self._fail(f"the webhook answered HTTP {answer.status_code}")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            self._fail(f"the webhook could not be reached: {type(error).__name__}")


def fill(word: str, message: dict[str, str]) -> str:
    """One argument with its placeholders filled in; nothing else in braces is touched, nor what a value brings along.

    >>> fill("{title}: {cause} {x}", {"title": "NO TOKENS {cause}", "cause": "0"})
    'NO TOKENS {cause}: 0 {x}'
    """
    return re.sub(r"\{(\w+)\}", lambda found: message.get(found[1], found[0]), word)
