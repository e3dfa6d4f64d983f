"""The command line of these commands: wiring only, as in `ddtop/cli.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddtop.commands import completion
from ddtop.commands.options import SshConfig

app = typer.Typer(no_args_is_help=True, help="Check, list or draft a plan.", rich_markup_mode=None)

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan (TOML).", show_default=False)]


@app.command("check")
def plan_check(plan: PlanFile) -> None:
    """Check a plan: every error with its line."""
    from ddtop.commands.plans import check as room

    typer.echo(room.check_plan(plan))


@app.command("show")
def plan_show(plan: PlanFile) -> None:
    """List the cells, the server starts and the estimated time."""
    from ddtop.commands.plans import check as room

    typer.echo(room.show_plan(plan))


@app.command("new")
def plan_new(
    host: Annotated[str, typer.Option("--from", help="Host to read.", autocompletion=completion.hosts)],
    ssh_config: SshConfig = None,
) -> None:
    """Draft a plan from the server that runs on a host now."""
    from ddtop.commands.plans.draft import plan_from_host

    typer.echo(plan_from_host(host, ssh_config))


@app.command("from")
def plan_from(
    source: Annotated[str, typer.Argument(metavar="BUNDLE", help="A bundle (.zip), or a recording or run.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Plan to write; by default NAME.toml here.")
    ] = None,
) -> None:
    """Write the plan of a bundle or a recording, to run it again."""
    from ddtop.commands.plans.again import plan_again

    text, code = plan_again(source, output)
    typer.echo(text)
    raise typer.Exit(code)
