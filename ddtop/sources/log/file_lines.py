"""Turn the bytes of a log, in any form in which it is fetched, into the numbered lines to scan.

A 50 MB log is mostly the same few lines with other numbers. Lines are grouped by what is left without digits; of
each group the first and last ones are read, of groups that may matter (errors, statistics) more. So the cost
follows the number of different lines, not their count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddtop.engines.log.grammar import load_phase_rules
from ddtop.services.journald.entries import join_split_lines, looks_like_journal_json, parse_journal_json
from ddtop.sources.log.scan_snapshot import LogEntry
from ddtop.sources.log.signatures import anchor_table

_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF-"
_ALARM = (
    b"rror",
    b"RROR",
    b"xception",
    b"ail",
    b"rrno",
    b"Xid",
    b"exit code",
    b"SM 1",
    b"-of-",
    b"Client",
    b"emory",
)
_STATS = (
    b"Decode batch",
    b"Prefill batch",
    b"tokens/s",
    b"% Completed",
    b"%|",
    b"print_timing",
    b"accept len",
)
BLOB = re.compile(rb"\[\d+(?:\.\d+)?[KMG]?B? blob data\]")
MAX_DISTINCT = 6_000
KEEP_ALARM, KEEP_STATS = 400, 24
MAX_LINE_BYTES = 1 << 20


@dataclass(slots=True)
class ReadLog:
    """Lines worth reading, in order. times = how many lines a chosen one stands for (itself included)."""

    lines: int = 0
    chosen: list[tuple[LogEntry, int]] = field(default_factory=list)
    invalid_utf8: bool = False
    blob_lines: int = 0
    null_messages: int = 0
    journal: bool = False
    entries: int = 0
    pids: list[tuple[int, int | None]] = field(default_factory=list)
    """(number, pid) of every journal entry, for counting whose entries lie between two numbers."""


def read_log(data: bytes) -> ReadLog:
    """Read a log file of any size: plain text, console capture, `journalctl` short or cat, or journal
    JSON."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")  # a redirection of PowerShell's
    if looks_like_journal_json(data):
        return _read_json(data)
    result = ReadLog()
    raw = data.split(b"\n")
    if raw and not raw[-1]:
        raw.pop()
    result.lines = len(raw)
    try:
        data[: 1 << 24].decode("utf-8")
    except UnicodeDecodeError as error:
        result.invalid_utf8 = error.reason != "unexpected end of data" or len(data) <= 1 << 24
    result.blob_lines = len(BLOB.findall(data[: 1 << 24])) if b" blob data]" in data else 0
    numbers, times = choose(raw)
    for number in numbers:
        text = raw[number][:MAX_LINE_BYTES].decode("utf-8", "replace")
        result.chosen.append(
            (
                LogEntry(text.rstrip("\r") if text.endswith("\r") else text, number=number + 1),
                times.get(number, 1),
            )
        )
    return result


def _read_json(data: bytes) -> ReadLog:
    entries = parse_journal_json(data)
    joined = join_split_lines(entries)
    result = ReadLog(lines=len(joined), journal=True, entries=len(entries))
    result.invalid_utf8 = any(e.invalid_utf8 for e in entries)
    result.null_messages = sum(e.text is None for e in entries)
    numbers, times = choose([(e.text or "").encode("utf-8", "replace") for e in joined])
    result.pids = [(i + 1, e.pid) for i, e in enumerate(joined)]
    for number in numbers:
        entry = joined[number]
        result.chosen.append(
            (
                LogEntry(
                    entry.text or "",
                    entry.realtime_s,
                    entry.cursor,
                    entry.pid,
                    entry.unit,
                    number + 1,
                    entry.from_systemd,
                ),
                times.get(number, 1),
            )
        )
    return result


def choose(raw: list[bytes]) -> tuple[list[int], dict[int, int]]:
    """Indices of the lines to read, in order, and for how many lines each stands (1 where not named)."""
    if len(raw) <= MAX_DISTINCT:
        return list(range(len(raw))), {}
    groups: dict[bytes, list[int]] = {}
    get = groups.get
    for index, line in enumerate(raw):
        key = line.translate(None, _DIGITS) if len(line) < 2_000 else line[:2_000].translate(None, _DIGITS)
        group = get(key)
        if group is None:
            groups[key] = [index]
        else:
            group.append(index)
    if len(groups) > MAX_DISTINCT:
        groups = _merge(groups)
    wanted: set[int] = set()
    times: dict[int, int] = {}
    single: list[int] = []
    for group in groups.values():
        first = raw[group[0]][:2_000]
        if any(a in first for a in _ALARM):
            chosen = (
                group if len(group) <= KEEP_ALARM else [*group[: KEEP_ALARM // 2], *group[-KEEP_ALARM // 2 :]]
            )
        elif any(a in first for a in _STATS):
            chosen = group if len(group) <= KEEP_STATS else [group[0], *group[1 - KEEP_STATS :]]
        elif len(group) > 2:
            chosen = [group[0], group[-1]]
        else:
            chosen = group
        if len(group) <= 2 and len(groups) > MAX_DISTINCT:
            single.extend(chosen)
            continue
        wanted.update(chosen)
        if len(chosen) < len(group):
            times[chosen[-1]] = len(group) - len(chosen) + 1
    if single:
        wanted.update(_anchored(raw, single))
        wanted.update(single[-200:])
        wanted.update(single[:200])
    return sorted(wanted), times


def _merge(groups: dict[bytes, list[int]]) -> dict[bytes, list[int]]:
    """Group once more, without hexadecimal digits: request ids and addresses make lines different."""
    merged: dict[bytes, list[int]] = {}
    for key, group in groups.items():
        merged.setdefault(key.translate(None, _HEX), []).extend(group)
    for group in merged.values():
        group.sort()
    return merged


def _anchored(raw: list[bytes], indices: list[int]) -> Iterator[int]:
    """Of many different lines, those that hold any anchor of the catalogue or the grammar."""
    indices.sort()
    starts: list[int] = []
    at = 0
    parts: list[bytes] = []
    for index in indices:
        line = raw[index] if len(raw[index]) <= 12_288 else raw[index][:8_192] + b"\r" + raw[index][-4_096:]
        starts.append(at)
        parts.append(line)
        at += len(line) + 1
    text = b"\n".join(parts)
    anchors = {a for a, _ in anchor_table()} | {r.anchor for r in load_phase_rules() if len(r.anchor) > 5}
    anchors |= {"Traceback (most", "Decode batch", "Prefill batch", "% Completed |", '  File "'}
    from bisect import bisect_right

    for anchor in anchors:
        needle = anchor.encode()
        position = text.find(needle)
        found = 0
        while position >= 0 and found < 4_000:
            slot = bisect_right(starts, position) - 1
            yield indices[slot]
            if needle in (b"Traceback (most", b'  File "'):
                yield from indices[slot + 1 : slot + 4]
            found += 1
            end = starts[slot] + len(parts[slot])
            position = text.find(needle, end)
