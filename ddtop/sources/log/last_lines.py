"""What the last lines of a log show: bad news that nothing after took back, or the requests a server has answered. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from ddtop.engines.log.last_words import bad_news
from ddtop.engines.log.line_prefix import split_prefix
from ddtop.sources.log.scan_snapshot import ScanSnapshot

_NO_WORD = re.compile(
    r"^\s*$|resource_tracker|^\s+warnings\.warn|^(?:If the issue persists|We are sorry for the inconvenience)\b|^(?:See|For more information|Open an issue|Possible solutions)\b|Consumed .{0,40}CPU time|"
    r"^\s*[\^~]+\s*$|^(?:Set|Hint|note|Note|help):? |^[#=\-*]{5,}\s*$|^\s+(?:at |in |from )|\b(?:exiting|shutting down|cleaning up|bye|goodbye)\b",
    re.IGNORECASE,
)
"""Lines that add nothing to the word before them."""


class LastWord(NamedTuple):
    """kind: ``error``, ``timeout`` or ``end``; line: its (number, text)."""

    kind: str
    line: tuple[int, str]

    @property
    def text(self) -> str:
        return self.line[1].strip()[:300]


def last_word(scan: ScanSnapshot) -> LastWord | None:
    """The bad news a log ends with; None where its last record is none. A marker that was told to be harmless is none."""
    calm = {h.number for h in scan.markers} | {h.number for h in scan.hits if h.role == "warning"}
    requests = [(r.line, r.last_line) for r in scan.raised if r.request]
    for number, text in reversed(scan.tail):
        if number in calm or any(first <= number <= last for first, last in requests):
            return None
        kind = bad_news(text)
        if kind in ("error", "timeout", "end"):
            return LastWord(kind, (number, text))
        if not _NO_WORD.search(split_prefix(text).message):
            return None
    return None


def suspicious(scan: ScanSnapshot) -> tuple[int, str] | None:
    """The last line (number, text) that looks like an error, None where none does."""
    number, text, _ = scan.bad_line
    return (number, text) if number else None


_ANSWERED = re.compile(
    r"^(?:INFO:\s|\[[\d: -]{19}[^\]]{0,40}\] INFO:\s|\S{0,60} ?(?:srv |request: |done request)|.{0,40}log_server_r).{0,120}?"
    r"\b(?P<verb>GET|POST) /(?P<path>\S{0,200}) (?:HTTP/[\d.]{1,3}\" |[\d.a-f:]{3,39} )(?P<status>[1-5]\d\d)\b"
)
"""uvicorn's access line, and llama.cpp's `request: POST /path address status`. A proxy's access log has another form: what it
answers says nothing of a server."""
_GENERATES = re.compile(
    r"(?:v1/(?:chat/completions|completions|messages|responses|embeddings)|generate|completion)\b"
)

_ASKED = re.compile(r"\b(?:Received|Added) request (?:cmpl|chatcmpl)-")
"""vLLM's lines of requests: it has no warm-up of its own that makes them. Nor does a warm-up come from another host."""

_OURS = re.compile(
    r"(?:health\w*|(?:get_)?(?:model_info|server_info)|v1/\S*|generate\w*|metrics|slots|props|completions?|version|ping|ready)\b"
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
    status = path = ""
    made: list[tuple[int, str]] = []
    asked = sum(1 for _, text in scan.tail if _ASKED.search(text))
    for number, text in scan.tail:
        parsed = split_prefix(text)
        found = (
            _ANSWERED.search(parsed.message)
            or _ANSWERED.search(text)
            or (
                _ANSWERED.search(f"INFO: {parsed.message}")
                if parsed.level == "INFO" and parsed.unit
                else None
            )
        )
        if found is None:
            continue
        last, status, path = (number, text), found["status"], found["path"]
        if found["verb"] == "POST" and found["status"] == "200" and _GENERATES.match(found["path"]):
            made.append(last)
            asked += (
                re.search(r"\d+\.\d+\.\d+\.\d+:\d+ - ", found[0]) is not None and "127.0.0.1:" not in found[0]
            )
    if (len(made) > 1 or (made and asked)) and status < "500":
        return Answered("serving", "run", made[-1])
    if last is None or not _OURS.match(path) or (status >= "500" and not path.startswith("health")):
        return None  # another server's requests, or errors: no sign of a start
    return Answered("no-ready-marker-yet", "http", last)
