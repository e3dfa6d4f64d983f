"""The newest argument dump of a log, put together from several lines where it was wrapped at a fixed width."""

from __future__ import annotations

from typing import Any

from ddtop.engines.log.line_prefix import split_prefix
from ddtop.engines.log.server_args import MAX_CHARS, find_args, is_complete, parse_server_args

MAX_LINES = 50


class ArgsDump:
    """`args`: name → value, as far as they could be read; `whole`: the dump reached its closing bracket."""

    def __init__(self) -> None:
        self.args: dict[str, Any] = {}
        self.whole = True
        self._lines: list[str] = []
        """Lines of a dump that is still open."""

    def begin(self, line: str) -> None:
        """Take the line on which a dump begins."""
        self._lines = [line[:MAX_CHARS]]
        self._read()

    def continues(self, line: str) -> bool:
        """Whether `line` is the rest of an open dump; then it is taken."""
        if not self._lines:
            return False
        if split_prefix(line).prefixed or len(self._lines) > MAX_LINES or find_args(line[:500]) is not None:
            self._lines = []
            return False
        self._lines.append(line)
        self._read()
        return True

    def _read(self) -> None:
        text = "\n".join(self._lines)[:MAX_CHARS]
        self.args = parse_server_args(text) or self.args
        self.whole = is_complete(text)
        if self.whole:
            self._lines = []
