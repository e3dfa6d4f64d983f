"""The agent's dispatcher: requests side by side, streams in batches with credit, a deadline, cancelling."""

from __future__ import annotations

import asyncio
import collections
import functools
import importlib
import json
import os
import time
import traceback
from typing import Any, Awaitable, Callable, Deque, Dict, List, Optional

from .context import Context
from .errors import OpError, from_os_error
from .lines import LineSplitter, LineTooLongError, PipeWriter, Window
from .registry import HANDLERS
from .wire import BATCH_S, DEADLINE_S, MAX_LINE, OPS

Message = Dict[str, Any]

BATCH_B = 64 << 10
QUEUE_B = 1 << 20


def encode(message: Message) -> bytes:
    """One line of the protocol. Lone surrogates (file names that are not UTF-8) travel as \\udcXX escapes."""
    return json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"


def error_line(request_id: Any, error: OpError) -> bytes:
    body = {"code": error.code, "what": error.what[:100_000], "do": error.do[:10_000]}
    return encode({"id": request_id, "err": body})


class Args(Dict[str, Any]):
    """The arguments of an op. A missing one raises OpError "bad-request", not KeyError."""

    def __missing__(self, key: str) -> Any:
        raise OpError("bad-request", "the argument %r is missing" % key)


class Emitter:
    """Takes the items of a stream and sends them in batches; waits while the client has not taken enough."""

    def __init__(self, request_id: Any, writer: PipeWriter) -> None:
        self._id = request_id
        self._writer = writer
        self._items: Deque[str] = collections.deque()
        self._size = 0
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._credit = asyncio.Event()
        self._credit.set()
        self._window = Window()
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, item: Message) -> None:
        text = json.dumps(item, separators=(",", ":"), default=str)
        if len(text) > MAX_LINE - 1000:
            raise OpError("internal", f"a stream item of {len(text)} bytes")
        await self._room.wait()
        self._items.append(text)
        self._size += len(text)
        if self._size > QUEUE_B:
            self._room.clear()
        self._idle.clear()
        self._ready.set()

    def ack(self, batches: int) -> None:
        """The client has taken so many batches."""
        self._window.acked(batches, time.monotonic())
        if not self._window.is_full:
            self._credit.set()

    async def pump(self) -> None:
        """Sends batches, the first item at once, then at most one batch every BATCH_S."""
        while True:
            await self._ready.wait()
            await self._credit.wait()
            batch: List[str] = []
            size = 0
            most = min(BATCH_B, self._window.size_b // 8)
            while self._items and (not batch or size + len(self._items[0]) < most):
                text = self._items.popleft()
                size += len(text) + 1
                batch.append(text)
            self._size -= sum(len(text) for text in batch)
            if self._size <= QUEUE_B:
                self._room.set()
            line = '{"id":%s,"items":[%s]}\n' % (json.dumps(self._id), ",".join(batch))
            self._writer.write(line.encode())
            self._window.sent(len(line), time.monotonic())
            if self._window.is_full:
                self._credit.clear()
            if not self._items:
                self._ready.clear()
                self._idle.set()
            await self._writer.drain()
            if self._idle.is_set():  # a burst larger than a batch goes on at once
                await asyncio.sleep(BATCH_S)

    async def flushed(self) -> None:
        """Waits until every item is on its way."""
        await self._idle.wait()


class Server:
    """Reads requests from `stdin_fd` and answers through `writer` until the input ends or falls silent."""

    def __init__(self, context: Context, stdin_fd: int, writer: PipeWriter) -> None:
        self._context = context
        self._stdin = stdin_fd
        self._writer = writer
        self._tasks: Dict[Any, "asyncio.Task[None]"] = {}
        self._emitters: Dict[Any, Emitter] = {}
        self._heard = time.monotonic()
        self._over: "asyncio.Future[int]" = context.loop.create_future()
        self._splitter = LineSplitter(MAX_LINE)

    async def serve(self) -> int:
        """Returns the exit code: 0 input ended, 78 a protocol error, 79 nothing heard for DEADLINE_S."""
        loop = self._context.loop
        loop.add_reader(self._stdin, self._readable)
        watch = loop.create_task(self._deadline())
        broken = loop.create_task(self._writer.broken.wait())
        broken.add_done_callback(lambda _: self.end(0))
        try:
            return await self._over
        finally:
            loop.remove_reader(self._stdin)
            tasks = [watch, broken, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=2)

    def end(self, code: int) -> None:
        """Ends `serve` with this exit code."""
        if not self._over.done():
            self._over.set_result(code)

    async def _deadline(self) -> None:
        while True:
            await asyncio.sleep(1)
            if time.monotonic() - self._heard > DEADLINE_S:
                self.end(79)

    def _readable(self) -> None:
        try:
            chunk = os.read(self._stdin, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._protocol_error(
                "the input ended in the middle of a line"
            ) if self._splitter.rest else self.end(0)
            return
        self._heard = time.monotonic()
        try:
            lines = self._splitter.feed(chunk)
        except LineTooLongError as error:
            self._protocol_error(str(error))
            return
        for line in lines:
            if line.strip():
                self._take(line)

    def _protocol_error(self, what: str) -> None:
        self._writer.write(error_line(None, OpError("bad-request", what)))
        self.end(78)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            request_id, op = message["id"], message["op"]
            args = message.get("args") or {}
            if (
                not isinstance(request_id, (int, str))
                or not isinstance(op, str)
                or not isinstance(args, dict)
            ):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._protocol_error("a line that is not a request: %r" % line[:200])
            return
        if op == "ping":
            answer = {"mono_s": time.monotonic(), "at_s": time.time()}
            self._writer.write(encode({"id": request_id, "ok": answer}))
        elif op == "ack":
            emitter = self._emitters.get(request_id)
            if emitter is not None:
                emitter.ack(int(args.get("n", 1)))
        elif op == "cancel":
            task = self._tasks.get(request_id)
            if task is not None:
                task.cancel()
        elif request_id in self._tasks:
            self._protocol_error("id %r is in use" % (request_id,))
        elif op not in HANDLERS:
            error = OpError(
                "bad-request", "this agent has no op %r" % op, "use the same ddtop version on both ends"
            )
            self._writer.write(error_line(request_id, error))
        else:
            kind = OPS[op][0]
            run = self._stream if kind == "stream" else self._request
            self._tasks[request_id] = self._context.loop.create_task(run(request_id, op, Args(args)))

    async def _request(self, request_id: Any, op: str, args: Message) -> None:
        try:
            answer = await _guarded(op, functools.partial(_handler(op), self._context, args))
            line = encode({"id": request_id, "ok": answer or {}})
            if len(line) > MAX_LINE:
                raise OpError(
                    "failed",
                    f"the answer to {op} has {len(line)} bytes, more than a line of the protocol holds",
                )
            self._writer.write(line)
            await self._writer.drain()
        except OpError as error:
            self._writer.write(error_line(request_id, error))
        except asyncio.CancelledError:
            self._writer.write(error_line(request_id, OpError("cancelled", f"{op} was cancelled")))
        finally:
            self._tasks.pop(request_id, None)

    async def _stream(self, request_id: Any, op: str, args: Message) -> None:
        emitter = Emitter(request_id, self._writer)
        self._emitters[request_id] = emitter
        pump = self._context.loop.create_task(emitter.pump())
        try:
            end = await _guarded(op, functools.partial(_handler(op), self._context, args, emitter))
            await emitter.flushed()
            self._writer.write(encode({"id": request_id, "end": end or {"why": "over"}}))
        except OpError as error:
            await emitter.flushed()
            self._writer.write(error_line(request_id, error))
        except asyncio.CancelledError:
            self._writer.write(encode({"id": request_id, "end": {"why": "cancelled"}}))
        finally:
            pump.cancel()
            self._emitters.pop(request_id, None)
            self._tasks.pop(request_id, None)


def _handler(op: str) -> Callable[..., Awaitable[Optional[Message]]]:
    module, name = HANDLERS[op]
    handler: Callable[..., Awaitable[Optional[Message]]] = getattr(
        importlib.import_module("." + module, __package__), name
    )
    return handler


async def _guarded(op: str, call: Callable[[], Awaitable[Optional[Message]]]) -> Optional[Message]:
    """Runs an op; everything it may raise leaves as an OpError."""
    try:
        return await call()
    except (OpError, asyncio.CancelledError):
        raise
    except OSError as error:
        raise from_os_error(error, str(error.filename or op)) from error
    except Exception as error:
        trace = traceback.format_exc(limit=-3)
        raise OpError("internal", f"{op}: {type(error).__name__}: {error}", trace[-2000:]) from error
