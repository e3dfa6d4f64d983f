"""The engine's own dump of its arguments in the log: `server_args=ServerArgs(…)`, `non-default args: {…}`.

It is the truth about what runs. Values are Python literals; the line is long (over 4096 bytes, so the journal may
have cut or dropped it), may have been wrapped at a fixed width, and may end anywhere.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any

_BEGIN = re.compile(r"(?:server_args=(?:\w+)?|non-default args: |(?:^|\s)args: Namespace)(?=[({])")
_KEY = re.compile(r"""^\s*(?:(?P<k>[A-Za-z_]\w*)\s*=|(?P<q>['"])(?P<qk>[^'"]{1,80})(?P=q)\s*:)\s*""")
MAX_CHARS = 65_536


def find_args(text: str) -> int | None:
    """Offset of the opening bracket of an argument dump in `text`, or None when there is none."""
    match = _BEGIN.search(text)
    return match.end() if match else None


def _split_top(body: str) -> Iterator[tuple[str, bool]]:
    """Cut `body` (after the opening bracket) at its top-level commas; the flag says the last part ended properly."""
    depth, quote, start, i, end = 0, "", 0, 0, len(body)
    while i < end:
        c = body[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c in "([{<" and not (c == "<" and not body[i + 1 : i + 2].isalpha()):
            depth += 1
        elif c in ")]}>" and not (c == ">" and depth == 0):
            if depth == 0:
                yield body[start:i], True
                return
            depth -= 1
        elif c == "," and depth == 0:
            yield body[start:i], True
            start = i + 1
        i += 1
    yield body[start:], False


def literal_eval(text: str) -> Any:
    """`ast.literal_eval` without the compiler's SyntaxWarning about odd literals (`0x7for`) on the user's screen.

    Raises what it raises: ValueError, SyntaxError, MemoryError, RecursionError, TypeError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.literal_eval(text)


def _literal(text: str) -> Any:
    text = text.strip()
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text  # an object's repr such as `<Enum.X: 1>` or `inf` is kept as written


def is_complete(text: str) -> bool:
    """Whether the dump in `text` reaches its closing bracket (True also when there is no dump at all)."""
    start = find_args(text)
    if start is None:
        return True
    *_, (_, closed) = _split_top(text[start + 1 : start + MAX_CHARS].replace("\n", ""))
    return closed


def parse_server_args(text: str) -> dict[str, Any]:
    """Read an argument dump into name → value.

    `text` may begin with anything, hold line ends where the record was wrapped, and be cut at the end: a last
    value that was not finished is left out. Values that are no Python literal stay text. Never raises.
    """
    start = find_args(text)
    if start is None:
        return {}
    found: dict[str, Any] = {}
    for part, closed in _split_top(text[start + 1 : start + MAX_CHARS].replace("\r", "").replace("\n", "")):
        match = _KEY.match(part)
        if match is None or not closed:
            continue
        found[match["k"] or match["qk"]] = _literal(part[match.end() :])
    return found
