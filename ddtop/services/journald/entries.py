"""Journal entries, from `journalctl -o json` (also json-pretty and json-seq), export or verbose output.

Measured on systemd 252: MESSAGE is a list of byte values if the text has control characters (a progress bar's carriage
return, colour) or is not UTF-8, and null if it is longer than 4096 bytes and `--all` is not given. Lines above 48 KiB
are split with `_LINE_BREAK=line-max`. systemd's own lines carry `UNIT`, not the unit's `_SYSTEMD_UNIT`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ddtop.services.journald.export_verbose import journal_fields, journal_form

_DECODER = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Entry:
    """One journal entry.

    text          the message; None when journalctl left it out (null)
    message_type  ``str``, ``bytes`` or ``null``
    realtime_s    seconds since 1970 by the host's clock, monotonic_s since its boot; None when not given
    from_systemd  written by systemd itself about the unit (start, stop, result), not by the unit's process
    """

    text: str | None
    message_type: str = "str"
    realtime_s: float | None = None
    monotonic_s: float | None = None
    cursor: str | None = None
    pid: int | None = None
    unit: str | None = None
    invocation: str | None = None
    identifier: str | None = None
    transport: str | None = None
    line_break: str | None = None
    priority: int | None = None
    boot_id: str | None = None
    invalid_utf8: bool = False
    from_systemd: bool = False


def decode_message(value: Any) -> tuple[str | None, str, bool]:
    """MESSAGE as journalctl gave it → (text or None, ``str``/``bytes``/``null``, whether it was not UTF-8)."""
    if value is None:
        return None, "null", False
    if isinstance(value, str):
        return value, "str", False
    if isinstance(value, list):
        if all(isinstance(b, int) and 0 <= b < 256 for b in value):
            raw = bytes(value)
            try:
                return raw.decode("utf-8"), "bytes", False
            except UnicodeDecodeError:
                return raw.decode("utf-8", "replace"), "bytes", True
        parts = [decode_message(v) for v in value if isinstance(v, str | list) and v is not value]
        return (
            "\n".join(p[0] or "" for p in parts),
            "bytes" if any(p[1] == "bytes" for p in parts) else "str",
            any(p[2] for p in parts),
        )
    return str(value), "str", False


def _int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, str) and value else None


def entry_from(fields: Mapping[str, Any]) -> Entry:
    """One decoded JSON object → Entry. Unknown and odd fields are ignored, never an error."""
    text, message_type, bad = decode_message(fields.get("MESSAGE"))
    realtime, monotonic = _int(fields.get("__REALTIME_TIMESTAMP")), _int(fields.get("__MONOTONIC_TIMESTAMP"))
    identifier = _text(fields.get("SYSLOG_IDENTIFIER"))
    about = _text(fields.get("UNIT")) or _text(fields.get("USER_UNIT"))
    return Entry(
        text=text,
        message_type=message_type,
        realtime_s=realtime / 1e6 if realtime is not None else None,
        monotonic_s=monotonic / 1e6 if monotonic is not None else None,
        cursor=_text(fields.get("__CURSOR")),
        pid=_int(_text(fields.get("_PID")) or fields.get("_PID")),
        unit=about or _text(fields.get("_SYSTEMD_UNIT")) or _text(fields.get("_SYSTEMD_USER_UNIT")),
        invocation=_text(fields.get("_SYSTEMD_INVOCATION_ID"))
        if about is None
        else _text(fields.get("INVOCATION_ID")),
        identifier=identifier,
        transport=_text(fields.get("_TRANSPORT")),
        line_break=_text(fields.get("_LINE_BREAK")),
        priority=_int(_text(fields.get("PRIORITY")) or fields.get("PRIORITY")),
        boot_id=_text(fields.get("_BOOT_ID")),
        invalid_utf8=bad,
        from_systemd=about is not None or (identifier == "systemd" and "MESSAGE_ID" in fields),
    )


def parse_entry(line: bytes | str) -> Entry | None:
    """One line of `-o json` → Entry; None if it is not a JSON object."""
    raw = line.encode("utf-8", "replace") if isinstance(line, str) else line
    raw = raw.strip().lstrip(b"\x1e")
    if not raw.startswith(b"{"):
        return None
    try:
        return entry_from(_DECODER.decode(raw))
    except (msgspec.DecodeError, ValueError, RecursionError):
        try:
            fields = json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        return entry_from(fields) if isinstance(fields, dict) else None


def looks_like_journal_json(data: bytes) -> bool:
    """Whether the data begin as JSON (an object with one of journald's field names), `-o export` or `-o verbose`."""
    if journal_form(data) is not None:
        return True
    head = data[:16_384].lstrip(b"\xef\xbb\xbf \t\r\n\x1e[")
    return head.startswith(b"{") and any(
        key in head for key in (b'"MESSAGE"', b'"__CURSOR"', b'"__REALTIME_TIMESTAMP"', b'"_SYSTEMD_UNIT"')
    )


def parse_journal_json(data: bytes) -> list[Entry]:
    """All entries of a journal in JSON, one object a line, pretty-printed, in a list, or with record separators;
    or in journalctl's export or verbose form.

    A truncated or damaged line is left out.
    """
    if journal_form(data) is not None:
        return [entry_from(fields) for fields in journal_fields(data)]
    found: list[Entry] = []
    pretty: list[bytes] = []
    for line in data.split(b"\n"):
        stripped = line.strip().lstrip(b"\x1e")
        if not stripped or stripped in (b"[", b"]", b","):
            continue
        if not pretty and stripped.startswith(b"{") and len(stripped) > 1:
            entry = parse_entry(stripped.rstrip(b",") if stripped.endswith(b"},") else stripped)
            if entry is not None:
                found.append(entry)
            continue
        if stripped == b"{" or pretty:
            pretty.append(stripped)
            if stripped in (b"}", b"},"):
                entry = parse_entry(b" ".join(pretty).rstrip(b","))
                pretty.clear()
                if entry is not None:
                    found.append(entry)
            elif len(pretty) > 20_000:
                pretty.clear()
    return found


def join_split_lines(entries: Iterable[Entry]) -> list[Entry]:
    """Join entries that journald split at its line limit (`_LINE_BREAK=line-max`) with the next one of their process.

    If one part has no text (null), the whole line is null.
    """
    found: list[Entry] = []
    open_at: dict[tuple[int | None, str | None, str | None], int] = {}
    for entry in entries:
        key = (entry.pid, entry.unit, entry.transport)
        at = open_at.pop(key, None)
        if at is None:
            found.append(entry)
            at = len(found) - 1
        else:
            begun = found[at]
            whole = None if begun.text is None or entry.text is None else begun.text + entry.text
            found[at] = replace(
                begun,
                text=whole,
                message_type="null" if whole is None else begun.message_type,
                line_break=entry.line_break,
            )
        if entry.line_break == "line-max":
            open_at[key] = at
    return found
