"""`trace = "FILE.jsonl"` of a workload: requests that were really sent, with their times, lengths and shared beginnings."""

from __future__ import annotations

import zlib
from pathlib import Path as FilePath
from typing import Any

import msgspec

from ddtop.plan.model import Bench, Trace
from ddtop.plan.problems import shown
from ddtop.plan.read.fields import Fields
from ddtop.words import many

KEYS = ("speed", "duration_s", "block_tokens")
OTHERS = ("prompts", "prompts_file", "dataset", "output_tokens", "turns", "think_ms", "shared_prefix_tokens")
MAX_SPEED = 1000.0
MAX_PACKED = 450_000
"""Bytes of a trace as it goes to the host: it has to fit into a line of the agent's protocol, in base64 and beside other cells."""


def read_trace(fields: Fields, bench: Bench, folder: FilePath | None) -> Trace | None:
    """The trace; None where the workload names none. Its requests are `Trace.requests`."""
    name = fields.text("trace")
    speeds = fields.numbers("speed", 0.001, MAX_SPEED) or (1.0,)
    duration_s = fields.number("duration_s", 0.0, 0.001, 10_000_000, "s")
    block = fields.whole("block_tokens", 512, 16, 65_536)
    if name is None:
        for key in KEYS:
            if fields.has(key):
                fields.problems.fault((*fields.path, key), "stands without a trace", 'trace = "FILE.jsonl"')
        return None
    for key in OTHERS:
        if fields.has(key):
            fields.problems.fault((*fields.path, key), "is what a trace says by itself", "leave it out")
    where = (*fields.path, "trace")
    if bench.kind == "command":
        fields.problems.fault(
            where, 'needs ddtop\'s own load generator, but bench.kind is "command"', "leave out bench.kind"
        )
    text = _text(fields, name, folder)
    if text is None:
        return Trace(name=name)
    requests = _requests(fields, name, text, duration_s)
    trace = Trace(name=name, requests=requests, speeds=speeds, block_tokens=block)
    for point in trace.points:
        if bench.kind == "builtin" and point.duration_s >= bench.time_limit_s:
            fields.problems.warn(
                where,
                f"lasts {point.duration_s:,.0f} s at speed {point.speed:g}, and bench.time_limit_s is {bench.time_limit_s:g}",
                "the limit ends the cell: raise it, or ask for the first part (duration_s) or a higher speed",
            )
    return trace


def _text(fields: Fields, name: str, folder: FilePath | None) -> str | None:
    path = FilePath(name).expanduser()
    if not path.is_absolute():
        path = (folder or FilePath()) / path
    given = fields.problems.given
    try:
        return given[name] if name in given else path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fields.problems.fault(
            (*fields.path, "trace"),
            f"{path} cannot be read: {reason}",
            "a path relative to the plan's folder",
        )
        return None


def _requests(fields: Fields, name: str, text: str, duration_s: float) -> tuple[dict[str, Any], ...]:
    """The requests of the first `duration_s` seconds (0: all). What is used of the file goes into the recording."""
    where = (*fields.path, "trace")
    out: list[dict[str, Any]] = []
    used: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = _request(msgspec.json.decode(line))
        except (msgspec.DecodeError, RecursionError) as error:
            fields.problems.fault(where, f"{name} line {number} is not JSON: {error}", "one object a line")
            return ()
        if isinstance(found, str):
            fields.problems.fault(where, f"{name} line {number}: {found}", WANTED)
            return ()
        if out and found["at_ms"] < out[-1]["at_ms"]:
            fields.problems.fault(
                where,
                f"{name} line {number}: timestamp {shown(found['at_ms'])} is before the line ahead of it",
                "requests in the order in which they came",
            )
            return ()
        if out and duration_s and found["at_ms"] - out[0]["at_ms"] > duration_s * 1e3:
            break
        out.append(found)
        used.append(line + "\n")
    fields.problems.files[name] = "".join(used)
    packed = len(zlib.compress(msgspec.json.encode(out), 1))
    if packed > MAX_PACKED:
        fields.problems.fault(
            where,
            f"{name} has {len(out):,} requests, more than can be sent to the host at once "
            f"({packed / 1e3:,.0f} of {MAX_PACKED / 1e3:,.0f} kB, packed)",
            f"its first part: duration_s = {_first_part_s(out, packed):,.0f}".replace(",", ""),
        )
    if not out:
        fields.problems.fault(where, f"{name} holds no request", WANTED)
    elif len(out) < 5:
        what = f"{name} has {many(len(out), 'request')}"
        fields.problems.warn(where, what, "of fewer than 5 the result is SUSPECT (few-samples)")
    return tuple(out)


def _first_part_s(requests: list[dict[str, Any]], packed: int) -> float:
    """Seconds of a trace that can be sent, about."""
    last = requests[int(len(requests) * 0.9 * MAX_PACKED / packed)]
    return float(last["at_ms"] - requests[0]["at_ms"]) / 1e3


WANTED = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [ids]} a line, as Mooncake\'s traces'


def _request(item: Any) -> dict[str, Any] | str:
    """A request as the load generator takes it, or what is wrong with it."""
    if not isinstance(item, dict):
        return f"found {shown(item)}"
    at_ms = item.get("timestamp")
    if isinstance(at_ms, bool) or not isinstance(at_ms, int | float) or at_ms < 0:
        return f"timestamp: found {shown(at_ms)}"
    out: dict[str, Any] = {"at_ms": at_ms}
    for key, name in (("input_length", "input_tokens"), ("output_length", "output_tokens")):
        tokens = item.get(key)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 10_000_000:
            return f"{key}: found {shown(tokens)}"
        out[name] = tokens
    ids = item.get("hash_ids")
    if ids is not None:
        if not isinstance(ids, list) or not all(isinstance(one, int | str) for one in ids):
            return f"hash_ids: found {shown(ids)}"
        out["hash_ids"] = ids
    return out
