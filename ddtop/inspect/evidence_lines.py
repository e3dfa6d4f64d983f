"""Evidence for verdicts that rest on numbers: the lines from which the numbers were read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ddtop.inspect.inputs import evidence, input_number, text_of

_NUMBERS = re.compile(
    rb"gen throughput|generation throughput|tokens per second|accept(?:ance|ed)?[ _-]?(?:len|rate|length)|draft_n|timings"
    rb"|Decode batch|Prefill batch|eval time|drafted",
    re.IGNORECASE,
)


def number_lines(files: Mapping[str, bytes], *, last: int = 3) -> list[dict[str, Any]]:
    """The last lines of the judged input that carry throughput or acceptance numbers."""
    name = next((n for n in files if input_number(n) == 1), next(iter(files)))
    data = files[name]
    ends = [m.start() for m in _NUMBERS.finditer(data, max(0, len(data) - 1_000_000))][-50:]
    out: dict[int, dict[str, Any]] = {}
    for at in ends:
        start = data.rfind(b"\n", 0, at) + 1
        stop = data.find(b"\n", at)
        line = data.count(b"\n", 0, start) + 1
        if line not in out:
            out[line] = evidence(text_of(data[start : stop if stop >= 0 else len(data)][:2000]), line)
    return list(out.values())[-last:] or [evidence("no line with throughput or acceptance numbers")]


def last_events(data: bytes, *, last: int = 2) -> list[dict[str, Any]]:
    """The last lines of a response that are not blank: most verdicts rest on how it ended."""
    tail = data[-200_000:]
    before = data.count(b"\n", 0, len(data) - len(tail))
    rows = [(before + at, line) for at, line in enumerate(tail.splitlines(), 1) if line.strip()]
    return [evidence(text_of(line[:2000]), at) for at, line in rows[-last:]] or [
        evidence("the response is empty")
    ]


_TOKENS = re.compile(
    rb"generated tokens|output[ _]tokens|output[ _]throughput|output token throughput|retokenized|\bITL\b|tok/s",
    re.I,
)
_RESULT_LINES = {
    "requests-failed-or-missing": re.compile(
        rb"\d+/\d+ ?\[|num[_-]prompts|\bsuccess|succeed|\bfail|completed requests|\berror|Num prompts", re.I
    ),
    "no-request-completed": re.compile(rb"\bsuccess|succeed|\bfail|completed requests|\berror", re.I),
    "no-tokens": _TOKENS,
    "empty-answers": _TOKENS,
    "tokens-not-visible-to-client": _TOKENS,
    "chunks-counted-as-tokens": re.compile(rb"\bITL\b|throughput|accept", re.I),
    "impossible-times": re.compile(rb"TTFT|TPOT|\bITL\b|E2E|latency|first token|duration", re.I),
    "figures-disagree": re.compile(rb"throughput|tok/s|tokens|duration|latency:|total time", re.I),
    "declared-invalid": re.compile(rb"Result is|satisfied", re.I),
}
"""Cause of a result → the lines that speak of it."""


def result_lines(data: bytes, cause: str, *, most: int = 5) -> list[dict[str, Any]]:
    """The lines of a printed result that a doubt rests on; its first lines where there are none, or no doubt."""
    wanted = _RESULT_LINES.get(cause)
    if wanted is None or data.lstrip()[:1] in (b"{", b"["):
        return head_lines(data)
    rows = enumerate(re.split(rb"\r?\n", data[:65_536]), 1)
    found = [(at, row.rpartition(b"\r")[2]) for at, row in rows if wanted.search(row)]
    return [evidence(text_of(row[:400]), at) for at, row in found[:most]] or head_lines(data)


def head_lines(data: bytes, *, first: int = 3) -> list[dict[str, Any]]:
    """The first lines of a result file that are not blank: they show which tool wrote it, and in which form."""
    rows = [(at, line) for at, line in enumerate(data[:65_536].splitlines(), 1) if line.strip()]
    return [evidence(text_of(line[:400]), at) for at, line in rows[:first]] or [evidence("the file is empty")]
