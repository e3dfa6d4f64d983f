"""`agents-guide`: the instructions for agents that are shipped with ddtop."""

from __future__ import annotations

from pathlib import Path

SKILL = Path(__file__).with_name("SKILL.md")


def guide() -> str:
    """The skill file, as it is."""
    return SKILL.read_text(encoding="utf-8").rstrip("\n")
