"""The command line: wiring only. Each command imports its room when it runs, so that `ddtop --help` is instant.

Exit codes: 0 all done (or judged), 2 wrong usage, 10 some cells failed or broken (or SUSPECT, INVALID),
11 host lost or never reached, 12 refused, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ddtop import __version__
from ddtop.commands import completion
from ddtop.commands.datasets import cli as datasets
from ddtop.commands.live import cli as live
from ddtop.commands.measure import cli as measure
from ddtop.commands.options import JsonFlag, SshConfig
from ddtop.commands.plans import cli as plans
from ddtop.errors import DdtopError, UsageError

app = typer.Typer(
    name="ddtop",
    help="Live benchmarking of LLM inference servers on remote GPU hosts: a dashboard, and a headless recorder.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(no_args_is_help=True, help="Show the settings.", rich_markup_mode=None)
app.add_typer(live.app)
app.add_typer(measure.app)
app.add_typer(plans.app, name="plan")
app.add_typer(datasets.app, name="dataset")
app.add_typer(config_app, name="config")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"ddtop {__version__}")
        raise typer.Exit


class IfTaken(enum.Enum):
    """What is done where another run has the host."""

    refuse = "refuse"
    wait = "wait"
    take_over = "take-over"


@app.command()
def connect(
    hosts: Annotated[
        list[str],
        typer.Argument(
            metavar="HOST",
            help="Hosts as in ~/.ssh/config, user@host, or local for this machine.",
            autocompletion=completion.hosts,
        ),
    ],
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Run this sweep. Without it, ddtop only watches.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Run without a dashboard: progress on stderr, recording in FILE."),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Run without a dashboard in the background; print the run and return."),
    ] = False,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask",
            help="With --record or --detach: let questions wait for `ddtop do`, for [policy] answer_s at most.",
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Probe the host once, print the result and exit.")
    ] = False,
    json_out: JsonFlag = False,
    leave_running: Annotated[
        bool,
        typer.Option(
            "--leave-running", help="At the end, leave the server running as the last cell used it."
        ),
    ] = False,
    if_taken: Annotated[
        IfTaken,
        typer.Option(
            "--if-taken",
            help="Where another run has the host: refuse, wait in line, or ask for it (and take it over from a dead run).",
        ),
    ] = IfTaken.refuse,
    ssh_config: SshConfig = None,
) -> None:
    """Open the dashboard on hosts, or record without it (--record)."""
    from ddtop.commands import connect as room

    options = room.Options(
        hosts=tuple(hosts),
        plan=plan,
        record=record,
        detach=detach,
        ask=ask,
        once=once,
        json_out=json_out,
        leave_running=leave_running,
        if_taken=cast(Any, if_taken.value),
        ssh_config=ssh_config,
    )
    raise typer.Exit(room.connect(options))


@app.command()
def demo(
    record: Annotated[
        Path | None, typer.Option("--record", help="Run without a dashboard and record to FILE.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's folder.")] = False,
) -> None:
    """Run a real sweep on a SIMULATED host. One start fails, and this machine stays as it is."""
    from ddtop.commands.demo import run_demo

    raise typer.Exit(run_demo(record=record, keep=keep))


@app.command()
def replay(
    recording: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A recording (.ddtop); without it the newest.", show_default=False
        ),
    ] = None,
    speed: Annotated[float, typer.Option("--speed", help="Playing speed; 1 is real time.")] = 1.0,
) -> None:
    """Play a recording in the dashboard, in real time or faster."""
    from ddtop.commands import connect as room

    raise typer.Exit(room.replay(recording, speed))


@app.command()
def report(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Recordings; several are compared. Without one the newest.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a report with plots to this file; it opens offline.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", help="Write plan, recording, reports and a reviewer's checklist to this ZIP."
        ),
    ] = None,
    md: Annotated[bool, typer.Option("--md", help="Print Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row per cell.")] = False,
    by_group: Annotated[
        bool, typer.Option("--by-group", help="With --csv: one row per cell and group of prompts.")
    ] = False,
    json_out: JsonFlag = False,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Configuration to compare with; by default the plan's.")
    ] = None,
    usd: Annotated[
        float | None,
        typer.Option("--usd-per-gpu-hour", min=0.0001, help="Price of a GPU; by default the plan's, if any."),
    ] = None,
) -> None:
    """Print results as tables, or write HTML with plots."""
    from ddtop.commands import recordings as room

    typer.echo(
        room.report(
            recordings or [],
            html=html,
            md=md,
            csv=csv,
            by_group=by_group,
            as_json=json_out,
            baseline=baseline,
            usd=usd,
            bundle=bundle,
        )
    )


@app.command()
def advise(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Recording, run id or host; without it the newest recording.",
            autocompletion=completion.recordings,
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="md, json, or the servers' command lines: vllm, sglang.",
            autocompletion=completion.one_of("md", "json", "vllm", "sglang"),
        ),
    ] = "md",
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Configuration to compare with; by default the plan's.")
    ] = None,
) -> None:
    """Say which configuration to run at which concurrency, and up to where speculation pays."""
    from ddtop.commands.results import advise as room

    typer.echo(room.advise(run, form, baseline))


@app.command()
def plot(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Recording, run id or host; without it the newest recording.",
            autocompletion=completion.recordings,
            show_default=False,
        ),
    ] = None,
    what: Annotated[
        str | None,
        typer.Option(
            "--what",
            help=f"Picture: {', '.join(completion.PICTURES)}. Default: throughput.",
            autocompletion=completion.one_of(*completion.PICTURES),
        ),
    ] = None,
    x: Annotated[
        str | None, typer.Option("--x", help="X axis: a variable of the plan, a load, a metric.")
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", help="Y axis: a metric, by its name in `report --json`.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="What splits the points: config, tp, workload, context, load, a variable, none.",
            autocompletion=completion.one_of("config", "tp", "workload", "context", "load", "none"),
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="NAME=VALUE", help="Hold still: tp=2, workload=code@512."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Configuration to compare with; by default the plan's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.svg", help="Write SVG to this file.")
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", min=24, max=4000, help="Characters; of a file, pixels.")
    ] = None,
    height: Annotated[
        int | None, typer.Option("--height", min=8, max=4000, help="Lines; of a file, pixels.")
    ] = None,
) -> None:
    """Draw one picture of a recording: here as text, or as an SVG file."""
    from ddtop.commands.results import plot as room

    choice = room.choice_of(what, x, y, by, where or [])
    typer.echo(room.plot(run, choice, baseline=baseline, out=out, width=width, height=height))


@app.command()
def runs(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[export RUN FILE]", help="`export RUN FILE` copies a recording, live or not."
        ),
    ] = None,
    json_out: JsonFlag = False,
) -> None:
    """List recordings and active runs, or copy one."""
    from ddtop.commands import recordings as room

    match words or []:
        case []:
            typer.echo(room.list_runs(as_json=json_out))
        case ["export", run, target]:
            typer.echo(room.export_run(run, Path(target)))
        case other:
            raise UsageError(
                f"runs: unknown arguments `{' '.join(other)}`",
                do="ddtop runs lists recordings; ddtop runs export RUN FILE copies one",
            )


@app.command()
def stop(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run id, recording or host.",
            autocompletion=completion.recordings,
            show_default=False,
        ),
    ] = None,
    leave_running: Annotated[bool, typer.Option("--leave-running", help="Leave the server running.")] = False,
    ssh_config: SshConfig = None,
) -> None:
    """Stop a run: keep what is measured and restore the host."""
    from ddtop.commands import stop as room

    raise typer.Exit(room.stop(run, leave_running=leave_running, ssh_config=ssh_config))


@app.command()
def export(
    recording: Annotated[Path, typer.Argument(metavar="FILE", help="A recording (.ddtop).")],
    fmt: Annotated[
        str,
        typer.Option(
            "--format",
            help="sglang, vllm or inferencex.",
            autocompletion=completion.one_of("sglang", "vllm", "inferencex"),
        ),
    ],
) -> None:
    """Print a recording's results in another tool's format."""
    from ddtop.commands import recordings as room

    typer.echo(room.export_results(recording, fmt))


@app.command()
def paths() -> None:
    """Print where ddtop keeps its files."""
    from ddtop.paths import all_paths

    for name, place in all_paths().items():
        typer.echo(f"{name:15} {place}{'' if place.exists() else '  (does not exist yet)'}")


@config_app.command("show")
def config_show() -> None:
    """Print the settings in effect and where each comes from."""
    from ddtop.config import describe, load_settings

    typer.echo(describe(load_settings()))


def main(argv: list[str] | None = None) -> None:
    """Entry point: prints errors as sentences on stderr and exits with the codes of the module's docstring."""
    try:
        app(args=argv, standalone_mode=True)
    except DdtopError as error:
        print(f"ddtop: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EBADF):
            with contextlib.suppress(OSError):
                sys.stdout.close()  # or Python flushes again at exit and prints a second error
            print(f"ddtop: cannot write the output: {error.strerror}", file=sys.stderr)
            sys.exit(1)
        if error.filename is None:
            sys.exit(_bug(error))
        print(f"ddtop: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        sys.exit(_bug(error))


def _bug(error: Exception) -> int:
    """Reports a bug in one sentence and writes its traceback to ddtop's own log. Returns the exit code."""
    import traceback

    from ddtop.paths import state_dir

    log = state_dir() / "ddtop.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
        where = f"report it with the traceback at the end of {log}"
    except OSError as trouble:
        where = f"report it; its traceback could not be written to {log}: {trouble}"
    print(f"ddtop: a bug in ddtop: {type(error).__name__}: {error}\n  do:    {where}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
