"""What the raw bytes of a response say at a glance, without parsing it: tokens so far, first and last text, a good end.

The live figures of a window rest on it (`window/live.py`). It looks at a few reads from either end, so it costs the same
for a response of any length. What is not plain at a glance is None, and then the response is parsed. Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Optional, Sequence, Tuple

from .account import Account
from .exchange import Exchange

COUNTS = (b'"completion_tokens"', b'"predicted_n"', b'"tokens_predicted"')
NEAR = 4  # reads from an end that are looked at one by one
FAR = 64  # reads that are joined where a server writes in small pieces
TEXT = re.compile(rb'"(?:content|text|reasoning|reasoning_content|refusal|arguments)": ?"[^"]')
EVENT_END = re.compile(rb"\n\r?\n")
FINISH = re.compile(
    rb'"finish_reason": ?(?:"(?:stop|length|tool_calls|function_call)"|\{"type": ?"(?:stop|length)")'
    rb'|"stop": ?true'
)
BAD = re.compile(rb'"error"|"abort"|"finish_reason": ?"(?!stop"|length"|tool_calls"|function_call")')
SPEC = re.compile(
    rb'"(spec_verify_ct|num_spec_steps|num_accepted_draft_tokens|predicted_n|draft_n|draft_n_accepted)": ?(\d+)'
)

Glance = Tuple[Optional[int], Optional[int], Optional[int], Optional[int]]


def last_count(data: bytes) -> int | None:
    """The last token count that stands whole in these bytes."""
    for key in COUNTS:
        place = data.rfind(key)
        if place < 0:
            continue
        place += len(key) + 1
        end = place = place + (data[place : place + 1] == b" ")
        while data[end : end + 1].isdigit():
            end += 1
        if place < end < len(data):
            return int(data[place:end])
    return None


def tokens_until(exchange: Exchange, at_ns: int) -> int | None:
    """Output tokens that had arrived at `at_ns` by the server's running count; None where it gives none."""
    taken, datas = exchange.taken, exchange.datas
    upto = bisect_right(exchange.stamps, at_ns)
    if upto <= taken:
        return _parsed(exchange.account, at_ns)
    for reads in (NEAR, FAR):
        tail = b"".join(datas[max(taken, upto - reads) : upto])
        count = last_count(tail)
        if count is not None:
            return count
    body = tail.partition(b"\r\n\r\n")[2]
    if upto - taken > FAR or TEXT.search(tail) or (body and b"data:" not in body):
        return None  # the last count is farther away, or none is given, or the body is packed
    return _parsed(exchange.account, at_ns)


def _parsed(account: Account, at_ns: int) -> int | None:
    """The same, of what has been parsed."""
    if not account.running_known:
        return None if account.events else 0
    upto = bisect_right(account.chunk_ns, at_ns)
    return sum(count or 0 for count in account.chunk_tokens[:upto])


def first_text(datas: Sequence[bytes]) -> int | None:
    """Place of the read that brought the end of the first event with text."""
    head = b""
    for place in range(min(NEAR, len(datas))):
        found = TEXT.search(head + datas[place])  # written in pieces, it may begin in the read before
        if found is not None:
            return _event_end(datas, place, found.end() - len(head))
        head += datas[place]
    return None


def _event_end(datas: Sequence[bytes], place: int, at: int) -> int | None:
    """Place of the read in which the event ends that stands at byte `at` of a read; its two line ends may come in two reads."""
    before = b""
    while place < len(datas):
        if EVENT_END.search(before + datas[place][at:]):
            return place
        before = (before + datas[place][at:])[-2:]
        place, at = place + 1, 0
    return None


def first_count(datas: Sequence[bytes], first: int) -> int | None:
    """Tokens of the first chunk, from the reads up to that with its end; other chunks may have come with it."""
    data = b"".join(datas[: first + 1])
    found = TEXT.search(data)
    end = EVENT_END.search(data, found.end()) if found else None
    return last_count(data[: end.end()] if end else data)


def last_text(datas: Sequence[bytes], tokens: int | None) -> int | None:
    """Place of the read that brought the end of the last event with text, or of the event with the last tokens after it."""
    from_place = max(0, len(datas) - NEAR)
    tail = b"".join(datas[from_place:])
    found = list(TEXT.finditer(tail))
    end = EVENT_END.search(tail, found[-1].end()) if found else None
    if end is None:
        return None
    if tokens is not None and last_count(tail[: end.end()]) not in (None, tokens):
        while end is not None and last_count(tail[: end.end()]) != tokens:
            end = EVENT_END.search(tail, end.end())
        if end is None:
            return None
    ends = accumulate(map(len, datas[from_place:]))
    return from_place + next(place for place, upto in enumerate(ends) if upto >= end.end())


def ended_well(exchange: Exchange) -> tuple[int, int | None] | None:
    """(place of the first text, tokens or None if the server does not say) of a response that is plainly ok; None where that
    needs parsing."""
    datas = exchange.datas
    if exchange.taken or exchange.ended != "complete" or not datas or datas[0][9:12] != b"200":
        return None
    first = first_text(datas)
    tail = b"".join(datas[-NEAR:])
    if first is None or b"data:" not in tail or not FINISH.search(tail) or BAD.search(tail):
        return None
    tokens = last_count(tail)
    if tokens is None:  # not said, or said before the last few pieces
        tokens = last_count(b"".join(datas[-FAR:]))
    if exchange.asked is not None and tokens is not None and tokens < exchange.asked:
        return None
    return first, tokens


def spec_counts(tokens: int, said: dict[str, int]) -> tuple[int, int]:
    """(tokens, verification steps) of one response, by what its engine says of its speculation; (0, 0) where nothing.
    As bench/figures/acceptance.py has them of a whole result."""
    if said.get("spec_verify_ct"):
        return tokens, said["spec_verify_ct"]
    if said.get("num_spec_steps"):
        steps = said["num_spec_steps"]
        return steps + said.get("num_accepted_draft_tokens", 0), steps
    predicted = said.get("predicted_n", 0)
    if said.get("draft_n") and predicted and "draft_n_accepted" in said:
        return predicted - 1, predicted - 1 - said["draft_n_accepted"]
    return 0, 0


def spec_said(datas: Sequence[bytes]) -> dict[str, int]:
    """What the last reads say of speculation."""
    return {name.decode(): int(value) for name, value in SPEC.findall(b"".join(datas[-NEAR:]))}
