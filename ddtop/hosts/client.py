"""The client end of the agent's protocol over any Pipe: requests, streams with back-pressure, heartbeat."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ddtop.agent.lines import LineSplitter, LineTooLongError
from ddtop.agent.wire import MAX_LINE, PING_S, STREAM_CREDIT, WINDOW_LEAST_B
from ddtop.errors import AgentError, HostLostError
from ddtop.hosts.handshake import Handshake
from ddtop.hosts.pipe import Pipe

LOST_AFTER_S = 12.0
"""Silence after which a host counts as lost: four pings. With the check's second, under 15 s."""

OPS_WITH_LIMIT = frozenset({"exec", "http", "probe", "tokens"})
GRACE_S = 3.0
"""How much longer than the agent's own limit a call waits: the agent's error says more than a timeout here."""

Item = dict[str, Any]


def _decoded(line: bytes) -> Any:
    """A message of the agent. Raises ValueError where it is no JSON."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Lone surrogates (file names that are not UTF-8) and NaN: Python's own reader takes them, at twice the time.
        return json.loads(line)


class _Stream:
    """The client's side of one stream: batches not yet taken with their bytes, and how it ended."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[list[Item], int] | None] = asyncio.Queue()
        self.end: Item | None = None
        self.error: AgentError | HostLostError | None = None


