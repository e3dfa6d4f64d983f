"""The command line of these commands: wiring only, as in `ddtop/cli.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from ddtop.commands import completion
from ddtop.commands.options import JsonFlag

app = typer.Typer(rich_markup_mode=None)

Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="Run id or the beginning of one, plan, host or recording; without it the only live run.",
        autocompletion=completion.recordings,
        show_default=False,
    ),
]


@app.command()
def status(
    run: Run = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="What changed since then: a span (90m, 8h) or a time (22:15, 2026-11-30 22:15).",
            show_default=False,
        ),
    ] = None,
    json_out: JsonFlag = False,
) -> None:
    """Say what a run does now, how long it takes, what is best so far, and what it asks."""
    from ddtop.commands.live import status as room

    typer.echo(room.status(run, json_out=json_out, since=since))


@app.command()
def cells(
    run: Run = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="Only cells in these states: planned, running, done, failed, broken, skipped, interrupted.",
        ),
    ] = None,
    json_out: JsonFlag = False,
) -> None:
    """List the cells of a run with their states and figures."""
    from ddtop.commands.live import status as room

    typer.echo(room.cells(run, state or [], json_out=json_out))


@app.command()
def wait(
    run: Run = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            help="What to wait for: alert, steps, cell, ready, end; several, with commas: the first that comes. Without it: alert,end.",
            autocompletion=completion.one_of("alert", "steps", "cell", "ready", "end"),
        ),
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Give up after this many seconds (exit 124).")
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(
            "--since", min=0, help="Count what came after this `seq` of an earlier status, wait or do."
        ),
    ] = None,
    json_out: JsonFlag = False,
) -> None:
    """Wait for the next alert, result, ready server, or the end."""
    from ddtop.commands.live import wait as room

    raise typer.Exit(room.wait(run, kinds or [], timeout_s=timeout_s, since=since, json_out=json_out))


@app.command()
def do(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] ACTION [TARGET]",
            help="answer, resume, retry, skip, mark-broken, unmark, undo, restage, restart, wait-longer, pause, go-on, "
            "stop. TARGET: a choice of the alert; a configuration or cell; a unit.",
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it, also where it stops or starts a server or writes to disks.")
    ] = False,
    alert: Annotated[
        str | None, typer.Option("--alert", help="With answer: this alert, by its id or the beginning of it.")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave-out", help="With resume: a proposed step not to do, by its id."),
    ] = None,
    leave_running: Annotated[
        bool, typer.Option("--leave-running", help="With stop: leave the server running.")
    ] = False,
    json_out: JsonFlag = False,
) -> None:
    """Do what a key of the dashboard does, and say what became of it."""
    from ddtop.commands.live import do as room

    code = room.do(
        words,
        yes=yes,
        json_out=json_out,
        alert=alert,
        leave_out=tuple(leave_out or ()),
        leave_running=leave_running,
    )
    raise typer.Exit(code)


@app.command()
def log(
    run: Run = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with lines as they come.")] = False,
    text: Annotated[str, typer.Option("--filter", help="Only lines that this expression matches.")] = "",
    errors: Annotated[bool, typer.Option("--errors", help="Only lines that are errors.")] = False,
    start: Annotated[
        str,
        typer.Option(
            "--start",
            help="Lines of which start: this, previous or all.",
            autocompletion=completion.one_of("this", "previous", "all"),
        ),
    ] = "this",
    unit: Annotated[str | None, typer.Option("--unit", help="Only lines of this unit.")] = None,
    last: Annotated[int, typer.Option("-n", "--lines", min=0, help="The last so many lines; 0: all.")] = 200,
    json_out: JsonFlag = False,
) -> None:
    """Print the server's log as it was recorded."""
    from ddtop.commands.live import log as room

    code = room.log(
        run,
        follow=follow,
        text=text,
        errors=errors,
        start=start,
        unit=unit,
        last=last,
        json_out=json_out,
    )
    raise typer.Exit(code)


@app.command("agents-guide")
def agents_guide() -> None:
    """Print instructions for agents: how to run and steer ddtop without a screen (a SKILL.md file)."""
    from ddtop.commands.live.guide import guide

    typer.echo(guide())
