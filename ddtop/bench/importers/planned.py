"""How many requests were sent, by what stands around a printed result: its progress bar, its arguments, its command. Pure."""

from __future__ import annotations

import re

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
