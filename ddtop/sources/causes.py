"""The table of causes, handed on from the room that owns it (all three rooms that name causes share it)."""

from ddtop.services.causes import Cause, CauseTable, cause, load_causes, phase_word, verdict_fields

__all__ = ["Cause", "CauseTable", "cause", "load_causes", "phase_word", "verdict_fields"]
