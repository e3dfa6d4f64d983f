"""Helpers all inspectors share: text of bytes, which file is which input, and the shape of a result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = 1
"""Version of the JSON of `ddtop inspect`."""

_INPUT = re.compile(r"^input(?P<n>\d{0,3})(?:\.|$)")


def text_of(data: bytes) -> str:
    """Bytes as text: UTF-8 (a BOM is dropped), or UTF-16 with a BOM. Invalid bytes become replacement marks."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


_FENCE = re.compile(rb"\A(?:[ \t]*\r?\n)*[ \t]*(?P<mark>`{3,}|~{3,})[^\n`]*\n")


def unfenced(data: bytes) -> bytes:
    """A file whose first line is the fence of a Markdown code block: what the block holds. Else the bytes as they are.

    Blank lines stand in for the fences, so that line numbers stay those of the file.
    """
    if (found := _FENCE.match(data)) is None:
        return data
    lines = data[found.end() :].split(b"\n")
    kept = [b"" if line.strip() == found["mark"] else line for line in lines]
    return b"\n" * found[0].count(b"\n") + b"\n".join(kept)


def input_number(name: str) -> int | None:
    """1 for `input.csv`, 2 for `input2.csv`, None for a file that is no numbered input (`cmd.txt`)."""
    found = _INPUT.match(name.rsplit("/", 1)[-1])
    if not found:
        return None
    return int(found["n"]) if found["n"] else 1


_READ = re.compile(r"^(?P<stem>input\d{0,3})\.read(?P<n>\d{1,4})(?P<end>\.\w{1,16})?$")


def join_reads(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Successive reads of one stream (`input.read1.sse`, `input.read2.sse` …) put together in their order.

    A read may end anywhere, in the middle of a character too, so nothing stands between them. Other files stay.
    """
    reads: dict[str, list[tuple[int, str, bytes]]] = {}
    out: dict[str, bytes] = {}
    for name, data in files.items():
        if found := _READ.match(name):
            stem = found["stem"]
            reads.setdefault(stem, []).append((int(found["n"]), f"{stem}{found['end'] or ''}", data))
        else:
            out[name] = data
    for parts in reads.values():
        parts.sort(key=lambda part: part[0])
        out[parts[0][1]] = b"".join(data for _, _, data in parts)
    return out


def evidence(text: str, line: int | None = None, file: str | None = None) -> dict[str, Any]:
    """One piece of evidence: the text read, its 1-based line, and the file where there are several."""
    out: dict[str, Any] = {"text": text.strip()[:400]}
    if line is not None:
        out["line"] = line
    if file is not None:
        out["file"] = file
    return out


def result(
    kind: str,
    verdict: str,
    cause: str,
    severity: str,
    advice: str,
    proof: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> dict[str, Any]:
    """The common shape: schema, kind, verdict, cause, severity, advice, evidence, then the kind's own fields.
    Fields that are None are left out: absent means absent."""
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": kind,
        "verdict": verdict,
        "cause": cause,
        "severity": severity,
        "advice": advice,
        "evidence": [dict(item) for item in proof],
    }
    head.update({key: value for key, value in fields.items() if value is not None})
    return head


def is_ssh_config(text: str) -> bool:
    """Whether a text is an SSH config: Host, Match or Include lines, and one of the usual options."""
    rows = [
        line.strip() for line in text.splitlines()[:300] if line.strip() and not line.strip().startswith("#")
    ]
    words = {re.split(r"[\s=]", row, maxsplit=1)[0].lower() for row in rows}
    return bool(words & {"host", "match", "include"}) and bool(
        words
        & {
            "hostname",
            "user",
            "port",
            "proxyjump",
            "proxycommand",
            "identityfile",
            "include",
            "controlmaster",
            "stricthostkeychecking",
            "forwardagent",
            "serveraliveinterval",
            "remotecommand",
        }
    )


class NotJudgedError(Exception):
    """The input is of another kind, or too little for a verdict; `str()` says which."""
