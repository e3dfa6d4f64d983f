"""Asking a server on this host: a real one, with every way it may fail."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ddtop.errors import AgentError
from tests.agent.helpers import agent
from tests.hosts.sshd import free_port


@contextlib.asynccontextmanager
async def server(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[str]:
    """An HTTP server whose every answer is `answer(request)`; None: it says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")), 0
        )
        reply = answer(head + (await reader.readexactly(length)))
        if reply is None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(30)
        else:
            writer.write(reply)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


def ok(body: bytes, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def test_answers_and_failures(state_dir: Path) -> None:
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes | None:
        seen.append(request)
        path = request.split(b" ", 2)[1]
        return {
            b"/health": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nwait",
            b"/big": ok(b"x" * 100_000),
            b"/hang": None,
            b"/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            b"/none": b"",
            b"/junk": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        }.get(path, ok(b'{"ok":1}'))

    env = {**os.environ, "ENGINE_KEY": "sesame"}
    async with server(answer) as url, agent(state_dir, env=env) as host:
        good = await host.call(
            "http", method="POST", url=url + "/x?a=1", body='{"q":1}', key_env="ENGINE_KEY"
        )
        assert (good["status"], good["body"], good["truncated"]) == (200, '{"ok":1}', False)
        assert good["headers"]["content-type"] == "application/json"
        assert 0 < good["elapsed_ms"] < 5000
        assert b"POST /x?a=1 " in seen[0]
        assert b"Authorization: Bearer sesame" in seen[0]
        assert seen[0].endswith(b'{"q":1}')
        assert (await host.call("http", url=url + "/health"))["status"] == 503
        big = await host.call("http", url=url + "/big", max_b=1000)
        assert (len(big["body"]), big["truncated"]) == (1000, True)
        slow = await host.call("http", url=url + "/hang", timeout_s=0.4)
        assert slow["error"] == "timeout"
        assert (await host.call("http", url=url + "/none"))["error"] == "reset"
        assert (await host.call("http", url=url + "/junk"))["error"] == "bad-answer"
        assert (await host.call("http", url=url + "/cut"))["error"] in ("bad-answer", "reset")
        assert (await host.call("http", url=f"http://127.0.0.1:{free_port()}/"))["error"] == "refused"
        assert (await host.call("http", url=f"http://localhost:{free_port()}/"))["error"] == "refused"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"url": "http://192.0.2.1:80/"}, "bad-request"),
        ({"url": "ftp://127.0.0.1/"}, "bad-request"),
        ({"url": "file:///etc/passwd"}, "bad-request"),
        ({"url": "http://127.0.0.1:1/", "key_env": "NO_SUCH_KEY"}, "not-found"),
    ],
)
async def test_only_this_host_is_asked(state_dir: Path, args: dict[str, Any], code: str) -> None:
    async with agent(state_dir) as host:
        with pytest.raises(AgentError) as caught:
            await host.call("http", **args)
        assert caught.value.code == code


async def test_tokens_of_three_engines(state_dir: Path) -> None:
    replies = iter([b'{"count": 7, "tokens": [1]}', b'{"tokens": [1, 2, 3]}', b'{"detail": "no"}'])

    def answer(request: bytes) -> bytes:
        assert request.startswith(b"POST /tokenize ")
        assert json.loads(request.split(b"\r\n\r\n", 1)[1])["prompt"] == "hällo"
        return ok(next(replies))

    async with server(answer) as url, agent(state_dir) as host:
        assert await host.call("tokens", url=url + "/v1", text="hällo") == {"count": 7}
        assert await host.call("tokens", url=url, text="hällo") == {"count": 3}
        with pytest.raises(AgentError):
            await host.call("tokens", url=url, text="hällo")
