"""Commands on their way: made, sent, and what became of each.

A command is accepted, refused or too late, and a sentence says which; also where no reply comes.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import uuid
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ddtop.events import Action, AnyCommand, Command, CommandSeen

GRACE_S = 3.0
"""Beyond its deadline, before a command counts as unanswered."""


def viewer_name(what: str = "") -> str:
    """Sender of commands, as the recording names it: `anna@laptop-3f2a`. `what` stands for the random part, so that one
    person's commands from several processes have one sender."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname().split('.')[0]}-{what or secrets.token_hex(2)}"


def make(kind: type[Command], viewer: str, now_s: float, **fields: Any) -> Command:
    """A command of `kind` with an id of its own."""
    return kind(id=uuid.uuid4().hex, viewer=viewer, at_s=now_s, **fields)


def from_action(action: Action, alert_id: str | None, viewer: str, now_s: float) -> Command:
    """The command that an alert's action names.

    Raises msgspec.ValidationError where this version knows no such command.
    """
    about = {"alert_id": alert_id} if alert_id is not None else {}
    given = {name: value for name, value in action.args.items() if value is not None}
    raw = {"type": action.command, "id": uuid.uuid4().hex, "viewer": viewer, "at_s": now_s, **about, **given}
    command: Command = msgspec.convert(raw, AnyCommand)
    return command


@dataclass(frozen=True)
class Sent:
    """A command under way, by what it was called on the screen."""

    command: Command
    label: str


Severity = Literal["information", "warning", "error"]


@dataclass(frozen=True)
class Said:
    """A sentence for the person about a command."""

    text: str
    severity: Severity
    command: str
    outcome: Literal["obeyed", "refused", "late", "unanswered"]


class Pending:
    """The commands of this viewer that were not answered yet."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}

    def add(self, command: Command, label: str) -> None:
        """Remember a command that was put into the journal."""
        self.sent[command.id] = Sent(command, label)

    def answer(self, seen: CommandSeen) -> Said | None:
        """What to say about an answer; None where the command was not ours or is a mere sign of life."""
        ours = self.sent.pop(seen.command_id, None)
        if ours is None:
            return None
        why = f": {seen.reason}" if seen.reason else ""
        if seen.outcome == "obeyed":
            return Said(f"✓ {ours.label}{why}", "information", seen.command, "obeyed")
        if seen.outcome == "late":
            text = f"Too late: {ours.label}{why}. Nothing was done. Press the key again."
            return Said(text, "warning", seen.command, "late")
        return Said(f"Refused: {ours.label}{why}", "error", seen.command, "refused")

    def overdue(self, now_s: float) -> list[Said]:
        """What to say about commands that nobody answered in time; each is said once."""
        out: list[Said] = []
        for key, ours in list(self.sent.items()):
            if now_s > ours.command.at_s + ours.command.deadline_s + GRACE_S:
                del self.sent[key]
                text = f"No reply to: {ours.label}. The runner may have ended; check with: ddtop runs"
                out.append(Said(text, "warning", str(type(ours.command).__struct_config__.tag), "unanswered"))
        return out
