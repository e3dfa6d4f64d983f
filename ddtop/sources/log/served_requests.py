"""The state of a server by the requests it has answered, where its start is not in the log. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from ddtop.sources.log.scan_snapshot import ScanSnapshot

_ANSWERED = re.compile(
    r"\b(?P<verb>GET|POST) /(?P<path>\S{0,200}) (?:HTTP/[\d.]{1,3}\" |[\d.a-f:]{3,39} )(?P<status>[1-5]\d\d)\b"
)
"""uvicorn's access line, and llama.cpp's `request: POST /path address status`."""
_GENERATES = re.compile(
    r"(?:v1/(?:chat/completions|completions|messages|responses|embeddings)|generate|completion)\b"
)


class Answered(NamedTuple):
    """A cause of the one table, the phase, and the line (number, text) it rests on."""

    cause: str
    phase: str
    line: tuple[int, str]


def served(scan: ScanSnapshot) -> Answered | None:
    """None where no request was answered. Two generations are a server that serves: one may be its own warm-up. What it
    refuses it has answered all the same: then the port is open, and that is all one knows."""
    last: tuple[int, str] | None = None
    made: list[tuple[int, str]] = []
    for number, text in scan.tail:
        found = _ANSWERED.search(text)
        if found is None:
            continue
        last = (number, text)
        if found["verb"] == "POST" and found["status"] == "200" and _GENERATES.match(found["path"]):
            made.append(last)
    if len(made) > 1:
        return Answered("serving", "run", made[-1])
    return Answered("no-ready-marker-yet", "http", last) if last is not None else None
