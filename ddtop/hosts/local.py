"""The local machine as a host: the same agent, as a child process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from ddtop.agent.host.processes import signal_name
from ddtop.errors import HostUnreachableError
from ddtop.hosts.agent_zip import BOOT_BY_PATH, AgentZip, agent_zip, start_argv
from ddtop.hosts.base import Host
from ddtop.hosts.pipe import Tail
from ddtop.hosts.start import new_nonce, open_host


class ChildPipe:
    """A Pipe to a child process. Use `ChildPipe.start`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._tail = Tail()
        self._drainer = asyncio.create_task(self._drain_stderr())

    @classmethod
    async def start(
        cls, argv: list[str], *, env: dict[str, str] | None = None, cwd: str | None = None
    ) -> ChildPipe:
        """Starts `argv` in a session of its own: a Ctrl-C at our terminal is ours alone."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=env,
            cwd=cwd,
        )
        return cls(process)

    async def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(65536):
            self._tail.add(data)

    async def read(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(1 << 18)

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(data)

    async def drain(self) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the reader learns of it

    def stderr_tail(self) -> str:
        return self._tail.text()

    async def ended(self) -> str:
        try:
            rc = await asyncio.wait_for(self._process.wait(), 2.0)
        except TimeoutError:
            return "its output was closed"
        await asyncio.wait([self._drainer], timeout=0.5)
        if rc < 0:
            return f"the agent was killed by {signal_name(-rc)}"
        return f"the agent's process ended with exit status {rc}"

    async def close(self) -> None:
        if self._process.returncode is None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), 2.0)
            except TimeoutError:
                try:
                    os.killpg(self._process.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
                await self._process.wait()
        self._drainer.cancel()
        await asyncio.gather(self._drainer, return_exceptions=True)


def _has_proc() -> bool:
    """Whether the agent can run from memory (Linux)."""
    return Path("/proc/self/fd").exists()


class LocalConnector:
    """Reaches this machine. `python` runs the agent (default: the one that runs ddtop)."""

    def __init__(
        self, name: str = "local", *, host_dir: str | None = None, python: str | None = None
    ) -> None:
        self.name = name
        self.target = "this machine"
        self._host_dir = host_dir
        self._python = python or sys.executable

    async def connect(self) -> Host:
        """See base.Connector.connect."""
        zip_ = agent_zip()
        nonce = new_nonce()
        by_path = not _has_proc()
        argv = (
            self._argv_by_path(zip_, nonce)
            if by_path
            else start_argv(zip_, nonce, self._host_dir, self._python)
        )
        try:
            pipe = await ChildPipe.start(argv)
        except OSError as error:
            raise HostUnreachableError(
                f"{self._python} cannot be run: {error.strerror}",
                do=f'name another: [hosts.{self.name}] python = "/path/to/python3"',
                host=self.name,
            ) from error
        return await open_host(self.name, pipe, zip_, nonce, send_zip=not by_path)

    def _argv_by_path(self, zip_: AgentZip, nonce: str) -> list[str]:
        path = Path(tempfile.gettempdir()) / f"ddtop-agent-{os.getuid()}-{zip_.sha256[:16]}.zip"
        if not path.is_file() or path.read_bytes() != zip_.data:
            handle, scratch = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(zip_.data)
            Path(scratch).replace(path)
        words = [
            self._python,
            "-I",
            "-S",
            "-c",
            BOOT_BY_PATH,
            str(len(zip_.data)),
            zip_.sha256,
            nonce,
            str(path),
        ]
        return [*words, self._host_dir] if self._host_dir else words
