"""What stands around a printed result: colours and prefixes, which are taken off, and before it the bar, the arguments
and the command, which say how many requests were sent. Pure."""

from __future__ import annotations

import re

from ddtop.engines.log.line_prefix import strip_ansi

_BAR = re.compile(r"(?P<what>[^%|\r\n]{0,80}?)\s*\d{1,3}%\|[^|\r\n]*\|\s*\d+/(?P<total>\d+)\s*\[")
_OTHER_BAR = re.compile(
    r"load|fetch|download|warm|captur|compil|token|shard|tokeniz|map|sampl|generat\w* prompt|ready|initial",
    re.I,
)
_NAMESPACE = re.compile(r"\b(?:num_prompts|num_requests|request_count|max_requests)=(\d+)\b")
_COMMAND = re.compile(
    r"--(?:num-prompts?|num-requests|request-count|max-requests|max-num-completed-requests|number)[ =](\d+)\b"
)
_ANNOUNCED = re.compile(r"Running benchmark: (\d+) prompts")


def planned_before(text: str) -> int | None:
    """The number of requests that the lines before a result speak of, or None.

    The bar says what was sent, so it goes first: a data set may hold fewer prompts than the arguments ask for.
    """
    totals = [
        int(found["total"])
        for line in re.split(r"[\r\n]", text)
        for found in _BAR.finditer(line)
        if not _OTHER_BAR.search(found["what"])
    ]
    if totals:
        return totals[-1]
    for pattern in (_ANNOUNCED, _NAMESPACE, _COMMAND):
        if found := pattern.findall(text):
            return int(found[-1])
    return None


_TIME = r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIX = re.compile(
    r"(?:[\w][\w.\-/]{0,80} +\| ?(?!\d+/)"  # docker compose, kubectl --prefix
    rf"|\[?{_TIME}\]? (?:[\w.\-]+ [^\s\[\]:]+\[\d+\]: )?(?:std(?:out|err) [FP] )?"  # container or journal; its pid tells
    r"|\[pod/[^\]]{1,200}\] "
    r"|\([A-Z]\w+ pid=\d+\) "
    r"|(?:INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w./\-]+:\d+\] )?)"
)


def plain_text(text: str) -> str:
    """The text without colours and, where most lines have one, without a prefix (`bench-1  | `, a time, a host).

    A label with a colon looks like a journal's `host program: `, so only a program with its pid counts as one.
    """
    lines = strip_ansi(text).splitlines()
    told = [line for line in lines if line.strip()]
    if not told or sum(_PREFIX.match(line) is not None for line in told) * 2 <= len(told):
        return "\n".join(lines) + "\n"
    out = []
    for line in told:
        rest = line
        for _ in range(3):
            if (found := _PREFIX.match(rest)) is None:
                break
            rest = rest[found.end() :]
        out.append(rest)
    return "\n".join(out) + "\n"
