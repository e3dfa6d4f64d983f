"""A moment as a person types it. Pure."""

from __future__ import annotations

import time

GO_TO_HINT = "14:03 or 14:03:59, +10m or -90s from here, or 2026-11-30 14:03"


def parse_time(text: str, here_s: float, started_s: float | None) -> float | None:
    """Wall time that `text` means, seen from `here_s`; None where it is no time.

    `14:03` is the first such time after the run's start; `+10m`, `-90s`, `+1h` count from here.
    """
    text = text.strip().lower()
    if text[:1] in "+-" and text[1:]:
        return _relative(text, here_s)
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dt%H:%M:%S"):
        try:
            return time.mktime(time.strptime(text, form))
        except ValueError:
            continue
    for form in ("%H:%M:%S", "%H:%M"):
        try:
            of_day = time.strptime(text, form)
        except ValueError:
            continue
        origin = started_s if started_s is not None else here_s
        day = time.localtime(origin)
        at = time.mktime((*day[:3], of_day.tm_hour, of_day.tm_min, of_day.tm_sec, 0, 0, -1))
        return at if at >= origin - 1 else at + 86400
    return None


def _relative(text: str, here_s: float) -> float | None:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    sign = -1 if text[0] == "-" else 1
    unit = units.get(text[-1])
    number = text[1:-1] if unit is not None else text[1:]
    try:
        return here_s + sign * float(number) * (unit or 1)
    except ValueError:
        return None
