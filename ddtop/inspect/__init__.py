"""`ddtop inspect`: what ddtop makes of a file, without any host."""

from __future__ import annotations

from ddtop.inspect.inputs import NotJudgedError
from ddtop.inspect.inspectors import (
    GROUP_KINDS,
    KINDS,
    inspect_file,
    inspect_files,
    main_inspect,
    read_folder,
)
from ddtop.inspect.render import render_text, to_json

__all__ = [
    "GROUP_KINDS",
    "KINDS",
    "NotJudgedError",
    "inspect_file",
    "inspect_files",
    "main_inspect",
    "read_folder",
    "render_text",
    "to_json",
]
