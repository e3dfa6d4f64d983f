"""Sharding a window over processes. The timed part always runs in a child that does nothing else: the parent samples
GPUs and pressure meanwhile. Children share the monotonic clock, start at one agreed moment and send their records back.
With the hand-over warm-up each child says when its streams have settled; then the parent names one zero for all.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import struct
import time
import traceback
from typing import Any, Callable

from ..request_builder import RequestBuilder
from ..response.exchange import Exchange
from ..spec import LoadSpec
from .handover import ZERO
from .live import as_heard, joined
from .window import Window

AHEAD_NS = 600_000_000  # a child looks for the parent's word every 250 ms
HEADER = struct.Struct("<cQ")


def process_count(spec: LoadSpec, cores: int) -> int:
    """How many processes carry the load: as asked, else one for each 512 streams, at most half of the cores. With service
    levels one, because it decides for all streams."""
    if spec.slo:
        return 1
    if spec.processes:
        return min(spec.processes, max(1, spec.requests))
    if spec.mode == "open":
        return 1
    return max(1, min(cores // 2, -(-min(spec.concurrency, spec.requests) // 512)))


def run_shards(
    spec: LoadSpec,
    builder: RequestBuilder,
    indices: list[int],
    *,
    processes: int = 1,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    on_start: Callable[[], None] | None = None,
    on_close: Callable[[], None] | None = None,
    on_end: Callable[[], None] | None = None,
    extra: dict[int, Callable[[], None]] | None = None,
) -> dict[str, Any]:
    """Run the window in `processes` children; returns {"requests", "burst", "texts", "clients", "zero_ns", "close_ns",
    "end_ns", "stopped", "error", "handover", "slo"}. In the parent, `on_start` is called at the window's zero, `on_close`
    when the first stream has no more work (without a hand-over: at the end), `on_end` when the last response is in
    (before parsing), and each function of `extra` when its file descriptor is readable. Never raises for what a child
    met: see "error".
    """
    shards = [indices[shard::processes] for shard in range(processes)]
    streams = [
        spec.concurrency // processes + (shard < spec.concurrency % processes) for shard in range(processes)
    ]
    start_at = time.monotonic_ns() + (300_000_000 if processes > 1 else 0)
    children: dict[int, tuple[int, bytearray]] = {}
    controls: list[int] = []
    together = processes > 1 and spec.warmup == "handover"
    for shard in range(processes):
        if not shards[shard]:
            continue
        reading, writing = os.pipe()
        told, telling = os.pipe() if together else (-1, -1)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(reading)
                for other in (*children, *controls, *([telling] if together else [])):
                    os.close(other)
                if together:
                    os.set_blocking(told, False)
                begin_at = start_at if processes > 1 else 0
                many = max(1, streams[shard])
                _child(spec, builder, shards[shard], many, begin_at, writing, processes, told)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        if together:
            os.close(told)
            controls.append(telling)
        children[reading] = (pid, bytearray())
    try:
        calls = {b"s": on_start, b"c": on_close, b"e": on_end}
        return _gather(spec, children, controls, on_progress, calls, dict(extra or {}))
    finally:
        for fd in controls:
            os.close(fd)


def _child(
    spec: LoadSpec,
    builder: RequestBuilder,
    indices: list[int],
    streams: int,
    start_at: int,
    writing: int,
    processes: int,
    control: int,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def progress(done: int, in_flight: int, reads: int, live: dict[str, Any] | None) -> None:
        _frame(writing, b"p", {"done": done, "in_flight": in_flight, "chunks": reads})
        if live is not None:
            _frame(writing, b"l", live)

    answer: dict[str, Any]
    try:
        window = Window(spec, builder, indices, streams, progress, start_at, processes, control)
        window.on_start = lambda: _frame(writing, b"s", None)
        window.on_ready = lambda: _frame(writing, b"h", None)
        window.on_close = lambda: _frame(writing, b"c", None)
        window.run()
        _frame(writing, b"e", None)
        progress(window.live.done, 0, window.traffic.reads, window.live.final(window.end_ns))
        records = [_record(exchange, window) for exchange in window.exchanges]
        before = window.before
        texts = {}
        if spec.keep_texts:
            texts = {str(exchange.index): exchange.account.texts() for exchange in window.exchanges}
        answer = {
            "requests": records,
            "texts": texts,
            "client": window.quality(),
            "burst": [_record(exchange, window) for exchange in before.burst] if before else [],
            "handover": before.about(window.zero_ns) if before else None,
            "zero_ns": window.zero_ns,
            "close_ns": window.close_ns,
            "end_ns": window.end_ns,
            "stopped": window.stopping,
        }
        if window.watch is not None:
            answer["slo"] = [window.watch.attained, window.watch.n, window.watch.verdict]
    except Exception as error:
        answer = {"error": "%s: %s" % (type(error).__name__, error), "trace": traceback.format_exc()[-4000:]}
    _frame(writing, b"r", answer)


def _record(exchange: Exchange, window: Window) -> dict[str, Any]:
    return {**exchange.record(window.zero_ns), **window.builder.drawn(exchange.index)}


def _frame(fd: int, kind: bytes, value: Any) -> None:
    data = marshal.dumps(value)
    data = HEADER.pack(kind, len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _gather(
    spec: LoadSpec,
    children: dict[int, tuple[int, bytearray]],
    controls: list[int],
    on_progress: Callable[[dict[str, Any]], None] | None,
    calls: dict[bytes, Callable[[], None] | None],
    extra: dict[int, Callable[[], None]],
) -> dict[str, Any]:
    """`calls`: by the frames that bring them: s the first window's zero, c its close, e all windows are over. A frame h
    says that a child's streams have settled, l has what its window looks like."""
    got: dict[bytes, dict[int, Any]] = {kind: {} for kind in (b"p", b"l", b"r", b"s", b"e", b"c", b"h")}
    told = not controls
    # A child bounds itself; this is for one that hangs. Parsing a big cell afterwards takes a while.
    limit = time.monotonic() + spec.time_limit_s * 2 + 120
    waiting = dict(children)
    late: list[dict[str, Any]] = []
    heard: dict[int, tuple[dict[str, Any], float]] = {}
    looked: list[dict[str, Any]] = []
    live: dict[str, Any] = {}
    try:
        while waiting:
            ready, _, _ = select.select(list(waiting) + list(extra), [], [], 0.2)
            for fd in ready:
                if fd in extra:
                    extra[fd]()
                    continue
                data = os.read(fd, 1 << 20)
                pid, buffer = waiting[fd]
                buffer += data
                _frames(buffer, pid, got)
                if not data:
                    del waiting[fd]
            if not told and len({**got[b"h"], **got[b"e"]}) == len(children):
                told = True
                for fd in controls:
                    _tell(fd, ZERO.pack(time.monotonic_ns() + AHEAD_NS))
            over = len(got[b"e"]) == len(children)
            for kind, come in ((b"s", got[b"s"]), (b"c", got[b"c"] or over), (b"e", over)):
                call = calls[kind]
                if come and call is not None:
                    calls[kind] = None
                    call()
            if over:
                extra = {}
            if got[b"p"] and on_progress is not None:
                latest = got[b"p"].values()
                told_now: dict[str, Any] = {
                    key: sum(one[key] for one in latest) for key in ("done", "in_flight", "chunks")
                }
                heard = {
                    pid: heard[pid] if heard.get(pid, ({},))[0] is one else (one, time.monotonic())
                    for pid, one in got[b"l"].items()
                }
                parts = [
                    as_heard(one, time.monotonic() - at, pid in got[b"e"]) for pid, (one, at) in heard.items()
                ]
                if parts:
                    if parts != looked:
                        looked, live = parts, joined(parts, len(children) - len(parts))
                    told_now["live"] = live
                on_progress(told_now)
            if time.monotonic() > limit:
                late.append({"error": "a load process did not end in time"})
                break
    finally:
        for fd, (pid, _) in children.items():
            if fd in waiting:
                os.kill(pid, signal.SIGKILL)
            os.close(fd)
            os.waitpid(pid, 0)
    return _merge(list(got[b"r"].values()) + late, len(children))


