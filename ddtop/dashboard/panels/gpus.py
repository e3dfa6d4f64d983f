"""The GPUs: power against its limit, its history, memory, utilisation, temperature, and what binds them."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.dashboard.draw.paint import Line, Span, crop, fit_text, line, pad, width_of, wrap_text
from ddtop.dashboard.draw.text import UNKNOWN, bar, clock, duration, gib, sparkline, whole
from ddtop.events import BoundDiagnosed
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import GpuPoint, GpuView

STALE_S = 5.0
"""A reading older than this is dimmed and says its age."""

IDLE_MIB = 600.0
"""A GPU with no more memory in use than this holds no server: contexts of watchers and drivers take some."""

HISTORY_S = 120.0
"""Seconds that the narrow sparkline spans at least."""

_CALM = {"none", "not active", "gpu_idle", "idle", "sw_power_cap_not_active", ""}


def is_idle(view: GpuView) -> bool:
    """True for a GPU that by its last reading does nothing: no utilisation, next to no memory, no fault."""
    reading = view.reading
    held = reading.mem_used_mib is not None and reading.mem_used_mib > IDLE_MIB
    return (
        reading.error is None
        and reading.util_gpu_pct == 0
        and not held
        and not throttle_word(reading.throttle)
    )


def folded(views: Sequence[GpuView]) -> list[list[GpuView]]:
    """GPUs in rows: idle ones that follow one another share one, every other stands alone."""
    out: list[list[GpuView]] = []
    for view in views:
        idle = is_idle(view)
        if idle and out and is_idle(out[-1][-1]) and out[-1][-1].index + 1 == view.index:
            out[-1].append(view)
        else:
            out.append([view])
    return out


def gpu_wants(state: State, height: int) -> int:
    """Lines that the panel asks for in a body of `height` lines: the bound included."""
    if not state.gpus:
        return 1
    views = [state.gpus[index] for index in sorted(state.gpus)]
    groups = folded(views)
    each = 2 if height >= 44 else 1
    rows = sum(each if len(group) == 1 else 1 for group in groups)
    return rows + (2 if state.bound is not None else 0)


def gpu_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """Lines of the panel: one a GPU (two where there is room), one for idle neighbours, then the bound diagnosis."""
    if not state.gpus:
        return _nothing(state)
    groups = folded([state.gpus[index] for index in sorted(state.gpus)])
    bound = bound_lines(state.bound, width, most=2 if height >= len(groups) + 2 else 1)
    room = height - len(bound)
    alone = sum(len(group) == 1 for group in groups)
    body: list[Line] = []
    if room < len(groups):
        views = [view for group in groups for view in group]
        return [*_pairs(views, now_s, width)[: max(1, room)], *bound][:height]
    twice = room >= len(groups) + alone and width >= 60
    for group in groups:
        if len(group) > 1:
            body.append(idle_row(group, now_s, width))
            continue
        body.append(gpu_row(group[0], now_s, width))
        if twice:
            body.append(_second_row(group[0], now_s, width))
    return [*body, *bound][:height]


def idle_row(group: Sequence[GpuView], now_s: float, width: int) -> Line:
    """Idle GPUs in one row: `3–7 idle · 32 W each · 35–37°`, with the age of the oldest reading where it is stale."""
    first, last = group[0].index, group[-1].index
    parts = [f"{first}–{last} idle"]
    watts = [view.reading.power_w for view in group if view.reading.power_w is not None]
    if watts:
        low, high = round(min(watts)), round(max(watts))
        parts.append(f"{low} W each" if low == high else f"{low}–{high} W each")
    heat = [view.reading.temp_c for view in group if view.reading.temp_c is not None]
    if heat:
        low, high = round(min(heat)), round(max(heat))
        parts.append(f"{low}°" if low == high else f"{low}–{high}°")
    age = now_s - min(view.at_s for view in group)
    return pad(
        line(
            (" " if last < 10 else "", "label"),
            (parts[0], "dim" if age > STALE_S else "label"),
            (" · ".join(["", *parts[1:]]), "dim"),
            (f" {duration(age)} ago" if age > STALE_S else "", "warn"),
        ),
        width,
    )


def _nothing(state: State) -> list[Line]:
    if state.host.link == "connected":
        return [line(("No GPU reading yet.", "dim"))]
    return [line(("No GPU reading: not connected.", "dim"))]


def gpu_row(view: GpuView, now_s: float, width: int) -> Line:
    """One GPU in `width` cells; columns go one by one where it is narrow."""
    reading = view.reading
    age = now_s - view.at_s
    stale = age > STALE_S
    wide = width >= 50
    if reading.error:
        return pad(line((f"{reading.index:>2} ", "label"), (f"✗ {reading.error}", "bad")), width)
    tail = _tail(view, stale, wide, width)
    if stale:
        tail = (*tail, Span(f" {duration(age)} ago", "warn"))
    head = f"{reading.index:>2} "
    power = _power(view, wide)
    room = width - len(head) - len(power) - 1 - width_of(tail) - 1
    bar_width = max(0, min(24, room // 2 if room >= 8 else room))
    spark_width = max(0, room - bar_width - 1)
    fraction = _fraction(reading.power_w, reading.power_limit_w)
    filled, empty = bar(fraction, bar_width)
    hot = fraction is not None and fraction > 0.97
    spark = history_spark(view.history, now_s, spark_width, reading.power_limit_w)
    spans = line(
        (head, "label"),
        (filled, "dim" if stale else "hot" if hot else "bar"),
        (empty, "track"),
        " ",
        (power, "dim" if stale else "value"),
        (" " + spark if spark_width > 0 else "", "dim" if stale else "spark"),
        " ",
    )
    return pad((*spans, *tail), width)


def _power(view: GpuView, wide: bool) -> str:
    watts, limit = view.reading.power_w, view.reading.power_limit_w
    if wide:
        return f"{whole(watts):>4}/{whole(limit)} W".rjust(11)
    return f"{whole(watts)} W".rjust(6)


def _tail(view: GpuView, stale: bool, wide: bool, width: int) -> Line:
    reading = view.reading
    ink = "dim" if stale else "text"
    used, total = gib(reading.mem_used_mib), gib(reading.mem_total_mib)
    memory = f"{used:>5}/{total} G" if wide else f"{used:>5}G"
    util = f"{whole(reading.util_gpu_pct):>3}%" if reading.util_gpu_pct is not None else f"{UNKNOWN:>4}"
    heat = f"{whole(reading.temp_c)}°" if reading.temp_c is not None else UNKNOWN
    warm = reading.temp_c is not None and reading.temp_c >= 85
    spans = [Span(memory, ink), Span(f" {util}", ink)]
    if width >= 34:
        spans.append(Span(f" {heat:>3}", "dim" if stale else "hot" if warm else ink))
    return tuple(spans)


def _second_row(view: GpuView, now_s: float, width: int) -> Line:
    """Utilisation over time, clocks, activity and throttling: shown where there is room for two lines."""
    reading = view.reading
    facts = []
    if reading.sm_clock_mhz is not None:
        facts.append(f"SM {reading.sm_clock_mhz:.0f} MHz")
    if reading.dram_active_pct is not None:
        facts.append(f"DRAM {reading.dram_active_pct:.0f} %")
    elif reading.util_mem_pct is not None:
        facts.append(f"mem {reading.util_mem_pct:.0f} %")
    if reading.tensor_active_pct is not None:
        facts.append(f"tensor {reading.tensor_active_pct:.0f} %")
    text = " · ".join(facts)
    throttle = throttle_word(reading.throttle)
    tail = line((text, "dim"), (f" ! {throttle}" if throttle else "", "warn"))
    room = width - 3 - width_of(tail) - 2
    if room < 8:
        return pad(line("   ", *tail), width)
    spark = "".join(sparkline(bucketed([(p.at_s, p.util_pct) for p in view.history], now_s, room), 100.0))
    return pad(line("   ", (spark, "bar"), "  ", *tail), width)


def _pairs(views: Sequence[GpuView], now_s: float, width: int) -> list[Line]:
    """Two GPUs a line, for many GPUs in few lines: number, watts, memory, utilisation."""
    half = width // 2
    out: list[Line] = []
    for at in range(0, len(views), 2):
        parts: list[Span] = []
        for view in views[at : at + 2]:
            reading = view.reading
            ink = "dim" if now_s - view.at_s > STALE_S else "text"
            text = f"{whole(reading.power_w):>4}W {gib(reading.mem_used_mib):>5}G {whole(reading.util_gpu_pct):>3}%"
            if reading.error:
                text, ink = f"✗ {reading.error}", "bad"
            parts.extend(pad(line((f"{reading.index:>2}", "label"), (fit_text(text, half - 3), ink)), half))
        out.append(crop(tuple(parts), width))
    return out


def throttle_word(reasons: Sequence[str]) -> str:
    """The first reason for throttling that means something, in words; empty where none does."""
    for reason in reasons:
        word = reason.strip().lower()
        if word not in _CALM:
            return word.replace("_", " ")
    return ""


def _fraction(part: float | None, whole_: float | None) -> float | None:
    return part / whole_ if part is not None and whole_ else None


def history_spark(history: Sequence[GpuPoint], now_s: float, width: int, limit_w: float | None) -> str:
    """Power history in `width` characters, the newest at the right; where nothing came is a gap."""
    if width <= 0:
        return ""
    return sparkline(bucketed([(point.at_s, point.power_w) for point in history], now_s, width), limit_w)


def bucketed(
    points: Sequence[tuple[float, float | None]], now_s: float, width: int, span_s: float = HISTORY_S
) -> list[float | None]:
    """Means of `width` equal time slots that end now; a slot without a value is None."""
    slot_s = max(span_s / width, 2.0)
    sums = [0.0] * width
    numbers = [0] * width
    end = int(now_s / slot_s)
    for at_s, value in reversed(points):
        slot = width - 1 - (end - int(at_s / slot_s))
        if slot < 0:
            break
        if value is not None and slot < width:
            sums[slot] += value
            numbers[slot] += 1
    return [total / number if number else None for total, number in zip(sums, numbers, strict=True)]


def bound_lines(bound: BoundDiagnosed | None, width: int, most: int) -> list[Line]:
    """What limited the GPUs, over which time, and what that means for the sweep; weak verdicts say that they are weak. Its
    readings are medians up to then: the rows above have those of now."""
    if bound is None:
        return []
    weak = " (weak)" if bound.strength == "weak" else ""
    head = f"{bound.verdict}{weak}"
    rest = " · ".join(part for part in (span_words(bound), bound.why, bound.meaning) if part)
    wrapped = wrap_text(f"{head}, {rest}", width, most)
    first = wrapped[0] if wrapped else ""
    rows = [line((first[: len(head)], "accent"), (first[len(head) :], "label"))]
    rows.extend(line((text, "label")) for text in wrapped[1:])
    return rows


def span_words(bound: BoundDiagnosed) -> str:
    """The time that a verdict rests on: `2 s to 11:47:03`."""
    at = clock(bound.at_s)
    return f"at {at}" if bound.window_s is None else f"{bound.window_s:.0f} s to {at}"


def gpu_title(state: State, now_s: float) -> str:
    """Title of the panel, with the model of the GPUs and the age of stale readings."""
    if not state.gpus:
        return "GPUs"
    first = next(iter(state.gpus.values())).reading
    name = (first.name or "").removeprefix("NVIDIA ")
    count = f"{len(state.gpus)} × {name}" if name else f"{len(state.gpus)}"
    if state.run.ended is not None:
        return f"GPUs · last readings · {count}"
    oldest = now_s - max(view.at_s for view in state.gpus.values())
    return f"GPUs · stale {duration(oldest)}" if oldest > STALE_S else f"GPUs · {count}"
