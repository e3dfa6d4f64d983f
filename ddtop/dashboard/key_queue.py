"""Keys in order: each acts on the screen that the key before it left.

Textual forwards a key to the focused widget, and the action runs when the key has bubbled up to the app. A key
that comes in between would still go to the widget that had the focus before: `/` and then `x` in one go would
skip a cell where `x` was meant for the filter, and `l` and then `y` would copy from a log that is not drawn yet.
So keys wait here, and the next one is handed on when what the one before did is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from textual.app import App
from textual.events import Key
from textual.message_pump import MessagePump
from textual.screen import Screen

HOLD_S = 2.0
"""A key waits no longer than this (in seconds) for the one before it: a stuck screen must not lock the keyboard."""


class KeyQueue:
    """Hands keys on one at a time; `run` is the one task that does."""

    def __init__(self, app: App[int], hand_on: Callable[[Key], Awaitable[None]]) -> None:
        """`hand_on` gives a key to the focused widget of `app`."""
        self._app = app
        self._hand_on = hand_on
        self._keys: asyncio.Queue[Key] = asyncio.Queue()
        self._at_work = False

    def put(self, key: Key) -> None:
        """Take in a key that was just pressed."""
        self._keys.put_nowait(key)

    @property
    def idle(self) -> bool:
        """True where every key that was pressed is done."""
        return self._keys.empty() and not self._at_work

    async def run(self) -> None:
        """Hand on keys until the app ends."""
        while True:
            key = await self._keys.get()
            self._at_work = True
            try:
                await self._rest()
                await self._hand_on(key)
            finally:
                self._at_work = False

    async def _rest(self) -> None:
        """Wait until the screen in front is drawn and no message of a key is under way, or for `HOLD_S`."""
        try:
            async with asyncio.timeout(HOLD_S):
                screen = None
                while screen is not self._app.screen:
                    screen = self._app.screen
                    opened: asyncio.Event | None = getattr(screen, "ready", screen._mounted_event)
                    if opened is not None:
                        await opened.wait()
                    # Once for the key itself, once for the messages that its action posted (opened, focus).
                    for _ in range(2):
                        for pump in self._way(screen):
                            await _emptied(pump)
        except TimeoutError:
            pass

    def _way(self, screen: Screen[object]) -> Iterator[MessagePump]:
        """The way of a key: the focused widget, what is around it, the screen, the app."""
        node: MessagePump | None = screen.focused or screen
        while node is not None:
            yield node
            node = node._parent


async def _emptied(pump: MessagePump) -> None:
    """Wait until `pump` has handled all that is in its queue now; at once where it is closing."""
    passed = asyncio.Event()
    if pump.call_later(passed.set):
        await passed.wait()
