"""Small words that every text needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def many(count: int, word: str) -> str:
    """A count with its noun in the right number.

    >>> many(1, "token"), many(0, "cell")
    ('1 token', '0 cells')
    """
    return f"{count:,} {word}" + ("" if count == 1 else "s")


CAUSE_KINDS: Mapping[str, str] = {
    "transient": "may not happen again",
    "config": "the same arguments fail again",
    "bug": "a bug of the server",
    "host": "a fault of the host",
    "slow": "slow, not failed",
    "unknown": "",
}
"""Kind of a cause (`events.CauseKind`) → what that means, in a few words; nothing where it is not known."""

OUTCOMES: Mapping[str, str] = {
    "done": "finished",
    "some-failed": "finished",
    "host-lost": "ended: host lost",
    "refused": "refused",
    "stopped": "stopped",
    "interrupted": "interrupted",
    "crashed": "runner crashed",
}
"""How a run ended (`events.RunEnded.outcome`) → the words of a line that names what failed beside it."""


def duration(seconds: float) -> str:
    """A span of time in its two largest units; hours up to two days.

    >>> [duration(s) for s in (3.9, 252, 8000, 273600)]
    ['3s', '4m12s', '2h13m', '3d04h']
    """
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours >= 48:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


def unknown_words(probe: Mapping[str, Any]) -> dict[str, str]:
    """What the probe could not find out → why, in words."""
    why = probe.get("unknown_why")
    said = why if isinstance(why, Mapping) else {}
    return {str(w): str(said.get(w) or "it could not be read") for w in probe.get("unknown") or ()}
