"""Messages for one receiver: in order, tried again with growing pauses, bounded in number and in time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from ddtop.journal.act.now import UNDELIVERED
from ddtop.words import duration, many

Level = Literal["info", "warn"]


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long it is tried. Seconds."""

    pauses_s: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
    """Before each further try; the last one goes on."""
    give_up_s: float = 3600.0
    """A message older than that is not tried again. Each is tried once at least."""
    most: int = 100
    """Messages that wait at most; beyond it the oldest is given up."""
    ending_pause_s: float = 1.0
    """The longest pause once the run has ended."""

    def pause_s(self, tries: int) -> float:
        """The pause after so many tries in a row.

        >>> [Patience().pause_s(n) for n in (1, 3, 99)]
        [1.0, 4.0, 60.0]
        """
        return self.pauses_s[min(tries, len(self.pauses_s)) - 1]


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent, and when it was queued (monotonic seconds)."""

    words: dict[str, str]
    queued_s: float

    @property
    def name(self) -> str:
        """In a note: what it was about."""
        return self.words["title"] + (f" (alert {self.words['alert']})" if self.words.get("alert") else "")


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one try. `why` is empty where it was delivered; it never holds a URL."""

    why: str = ""
    again: bool = True
    """Whether another try can help."""
    pause_s: float | None = None
    """What the receiver asks to wait, if it does."""
    most: int | None = None
    """Tries at most, for this kind of failure."""


def next_pause(
    sent: Sent, tries: int, age_s: float, patience: Patience, *, ending: bool = False
) -> float | None:
    """Seconds until the next try of a message that was not delivered; None: it is given up. Pure."""
    if not sent.again or (sent.most is not None and tries >= sent.most):
        return None
    pause = max(patience.pause_s(tries), min(sent.pause_s or 0.0, 60.0))
    if ending:
        return min(pause, patience.ending_pause_s)
    return pause if age_s + pause <= patience.give_up_s else None


class Queue:
    """The messages for one receiver. `say` gets a sentence where they are late, delivered again, or given up."""

    def __init__(
        self,
        name: str,
        send: Callable[[dict[str, str]], Awaitable[Sent]],
        patience: Patience,
        say: Callable[[Level, str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.now = now
        self._send, self._patience, self._say = send, patience, say
        self._waiting: deque[Message] = deque()
        self._new = asyncio.Event()
        self._sending: asyncio.Task[Sent] | None = None
        self._tries = 0
        """Of the message at the head."""
        self._trouble = ""
        """Why the receiver gets nothing now; empty while it does."""

    def put(self, message: Message) -> None:
        """Queues a message. Where too many wait, the oldest that is not under way is given up."""
        self._waiting.append(message)
        if len(self._waiting) > self._patience.most:
            index = 1 if self._sending is not None else 0
            old = self._waiting[index]
            del self._waiting[index]
            tries = self._tries if index == 0 else 0
            if index == 0:
                self._tries = 0  # they were of the message that goes
            self._give_up(old, f"{many(self._patience.most, 'message')} wait already", tries)
        self._new.set()

    async def run(self) -> None:
        """Sends until cancelled. A try under way goes on, and `drain` waits for it."""
        while True:
            await self._new.wait()
            self._new.clear()
            while self._waiting:
                if (pause := await self._try(ending=False)) is not None:
                    await asyncio.sleep(pause)

    async def drain(self, limit_s: float) -> None:
        """Sends what is left, with short pauses, for `limit_s` seconds at most; says what is not delivered."""
        try:
            async with asyncio.timeout(limit_s):
                while self._waiting:
                    if (pause := await self._try(ending=True)) is not None:
                        await asyncio.sleep(pause)
        except TimeoutError:
            if self._sending is not None:
                self._sending.cancel()
                await asyncio.gather(self._sending, return_exceptions=True)
            why = self._trouble or f"{self.name} gave no answer in {limit_s:g} s"
            while self._waiting:
                self._give_up(self._waiting.popleft(), f"{why}; the run has ended", self._tries)
                self._tries = 0

    async def _try(self, *, ending: bool) -> float | None:
        """One try of the message at the head; the pause before the next one, None where it is done with."""
        if self._sending is None:
            self._sending = asyncio.create_task(self._guarded(self._waiting[0].words))
        sent = await asyncio.shield(self._sending)
        self._sending = None
        head = self._waiting[0]
        self._tries += 1
        if not sent.why:
            if self._trouble:
                self._say("info", f"{self.name} gets notifications again")
            self._trouble = ""
            self._done()
            return None
        pause = next_pause(sent, self._tries, self.now() - head.queued_s, self._patience, ending=ending)
        if pause is None:
            self._give_up(head, sent.why, self._tries)
            self._trouble = sent.why
            self._done()
            return None
        if not self._trouble and not ending:
            until = duration(self._patience.give_up_s)
            self._say("warn", f"a notification is late: {sent.why}; it is tried again for {until} at most")
        self._trouble = sent.why
        return pause

    async def _guarded(self, words: dict[str, str]) -> Sent:
        """A fault of ours costs the message, never the sweep. Its text may hold the URL, so only its kind is said."""
        try:
            return await self._send(words)
        except Exception as error:
            return Sent(f"{self.name} failed: {type(error).__name__}", again=False)

    def _done(self) -> None:
        self._waiting.popleft()
        self._tries = 0

    def _give_up(self, message: Message, why: str, tries: int = 0) -> None:
        often = f" after {tries} tries" if tries > 1 else ""
        self._say("warn", f"{UNDELIVERED}: {message.name}: {why}{often}")
