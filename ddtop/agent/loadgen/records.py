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
PACKED = ("requests", "texts", "texts_again", "bins", "gpu_samples")


def pack_value(value: Any) -> str:
    """base64 of zlib of JSON."""
    return _squeeze(json.dumps(value, separators=(",", ":")))


def _squeeze(text: str) -> str:
    import zlib

    return base64.b64encode(
        zlib.compress(text.encode(), 1)
    ).decode()  # level 6 is 5 % smaller and takes 3 times as long


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
        slim: list[dict[str, Any]] = []
        for place, record in enumerate(requests):
            if "t" not in record:
                slim.append(record)
            elif place % step == 0:
                kept += 1
                slim.append(record)
            else:
                slim.append(_without_chunks(record))
        packed = pack_value(slim)
        if len(packed) <= CHUNKS_MAX or step > len(requests):
            return packed, kept
        step *= 2


def _without_chunks(record: dict[str, Any]) -> dict[str, Any]:
    """The record with first, second and last chunk in place of all chunk times."""
    times, counts = record["t"], record.get("k")
    slim = {key: value for key, value in record.items() if key not in ("t", "k", "shared_at")}
    slim["first"], slim["last"] = times[0], sum(times)
    if len(times) > 1:
        slim["second"] = times[0] + times[1]
        slim["gap_max"] = max(times[1:])
    if counts is not None:
        slim["k_first"] = counts if isinstance(counts, int) else counts[0]
    return slim


def _fit_texts(texts: dict[str, Any], size: int) -> tuple[str, int]:
    keep = max(1, int(len(texts) * TEXTS_MAX / size * 0.9))
    first = sorted(texts, key=int)[:keep]
    return pack_value({key: texts[key] for key in first}), keep


def token_bins(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens by time over all requests: {"bin_ns", "start" (index of the first bin), "tokens": [...]}.

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
