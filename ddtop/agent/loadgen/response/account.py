"""What one streamed response said: tokens, texts, finish reasons, errors. Pure; `messages` fills it in.

Tokens come from the server's own counts (continuous usage, `meta_info`, llama.cpp `timings`, vLLM `token_ids`),
never from counting chunks.
"""

from __future__ import annotations

from typing import Any

from .choice import GOOD_FINISH, Choice


class Account:
    """The running account of one response, event by event; `messages.take_event` feeds it.

    `chunk_ns` / `chunk_tokens`: the events that brought text (or, after the first text, a higher count), with the
    tokens each brought; `chunk_tokens` holds None where the server gave no running count. Indices are 0-based over
    `data:` events without [DONE].
    """

    def __init__(self, keep_text: bool = True) -> None:
        self.keep_text = keep_text
        self.events = 0
        self.bad_events = 0  # data that is neither JSON nor [DONE]
        self.done_seen = False
        self.not_streamed = False
        self.error: str | None = None
        self.error_code: int | str | None = None
        self.choices: dict[int, Choice] = {}
        self.abort_text: str | None = None
        self.first_event: int | None = None
        self.first_content_event: int | None = None
        self.first_content_ns: int | None = None
        self.text_chunks = 0
        self.chunk_ns: list[int] = []
        self.chunk_tokens: list[int | None] = []
        self.last_event_ns: int | None = None
        self.event_tokens: list[int] = []  # the running count's step at every event
        self.source = "none"
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.final_tokens: int | None = None
        self.spec: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}
        self.content_chars = 0
        self.tool_calls = 0
        self.running_known = False
        self._pending_tokens = 0  # counted, but no text of theirs has come yet

    # ---- what came of it

    @property
    def tokens(self) -> int | None:
        """Output tokens by the server's own word; None if it never said (0 if it is certain that none came)."""
        if self.final_tokens is not None:
            return self.final_tokens
        if self.running_known:
            return sum(choice.counted for choice in self.choices.values())
        return None

    @property
    def finish(self) -> str | None:
        """The finish reason of the response (for n > 1 of the first choice that did not finish well); None if one is missing."""
        if not self.choices:
            return None
        reasons = [self.choices[index].finish for index in sorted(self.choices)]
        if any(reason is None for reason in reasons):
            return None
        for reason in reasons:
            if reason not in GOOD_FINISH:
                return reason
        return "length" if "length" in reasons and reasons[0] != "length" else reasons[0]

    def trusted_chunks(self) -> bool:
        """True if every chunk's tokens are known and add up to the total the server gave at the end."""
        if not self.chunk_tokens or any(count is None for count in self.chunk_tokens):
            return False
        total = sum(count or 0 for count in self.chunk_tokens)
        return self.tokens is not None and total <= self.tokens

    def texts(self) -> list[str]:
        """The choices' texts in order of their index, reasoning first."""
        out = []
        for index in sorted(self.choices):
            choice = self.choices[index]
            content = "".join(choice.text) or choice.native_text
            out.append("".join(choice.reasoning) + content + "".join(choice.tools))
        return out

    def answer(self) -> str:
        """The first choice's text without its reasoning: what a conversation sends back."""
        choice = self.choices.get(0)
        return ("".join(choice.text) or choice.native_text) if choice is not None else ""

    # ---- feeding

    def plain_chunk(self, text: str, at_ns: int, prompt: int | None, count: int | None) -> bool:
        """What `messages.take_event` does, for the commonest event: text of choice 0, no finish reason, and the
        running count or none. False (nothing changed) where the event holds more than that."""
        if not text or len(self.choices) > 1 or (self.choices and 0 not in self.choices):
            return False
        choice = self.choices.get(0)
        if count is not None and (
            self.source != "usage-each"
            if self.running_known
            else self.source != "none" or choice is None or choice.finish
        ):
            return False
        index = self.events
        self.events += 1
        self.last_event_ns = at_ns
        if choice is None:
            choice = self.choice_at(0)
        if self.keep_text:
            choice.text.append(text)
        self.content_chars += len(text)
        gained = 0
        if count is not None:
            self.prompt_tokens = prompt
            self.running_known, self.source = True, "usage-each"
            if count > choice.counted:
                gained = count - choice.counted
                choice.counted = count
        self.event_tokens.append(gained)
        if self.first_content_event is None:
            self.first_content_event, self.first_content_ns = index, at_ns
        self.add_chunk(True, gained, index, at_ns)
        return True

    def running_total(self) -> int:
        """Output tokens of all choices by the server's running count."""
        return sum(choice.counted for choice in self.choices.values())

    def add_chunk(self, has_text: bool, gained: int, index: int, at_ns: int) -> None:
        """Note event `index`, which brought text, or `gained` tokens, or both. A token whose text the server holds
        back belongs to the chunk that shows the text."""
        if not has_text and not (gained and self.chunk_ns):
            self._pending_tokens += gained
            return
        if has_text:
            self.text_chunks += 1
            if self.first_event is None:
                self.first_event = index
        self.chunk_ns.append(at_ns)
        self.chunk_tokens.append(gained + self._pending_tokens if self.running_known else None)
        self._pending_tokens = 0

    def choice_at(self, index: int) -> Choice:
        """The choice of this index, made at its first mention."""
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = Choice()
        return choice
