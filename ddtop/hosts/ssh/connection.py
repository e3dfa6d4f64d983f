"""A host over SSH: asyncssh connections hop by hop, each host key verified, and the agent on one channel.

One agent takes one session channel, so a host's MaxSessions (10, or as few as 1) is never the limit.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from ddtop.errors import HostUnreachableError
from ddtop.hosts.agent_zip import agent_zip, start_command
from ddtop.hosts.base import Host
from ddtop.hosts.pipe import Tail
from ddtop.hosts.ssh.diagnosis import explain_ssh_error
from ddtop.hosts.ssh.known_keys import KeyFinding, decide_key, load_known_hosts, write_key
from ddtop.hosts.ssh.resolve import resolve_target
from ddtop.hosts.ssh.target import SshTarget
from ddtop.hosts.start import new_nonce, open_host

KEEPALIVE_S = 3
KEEPALIVE_COUNT = 3
CONNECT_S = 10
LOGIN_S = 10


class _KeyCheck(asyncssh.SSHClient):
    """Decides on a host key that known_hosts does not hold; remembers what was presented and what the server said."""

    def __init__(self, target: SshTarget) -> None:
        self._target = target
        self.presented: KeyFinding | None = None
        self.banner = ""

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """What the server or its gateway writes before the login; a refusal among it is why it hangs up."""
        self.banner = (self.banner + msg)[:4000]

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        decision = decide_key(self._target, key, addr)
        self.presented = decision.finding
        if decision.accept and decision.write_to:
            write_key(self._target, key, decision.write_to)
        return bool(decision.accept)


class SshPipe:
    """A Pipe over one session channel; owns the connections it came through, last hop first."""

    def __init__(
        self,
        process: asyncssh.SSHClientProcess[bytes],
        connections: list[asyncssh.SSHClientConnection],
        *,
        program: str = "the agent",
    ) -> None:
        self._process = process
        self._program = program
        self._connections = connections
        self._tail = Tail()
        self._lost = ""
        self._drainer = asyncio.create_task(self._drain_stderr())

    async def _drain_stderr(self) -> None:
        """Reads standard error all the time: unread, it stops standard output too (one window of 2 MiB for both)."""
        try:
            while data := await self._process.stderr.read(65536):
                self._tail.add(data)
        except (asyncssh.Error, OSError):
            pass  # the reader of standard output says what became of the link

    async def read(self) -> bytes:
        try:
            data = await self._process.stdout.read(1 << 18)
            _quick_ack(self._connections[-1:])
            return data
        except (asyncssh.Error, OSError) as error:
            self._lost = str(error) or type(error).__name__
            return b""

    def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
        except (asyncssh.Error, OSError):
            pass  # the reader learns of it

    async def drain(self) -> None:
        try:
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError):
            pass

    def stderr_tail(self) -> str:
        return self._tail.text()

    async def ended(self) -> str:
        """How the agent ended. An exit status of None is not an exit: the link was lost."""
        try:
            async with asyncio.timeout(2.0):
                await self._process.wait_closed()
        except TimeoutError:
            pass
        await asyncio.wait([self._drainer], timeout=0.5)
        status = self._process.exit_status
        if self._lost or status is None:
            return f"the link was lost ({self._lost or 'closed without an exit status'})"
        if self._process.exit_signal is not None:
            return f"{self._program} was killed by SIG{self._process.exit_signal[0]}"
        return f"{self._program} ended with exit status {status}"

    async def close(self) -> None:
        try:
            self._process.stdin.write_eof()
        except (asyncssh.Error, OSError):
            pass
        self._process.close()
        self._drainer.cancel()
        await asyncio.gather(self._drainer, return_exceptions=True)
        await close_all(self._connections)


async def close_all(connections: list[asyncssh.SSHClientConnection]) -> None:
    """Closes the last hop first; one that does not answer is aborted after 2 s."""
    for connection in connections:
        connection.close()
        try:
            async with asyncio.timeout(2.0):
                await connection.wait_closed()
        except TimeoutError:
            connection.abort()


class SshConnector:
    """Reaches a host by its name in ~/.ssh/config, or as [user@]host[:port]. `python` runs the agent there."""

    def __init__(
        self,
        name: str,
        *,
        ssh: str | None = None,
        config_paths: Sequence[Path] | None = None,
        user: str | None = None,
        port: int | None = None,
        host_dir: str | None = None,
        python: str = "python3",
    ) -> None:
        self.name = name
        self._ssh = ssh or name
        self._config_paths = config_paths
        self._user = user
        self._port = port
        self._host_dir = host_dir
        self._python = python
        self.target = self._ssh
        """`root@10.0.0.5:22 via jump`, once the configuration was read; the name until then."""

    async def resolve(self) -> SshTarget:
        """Reads the SSH configuration again (in a thread: Match exec may run programs)."""
        resolved = await asyncio.to_thread(
            functools.partial(
                resolve_target, self._ssh, config_paths=self._config_paths, user=self._user, port=self._port
            )
        )
        self.target = resolved.shown
        return resolved

    async def connect(self) -> Host:
        """See base.Connector.connect."""
        zip_ = agent_zip()
        nonce = new_nonce()
        try:
            command = start_command(zip_, nonce, self._host_dir, self._python)
        except ValueError as error:
            raise HostUnreachableError(
                f"host_dir or python of this host cannot be used: {error}",
                do=f"name a plain path in [hosts.{self.name}]",
                host=self.name,
            ) from error
        target = await self.resolve()
        connections = await open_connections(target)
        try:
            process = await connections[0].create_process(command, encoding=None, request_pty=False)
        except (asyncssh.Error, OSError) as error:
            await close_all(connections)
            raise explain_ssh_error(error, target) from error
        except asyncio.CancelledError:
            await close_all(connections)
            raise
        return await open_host(self.name, SshPipe(process, connections), zip_, nonce)


async def open_connections(target: SshTarget) -> list[asyncssh.SSHClientConnection]:
    """Connections to the target and its jumps, the target's own first. Raises HostError of explain_ssh_error.

    asyncssh hands neither known_hosts nor client_factory on to jump hosts it connects itself (its issues 698,
    744), so each hop is connected here and verified by its own name.
    """
    connections: list[asyncssh.SSHClientConnection] = []
    for hop in (*target.jumps, target):
        check = _KeyCheck(hop)
        options: dict[str, Any] = {
            **connect_options(hop),
            "client_factory": lambda check=check: check,
            "keepalive_interval": KEEPALIVE_S,
            "keepalive_count_max": KEEPALIVE_COUNT,
            "connect_timeout": CONNECT_S,
            "login_timeout": LOGIN_S,
        }
        if connections:
            options["tunnel"] = connections[0]
        try:
            async with asyncio.timeout(CONNECT_S + LOGIN_S + 5):
                connection = await asyncssh.connect(**options)
        except (asyncssh.Error, OSError, TimeoutError, ValueError, ExceptionGroup) as error:
            await close_all(connections)
            raise explain_ssh_error(
                error, target, presented=check.presented, hop=hop, said=check.banner
            ) from error
        except asyncio.CancelledError:
            await close_all(connections)
            raise
        connections.insert(0, connection)
        _no_delay(connection)
    return connections


def _no_delay(connection: asyncssh.SSHClientConnection) -> None:
    """Small messages leave at once (asyncssh sets it too; a ProxyCommand's connection has no socket)."""
    sock = connection.get_extra_info("socket")
    if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass


def _quick_ack(connections: list[asyncssh.SSHClientConnection]) -> None:
    """Acknowledges at once what came: sshd holds small packets back (Nagle) until it has our acknowledgement, which
    the kernel would delay by 40 ms. Linux forgets the option, so it is set after every read."""
    for connection in connections:
        sock = connection.get_extra_info("socket")
        if sock is not None and hasattr(socket, "TCP_QUICKACK"):
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            except OSError:
                pass


def connect_options(target: SshTarget) -> dict[str, Any]:
    """Keyword arguments for `asyncssh.connect` that mean what ssh would do, with `config=None` so that asyncssh
    does not read the config again. Jumps are not in it: connect hop by hop and give the last as `tunnel=`.

    A proxy is in it only for a target without jumps; for a hop pass the hop's own target.
    """
    out: dict[str, Any] = {
        "host": target.hostname,
        "port": target.port,
        "username": target.user,
        "config": None,
        "known_hosts": load_known_hosts(target),
        "ignore_encrypted": True,
        "encoding": None,
    }
    if target.host_key_alias:
        out["host_key_alias"] = target.host_key_alias
    if target.identity_files:
        out["client_keys"] = list(target.identity_files)
    if target.certificate_files:
        out["client_certs"] = list(target.certificate_files)
    if target.identities_only and target.identity_files:
        out["agent_identities"] = list(target.identity_files)
    if target.agent_path is not None:
        out["agent_path"] = target.agent_path or None
    if target.identities_only and not target.identity_files:
        out["agent_path"] = (
            None  # ssh then offers its default key files, and nothing else that the agent holds
        )
    if target.proxy_command and not target.jumps:
        out["proxy_command"] = list(target.proxy_command)
    for option, name in _PASSED_ON.items():
        if target.options.get(option):
            out[name] = target.options[option]
    return out


# Options that asyncssh takes by another name, and that only narrow or name something.
_PASSED_ON = {
    "Ciphers": "encryption_algs",
    "KexAlgorithms": "kex_algs",
    "MACs": "mac_algs",
    "HostKeyAlgorithms": "server_host_key_algs",
    "PreferredAuthentications": "preferred_auth",
}
