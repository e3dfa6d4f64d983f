"""Options and arguments that several commands have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ddtop.journal.read.runs import RunInfo

JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable output (see docs/output.md).")]
SshConfig = Annotated[
    Path | None, typer.Option("--ssh-config", help="Use this file instead of ~/.ssh/config.")
]


def chosen(text: str | None, command: str) -> RunInfo:
    """The recording that is meant: the newest one where none is named, which standard error then names. Raises UsageError."""
    from ddtop.errors import plain
    from ddtop.journal.read.runs import newest_run, resolve_run

    if text is not None:
        return resolve_run(text)
    run = newest_run(command)
    print(plain(f"{command}: the newest recording, {run.path}"), file=sys.stderr)
    return run
