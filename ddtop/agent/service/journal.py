"""journald by `journalctl -o json -a`: entries as plain items, followed by cursor, none lost and none twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..context import Context
from ..errors import OpError
from ..lines import after_cr
from ..programs import LineStream, run
from .units import unit_name

FIELDS = (
    "MESSAGE,PRIORITY,_PID,_COMM,_SYSTEMD_INVOCATION_ID,INVOCATION_ID,_LINE_BREAK,SYSLOG_IDENTIFIER,_TRANSPORT,"
    "_STREAM_ID"
)
MAX_TEXT = 256 << 10
RESTART_S = (0.5, 1, 2, 5, 10)


def text_of(message: Any) -> str:
    """MESSAGE as text: a string, an array of byte values (control characters, colours, bad UTF-8), or null.

    A progress bar redraws itself with CR: what was on screen last is the piece after the last CR that has text.

    >>> text_of([97, 13, 98]), text_of(None), text_of("a")
    ('b', '', 'a')
    """
    if isinstance(message, list):
        if message and isinstance(message[0], str):  # a field given several times
            text = "\n".join(str(part) for part in message)
        else:
            text = bytes(b & 255 for b in message if isinstance(b, int)).decode("utf-8", "replace")
    else:
        text = message if isinstance(message, str) else ""
    return after_cr(text)[:MAX_TEXT]


def item_of(entry: Dict[str, Any]) -> Dict[str, Any]:
    """A journal entry as the protocol gives it. `cut` says that journalctl gave no MESSAGE (too large)."""
    item: Dict[str, Any] = {
        "text": text_of(entry.get("MESSAGE")),
        "at_s": int(entry.get("__REALTIME_TIMESTAMP", 0)) / 1e6,
        "mono_us": int(entry.get("__MONOTONIC_TIMESTAMP", 0)),
        "cursor": entry.get("__CURSOR", ""),
    }
    invocation = entry.get("_SYSTEMD_INVOCATION_ID") or entry.get("INVOCATION_ID")
    if entry.get("_COMM") == "systemd" or entry.get("_PID") == "1":
        invocation = entry.get("INVOCATION_ID") or invocation
    if isinstance(invocation, str):
        item["invocation"] = invocation
    for key, name in (("_PID", "pid"), ("PRIORITY", "priority")):
        value = entry.get(key)
        if isinstance(value, str) and value.isdigit():
            item[name] = int(value)
    if isinstance(entry.get("_BOOT_ID"), str):
        item["boot"] = entry["_BOOT_ID"]
    if entry.get("MESSAGE", "") is None:
        item["cut"] = True
    return item


class Joiner:
    """Puts lines together that journald has cut at 48 KiB: `_LINE_BREAK=line-max` says that more follows.

    `after` is the cursor that was read up to: its own entry comes once more and is dropped.
    """

    def __init__(self, after: Optional[str] = None) -> None:
        self._open: Dict[Tuple[Any, Any], Dict[str, Any]] = {}
        self._after = after

    def add(self, entry: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """The item that `entry` completes; None while more of it is to come, and for the entry `after`."""
        if self._after is not None and entry.get("__CURSOR") == self._after:
            return None
        item = item_of(entry)
        key = (entry.get("_STREAM_ID"), entry.get("_PID"))
        begun = self._open.pop(key, None)
        if begun is not None:
            item = {
                **item,
                "text": (begun["text"] + item["text"])[:MAX_TEXT],
                "at_s": begun["at_s"],
                "mono_us": begun["mono_us"],
            }
        if entry.get("_LINE_BREAK") == "line-max" and len(item["text"]) < MAX_TEXT:
            self._open[key] = item
            return None
        return item


def journal_argv(
    prefix: List[str],
    *,
    unit: Optional[str] = None,
    user: bool = False,
    kernel: bool = False,
    cursor: Optional[str] = None,
    invocation: Optional[str] = None,
    lines: Optional[int] = 0,
    boot: bool = True,
    follow: bool = False,
) -> List[str]:
    """The journalctl command. With a cursor `-n` is left out: it would cut what came since."""
    words = [*prefix, "journalctl", "-q", "-o", "json", "-a", "--no-pager", "--output-fields=" + FIELDS]
    if follow:
        words.append("-f")
    if cursor:
        # Not --after-cursor: where the cursor's entry does not match the filter (it is another unit's), journalctl
        # 252 skips the first entry that does. The entry of the cursor itself is dropped by Joiner.
        words.append("--cursor=" + cursor)
        if follow:
            words += ["-n", "all"]
    else:
        words += ["-n", "all" if lines is None else str(max(0, lines))]
    if user:
        words.append("--user")
    if boot and not cursor:
        words.append("-b")
    if kernel:
        words.append("_TRANSPORT=kernel")
    elif invocation:
        # systemd's own lines about a start carry INVOCATION_ID, the process's lines _SYSTEMD_INVOCATION_ID.
        ours = "USER_INVOCATION_ID=" if user else "INVOCATION_ID="
        words += ["_SYSTEMD_INVOCATION_ID=" + invocation, "+", ours + invocation]
    elif unit:
        words += ["--user-unit=" + unit if user else "--unit=" + unit]
        if user:
            words.remove("--user")
    return words


def _rights(context: Context, user: bool) -> List[str]:
    if user:
        return []
    if "journal" not in context.rights.can:
        raise OpError(
            "not-permitted",
            "this login may not read the system journal, or there is none",
            "log in as root, add the user to the group systemd-journal, or follow a log file instead",
        )
    return context.rights.prefix("journalctl")


async def _follow(emit: Callable[[Dict[str, Any]], Any], cursor: Optional[str], **how: Any) -> None:
    """Follows until cancelled; a journalctl that ends (journald restarted, journal rotated) is started again."""
    failures = 0
    if not cursor:
        anchor = await _tail_cursor(how["prefix"], how.get("user", False))
        if anchor and how.pop("anchor", False):
            await emit({"anchor": True, "text": "", "cursor": anchor})
        if how.get("lines", 0) == 0:
            cursor = anchor
    how.pop("anchor", None)
    while True:
        joiner = Joiner(cursor)
        came = False
        async with LineStream(journal_argv(follow=True, cursor=cursor, **how), limit_b=4 << 20) as stream:
            async for lines in stream.batches():
                for line in lines:
                    entry = _parse(line)
                    item = joiner.add(entry) if entry else None
                    if item is not None:
                        came = True
                        cursor = item["cursor"] or cursor
                        await emit(item)
            how_it_ended = await stream.ended()
        if "Failed to seek to cursor" in how_it_ended or "Invalid argument" in how_it_ended:
            cursor = None
            await emit({"gap": True, "text": "", "why": how_it_ended})
        failures = 0 if came else failures + 1
        if failures > len(RESTART_S):
            raise OpError("failed", how_it_ended)
        await asyncio.sleep(RESTART_S[max(0, failures - 1)])


async def _tail_cursor(prefix: List[str], user: bool) -> Optional[str]:
    """The cursor of the journal's last entry: where a follower begins, so that a restarted one loses nothing."""
    words = [*prefix, "journalctl", "-q", "-n", "1", "-o", "json", "--output-fields=_PID", "--no-pager"]
    done = await run(words + (["--user"] if user else []), timeout_s=10)
    entry = _parse(done.out.strip().encode()) or {}
    cursor = entry.get("__CURSOR")
    return cursor if isinstance(cursor, str) else None


