"""Printing plain progress of a headless run: lines with the time of day; on a terminal coloured, above a bar of cells."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from ddtop.errors import plain
from ddtop.events import AlertRaised, CellStateSet, Event, RunEnded, encode
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import counts
from ddtop.sweep.tell.event_lines import event_line

Printer = Callable[[Event, State], None]


def make_printers(*, json_out: bool, progress: bool) -> list[Printer]:
    """Printers of a run: events as JSON lines on standard output, plain progress on standard error."""
    found: list[Printer] = [_print_json] if json_out else []
    return [*found, make_printer(sys.stderr)] if progress else found


def show(printers: list[Printer], event: Event, state: State) -> None:
    """Prints an event. A terminal or pipe that is gone is dropped and does not disturb the run."""
    for printer in tuple(printers):
        try:
            printer(event, state)
        except (OSError, ValueError):
            printers.remove(printer)


def _print_json(event: Event, state: State) -> None:
    sys.stdout.buffer.write(encode(event) + b"\n")
    sys.stdout.flush()


def make_printer(out: TextIO) -> Printer:
    """A printer for `out`: rich on a terminal, lines otherwise."""
    return _terminal(out) if out.isatty() else _lines(out)


def stamped(event: Event, text: str) -> str:
    """A line with its time of day."""
    return f"{time.strftime('%H:%M:%S', time.localtime(event.at_s))} {plain(text)}"


def _lines(out: TextIO) -> Printer:
    def show(event: Event, state: State) -> None:
        text = event_line(event, state)
        if text is not None:
            out.write(stamped(event, text) + "\n")
            out.flush()

    return show


def _terminal(out: TextIO) -> Printer:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    console = Console(file=out, highlight=False, soft_wrap=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("cells", total=None)
    bar.start()

    def show(event: Event, state: State) -> None:
        text = event_line(event, state)
        if text is not None:
            style = (
                "bold red"
                if isinstance(event, AlertRaised)
                else ("bold" if isinstance(event, RunEnded) else "")
            )
            bar.console.print(Text(stamped(event, text), style=style))
        if isinstance(event, CellStateSet):
            n = counts(state.plan_cells)
            bar.update(task, completed=n.ended, total=n.total)
        if isinstance(event, RunEnded):
            bar.stop()

    return show
