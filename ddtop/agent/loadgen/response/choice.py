"""One of the `n` choices of a response: its text, its finish reason, its tokens. Pure."""

from __future__ import annotations

import math
from typing import Any

TEXT_KEYS = ("content", "text", "reasoning", "reasoning_content", "refusal")
GOOD_FINISH = ("stop", "length", "tool_calls", "function_call", "eos", "limit", "word", "stop_sequence")


class Choice:
    """One of the `n` choices of a response."""

    __slots__ = ("counted", "finish", "native_pieces", "native_text", "reasoning", "text", "tools")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.tools: list[str] = []  # names and arguments of calls: output tokens, and no content
        self.native_text = ""  # SGLang's cumulative text
        # What came, event by event, until it is certain that the text is cumulative (None from then on)
        self.native_pieces: list[str] | None = []
        self.finish: str | None = None
        self.counted = 0  # tokens by the server's running count

    def take_native(self, text: str, more_tokens: bool) -> int:
        """Take the text of one /generate event; returns how many characters are new. SGLang sends all of the text so
        far, or with --incremental-streaming-output only what is new; text that repeats itself fits both at first."""
        before = self.native_text
        if self.native_pieces is not None:
            self.native_pieces.append(text)
        if len(text) > len(before) and text.startswith(before):
            self.native_text = text
            if self.native_pieces is not None and len(self.native_pieces) > 32:
                self.native_pieces = None
            return len(text) - len(before)
        if text == before and not more_tokens:
            return 0
        if self.native_pieces is None:
            # cumulative for certain: a shorter text means that the end of a stop string was taken back
            self.native_text = text
            return 0
        if before.startswith(text) and not more_tokens:
            return 0
        self.native_text = "".join(self.native_pieces)
        return len(text)


def whole(value: Any) -> int | None:
    """An integer from JSON, or None (true and false are not numbers; 3.0 is)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value):
        return None
    return int(value)
