"""Replaying a trace of requests: when each is due, and a text of its length that shares beginnings as the trace says. Pure.

A request of a trace is {"at_ms", "input_tokens", "output_tokens", "hash_ids"}: each hash id stands for a block of tokens, and
two prompts whose hash ids begin alike have the same beginning (the form of Mooncake's published traces).
"""

from __future__ import annotations

import hashlib
from typing import Any

from ..context_text import CHARS_PER_TOKEN

TAG = 11  # characters before each block: no two blocks are alike


def trace_times(prompts: list[Any], speed: float) -> list[int]:
    """When each request is due, in ns after the first one."""
    first = prompts[0]["at_ms"]
    return [int((one["at_ms"] - first) * 1e6 / speed) for one in prompts]


class BlockTexts:
    """The prompts of a trace as text. `tokens` of a block; `seed`: other text for another cell; `chars` of a block, its tag
    included (0: by a guess)."""

    def __init__(self, tokens: int, seed: str, source: str, chars: int = 0) -> None:
        self.tokens = tokens
        self.chars = chars or max(TAG + 1, int(self.tokens * CHARS_PER_TOKEN))
        self._seed = seed
        self._source = source
        while len(self._source) < len(source) + self.chars:
            self._source += source
        self._places = len(source)

    def block(self, name: str) -> str:
        """The text of one block: a tag of its own, and a passage."""
        digest = hashlib.sha256(("%s/%s" % (self._seed, name)).encode()).hexdigest()
        at = int(digest[:12], 16) % self._places
        return "[%s] " % digest[:8] + self._source[at : at + self.chars - TAG - 1] + "\n"

    def prompt(self, item: dict[str, Any], index: int) -> str:
        """The text of a request. Blocks that the trace does not name are like no other; a burst shares none of them."""
        tokens, known = item["input_tokens"], item.get("hash_ids") or []
        out: list[str] = []
        for number in range(-(-tokens // self.tokens)):
            name = "%d.%d" % (index, number)
            if number < len(known) and index >= 0:
                name = str(known[number])
            out.append(self.block(name))
        rest = tokens % self.tokens
        if rest:
            out[-1] = out[-1][: max(1, self.chars * rest // self.tokens)]
        return "".join(out)


def problem_of(prompts: list[Any]) -> str:
    """What makes prompts no trace, in words; "" where they are one."""
    before = 0.0
    for place, one in enumerate(prompts):
        where = "prompts[%d]" % place
        if not isinstance(one, dict) or not all(
            isinstance(one.get(key), (int, float)) and not isinstance(one.get(key), bool)
            for key in ("at_ms", "input_tokens", "output_tokens")
        ):
            return "%s: a request of a trace has at_ms, input_tokens and output_tokens, all numbers" % where
        if one["at_ms"] < before:
            return "%s: at_ms is %r, before the request ahead of it (%r)" % (where, one["at_ms"], before)
        if not isinstance(one["input_tokens"], int) or min(one["input_tokens"], one["output_tokens"]) < 1:
            return "%s: input_tokens and output_tokens must be whole numbers from 1 on" % where
        if not isinstance(one.get("hash_ids", []), list):
            return "%s: hash_ids: wanted a list" % where
        before = one["at_ms"]
    return ""
