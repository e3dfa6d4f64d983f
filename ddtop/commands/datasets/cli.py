"""The command line of these commands: wiring only, as in `ddtop/cli.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ddtop.commands import completion
from ddtop.commands.options import JsonFlag

app = typer.Typer(
    no_args_is_help=True, help="List, fetch or show datasets of prompts.", rich_markup_mode=None
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A dataset, or file:PATH.",
        show_default=False,
        autocompletion=completion.datasets,
    ),
]


@app.command("list")
def dataset_list(json_out: JsonFlag = False) -> None:
    """List the datasets that ddtop knows, and which are on this machine."""
    from ddtop.commands.datasets import datasets as room

    typer.echo(room.list_datasets(as_json=json_out))


@app.command("fetch")
def dataset_fetch(
    name: Name,
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Read this file instead of fetching it."),
    ] = None,
) -> None:
    """Bring a dataset to this machine, checked by its hash. The GPU host needs no internet."""
    from ddtop.commands.datasets import datasets as room

    typer.echo(room.fetch_dataset(name, given))


@app.command("show")
def dataset_show(name: Name, json_out: JsonFlag = False) -> None:
    """Show a dataset's groups, licence and first prompts."""
    from ddtop.commands.datasets import datasets as room

    typer.echo(room.show_dataset(name, as_json=json_out))
