"""Values over time and by size in one line of characters: strips on a common time axis, the axis, histograms. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddtop.dashboard.draw.text import duration, sparkline

HOLD_S = 2.5
"""A value stands for so long until the next one comes; a longer silence is a gap."""
STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000)


def slots(
    points: Iterable[tuple[float, float | None]], begin_s: float, end_s: float, width: int
) -> list[float | None]:
    """Means of `width` equal time slots from `begin_s` to `end_s`. A slot between two values that are close in time takes
    the earlier one; one without a value is None."""
    slot_s = max(1e-6, (end_s - begin_s) / max(1, width))
    sums, numbers = [0.0] * width, [0] * width
    last: list[tuple[float, float]] = []
    for at_s, value in points:
        if value is None or not begin_s <= at_s <= end_s:
            continue
        at = min(width - 1, int((at_s - begin_s) / slot_s))
        sums[at] += value
        numbers[at] += 1
        last.append((at_s, value))
    out: list[float | None] = []
    held = 0
    for at in range(width):
        if numbers[at]:
            out.append(sums[at] / numbers[at])
            continue
        middle = begin_s + (at + 0.5) * slot_s
        while held + 1 < len(last) and last[held + 1][0] <= middle:
            held += 1
        near = bool(last) and 0 <= middle - last[held][0] <= HOLD_S
        out.append(last[held][1] if near else None)
    return out


def strip(
    points: Iterable[tuple[float, float | None]],
    begin_s: float,
    end_s: float,
    width: int,
    top: float | None = None,
) -> str:
    """`slots` as a sparkline; empty where nothing is known. `top`: the value of a full block, else the largest."""
    values = slots(points, begin_s, end_s, width)
    return sparkline(values, top) if any(value is not None for value in values) else ""


def tall_strip(values: Sequence[float | None], top: float, height: int) -> list[str]:
    """Values as columns of `height` lines, the topmost line first; `top` fills all of them, and a gap stays a gap."""
    out: list[str] = []
    for floor in range(height - 1, -1, -1):
        parts = [None if v is None else v / top * height - floor if top > 0 else 0.0 for v in values]
        out.append(
            "".join(
                " " if part is None or (part <= 0 and floor) else sparkline([min(1.0, max(0.0, part))], 1.0)
                for part in parts
            )
        )
    return out


def words_strip(
    points: Iterable[tuple[float, str]], begin_s: float, end_s: float, width: int, letters: dict[str, str]
) -> str:
    """Words over time, a letter a slot: that of the last word in it. An empty word is a gap."""
    names = [""] * width
    slot_s = max(1e-6, (end_s - begin_s) / max(1, width))
    last, last_at = "", -1
    for at_s, word in points:
        if begin_s <= at_s <= end_s:
            at = min(width - 1, int((at_s - begin_s) / slot_s))
            for between in range(last_at + 1, at):
                if last_at >= 0 and (between - last_at) * slot_s <= HOLD_S:
                    names[between] = last
            names[at], last, last_at = word, word, at
    return "".join(letters.get(word, word[:1]) or " " for word in names)


def axis(length_s: float, width: int) -> str:
    """Marks at round times from 0 on, as far as they fit: `0s      1m00s   2m00s`."""
    step = next((s for s in STEPS_S if length_s / s * 9 <= width), STEPS_S[-1])
    out = ""
    at = 0.0
    while at <= length_s:
        place = int(at / max(1e-6, length_s) * (width - 1))
        mark = duration(at)
        if place >= len(out) and place + len(mark) <= width:
            out = out.ljust(place) + mark
        at += step
    return out.ljust(width)


def histogram(counts: Sequence[int], width: int) -> str:
    """Counts as columns, neighbours added up where there are more than `width`; no count at all is a blank."""
    if not counts or width < 1:
        return ""
    group = -(-len(counts) // width)
    sums = [sum(counts[at : at + group]) for at in range(0, len(counts), group)]
    return sparkline([float(one) if one else None for one in sums], float(max(sums)))
