"""Numbers and states as people read them. Pure; what is not known is said as `–`, never as 0."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddtop import words

UNKNOWN = "–"

CELL_GLYPH = {
    "planned": "·",
    "running": "▶",
    "done": "✓",
    "failed": "✗",
    "broken": "✗",
    "skipped": "–",
    "interrupted": "‖",
}
"""Glyph of each cell state. The word always stands beside it, so that no state rests on a colour."""

CELL_ROLE = {
    "planned": "dim",
    "running": "run",
    "done": "ok",
    "failed": "warn",
    "broken": "bad",
    "skipped": "dim",
    "interrupted": "warn",
}

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPARKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def duration(seconds: float | None) -> str:
    """`3s`, `4m12s`, `2h13m`, `3d04h`; UNKNOWN for None."""
    return UNKNOWN if seconds is None else words.duration(seconds)


def size(count: float | None) -> str:
    """Bytes as `3.1 MB` (powers of 1000, as disks and file managers say)."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def gib(mib: float | None) -> str:
    """MiB as a number of GiB with one digit, without its unit."""
    return UNKNOWN if mib is None else f"{mib / 1024:.1f}"


def rate(value: float | None) -> str:
    """Tokens per second, three to four digits: `26.1`, `182.9`, `1,204`."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def ms(value: float) -> str:
    """Milliseconds in three digits: `4.21 ms`, `21.3 ms`, `1,204 ms`, from 10 s on `12.3 s`."""
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} ms"


def whole(value: float | None) -> str:
    """A number without digits after the point."""
    return UNKNOWN if value is None else f"{value:.0f}"


def times(value: float | None, digits: int = 2) -> str:
    """A speed-up, as `3.76×`; one digit less from 10 on, none from 100 on."""
    if value is None:
        return ""
    digits = 0 if value >= 99.95 else max(0, digits - 1) if value >= 9.995 else digits
    return f"{value:.{digits}f}×"


def clock(at_s: float | None) -> str:
    """Wall time of this machine's zone, `14:03:59`."""
    return UNKNOWN if at_s is None else time.strftime("%H:%M:%S", time.localtime(at_s))


def day_time(at_s: float, now_s: float) -> str:
    """A time of day to come, `14:35`; with its weekday where that is more than 12 hours away, its date after six days."""
    away = at_s - now_s
    form = "%H:%M" if away < 12 * 3600 else "%a %H:%M" if away < 6 * 86400 else "%Y-%m-%d"
    return time.strftime(form, time.localtime(at_s))


def day_clock(at_s: float | None) -> str:
    """Wall time with its day, `2026-11-30 14:03:59`."""
    return UNKNOWN if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def bar(fraction: float | None, width: int) -> tuple[str, str]:
    """(filled, empty) parts of a bar of `width` cells, exact to an eighth of a cell."""
    if fraction is None:
        return "", "╌" * width
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (EIGHTHS[rest] if rest else "")
    return filled, "░" * (width - len(filled))


def sparkline(values: Sequence[float | None], top: float | None) -> str:
    """One character a value; a gap (None) stays a gap. `top` is the value of a full block."""
    known = [value for value in values if value is not None]
    ceiling = top if top else (max(known) if known else 0.0)
    out: list[str] = []
    for value in values:
        if value is None:
            out.append(" ")
        elif ceiling <= 0:
            out.append(SPARKS[0])
        else:
            out.append(SPARKS[min(7, max(0, int(value / ceiling * 7.999)))])
    return "".join(out)


def unit_name(unit: str) -> str:
    """A unit without `.service`, as people say it."""
    return unit.removesuffix(".service")
