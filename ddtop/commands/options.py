"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable output (see docs/output.md).")]
SshConfig = Annotated[
    Path | None, typer.Option("--ssh-config", help="Use this file instead of ~/.ssh/config.")
]
