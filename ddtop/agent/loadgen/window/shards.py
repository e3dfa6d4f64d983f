"""Sharding a window over processes. The timed part always runs in a child that does nothing else: the parent samples
GPUs and pressure meanwhile. Children share the monotonic clock, start at one agreed moment and send their records back.
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
from ..spec import LoadSpec
from .window import Window

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
    on_progress: Callable[[dict[str, int]], None] | None = None,
    on_start: Callable[[], None] | None = None,
    on_end: Callable[[], None] | None = None,
    extra: dict[int, Callable[[], None]] | None = None,
) -> dict[str, Any]:
    """Run the window in `processes` children; returns {"requests", "texts", "clients", "zero_ns", "end_ns", "stopped",
    "error"}. In the parent, `on_start` is called when the clock starts, `on_end` when the last child's window is over
    (before parsing), and each function of `extra` when its file descriptor is readable. Never raises for what a child
    met: see "error".
    """
    shards = [indices[shard::processes] for shard in range(processes)]
    streams = [
        spec.concurrency // processes + (shard < spec.concurrency % processes) for shard in range(processes)
    ]
    start_at = time.monotonic_ns() + (300_000_000 if processes > 1 else 0)
    children: dict[int, tuple[int, bytearray]] = {}
    for shard in range(processes):
        if not shards[shard]:
            continue
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(reading)
                for other in children:
                    os.close(other)
                _child(
                    spec,
                    builder,
                    shards[shard],
                    max(1, streams[shard]),
                    start_at if processes > 1 else 0,
                    writing,
                )
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        children[reading] = (pid, bytearray())
    return _gather(spec, children, on_progress, on_start, on_end, dict(extra or {}))


def _child(
    spec: LoadSpec, builder: RequestBuilder, indices: list[int], streams: int, start_at: int, writing: int
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def progress(done: int, in_flight: int, reads: int) -> None:
        _frame(writing, b"p", {"done": done, "in_flight": in_flight, "chunks": reads})

    try:
        window = Window(spec, builder, indices, streams, progress, start_at)
        window.on_start = lambda: _frame(writing, b"s", None)
        window.run()
        _frame(writing, b"e", None)
        records = [exchange.record(window.zero_ns) for exchange in window.exchanges]
        texts = {}
        if spec.keep_texts:
            texts = {str(exchange.index): exchange.account.texts() for exchange in window.exchanges}
        answer = {
            "requests": records,
            "texts": texts,
            "client": window.quality(),
            "zero_ns": window.zero_ns,
            "end_ns": window.end_ns,
            "stopped": window.stopping,
        }
        if window.watch is not None:
            answer["slo"] = [window.watch.attained, window.watch.n, window.watch.verdict]
    except Exception as error:
        answer = {"error": "%s: %s" % (type(error).__name__, error), "trace": traceback.format_exc()[-4000:]}
    _frame(writing, b"r", answer)


def _frame(fd: int, kind: bytes, value: Any) -> None:
    data = marshal.dumps(value)
    data = HEADER.pack(kind, len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _gather(
    spec: LoadSpec,
    children: dict[int, tuple[int, bytearray]],
    on_progress: Callable[[dict[str, int]], None] | None,
    on_start: Callable[[], None] | None,
    on_end: Callable[[], None] | None,
    extra: dict[int, Callable[[], None]],
) -> dict[str, Any]:
    got: dict[bytes, dict[int, Any]] = {b"p": {}, b"r": {}, b"s": {}, b"e": {}}
    # A child bounds itself; this is for one that hangs. Parsing a big cell afterwards takes a while.
    limit = time.monotonic() + spec.time_limit_s * 2 + 120
    waiting = dict(children)
    late: list[dict[str, Any]] = []
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
            if got[b"s"] and on_start is not None:
                on_start()
                on_start = None
            if len(got[b"e"]) == len(children) and on_end is not None:
                on_end()
                on_end = None
                extra = {}
            if got[b"p"] and on_progress is not None:
                latest = got[b"p"].values()
                on_progress({key: sum(one[key] for one in latest) for key in ("done", "in_flight", "chunks")})
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


def _merge(answers: list[dict[str, Any]], expected: int) -> dict[str, Any]:
    errors = [answer["error"] for answer in answers if "error" in answer]
    good = [answer for answer in answers if "error" not in answer]
    if len(answers) < expected:
        errors.append("a load process ended without a result (killed? out of memory?)")
    zero = min((answer["zero_ns"] for answer in good), default=0)
    requests: list[dict[str, Any]] = []
    texts: dict[str, Any] = {}
    for number, answer in enumerate(good):
        shift = answer["zero_ns"] - zero
        for record in answer["requests"]:
            if shift:
                _shift(record, shift)
            if expected > 1:
                record["proc"] = number
            requests.append(record)
        texts.update(answer["texts"])
    requests.sort(key=lambda record: record["i"])
    return {
        "requests": requests,
        "texts": texts,
        "clients": [answer["client"] for answer in good],
        "zero_ns": zero,
        "end_ns": max((answer["end_ns"] for answer in good), default=0),
        "stopped": next((answer["stopped"] for answer in good if answer["stopped"]), ""),
        "error": "; ".join(errors),
        "slo": next((answer["slo"] for answer in good if "slo" in answer), [0, 0, ""]),
    }


def _shift(record: dict[str, Any], by: int) -> None:
    for key in ("start", "sched", "sent", "end", "last_event", "first_content"):
        if key in record:
            record[key] += by
    if "t" in record:
        record["t"][0] += by
