"""Read `journalctl -o export` and `-o verbose`, which print the same fields as the JSON form. Pure.

export   KEY=value lines; a value with odd bytes as KEY, newline, its length in 8 bytes (little-endian), the value,
         newline; an empty line ends the entry (systemd's JOURNAL_EXPORT_FORMATS)
verbose  a line with time and cursor, then `    KEY=value`; further lines of a value are indented deeper
"""

from __future__ import annotations

import re
from typing import Any

_EXPORT = re.compile(rb"\A\s{0,4}__CURSOR=\S+\n(?:[A-Z_][A-Z0-9_]{0,63}(?:=|\n))")
_VERBOSE = re.compile(
    rb"\A\s{0,4}(?:-- [^\n]{0,200}\n)?[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\n]{0,60} \[s=[^\]\n]{1,400}\]\n {2,8}[A-Z_]"
)
_HEAD = re.compile(
    rb"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\n]{0,60} \[(?P<cursor>s=[^\]\n]{1,400})\]$"
)
_FIELD = re.compile(rb" {4}(?P<key>[A-Z_][A-Z0-9_]{0,63})=(?P<value>.*)$", re.DOTALL)
_KEY = re.compile(rb"[A-Z_][A-Z0-9_]{0,63}$")


def journal_form(data: bytes) -> str | None:
    """`export` or `verbose`, by the first entry; None for anything else."""
    head = data[:8_192].replace(b"\r\n", b"\n")
    if _EXPORT.match(head):
        return "export"
    return "verbose" if _VERBOSE.match(head) else None


def journal_fields(data: bytes) -> list[dict[str, Any]]:
    """The fields of every entry; of a truncated entry those that are complete."""
    return _export(data) if journal_form(data) == "export" else _verbose(data)


def _export(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    entry: dict[str, Any] = {}
    at, end = 0, len(data)
    while at < end:
        stop = data.find(b"\n", at)
        stop = end if stop < 0 else stop
        line = data[at:stop].rstrip(b"\r")
        at = stop + 1
        key, equals, value = line.partition(b"=")
        if not line:
            if entry:
                found.append(entry)
                entry = {}
        elif equals:
            entry[key.decode("ascii", "replace")] = value.decode("utf-8", "replace")
        elif _KEY.match(line) and at + 8 <= end:
            size = int.from_bytes(data[at : at + 8], "little")
            if size > end - at - 8:
                break
            entry[key.decode("ascii", "replace")] = data[at + 8 : at + 8 + size].decode("utf-8", "replace")
            at += 8 + size + 1
    if entry:
        found.append(entry)
    return found


def _verbose(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    last: str | None = None
    for raw in data.split(b"\n"):
        line = raw.rstrip(b"\r")
        head, field = _HEAD.match(line), _FIELD.match(line)
        if head is not None:
            found.append({"__CURSOR": head["cursor"].decode("ascii", "replace")})
            last = None
        elif field is not None and found:
            last = field["key"].decode("ascii")
            found[-1][last] = field["value"].decode("utf-8", "replace")
        elif last is not None and line.startswith(b"     ") and found:
            found[-1][last] += "\n" + line.strip().decode("utf-8", "replace")
    return found
