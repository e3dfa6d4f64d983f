"""Where the dashboard's panes go in a given size. Pure."""

from __future__ import annotations

from dataclasses import dataclass

NARROW = 100
"""Below so many columns the panes have a line above instead of a box around, and no second gate list."""


SLIM = 60
"""Below so many columns two panes side by side show nothing: all four stand one below the other."""


@dataclass(frozen=True)
class Rows:
    """Heights of the three rows of the body: GPUs, restart, log. The sweep spans the first two when wide."""

    gpus: int
    restart: int
    log: int


def rows(width: int, height: int, gpus: int, restart: int, sweep: int, bound: bool) -> Rows:
    """Split a body of `height` lines.

    `gpus` is the number of GPUs, `restart` the lines the restart pane wants, `sweep` those of the matrix
    with its head. The log takes what is left, and never less than five lines with its title.
    """
    if width < NARROW:
        return _narrow(height, gpus, restart, sweep, bound)
    frame = 2
    room = height - 7
    gpu_lines = max(1, gpus) + (2 if bound else 0)
    if room - (restart + frame) >= 2 * gpus + 4 and width >= 160:
        gpu_lines = 2 * max(1, gpus) + (2 if bound else 0)
    first = min(gpu_lines + frame, max(4, room - frame - 2))
    second = min(restart + frame, max(3, room - first))
    missing = sweep + frame - (first + second)
    if missing > 0:
        second += min(missing, max(0, room - first - second))
    return Rows(first, second, max(0, height - first - second))


def slim_rows(height: int, sweep: int) -> tuple[int, int, int]:
    """Heights of GPUs, sweep and restart where all panes stand one below the other; the log takes what is left."""
    first = 2 if height < 14 else 4
    second = min(sweep + 1, max(3, height - first - 4))
    return first, second, 2 if height - first - second >= 4 else 0


def _narrow(height: int, gpus: int, restart: int, sweep: int, bound: bool) -> Rows:
    frame = 1
    first = max(max(1, gpus) + (1 if bound else 0), min(sweep, 9)) + frame
    first = min(first, max(4, height - 9))
    second = min(restart, 4) + frame
    second = min(second, max(2, height - first - 4))
    return Rows(first, second, max(0, height - first - second))
