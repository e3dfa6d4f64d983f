"""One cell of nvidia-smi's output: a number with its unit, no value, or a failed read; never a made-up 0.

nvidia-smi writes words into the data where it has no value (`[N/A]`, `[Not Supported]`, `[Unknown Error]`,
`[GPU requires reset]`, `ERR!`), and they differ between drivers. Only this module knows them.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from ddtop.sources.gpu.sample import Number


class Problem(Enum):
    """Why a cell has no value."""

    ABSENT = "absent"  # not offered by the driver or the GPU
    DENIED = "denied"  # this login may not read it
    ERROR = "error"  # this read failed; the other fields may be valid
    RESET = "requires-reset"  # the GPU needs a reset
    LOST = "lost"  # the GPU fell off the bus


class Cell(NamedTuple):
    """A parsed cell: `text` as printed (trimmed), and the problem if it has no value."""

    text: str
    problem: Problem | None


_ABSENT = {
    "",
    "-",
    "--",
    "n/a",
    "na",
    "not supported",
    "not available",
    "none supported",
    "unknown",
    "nan",
    "not active yet",
    "requested functionality has been deprecated",
    "deprecated",
    "function not found",
    "not found",
    "no data",
    "uninitialized",
    "not ready",
}
_DENIED = {
    "insufficient permissions",
    "no permission",
    "insufficient permission",
    "insufficient user permissions",
}
_ERROR = {"unknown error", "err!", "err", "error", "timeout", "timed out", "invalid argument"}


@lru_cache(maxsize=8192)
def read_cell(text: str) -> Cell:
    """Classify one cell. Brackets and case do not matter: `[N/A]`, `N/A` and `n/a` are the same word.

    >>> read_cell(" [GPU requires reset]").problem
    <Problem.RESET: 'requires-reset'>
    >>> read_cell("627.40 W").problem is None
    True
    """
    plain = " ".join(text.replace("\x00", "").split())
    word = plain.strip("[]<>() ").rstrip(".").lower()
    if word in _ABSENT:
        return Cell(plain, Problem.ABSENT)
    if word in _DENIED or "permission" in word:
        return Cell(plain, Problem.DENIED)
    if "requires reset" in word or "reset required" in word or "requires a reset" in word:
        return Cell(plain, Problem.RESET)
    if "is lost" in word or "fallen off" in word or word == "gpu lost":
        return Cell(plain, Problem.LOST)
    if word in _ERROR or word.startswith("unknown error"):
        return Cell(plain, Problem.ERROR)
    return Cell(plain, None)


# Factor to the unit ddtop keeps: W, MiB, MHz, %, C, J.
_FACTORS: dict[str, float] = {
    "": 1,
    "w": 1,
    "mw": 1e-3,
    "kw": 1e3,
    "%": 1,
    "c": 1,
    "mhz": 1,
    "ghz": 1e3,
    "khz": 1e-3,
    "mib": 1,
    "mb": 1,
    "gib": 1024,
    "gb": 1024,
    "kib": 1 / 1024,
    "kb": 1 / 1024,
    "b": 1 / 1048576,
    "bytes": 1 / 1048576,
    "j": 1,
    "mj": 1e-3,
    "x": 1,
    "us": 1,
    "kb/s": 1,
    "mb/s": 1024,
}
_NUMBER = re.compile(r"^([+-]?\d{1,18}(?:\.\d{1,9})?)\s{0,4}([a-zA-Z%/]{0,8}|°C)$")


@lru_cache(maxsize=8192)
def number(text: str) -> Number | None:
    """The number in a cell in ddtop's units (W, MiB, MHz, %, °C); None if it is not a number.

    >>> number("627.40 W"), number("143771 MiB"), number("[N/A]"), number("1.98 GHz")
    (627.4, 143771, None, 1980.0)
    """
    found = _NUMBER.match(" ".join(text.split()))
    if not found:
        return None
    factor = _FACTORS.get(found[2].lower().replace("°", ""))
    if factor is None:
        return None
    value: Number = float(found[1]) if "." in found[1] else int(found[1])
    return value if factor == 1 else round(value * factor, 6)


def flag(text: str) -> bool | None:
    """`Enabled`/`Disabled`, `Active`/`Not Active`, `Yes`/`No`, `On`/`Off` as a bool; None for anything else."""
    word = text.strip().strip("[]").lower()
    if word in {"enabled", "active", "yes", "on", "true", "1"}:
        return True
    if word in {"disabled", "not active", "no", "off", "false", "0"}:
        return False
    return None


# nvml.h nvmlClocksEventReason*; 0x200 and 0x400 only in older headers (nvidia-ml-py 13.615 and before).
REASON_BITS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def reasons(text: str) -> tuple[str, ...] | None:
    """Names of the bits set in a clock-event mask (`0x0000000000000004`); None if it is not a mask.

    An unknown bit keeps its number (`bit_0x800`), so that a newer driver's reason is shown, not dropped.
    """
    word = text.strip().lower()
    try:
        mask = int(word, 16) if word.startswith("0x") else int(word)
    except ValueError:
        return None
    if mask < 0 or mask.bit_length() > 64:
        return None
    return reason_names(mask)


def reason_names(mask: int) -> tuple[str, ...]:
    """Names of the bits of an NVML clock-event mask, lowest first."""
    bits = (1 << place for place in range(mask.bit_length()) if mask >> place & 1)
    return tuple(REASON_BITS.get(bit, f"bit_{bit:#x}") for bit in bits)