def _frames(buffer: bytearray, pid: int, got: dict[bytes, dict[int, Any]]) -> None:
    while len(buffer) >= HEADER.size:
        kind, size = HEADER.unpack_from(buffer)
        if len(buffer) < HEADER.size + size:
            return
        got[kind][pid] = marshal.loads(bytes(buffer[HEADER.size : HEADER.size + size]))
        del buffer[: HEADER.size + size]


def _tell(fd: int, word: bytes) -> None:
    try:
        os.write(fd, word)
    except BrokenPipeError:
        pass  # its window is over already


def _merge(answers: list[dict[str, Any]], expected: int) -> dict[str, Any]:
    errors = [answer["error"] for answer in answers if "error" in answer]
    good = [answer for answer in answers if "error" not in answer]
    if len(answers) < expected:
        errors.append("a load process ended without a result (killed? out of memory?)")
    zero = min((answer["zero_ns"] for answer in good), default=0)
    requests: list[dict[str, Any]] = []
    burst: list[dict[str, Any]] = []
    texts: dict[str, Any] = {}
    for number, answer in enumerate(good):
        shift = answer["zero_ns"] - zero
        for record in (*answer["requests"], *answer["burst"]):
            if shift:
                _shift(record, shift)
            if expected > 1:
                record["proc"] = number
        requests += answer["requests"]
        burst += answer["burst"]
        texts.update(answer["texts"])
    requests.sort(key=lambda record: record["i"])
    return {
        "requests": requests,
        "burst": sorted(burst, key=lambda record: record["start"]),
        "handover": _one_handover([answer["handover"] for answer in good if answer["handover"]]),
        "texts": texts,
        "clients": [answer["client"] for answer in good],
        "zero_ns": zero,
        "close_ns": min((answer["close_ns"] for answer in good), default=0),
        "end_ns": max((answer["end_ns"] for answer in good), default=0),
        "stopped": next((answer["stopped"] for answer in good if answer["stopped"]), ""),
        "error": "; ".join(errors),
        "slo": next((answer["slo"] for answer in good if "slo" in answer), [0, 0, ""]),
    }


def _one_handover(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What ended the burst of all processes: settled if all have."""
    if not parts:
        return {}
    ends = [part["by"] for part in parts]
    return {
        "by": next((by for by in ("", "time", "requests") if by in ends), "settled"),
        "requests": sum(part["requests"] for part in parts),
        "seconds": max(part["seconds"] for part in parts),
    }


def _shift(record: dict[str, Any], by: int) -> None:
    for key in ("start", "sched", "sent", "end", "last_event", "first_content"):
        if key in record:
            record[key] += by
    if "t" in record:
        record["t"][0] += by