class AgentHost:
    """A Host (see base.Host) over a Pipe with a running agent."""

    def __init__(self, name: str, pipe: Pipe, shake: Handshake) -> None:
        self.name = name
        self.noise = shake.noise
        """What the login shell printed before the agent started."""
        self._pipe = pipe
        assert shake.hello is not None, "the handshake is not done"
        self.hello = shake.hello
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Item]] = {}
        self._streams: dict[int, _Stream] = {}
        self._rtt_ms: float | None = None
        self._heard = time.monotonic()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._splitter = LineSplitter(MAX_LINE)
        self._tasks = [
            asyncio.create_task(self._read(shake.rest), name=f"{name} reader"),
            asyncio.create_task(self._beat(), name=f"{name} heartbeat"),
        ]

    @property
    def rtt_ms(self) -> float | None:
        return self._rtt_ms

    def stderr_tail(self) -> str:
        """The last of what came on standard error: evidence when an agent dies."""
        return self._pipe.stderr_tail()

    # -------------------------------------------------------------------------------------- requests

    async def call(self, op: str, *, timeout_s: float = 15.0, **args: Any) -> Item:
        """See base.Host.call. For OPS_WITH_LIMIT, `timeout_s` is the agent's own limit, and ours is a little more."""
        if op in OPS_WITH_LIMIT:
            args = {"timeout_s": timeout_s, **args}
            timeout_s += GRACE_S
        request_id = next(self._ids)
        future: asyncio.Future[Item] = asyncio.get_running_loop().create_future()
        self._check_alive()
        self._waiting[request_id] = future
        self._send({"id": request_id, "op": op, "args": args})
        try:
            await asyncio.wait([future], timeout=timeout_s)
            if not future.done() and time.monotonic() - self._heard > PING_S:
                # Nothing at all came: the link is lost, or this side has slept and the answer waits to be read.
                # Which of both, the heartbeat says.
                await asyncio.wait([future], timeout=LOST_AFTER_S)
            if future.done():
                return future.result()
            self._send({"id": request_id, "op": "cancel"})
            raise AgentError(f"no answer to {op} within {timeout_s:g} s", code="timeout", host=self.name)
        except asyncio.CancelledError:
            self._send({"id": request_id, "op": "cancel"})
            raise
        finally:
            self._waiting.pop(request_id, None)
            if not future.cancel() and not future.cancelled():
                future.exception()  # a call that is cancelled as the link is lost has nobody to tell

    async def ping(self) -> float:
        """Round trip in milliseconds."""
        began = time.perf_counter()
        await self.call("ping", timeout_s=LOST_AFTER_S)
        self._rtt_ms = (time.perf_counter() - began) * 1000
        return self._rtt_ms

    @contextlib.asynccontextmanager
    async def stream(self, op: str, **args: Any) -> AsyncIterator[AsyncIterator[list[Item]]]:
        """See base.Host.stream. The iterator ends when the stream does; a refusal raises AgentError."""
        request_id = next(self._ids)
        self._check_alive()
        stream = self._streams[request_id] = _Stream()
        self._send({"id": request_id, "op": op, "args": args})
        try:
            yield self._batches(request_id, stream)
        finally:
            if (
                self._streams.pop(request_id, None) is not None
                and stream.end is None
                and stream.error is None
            ):
                self._send({"id": request_id, "op": "cancel"})

    async def _batches(self, request_id: int, stream: _Stream) -> AsyncIterator[list[Item]]:
        taken = taken_b = 0
        while True:
            found = await stream.queue.get()
            if found is None:
                if stream.error is not None:
                    raise stream.error
                return
            batch, size_b = found
            taken, taken_b = taken + 1, taken_b + size_b
            if taken >= STREAM_CREDIT // 4 or taken_b >= WINDOW_LEAST_B // 2:
                self._send({"id": request_id, "op": "ack", "args": {"n": taken}})
                taken = taken_b = 0
            yield batch

    # -------------------------------------------------------------------------------------- life

    async def wait_lost(self) -> str:
        """See base.Host.wait_lost."""
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """See base.Host.close."""
        self._fail("closed by ddtop")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pipe.close()

    def _check_alive(self) -> None:
        if self._lost.done():
            raise self._lost_error()

    def _lost_error(self) -> HostLostError:
        return HostLostError(
            f"the connection is gone: {self._lost.result()}",
            means="detached jobs on the host go on",
            do="ddtop connects again by itself",
            host=self.name,
        )

    def _send(self, message: Item) -> None:
        self._pipe.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _fail(self, reason: str) -> None:
        """The connection is over: every waiting call and stream fails now."""
        if self._lost.done():
            return
        self._lost.set_result(reason)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._lost_error())
        for stream in self._streams.values():
            stream.error = self._lost_error()
            stream.queue.put_nowait(None)

    async def _beat(self) -> None:
        """A ping every PING_S; silence of LOST_AFTER_S is a loss even if TCP says nothing."""
        while not self._lost.done():
            probe = asyncio.create_task(self.ping())
            try:
                done, _ = await asyncio.wait([probe], timeout=PING_S)
                if not done:
                    await self._judge_silence()
                elif probe.exception() is None:
                    await asyncio.sleep(PING_S)
            finally:
                probe.cancel()
                await asyncio.gather(probe, return_exceptions=True)

    async def _judge_silence(self) -> None:
        """Called when a ping was not answered in time: waits out the rest of LOST_AFTER_S of silence."""
        while not self._lost.done():
            quiet = time.monotonic() - self._heard
            if quiet < PING_S:
                return
            if quiet > LOST_AFTER_S:
                # This side may have slept (a suspended laptop, a blocked loop): read what has arrived first.
                await asyncio.sleep(0.3)
                if time.monotonic() - self._heard > LOST_AFTER_S:
                    self._fail(f"nothing heard for {LOST_AFTER_S:g} s")
                return
            await asyncio.sleep(0.5)

    async def _read(self, first: bytes) -> None:
        try:
            chunk = first
            while True:
                for line in self._splitter.feed(chunk):
                    if line:
                        self._take(line)
                chunk = await self._pipe.read()
                if not chunk:
                    break
                self._heard = time.monotonic()
        except (LineTooLongError, ValueError, KeyError, TypeError) as error:
            self._fail(f"the agent broke the protocol: {error}")
            return
        how = await self._pipe.ended()
        tail = self._pipe.stderr_tail()
        evidence = f"; its last words: {tail[-600:]}" if tail and "lost" not in how else ""
        self._fail(("it ended in the middle of a line, " if self._splitter.rest else "") + how + evidence)

    def _take(self, line: bytes) -> None:
        message = _decoded(line)
        request_id = message["id"]
        stream = self._streams.get(request_id)
        if "err" in message:
            error = self._agent_error(message["err"])
            future = self._waiting.get(request_id)
            if future is not None and not future.done():
                future.set_exception(error)
            elif stream is not None:
                stream.error = error
                stream.queue.put_nowait(None)
            elif request_id is None:
                raise ValueError(error.what)
        elif "ok" in message:
            future = self._waiting.get(request_id)
            if future is not None and not future.done():
                future.set_result(message["ok"])
        elif stream is not None and "items" in message:
            stream.queue.put_nowait((message["items"], len(line)))
        elif stream is not None and "end" in message:
            stream.end = message["end"]
            stream.queue.put_nowait(None)

    def _agent_error(self, body: Item) -> AgentError:
        return AgentError(body["what"], code=body["code"], do=body.get("do", ""), host=self.name)
