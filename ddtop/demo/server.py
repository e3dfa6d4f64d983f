"""The demo's host: a real SSH server on loopback, whose sessions see the demo's folder as their machine.

Run as `python -m ddtop.demo.server DIR`; prints its port, serves until its standard input closes (so it ends
with its parent, even after kill -9), then ends every process that a session left behind and removes DIR.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

import asyncssh

from ddtop.demo.machine import World

_SHELL = "/bin/sh"
END_S = 2.0


class _Login(asyncssh.SSHServer):
    """Public keys only: the demo's own client key, from authorized_keys. Knows the connections, to close them."""

    open: ClassVar[set[asyncssh.SSHServerConnection]] = set()

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self.open.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True


async def _copy(source: asyncio.StreamReader, to: asyncssh.SSHWriter[bytes]) -> None:
    """Hands on what a command writes, as fast as the client takes it. Not asyncssh's `redirect`: when a slow client
    stops the channel, that reads standard error twice at once as it goes on, which ends the whole connection."""
    with contextlib.suppress(OSError, asyncssh.Error):  # the client has closed the channel
        while data := await source.read(1 << 16):
            to.write(data)
            await to.drain()


async def _session(process: asyncssh.SSHServerProcess[bytes], world: World) -> None:
    """Runs the client's command as sshd would: by a shell, in the home folder, with the world's environment."""
    if not process.command:
        process.stderr.write(b"The demo's host runs commands; it has no interactive shell.\n")
        process.exit(1)
        return
    child = await asyncio.create_subprocess_exec(
        _SHELL,
        "-c",
        process.command,
        cwd=world.home,
        env=world.environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None and child.stderr is not None
    ended = asyncio.create_task(child.wait())
    copies = asyncio.gather(_copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr))
    try:
        await process.redirect(stdin=child.stdin)
        # Completes once the channel is closed and asyncssh's writers are done; nothing else waits for these.
        closed = asyncio.create_task(process.wait_closed())
        await asyncio.wait({ended, closed}, return_when=asyncio.FIRST_COMPLETED)
        if not closed.done():
            code = ended.result()
            # As sshd does: the channel ends once the command's output has.
            either: set[asyncio.Future[Any]] = {copies, closed}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not closed.done():
                process.exit(code if code >= 0 else 128 - code)
            await closed
    finally:
        copies.cancel()
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGHUP)
        await asyncio.gather(copies, ended, return_exceptions=True)  # a copy that was cancelled is no error


async def serve(world: World, port: int = 0) -> None:
    """Listens on loopback (port 0: a free one) until standard input closes; then ends the connections and sessions."""
    sessions: set[asyncio.Task[None]] = set()

    async def session(process: asyncssh.SSHServerProcess[bytes]) -> None:
        task = asyncio.current_task()
        assert task is not None
        sessions.add(task)
        try:
            await _session(process, world)
        finally:
            sessions.discard(task)

    listener = await asyncssh.create_server(
        _Login,
        "127.0.0.1",
        port,
        server_host_keys=[str(world.host_key)],
        authorized_client_keys=str(world.authorized_keys),
        process_factory=session,
        encoding=None,
        line_editor=False,
    )
    print(listener.get_port(), flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)
    listener.close()
    for connection in tuple(_Login.open):
        connection.close()
    if sessions:
        await asyncio.wait(set(sessions), timeout=END_S)


def main() -> None:
    """Serves `sys.argv[1]`. With the word `keep` (and a port, or 0) its folder is kept, else it is removed in
    any case."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(
            number, signal.SIG_IGN
        )  # the end of standard input ends the server; then it must still clean up
    world = World(Path(sys.argv[1]))
    try:
        asyncio.run(serve(world, int((sys.argv[3:] or ["0"])[0])))
    finally:
        world.end_processes()
        if sys.argv[2:3] != ["keep"]:
            shutil.rmtree(world.root, ignore_errors=True)


if __name__ == "__main__":
    main()
