"""Starting the agent over a pipe whose program is BOOT, up to a `Host` that answers; and what a failed start means."""

from __future__ import annotations

import asyncio
import secrets

from ddtop.errors import HostLostError, HostUnreachableError
from ddtop.hosts.agent_zip import AgentZip
from ddtop.hosts.client import AgentHost
from ddtop.hosts.handshake import BootError, Handshake
from ddtop.hosts.pipe import Pipe


def new_nonce() -> str:
    """16 hex characters."""
    return secrets.token_hex(8)


async def shake_hands(pipe: Pipe, zip_: AgentZip, nonce: str, *, send_zip: bool = True) -> Handshake:
    """Starts the agent over `pipe`: waits for `ready`, sends the zip, waits for the hello. Raises BootError."""
    shake = Handshake(nonce)
    while shake.stage != "done":
        chunk = await pipe.read()
        if not chunk:
            raise shake.eof()
        if shake.feed(chunk) and send_zip:
            pipe.write(zip_.data)
            await pipe.drain()
    return shake


async def open_host(
    name: str, pipe: Pipe, zip_: AgentZip, nonce: str, *, timeout_s: float = 20.0, send_zip: bool = True
) -> AgentHost:
    """A Host over a pipe whose program is BOOT. Raises HostUnreachableError or HostLostError, with remedies."""
    try:
        async with asyncio.timeout(timeout_s):
            shake = await shake_hands(pipe, zip_, nonce, send_zip=send_zip)
    except TimeoutError:
        tail = pipe.stderr_tail()
        await pipe.close()
        raise HostLostError(
            f"the agent did not start within {timeout_s:g} s",
            means="the login shell there may be waiting for input"
            + (f"; it printed: {tail}" if tail else ""),
            do=f"run `ssh {name} true`: it must end by itself",
            host=name,
        ) from None
    except BootError as error:
        how = await pipe.ended() if error.reason == "eof" else ""
        tail = pipe.stderr_tail()
        await pipe.close()
        raise _start_error(name, error, how, tail) from None
    except asyncio.CancelledError:
        await pipe.close()
        raise
    return AgentHost(name, pipe, shake)


def _start_error(name: str, error: BootError, how: str, stderr: str) -> HostLostError | HostUnreachableError:
    said = "\n".join(part for part in (error.text, stderr) if part).strip()
    if error.reason == "old-python":
        return HostUnreachableError(
            "its python3 is too old for the agent",
            means="the agent needs Python 3.8 or newer",
            do=f'install a newer python3 there, or name one: [hosts.{name}] python = "/path/to/python3"',
            host=name,
        )
    if error.reason == "eof" and ("not found" in said or "No such file" in said or "127" in how):
        return HostUnreachableError(
            "there is no python3 in the login's PATH",
            means=said[-500:],
            do="install python3 (apt-get install python3-minimal), or name one: "
            f'[hosts.{name}] python = "/path/to/python3"',
            host=name,
        )
    if error.reason == "eof" and "lost" in how:
        return HostLostError(f"the connection was lost while the agent started ({how})", host=name)
    if error.reason == "eof" and "was killed by" in how:  # as by the OOM killer
        return HostLostError(f"the agent did not start: {how}", host=name)
    if error.reason == "eof":
        return HostUnreachableError(
            f"the agent did not start: {how}",
            means=f"the login shell printed: {said[-1500:]}" if said else "the login shell printed nothing",
            do=f"run `ssh {name} python3 --version`",
            host=name,
        )
    if error.reason == "bad-zip":
        return HostLostError(error.text, means="the connection changed bytes on the way", host=name)
    if error.reason == "protocol":
        return HostUnreachableError(error.text, host=name)
    return HostUnreachableError(
        f"the agent did not start: {error.text}",
        means="a login script there prints text, or runs something else",
        do=f"run `ssh {name} true`: it must print nothing; make the rc files silent without a terminal",
        host=name,
    )
