"""Reaching a person who is not looking: the plan's command and webhook, once for each alert and at the end of the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from ddtop.events import AlertRaised, Event, RunEnded

LIMIT_S = 15.0


class Notifier:
    """`see` events, `run` beside the sweep. A hook that fails costs the sweep nothing; its last failure is kept."""

    def __init__(self, command: tuple[str, ...], webhook_env: str | None, plan: str = "") -> None:
        self._plan = plan
        self._command = command
        self._url = os.environ.get(webhook_env) if webhook_env else None
        self._told: set[str] = set()
        self._queue: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.failure = ""

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
        self._queue.put_nowait({**empty, "host": event.host, "plan": self._plan, **words})

    async def run(self) -> None:
        while True:
            await self._tell(await self._queue.get())

    async def drain(self) -> None:
        """Sends what still waits, at the end."""
        while not self._queue.empty():
            await self._tell(self._queue.get_nowait())

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
        except OSError as error:
            self.failure = f"{argv[0]}: {error.strerror}"
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                if await process.wait():
                    self.failure = f"{argv[0]} ended with exit code {process.returncode}"
        except TimeoutError:
            self.failure = f"{argv[0]} took longer than {LIMIT_S:.0f} s"
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _post(self, message: dict[str, Any]) -> None:
        import httpx

        try:
            async with httpx.AsyncClient(timeout=LIMIT_S) as client:
                answer = await client.post(self._url or "", json=message)
                if answer.status_code >= 400:
                    self.failure = f"the webhook answered HTTP {answer.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self.failure = f"the webhook could not be reached: {type(error).__name__}"


def fill(word: str, message: dict[str, str]) -> str:
    """One argument with its placeholders filled in; nothing else in braces is touched.

    >>> fill("{title}: {cause} {x}", {"title": "NO TOKENS", "cause": "0"})
    'NO TOKENS: 0 {x}'
    """
    for key, value in message.items():
        word = word.replace("{" + key + "}", value)
    return word