def _parse(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        entry = json.loads(line)
    except ValueError:
        return None  # "-- No entries --" and other messages
    return entry if isinstance(entry, dict) else None


async def journal_follow(
    context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]
) -> None:
    """The op `journal-follow`. An item {"gap": true, "why"} says that a cursor was not taken."""
    user = bool(args.get("user"))
    await _follow(
        emit,
        args.get("after_cursor"),
        prefix=_rights(context, user),
        unit=unit_name(args["unit"]),
        user=user,
        invocation=args.get("invocation"),
        lines=int(args.get("lines", 0)),
        boot=bool(args.get("boot", True)),
        anchor=bool(args.get("anchor")),
    )


async def kernel_follow(
    context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]
) -> None:
    """The op `kernel-follow`: Xid errors and out-of-memory kills are said here."""
    await _follow(
        emit,
        args.get("after_cursor"),
        prefix=_rights(context, False),
        kernel=True,
        anchor=bool(args.get("anchor")),
    )


async def journal_read(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `journal-read`: after a cursor the next `lines` entries; without one the last `lines`.

    What was written is there at once, unlike what `-f` shows (some 250–500 ms late).
    """
    user = bool(args.get("user"))
    limit = max(1, min(int(args.get("lines", 2000)), 5000))
    cursor = args.get("after_cursor")
    words = journal_argv(
        _rights(context, user),
        unit=unit_name(args["unit"]),
        user=user,
        cursor=cursor,
        invocation=args.get("invocation"),
        lines=limit,
        boot=bool(args.get("boot", True)),
    )
    entries: List[Dict[str, Any]] = []
    joiner = Joiner(cursor)
    size = 0
    async with LineStream(words, limit_b=4 << 20) as stream:
        async for lines in stream.batches():
            for line in lines:
                entry = _parse(line)
                item = joiner.add(entry) if entry else None
                if item is None:
                    continue
                size += len(json.dumps(item))
                if len(entries) >= limit or size > 900_000:
                    return {"entries": entries, "more": True}
                entries.append(item)
        how = await stream.ended()
    if "rc 0" not in how:
        low = how.lower()
        code = "bad-request" if "cursor" in low else "not-permitted" if "permission" in low else "failed"
        raise OpError(code, how)
    return {"entries": entries, "more": False}
