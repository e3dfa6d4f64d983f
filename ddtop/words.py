"""Small words that every text needs."""

from __future__ import annotations


def many(count: int, word: str) -> str:
    """A count with its noun in the right number.

    >>> many(1, "token"), many(0, "cell")
    ('1 token', '0 cells')
    """
    return f"{count:,} {word}" + ("" if count == 1 else "s")
