"""On which line of a TOML text a key stands: tomli gives values without their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import tomli

_HEADER = re.compile(r"^\s*(\[\[?)(?P<keys>[^#]*?)(\]\]?)\s*(#.*)?$")
_KEY = re.compile(r"""^\s*(?P<keys>(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_\-.\s])+?)\s*=""")
_WORD = re.compile(
    r"""\s*(?:"(?P<basic>(?:[^"\\]|\\.)*)"|'(?P<literal>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))\s*"""
)
_SKIP = re.compile(r'#.*|"""|\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[\[\]{}]')


def locate(text: str, path: tuple[str | int, ...]) -> int | None:
    """Line (from 1) of the deepest part of `path` that has one of its own; None where there is none.

    An element of an array or an inline table is found at the key that holds it.
    """
    places = _places(text)
    for length in range(len(path), 0, -1):
        line = places.get(path[:length])
        if line is not None:
            return line
    return None


@lru_cache(maxsize=8)
def _places(text: str) -> dict[tuple[str | int, ...], int]:
    found: dict[tuple[str | int, ...], int] = {}
    counts: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    for number, line in _logical_lines(text):
        header = _HEADER.match(line)
        keys = _split(header["keys"]) if header else None
        if header and keys:
            table = _through_arrays(keys, counts)
            if header[1] == "[[":
                index = counts.get(table, -1) + 1
                counts[table] = index
                found.setdefault(table, number)
                table = (*table, index)
            found.setdefault(table, number)
            continue
        match = _KEY.match(line)
        keys = _split(match["keys"]) if match else None
        if keys:
            for length in range(1, len(keys) + 1):
                found.setdefault((*table, *keys[:length]), number)
    return found


def _through_arrays(keys: list[str], counts: dict[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
    """`[workload.x]` after `[[workload]]` means the last workload."""
    out: tuple[str | int, ...] = ()
    for position, key in enumerate(keys):
        out = (*out, key)
        if out in counts and position + 1 < len(keys):
            out = (*out, counts[out])
    return out


def _split(keys: str) -> list[str] | None:
    """The words of a dotted key; None where it is none."""
    out: list[str] = []
    at = 0
    while at < len(keys):
        match = _WORD.match(keys, at)
        if match is None:
            return None
        if match["basic"] is not None:
            try:
                out.append(str(tomli.loads(f'x = "{match["basic"]}"')["x"]))
            except tomli.TOMLDecodeError:
                return None
        else:
            out.append(match["literal"] if match["literal"] is not None else match["bare"])
        at = match.end()
        if at < len(keys):
            if keys[at] != ".":
                return None
            at += 1
    return out or None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of lines that begin a key or a header: not those inside a long string or array."""
    depth = 0
    quote = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not quote and depth <= 0:
            yield number, line
            if _HEADER.match(line) and not _KEY.match(line):
                continue
        at = 0
        while at < len(line):
            if quote:
                end = line.find(quote, at)
                if end < 0:
                    break
                at, quote = end + 3, ""
                continue
            match = _SKIP.search(line, at)
            if match is None:
                break
            token = match[0]
            at = match.end()
            if token in ('"""', "'''"):
                quote = token
            elif token in "[{":
                depth += 1
            elif token in "]}":
                depth -= 1
