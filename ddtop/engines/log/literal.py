"""Python literals out of a server's log, read in silence."""

from __future__ import annotations

import ast
import warnings
from typing import Any


def literal_eval(text: str) -> Any:
    """`ast.literal_eval` without the compiler's SyntaxWarning about odd literals (`0x7for`), which is none of the
    user's business. Raises what it raises: ValueError, SyntaxError, MemoryError, RecursionError, TypeError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.literal_eval(text)
