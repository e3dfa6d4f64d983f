"""The time that a log line states, as seconds that can be subtracted from another of the same form. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_US = re.compile(r"(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y>\d{4})[-T ](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)")
_NO_YEAR = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_LLAMA = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3})$")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_UPTIME = re.compile(r"\[ *(\d+\.\d{3,6})\] ")
_ANYWHERE = re.compile(
    r"(?:^|[\[(\s=\"])(?P<t>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?|\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)"
)
_LEAP_YEAR = 2000


def _seconds(year: int, month: int, day: int, h: str, m: str, s: str, part: str | None) -> float | None:
    try:
        at = datetime(year, month, day, int(h), int(m), int(s))
    except ValueError:
        return None
    return (at - datetime(1970, 1, 1)) / timedelta(seconds=1) + float(f"0.{part or 0}")


def stamp(written: str | None, line: str = "") -> tuple[str, float] | None:
    """(form, seconds) of a time as a prefix writes it, else of the first date in `line`; None where there is none.

    Seconds of one form are comparable with each other only: some forms have no year, some no date, llama.cpp and the
    kernel count from a start.
    """
    if written:
        if (found := _ISO.match(written)) is not None:
            year, month, day, *clock = found.groups()
            return _told("date", _seconds(int(year), int(month), int(day), *clock))
        if (found := _NO_YEAR.match(written)) is not None:
            month, day, *clock = found.groups()
            return _told("no-year", _seconds(_LEAP_YEAR, int(month), int(day), *clock))
        if (found := _SYSLOG.match(written)) is not None and found[1] in _MONTHS:
            _, day, *clock = found.groups()
            return _told("syslog", _seconds(_LEAP_YEAR, _MONTHS.index(found[1]) + 1, int(day), *clock))
        if (found := _LLAMA.match(written)) is not None:
            return "run", int(found[1]) * 60 + int(found[2]) + int(found[3]) / 1e3
        if (found := _CLOCK.match(written)) is not None:
            return _told("clock", _seconds(_LEAP_YEAR, 1, 1, *found.groups()))
    head = line[:200]
    if (up := _UPTIME.match(head)) is not None:
        return "uptime", float(up[1])
    if (found := _ANYWHERE.search(head)) is None:
        return None
    if (us := _US.match(found["t"])) is not None:
        return _told(
            "date", _seconds(int(us["y"]), int(us["mo"]), int(us["d"]), us["h"], us["m"], us["s"], "")
        )
    iso = _ISO.match(found["t"])
    if iso is None:
        return None
    year, month, day, *clock = iso.groups()
    return _told("date", _seconds(int(year), int(month), int(day), *clock))


def _told(form: str, seconds: float | None) -> tuple[str, float] | None:
    return (form, seconds) if seconds is not None else None
