"""One request's figures from its record, by the definitions of docs/measuring.md. Pure; a figure not known is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """Times in seconds after the window's zero; `gaps` between chunks in seconds, `gap_tokens` what each gap brought
    (None where the server gave no running count)."""

    index: int
    cls: str
    start_s: float
    end_s: float | None
    first_s: float | None
    second_s: float | None
    last_s: float | None
    last_event_s: float | None
    tokens: int | None
    first_tokens: int | None
    chunks: int
    gaps: tuple[float, ...]
    gap_tokens: tuple[int, ...] | None
    prompt_tokens: int | None
    cached_tokens: int | None
    connect_s: float | None
    sched_s: float | None
    streamed: bool

    @property
    def ok(self) -> bool:
        """Finished, with tokens, without an error, as long as asked."""
        return self.cls == "ok"

    @property
    def failed(self) -> bool:
        """Neither ok nor merely cut by the cell's time limit."""
        return self.cls not in ("ok", "unfinished")

    @property
    def ttft_s(self) -> float | None:
        """First token − start."""
        return None if self.first_s is None else self.first_s - self.start_s

    @property
    def ttsc_s(self) -> float | None:
        """Second chunk − start."""
        return None if self.second_s is None else self.second_s - self.start_s

    @property
    def e2e_s(self) -> float | None:
        """Last event − start."""
        end = self.last_event_s if self.last_event_s is not None else self.end_s
        return None if end is None else end - self.start_s

    @property
    def decode_tok_s(self) -> float | None:
        """(tokens − tokens of the first chunk) / (last token − first token); None where one of them is not known."""
        if self.tokens is None or self.first_tokens is None or self.first_s is None or self.last_s is None:
            return None
        span, count = self.last_s - self.first_s, self.tokens - self.first_tokens
        return count / span if span > 0 and count > 0 else None

    @property
    def tpot_s(self) -> float | None:
        """1 / decode rate."""
        rate = self.decode_tok_s
        return None if rate is None else 1 / rate


def read_request(record: dict[str, Any]) -> Request:
    """A Request from a record of the load generator (full, or without its chunk times)."""

    def seconds(key: str) -> float | None:
        value = record.get(key)
        return None if value is None else value / 1e9

    times = record.get("t")
    chunks = int(record.get("chunks", len(times or ())))
    tokens = record.get("tokens")
    counts = record.get("k")
    first, second, last = seconds("first"), seconds("second"), seconds("last")
    gaps: tuple[float, ...] = ()
    gap_tokens: tuple[int, ...] | None = None
    first_tokens = record.get("k_first")
    if times:
        first = times[0] / 1e9
        last = sum(times) / 1e9
        second = (times[0] + times[1]) / 1e9 if len(times) > 1 else None
        gaps = tuple(gap / 1e9 for gap in times[1:])
        if counts is not None:
            each = [counts] * len(times) if isinstance(counts, int) else counts
            first_tokens, gap_tokens = each[0], tuple(each[1:])
    if first_tokens is None and tokens is not None and chunks and chunks in (tokens, tokens - 1):
        # As many chunks as tokens (a final EOS shows no text): every chunk is one token, so the first one is too.
        first_tokens = 1
        gap_tokens = (1,) * len(gaps) if gaps and chunks == tokens else None
    return Request(
        index=record["i"],
        cls=record["class"],
        start_s=record["start"] / 1e9,
        end_s=seconds("end"),
        first_s=first,
        second_s=second,
        last_s=last,
        last_event_s=seconds("last_event"),
        tokens=tokens,
        first_tokens=first_tokens,
        chunks=chunks,
        gaps=gaps,
        gap_tokens=gap_tokens,
        prompt_tokens=record.get("prompt_tokens"),
        cached_tokens=record.get("cached_tokens"),
        connect_s=seconds("connect_ns"),
        sched_s=seconds("sched"),
        streamed=not record.get("not_streamed"),
    )
