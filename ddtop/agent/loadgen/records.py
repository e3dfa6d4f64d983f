"""The result of a cell as one JSON object of bounded size: packing bulky parts, and tokens by time. Pure.

`requests`, `texts` and `bins` become `requests_z`, … (base64 of zlib of JSON) where they are large, because a line of
the agent's protocol holds 1 MiB. `unpack` undoes it; both are for results of any age.
"""

from __future__ import annotations

import base64
import importlib.util
import json
from typing import Any

PLAIN_MAX = 30_000  # bytes of JSON that stay readable
CHUNKS_MAX = (
    520_000  # bytes of packed requests; above it chunk times of some requests are let go, and it says so
)
TEXTS_MAX = 200_000
BIN_NS = 10_000_000
PACKED = ("requests", "burst", "texts", "texts_again", "bins", "gpu_samples")


def pack_value(value: Any) -> str:
    """base64 of zlib of JSON."""
    return _squeeze(json.dumps(value, separators=(",", ":")))


def _squeeze(text: str) -> str:
    import zlib

    return base64.b64encode(
        zlib.compress(text.encode(), 1)
    ).decode()  # level 6 is 5% smaller and takes 3 times as long


def unpack_value(text: str) -> Any:
    """The inverse of `pack_value`. Raises ValueError on damage."""
    import zlib

    try:
        return json.loads(zlib.decompress(base64.b64decode(text)))
    except zlib.error as error:
        raise ValueError("packed part is damaged: %s" % error) from None


def pack(result: dict[str, Any]) -> dict[str, Any]:
    """A copy of the result with its large parts packed (all plain on a Python without zlib)."""
    out = dict(result)
    if importlib.util.find_spec("zlib") is None:
        return out
    for key in PACKED:
        if key not in out:
            continue
        text = json.dumps(out[key], separators=(",", ":"))
        if len(text) <= PLAIN_MAX:
            continue
        value = out.pop(key)
        packed = _squeeze(text)
        if key == "requests" and len(packed) > CHUNKS_MAX:
            packed, out["chunks_kept"] = _fit_requests(value, len(packed))
        if key in ("texts", "texts_again") and len(packed) > TEXTS_MAX:
            packed, out[key + "_kept"] = _fit_texts(value, len(packed))
        out[key + "_z"] = packed
    return out


def unpack(result: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `pack`: a copy with `requests`, `texts`, `bins` in the open. Raises ValueError on damage."""
    out = dict(result)
    for key in PACKED:
        if key + "_z" in out:
            out[key] = unpack_value(out.pop(key + "_z"))
    return out


def _fit_requests(requests: list[dict[str, Any]], size: int) -> tuple[str, int]:
    """Drop the chunk times of all but every n-th request until it fits; returns (packed, requests with chunks)."""
    step = max(2, -(-size // CHUNKS_MAX))
    while True:
        kept = 0
        thinned: list[dict[str, Any]] = []
        for place, record in enumerate(requests):
            if "t" not in record:
                thinned.append(record)
            elif place % step == 0:
                kept += 1
                thinned.append(record)
            else:
                thinned.append(slim(record))
        packed = pack_value(thinned)
        if len(packed) <= CHUNKS_MAX or step > len(requests):
            return packed, kept
        step *= 2


def slim(record: dict[str, Any]) -> dict[str, Any]:
    """The record with first, second and last chunk in place of all chunk times."""
    if "t" not in record:
        return record
    times, counts = record["t"], record.get("k")
    out = {key: value for key, value in record.items() if key not in ("t", "k", "shared_at")}
    out["first"], out["last"] = times[0], sum(times)
    if len(times) > 1:
        out["second"] = times[0] + times[1]
        out["gap_max"] = max(times[1:])
    if counts is not None:
        out["k_first"] = counts if isinstance(counts, int) else counts[0]
    return out


def served(requests: list[dict[str, Any]], close_ns: int) -> dict[str, Any]:
    """What came in a window from 0 to `close_ns`, of requests of any beginning: {"ended": requests that ended well in it,
    "tokens": output tokens that arrived in it}. Where a chunk's tokens are not known, a request's are spread evenly over
    its chunks; where it had none, they count at its end. `tokens` is absent if a server did not count."""
    ended, tokens, known = 0, 0.0, True
    for record in requests:
        if record["class"] not in ("ok", "unfinished"):
            continue
        end = record.get("end", 0)
        ended += record["class"] == "ok" and 0 < end <= close_ns
        total = record.get("tokens")
        if total is None:
            known = known and record["class"] != "ok"
            continue
        times, counts = record.get("t") or [end], record.get("k")
        at, counted = 0, 0.0
        for place, gap in enumerate(times):
            at += gap
            one = (
                total / len(times) if counts is None else counts if isinstance(counts, int) else counts[place]
            )
            counted += one
            if 0 < at <= close_ns:
                tokens += one
        if 0 < at <= close_ns:
            tokens += total - counted  # counted by the server, and shown in no chunk
    return {"ended": ended, "tokens": round(tokens)} if known else {"ended": ended}


def _fit_texts(texts: dict[str, Any], size: int) -> tuple[str, int]:
    keep = max(1, int(len(texts) * TEXTS_MAX / size * 0.9))
    first = sorted(texts, key=int)[:keep]
    return pack_value({key: texts[key] for key in first}), keep


def token_bins(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens by time from the window's zero on, over all requests: {"bin_ns", "start" (index of the first bin), "tokens"}.

    Only requests whose chunks carry trusted counts are in it; `left_out` counts the others that brought text.
    """
    bins: dict[int, int] = {}
    left_out = 0
    for record in requests:
        times = record.get("t")
        if not times:
            continue
        counts = record.get("k")
        if counts is None:
            left_out += 1
            continue
        at = 0
        for place, gap in enumerate(times):
            at += gap
            if at < 0:
                continue  # before the window
            number = at // BIN_NS
            bins[number] = bins.get(number, 0) + (counts if isinstance(counts, int) else counts[place])
    if not bins:
        return {"bin_ns": BIN_NS, "start": 0, "tokens": [], "left_out": left_out}
    low, high = min(bins), max(bins)
    return {
        "bin_ns": BIN_NS,
        "start": low,
        "tokens": [bins.get(number, 0) for number in range(low, high + 1)],
        "left_out": left_out,
    }
