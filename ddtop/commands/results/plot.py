"""`plot`: one picture of a recording, as SVG or as text for a terminal. It reads one recording and reaches no host."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ddtop.commands.options import chosen
from ddtop.errors import UsageError, plain

if TYPE_CHECKING:
    from ddtop.charts.make import Choice
    from ddtop.charts.model import Chart
    from ddtop.journal.fold.state import State

PIXELS = (900, 520)
CELLS = (100, 30)
"""Where standard output is no terminal."""
COLOURS = (4, 3, 2, 5, 6, 1, 7, 12)
"""A terminal's own colours for the tones, so that its theme decides."""


def choice_of(what: str | None, x: str | None, y: str | None, by: str | None, where: list[str]) -> Choice:
    """The options as what is to be drawn. Raises UsageError on `--where` without a value."""
    from ddtop.charts.make import Choice

    pairs = [tuple(one.partition("=")[::2]) for one in where]
    if bad := next((one for one, (_, value) in zip(where, pairs, strict=True) if not value), None):
        raise UsageError(
            f"plot: --where {bad}: no value given", do="--where NAME=VALUE, such as --where tp=2"
        )
    held = tuple((name, value) for name, value in pairs)
    return Choice(what or "throughput", x, y, by, held)


def plot(
    run: str | None,
    choice: Choice,
    *,
    baseline: str | None,
    out: Path | None,
    width: int | None,
    height: int | None,
) -> str:
    """What to print: the picture, or where it was written. Raises JournalError, UsageError (also where nothing can be drawn)."""
    from ddtop.charts.make import chart
    from ddtop.charts.model import simulated
    from ddtop.journal.read.reader import read_state

    path = chosen(run, "plot").path
    state = read_state(path)
    configs = dict.fromkeys(cell.spec.config for cell in state.plan_cells)
    if baseline is not None and baseline not in configs:
        raise UsageError(
            f"plot: there is no configuration `{baseline}`",
            do=f"--baseline is one of {', '.join(configs)}" if configs else "this recording has no sweep",
        )
    made = chart(state, choice, baseline)
    if not made.series:
        raise UsageError(
            f"plot: there is nothing to draw as `{choice.what}`: {made.why_empty}", do=_instead(state)
        )
    if state.run.simulated:
        made = simulated(made)
    if out is None:
        return _text(made, width, height)
    return _file(made, out, width or PIXELS[0], height or PIXELS[1])


def _instead(state: State) -> str:
    from ddtop.charts.kinds import PICTURES
    from ddtop.charts.make import Choice, chart

    drawn = [what for what in PICTURES if chart(state, Choice(what)).series]
    return (
        f"--what {', '.join(drawn)} can be drawn"
        if drawn
        else "no cell of this recording has a result that counts"
    )


def _file(made: Chart, out: Path, width: int, height: int) -> str:
    from ddtop.charts.svg import chart_svg

    try:
        out.write_text(chart_svg(made, width=width, height=height, file=True), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror}", do="name another file") from error
    return plain(f"wrote {out}: {made.title}")


def _text(made: Chart, width: int | None, height: int | None) -> str:
    from ddtop.dashboard.draw.canvas import drawn
    from ddtop.dashboard.draw.paint import TONES

    terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size(CELLS) if terminal else os.terminal_size(CELLS)
    lines = drawn(made, width or size.columns, (height or min(size.lines - 2, 40)) - 1)
    coloured = terminal and not os.environ.get("NO_COLOR")
    inks = dict(zip(TONES, COLOURS, strict=True)) if coloured else {}
    rows = [
        "".join(
            f"\x1b[38;5;{inks[span.role]}m{span.text}\x1b[0m" if span.role in inks else span.text
            for span in row
        ).rstrip()
        for row in lines
    ]
    return "\n".join([plain(made.title), *rows])
