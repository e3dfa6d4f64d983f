"""What moves while a server starts: bytes read, GPU memory, processors, compiled files. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ddtop.dashboard.draw.paint import Line, line
from ddtop.dashboard.draw.text import gib, sparkline
from ddtop.events import Moving
from ddtop.words import many

MOVED_S = 5.0
"""Rates are means over so many seconds at least."""


def move_parts(moves: Sequence[tuple[float, Moving]], now_s: float) -> list[Line]:
    """Each counter that is known, with its rate where it moves; nothing where the readings are old."""
    if not moves or now_s - moves[-1][0] > 3 * MOVED_S:
        return []
    at_s, now = moves[-1]
    before_s, before = next(((t, m) for t, m in reversed(moves) if at_s - t >= MOVED_S), moves[0])
    span = at_s - before_s

    def rate_of(a: float | None, b: float | None) -> float | None:
        return (a - b) / span if a is not None and b is not None and span > 0 else None

    out: list[Line] = []
    if now.read_mib is not None:
        pace = rate_of(now.read_mib, before.read_mib)
        spark = sparkline(_paces([(t, m.read_mib) for t, m in moves[-16:]]), None)
        out.append(
            line(
                ("read ", "label"),
                (f"{gib(now.read_mib)} GiB", "value"),
                (f" {pace:.0f} MiB/s" if pace is not None else "", "run" if pace else "dim"),
                (f" {spark}" if pace else "", "spark"),
            )
        )
    if now.gpu_mem_mib is not None:
        pace = rate_of(now.gpu_mem_mib, before.gpu_mem_mib)
        out.append(
            line(
                ("GPU memory ", "label"),
                (f"{gib(now.gpu_mem_mib)} GiB", "value"),
                (f" {pace / 1024:+.1f} GiB/s" if pace and abs(pace) >= 52 else "", "run"),
            )
        )
    cores = rate_of(now.cpu_s, before.cpu_s)
    if cores is not None:
        word = "core" if f"{cores:.1f}" == "1.0" else "cores"
        out.append(line(("CPU ", "label"), (f"{cores:.1f} {word}", "value")))
    if now.new_files:
        out.append(line(("compiled ", "label"), (many(now.new_files, "file"), "value")))
    return out


def _paces(points: Sequence[tuple[float, float | None]]) -> list[float | None]:
    """Change per second between neighbours; None where one is not known."""
    return [
        max(0.0, (b - a) / (t1 - t0)) if a is not None and b is not None and t1 > t0 else None
        for (t0, a), (t1, b) in itertools.pairwise(points)
    ]
