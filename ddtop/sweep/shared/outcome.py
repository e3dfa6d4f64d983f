"""How a run ended, as the sweep gives it to the runner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How the run ended: a word of RunEnded, its reason, and what could not be undone."""

    word: str
    reason: str = ""
    left_behind: tuple[str, ...] = ()
