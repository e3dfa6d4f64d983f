"""No traceback on a user's screen: what a handler throws becomes a toast and a line in the fault log.

Textual ends a widget's message loop, and then the app, when a handler raises. `Guarded` catches at the place
where messages are handed out, so that the widget lives on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual.message import Message
from textual.message_pump import MessagePump


@runtime_checkable
class TakesFaults(Protocol):
    """An app that keeps faults."""

    def fault(self, error: Exception, where: str) -> None:
        """Write down an exception and tell the person."""


if TYPE_CHECKING:
    _Base = MessagePump
else:
    _Base = object


class Guarded(_Base):
    """Mixin for apps, screens and widgets; stands before Textual's class."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            app = self.app
            if not isinstance(app, TakesFaults):
                raise
            app.fault(error, f"{type(self).__name__} at {type(message).__name__}")
