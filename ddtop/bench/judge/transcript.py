"""A response as people save it: with curl's, httpx's or a terminal's own lines around it. Pure.

`curl -v` marks its lines (`*`, `>`, `<`); `curl -i` puts the head before a body that is no longer chunked; httpx logs
a line for each request; scripts print bytes as Python shows them, or a time before each line.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_CURL = re.compile(
    rb"^(?:< HTTP/|> (?:POST|GET|PUT) |\* (?:Connected|Trying|Host |Established|ALPN|TLS|SSL|Request))", re.M
)
_STATUS = re.compile(rb"^< HTTP/[\d.]{1,4} (?P<s>\d{3})", re.M)
_HTTPX = re.compile(rb"HTTP Request: \w+ \S+ \"HTTP/[\d.]+ (?P<s>\d{3})[^\"\n]*\"")
_OWN_LINE = re.compile(
    rb"^(?:[*<>](?: .*)?|\{ \[\d+ bytes data\]|\} \[\d+ bytes data\]|Note: Unnecessary use of .*"
    rb"|\s+% Total\s.*|\s+Dload\s.*|[\s\d.:kMG-]*--:--:--.*|curl: \(\d+\).*|\$ curl .*|\s*-[HXdN] .*)$"
)
_TAIL = re.compile(
    rb"\* (?:Connection #\d+ to host \S+ left intact|Closing connection.*|transfer closed with .*)\s*$"
)
_ERROR = re.compile(rb"^curl: \((?P<n>\d{1,3})\) ?(?P<t>.*)$", re.M)
_ENDED = {
    5: "refused",
    6: "refused",
    7: "refused",
    28: "timeout",
    52: "no-answer",
    55: "reset",
    56: "reset",
    18: "closed",
    92: "reset",
}
_HEAD = re.compile(rb"\A(?:HTTP/[\d.]{1,4} (?P<s>\d{3})[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n)+", re.M)
_LAST_HEAD = re.compile(rb"^HTTP/[\d.]{1,4} (?P<s>\d{3})", re.M)
_STAMPED = re.compile(
    rb"^\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?Z?\]?\s+(?=(?:data|event|id|retry): ?|: )",
    re.M,
)
_SECONDS = re.compile(rb"^\[?\+?\s*\d+\.\d+ ?s?\]?\s+(?=(?:data|event): ?)", re.M)
_REPR = re.compile(rb"^b(?P<q>['\"])(?P<d>.*)(?P=q)$")


@dataclass(frozen=True, slots=True)
class Transcript:
    """body: the response's own bytes; status: by the lines around it; ended: how it ended where a program said so (as in
    `request_class`), with its words in `error`."""

    body: bytes
    status: int | None = None
    ended: str | None = None
    error: str = ""
    heads: int = 1


def untangle(raw: bytes) -> Transcript | None:
    """The response inside a transcript; None where these bytes are a bare response."""
    error = _ERROR.search(raw)
    if _CURL.search(raw) or error:
        return _of_curl(raw, error)
    if (logged := _HTTPX.search(raw)) is not None and re.search(rb"^(?:data|event): ?\S|^\{", raw, re.M):
        lines = [line for line in raw.split(b"\n") if not _HTTPX.search(line)]
        return Transcript(b"\n".join(lines), int(logged["s"]))
    lines = raw.splitlines()
    shown = [_REPR.match(line.strip()) for line in lines]
    if sum(m is not None for m in shown) * 2 > len([line for line in lines if line.strip()]) > 0:
        return Transcript(b"\n".join(_bytes_of(m[0]) for m in shown if m is not None))
    for pattern in (_STAMPED, _SECONDS):
        if pattern.search(raw):
            return Transcript(pattern.sub(b"", raw))
    return None


def plain_head(raw: bytes) -> Transcript | None:
    """A head before a body that a client has already put together (`curl -i`), heads of redirects and `100 Continue`
    before it; None where there is none."""
    head = _HEAD.match(raw)
    if head is None:
        return None
    statuses = [int(m["s"]) for m in _LAST_HEAD.finditer(head[0])]
    return Transcript(raw[head.end() :], statuses[-1], heads=len(statuses))


def _of_curl(raw: bytes, error: re.Match[bytes] | None) -> Transcript:
    statuses = [int(m["s"]) for m in _STATUS.finditer(raw)]
    kept = []
    for line in raw.split(b"\n"):
        bare = _TAIL.sub(b"", line)
        if not _OWN_LINE.match(bare.rstrip(b"\r")):
            kept.append(bare)
    body = b"\n".join(kept).lstrip(b"\r\n")
    number = int(error["n"]) if error else None
    if number == 22 and error is not None and (told := re.search(rb"error: (\d{3})", error["t"])):
        statuses.append(int(told[1]))  # curl -f
    status = statuses[-1] if statuses else None
    ended = (
        _ENDED.get(number, "no-answer" if status is None and not body.strip() else "closed")
        if number is not None
        else None
    )
    if number == 22:
        ended = None
    words = error[0].decode("utf-8", "replace").strip() if error else ""
    if status is None and (head := plain_head(body)) is not None:
        return Transcript(head.body, head.status, ended, words)
    return Transcript(body, status, ended, words)


def _bytes_of(shown: bytes) -> bytes:
    try:
        value = ast.literal_eval(shown.decode("utf-8", "replace"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return b""
    # iter_lines() drops line ends, and shows the empty line between events as b''
    return value if isinstance(value, bytes) else b""
