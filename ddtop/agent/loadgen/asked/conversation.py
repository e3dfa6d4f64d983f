"""Conversations: which request is which turn of which one, and what was answered so far. Pure.

Requests are numbered conversation by conversation: with four turns request 6 is the third turn of conversation 1. Those of
the burst (-1, -2, …) are numbered in the same way, downwards. With one turn each request is a conversation of its own.
"""

from __future__ import annotations

from typing import Any


def place(index: int, turns: int) -> tuple[int, int]:
    """(conversation, turn from 0) of a request; conversations of the burst are -1, -2, …"""
    if index >= 0:
        return divmod(index, turns)
    number, turn = divmod(-1 - index, turns)
    return -1 - number, turn


def first_of(conversation: int, turns: int) -> int:
    """Index of the first request of a conversation."""
    return conversation * turns if conversation >= 0 else -1 - (-1 - conversation) * turns


def script_of(prompt: Any) -> list[Any]:
    """What the user says, turn by turn, of a prompt that is a whole conversation: its "prompt" or "messages" if it has one,
    then each of its "turns"; empty where it has none."""
    turns = prompt.get("turns") if isinstance(prompt, dict) else None
    if not isinstance(turns, list) or not all(isinstance(one, str) and one for one in turns):
        return []
    opening = {key: prompt[key] for key in ("prompt", "messages") if key in prompt}
    return [opening, *turns] if opening else turns


class Conversations:
    """What each conversation of a load says. Without scripts a conversation takes the prompts one after the other, so that
    request i has prompt i mod n; with scripts each takes the next prompt as a whole."""

    def __init__(self, prompts: list[Any], turns: int) -> None:
        self.prompts = prompts
        self.turns = max(1, turns)
        self.scripts = any(script_of(one) for one in prompts)
        self._answers: dict[int, list[str]] = {}

    def length(self, conversation: int) -> int:
        """How many turns it has."""
        if not self.scripts:
            return self.turns
        return min(self.turns, len(script_of(self.prompts[conversation % len(self.prompts)])) or 1)

    def prompt(self, conversation: int, turn: int) -> Any:
        """What the user says: text, or an object with "prompt" or "messages"."""
        if not self.scripts:
            return self.prompts[(conversation * self.turns + turn) % len(self.prompts)]
        one = self.prompts[conversation % len(self.prompts)]
        script = script_of(one)
        if not script:
            return one
        said = script[turn]
        others = {key: value for key, value in one.items() if key not in ("prompt", "messages", "turns")}
        return {**others, **({"prompt": said} if isinstance(said, str) else said)}

    def before(self, index: int) -> list[tuple[Any, str]]:
        """(prompt, answer) of each turn before that of a request."""
        conversation, turn = place(index, self.turns)
        said = self._answers.get(conversation, [])
        return [(self.prompt(conversation, number), said[number]) for number in range(min(turn, len(said)))]

    def goes_on(self, index: int, answer: str | None) -> int | None:
        """A request was answered: the index of the turn that follows, None where the conversation is over. `answer`: None
        ends it, because nothing came that could be sent back."""
        conversation, turn = place(index, self.turns)
        if answer is None or turn + 1 >= self.length(conversation):
            self._answers.pop(conversation, None)
            return None
        self._answers.setdefault(conversation, []).append(answer)
        return index + 1 if index >= 0 else index - 1


def flat(prompt: Any) -> str:
    """A prompt as plain text."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt.get("prompt"), str):
        return str(prompt["prompt"])
    return "\n\n".join(str(message.get("content", "")) for message in prompt.get("messages", []))
