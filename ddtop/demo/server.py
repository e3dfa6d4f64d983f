"""The demo's host: a real SSH server on loopback, whose sessions see the demo's folder as their machine.

Run as `python -m ddtop.demo.server DIR`; prints its port, serves until its standard input closes (so it ends
with whoever started it), and then ends every process that a session left behind in DIR.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import asyncssh

from ddtop.demo.world import World

_SHELL = "/bin/sh"


class _Auth(asyncssh.SSHServer):
    """Public keys only: the demo's own client key, from authorized_keys."""

    def begin_auth(self, username: str) -> bool:
        return True


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
    try:
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        code = await child.wait()
        await process.stdout.drain()
        process.exit(code if code >= 0 else 128 - code)
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGHUP)


async def serve(world: World) -> None:
    """Listens on a free loopback port until standard input closes."""

    async def session(process: asyncssh.SSHServerProcess[bytes]) -> None:
        await _session(process, world)

    listener = await asyncssh.create_server(
        _Auth,
        "127.0.0.1",
        0,
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
    await listener.wait_closed()


def main() -> None:
    world = World(Path(sys.argv[1]))
    try:
        asyncio.run(serve(world))
    finally:
        world.end_processes()


if __name__ == "__main__":
    main()
