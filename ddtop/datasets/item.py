"""One prompt of a dataset, and the files that hold them: JSON lines of one form, whatever the source. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from ddtop.errors import UsageError

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""Begins each text that SPEED-Bench leaves out, because others own it."""
MAX_GROUP = 64
"""Characters of a group's name."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`prompt` or `messages`, the group it belongs to, and what a user says after each answer (`turns`)."""

    group: str
    prompt: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    turns: tuple[str, ...] = ()
    output_tokens: int | None = None

    def asked(self, *, turns: bool = False) -> dict[str, Any]:
        """As the load generator takes it; `turns`: as a conversation, where it has more than one."""
        out: dict[str, Any] = {"messages": list(self.messages)} if self.messages else {"prompt": self.prompt}
        if turns and self.turns:
            out["turns"] = list(self.turns)
        if self.output_tokens is not None:
            out["output_tokens"] = self.output_tokens
        return {**out, "group": self.group}

    @property
    def text(self) -> str:
        """All that is asked, for people and for hashes."""
        said = [str(message.get("content", "")) for message in self.messages]
        return "\n".join([self.prompt, *said, *self.turns]).strip()


def lines_of(items: Iterable[Item]) -> str:
    """The items as JSON lines."""
    return "".join(msgspec.json.encode(item).decode() + "\n" for item in items)


def items_of(text: str, name: str) -> tuple[Item, ...]:
    """What `lines_of` wrote. Raises UsageError naming the line that is damaged."""
    found: list[Item] = []
    decoder = msgspec.json.Decoder(Item)
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{name}: line {number} is damaged: {error}", do=f"ddtop dataset fetch {name}"
            ) from error
    return tuple(found)


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def count_by_group(items: Iterable[Item]) -> dict[str, int]:
    """{group: prompts}, in order of first appearance."""
    return dict(Counter(item.group for item in items))
