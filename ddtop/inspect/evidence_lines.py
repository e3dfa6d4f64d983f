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


def head_lines(data: bytes, *, first: int = 3) -> list[dict[str, Any]]:
    """The first lines of a result file that are not blank: they show which tool wrote it, and in which form."""
    rows = [(at, line) for at, line in enumerate(data[:65_536].splitlines(), 1) if line.strip()]
    return [evidence(text_of(line[:400]), at) for at, line in rows[:first]] or [evidence("the file is empty")]
