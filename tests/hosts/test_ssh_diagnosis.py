"""SSH errors in words: real connections to an asyncssh server on loopback, and the texts of other
programs."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from ddtop.errors import HostLostError, HostUnreachableError
from ddtop.hosts.ssh.connection import connect_options, open_connections
from ddtop.hosts.ssh.diagnosis import classify_ssh_error, explain_ssh_error
from ddtop.hosts.ssh.known_keys import KeyFinding, decide_key, find_key, load_known_hosts, write_key
from ddtop.hosts.ssh.resolve import resolve_target
from ddtop.hosts.ssh.target import SshTarget


class Session(asyncssh.SSHServerSession):
    """Runs nothing, and stays open."""

    def exec_requested(self, command: str) -> bool:
        return True


class Server(asyncssh.SSHServer):
    """Takes one public key; forwards; refuses the third session of a connection."""

    def __init__(self, authorized: str) -> None:
        self._authorized = authorized
        self._sessions = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn

    def begin_auth(self, username: str) -> bool:
        self._conn.set_authorized_keys(asyncssh.import_authorized_keys(self._authorized))
        return True

    def session_requested(self) -> Any:
        self._sessions += 1
        if self._sessions > 2:
            raise asyncssh.ChannelOpenError(2, "open failed")
        return Session()

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        if dest_port == 1:
            raise asyncssh.ChannelOpenError(1, "open failed")  # what sshd says with AllowTcpForwarding no
        return True


class Place:
    """A server, its keys, and a config that leads to it."""

    def __init__(self, folder: Path, port: int, host_key: asyncssh.SSHKey) -> None:
        self.folder, self.port, self.host_key = folder, port, host_key

    def target(self, *lines: str, host: str = "box", no_agent: bool = True) -> SshTarget:
        rows = [
            "HostName 127.0.0.1",
            f"Port {self.port}",
            "User root",
            f"UserKnownHostsFile {self.folder}/known_hosts",
            "GlobalKnownHostsFile /dev/null",
            *(["IdentityAgent none"] if no_agent else []),
            *lines,
        ]
        path = self.folder / "config"
        path.write_text(f"Host {host}\n" + "".join(f"  {r}\n" for r in rows))
        return resolve_target(host, config_paths=[path], include_dir=self.folder, local_user="nobody")

    def trust(self, key: asyncssh.SSHKey | None = None) -> None:
        public = (key or self.host_key).export_public_key("openssh").decode()
        (self.folder / "known_hosts").write_text(f"# a comment\n[127.0.0.1]:{self.port} {public}")

    @property
    def key(self) -> str:
        return f"IdentityFile {self.folder}/key"


@pytest.fixture(scope="session")
def keys() -> dict[str, asyncssh.SSHKey]:
    return {name: asyncssh.generate_private_key("ssh-ed25519") for name in ("host", "other", "user")}


@pytest.fixture(scope="session")
def locked(keys: dict[str, asyncssh.SSHKey]) -> bytes:
    """The user's key under a passphrase; made once, because deriving the key is slow on purpose."""
    return keys["user"].export_private_key(passphrase="secret")


@pytest.fixture
async def place(tmp_path: Path, keys: dict[str, asyncssh.SSHKey], locked: bytes) -> AsyncIterator[Place]:
    keys["user"].write_private_key(str(tmp_path / "key"))
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "locked").write_bytes(locked)
    keys["other"].write_private_key(str(tmp_path / "wrong"))
    authorized = keys["user"].export_public_key("openssh").decode()
    listener = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=lambda: Server(authorized), server_host_keys=[keys["host"]]
    )
    yield Place(tmp_path, listener.get_port(), keys["host"])
    listener.close()
    await listener.wait_closed()


class Client(asyncssh.SSHClient):
    def __init__(self, target: SshTarget) -> None:
        self.target = target
        self.presented: KeyFinding | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        decision = decide_key(self.target, key, addr)
        self.presented = decision.finding
        if decision.accept and decision.write_to:
            write_key(self.target, key, decision.write_to)
        return decision.accept


async def connect(target: SshTarget, **more: Any) -> asyncssh.SSHClientConnection:
    """As the connector does it: hop options, own key check, and the error explained."""
    client = Client(target)
    try:
        return await asyncssh.connect(
            **connect_options(target),
            client_factory=lambda: client,
            connect_timeout=5,
            login_timeout=5,
            **more,
        )
    except (asyncssh.Error, OSError, ValueError) as error:
        raise explain_ssh_error(error, target, presented=client.presented) from error


async def test_a_known_key_connects(place: Place) -> None:
    place.trust()
    async with await connect(place.target(place.key)) as conn:
        assert conn.get_extra_info("username") == "root"


async def test_an_unknown_key_is_refused_with_fingerprint_and_command(place: Place) -> None:
    with pytest.raises(HostUnreachableError) as caught:
        await connect(place.target(place.key))
    error = caught.value
    assert "not in known_hosts" in error.what and error.host == "box"
    assert place.host_key.get_fingerprint() in error.means and "`ssh box true`" in error.do


async def test_a_changed_key_is_told_from_an_unknown_one(
    place: Place, keys: dict[str, asyncssh.SSHKey]
) -> None:
    place.trust(keys["other"])
    with pytest.raises(HostUnreachableError) as caught:
        await connect(place.target(place.key))
    error = caught.value
    assert "not the one in known_hosts" in error.what
    assert f"{place.folder}/known_hosts:2" in error.means and place.host_key.get_fingerprint() in error.means
    assert f"ssh-keygen -f {place.folder}/known_hosts -R '[127.0.0.1]:{place.port}'" in error.do


async def test_accept_new_writes_the_key_once_and_refuses_another_later(
    place: Place, keys: dict[str, asyncssh.SSHKey]
) -> None:
    target = place.target(place.key, "StrictHostKeyChecking accept-new")
    async with await connect(target):
        pass
    assert find_key(place.target(), place.host_key).state == "known"
    assert (place.folder / "known_hosts").stat().st_mode & 0o777 == 0o600
    async with await connect(place.target(place.key, "StrictHostKeyChecking accept-new")):
        pass
    assert len((place.folder / "known_hosts").read_text().splitlines()) == 1
    place.trust(keys["other"])
    with pytest.raises(HostUnreachableError, match="not the one"):
        await connect(place.target(place.key, "StrictHostKeyChecking accept-new"))


async def test_checking_off_connects_and_says_so(place: Place, keys: dict[str, asyncssh.SSHKey]) -> None:
    place.trust(keys["other"])
    target = place.target(place.key, "StrictHostKeyChecking no")
    assert load_known_hosts(target) is None and "host-key-not-checked" in [n.slug for n in target.notes]
    async with await connect(target):
        pass


async def test_a_revoked_key_is_never_accepted(place: Place) -> None:
    public = place.host_key.export_public_key("openssh").decode()
    (place.folder / "known_hosts").write_text(f"@revoked * {public}")
    with pytest.raises(HostUnreachableError, match="revoked"):
        await connect(place.target(place.key, "StrictHostKeyChecking accept-new"))


async def test_a_bad_line_in_known_hosts_does_not_break_the_rest(place: Place) -> None:
    place.trust()
    with (place.folder / "known_hosts").open("a") as file:
        file.write("\nnonsense\n|1|x|y ssh-rsa AAAA\nbox ssh-ed25519 !!!\n")
    async with await connect(place.target(place.key)):
        pass


async def test_the_host_key_alias_is_looked_up(place: Place) -> None:
    public = place.host_key.export_public_key("openssh").decode()
    (place.folder / "known_hosts").write_text(f"alias {public}")
    async with await connect(place.target(place.key, "HostKeyAlias alias")):
        pass


async def test_a_missing_key_file_is_left_out(place: Place) -> None:
    place.trust()
    target = place.target(f"IdentityFile {place.folder}/gone", place.key)
    async with await connect(target):
        pass
    assert target.missing_identity_files == (f"{place.folder}/gone",)


async def test_identities_only_offers_just_the_named_key(place: Place) -> None:
    place.trust()
    async with await connect(place.target(place.key, "IdentitiesOnly yes")):
        pass


async def test_identities_only_with_a_locked_key_is_told_apart(place: Place) -> None:
    place.trust()
    with pytest.raises(HostUnreachableError, match="passphrase"):
        await connect(place.target(f"IdentityFile {place.folder}/locked", "IdentitiesOnly yes"))


async def test_an_agent_holds_the_locked_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real ssh-agent: the locked file cannot be read, and its key comes from the agent."""
    if shutil.which("ssh-agent") is None or shutil.which("ssh-add") is None:
        pytest.skip("no ssh-agent here")
    place.trust()
    sock = str(place.folder / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", sock], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if Path(sock).exists():
                break
            await asyncio.sleep(0.02)
        env = {"SSH_AUTH_SOCK": sock, "PATH": "/usr/bin:/bin"}
        subprocess.run(["ssh-add", "-q", f"{place.folder}/key"], env=env, check=True, capture_output=True)
        for more in ([], ["IdentitiesOnly yes"]):
            target = place.target(
                f"IdentityAgent {sock}", f"IdentityFile {place.folder}/locked", *more, no_agent=False
            )
            async with await connect(target):
                pass
    finally:
        agent.terminate()
        agent.wait()


async def test_the_wrong_key_is_denied_and_named(place: Place) -> None:
    place.trust()
    with pytest.raises(HostUnreachableError) as caught:
        await connect(place.target(f"IdentityFile {place.folder}/wrong"))
    assert "permission denied for user root" in caught.value.what
    assert f"{place.folder}/wrong" in caught.value.means and "IdentityAgent none" in caught.value.means


async def test_a_locked_key_without_agent_is_told_from_a_wrong_one(place: Place) -> None:
    place.trust()
    with pytest.raises(HostUnreachableError) as caught:
        await connect(place.target(f"IdentityFile {place.folder}/locked"))
    assert "passphrase" in caught.value.what and f"ssh-add {place.folder}/locked" in caught.value.do


async def test_a_locked_key_beside_a_plain_one_is_passed_over(place: Place) -> None:
    place.trust()
    async with await connect(place.target(f"IdentityFile {place.folder}/locked", place.key)):
        pass


async def test_over_a_jump_host(place: Place) -> None:
    place.trust()
    target = place.target(place.key)
    async with await connect(target) as hop:
        async with await connect(target, tunnel=hop):
            pass
        with pytest.raises(asyncssh.ChannelOpenError) as caught:
            await hop.open_connection("127.0.0.1", 1)
    assert classify_ssh_error(caught.value, target).cause == "forwarding-prohibited"


async def test_a_refused_session_is_not_a_lost_host(place: Place) -> None:
    place.trust()
    target = place.target(place.key)
    async with await connect(target) as conn:
        for _ in range(2):
            await conn.create_session(asyncssh.SSHClientSession, "x")
        with pytest.raises(asyncssh.ChannelOpenError) as caught:
            await conn.create_session(asyncssh.SSHClientSession, "x")
    fault = classify_ssh_error(caught.value, target)
    assert (fault.cause, fault.verdict, fault.retry) == ("max-sessions-reached", "degraded", True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_nothing_listens_there(place: Place) -> None:
    place.port = free_port()
    with pytest.raises(HostLostError) as caught:
        await connect(place.target(place.key))
    assert f"nothing listens on 127.0.0.1:{place.port}" in caught.value.what


async def test_a_name_that_does_not_resolve() -> None:
    target = SshTarget(alias="ct200", hostname="ct200.invalid", user="u")
    with pytest.raises(HostUnreachableError, match="does not resolve"):
        await connect(target)


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_what_is_no_ssh_server(greeting: bytes, place: Place) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    place.port = server.sockets[0].getsockname()[1]
    with pytest.raises((HostLostError, HostUnreachableError)) as caught:
        await connect(place.target(place.key))
    server.close()
    assert caught.value.do


@pytest.mark.parametrize("command", ["/no/such/proxy %h", "echo hello there %h", "false"])
async def test_a_proxy_that_fails_is_named(place: Place, command: str) -> None:
    with pytest.raises(HostUnreachableError) as caught:
        await connect(place.target(place.key, f"ProxyCommand {command}"))
    assert f"via ProxyCommand {command.split(maxsplit=1)[0]}" in caught.value.what


async def test_through_a_proxy_command_that_works(place: Place) -> None:
    place.trust()
    script = place.folder / "proxy.py"
    script.write_text(
        "import asyncio, sys\n"
        "async def main():\n"
        "    r, w = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))\n"
        "    loop = asyncio.get_running_loop()\n"
        "    async def out():\n"
        "        while d := await r.read(65536):\n"
        "            sys.stdout.buffer.write(d); sys.stdout.buffer.flush()\n"
        "    t = asyncio.create_task(out())\n"
        "    while d := await loop.run_in_executor(None, sys.stdin.buffer.read1, 65536):\n"
        "        w.write(d); await w.drain()\n"
        "    t.cancel()\n"
        "asyncio.run(main())\n"
    )
    async with await connect(place.target(place.key, f"ProxyCommand python3 {script} %p")):
        pass


class Refusing(asyncssh.SSHServer):
    """A gateway that says why, and hangs up before the login."""

    def __init__(self, words: str) -> None:
        self._words = words

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn

    def begin_auth(self, username: str) -> bool:
        self._conn.send_auth_banner(self._words)
        asyncio.get_running_loop().call_later(0.1, self._conn.abort)
        return True


@pytest.mark.parametrize(
    ("words", "cause", "lost"),
    [
        ("tailscale: tailnet policy does not permit you to SSH to this node\r\n", "tailnet's policy", False),
        (
            "# Tailscale SSH requires an additional check.\n# To authenticate, visit: https://x/a\n",
            "browser",
            False,
        ),
        ("Authorised use only. All access is denied to others.\n", "permission denied", False),
        ("", "permission denied", False),
    ],
)
async def test_a_gateway_that_refuses_in_words_is_no_lost_host(
    place: Place, keys: dict[str, asyncssh.SSHKey], words: str, cause: str, lost: bool
) -> None:
    server = await asyncssh.create_server(
        lambda: Refusing(words), "127.0.0.1", 0, server_host_keys=[keys["host"]]
    )
    try:
        place.port = server.get_port()
        place.trust()
        with pytest.raises(HostLostError if lost else HostUnreachableError) as caught:
            await open_connections(place.target())
        assert cause in caught.value.what
        assert isinstance(caught.value, HostLostError) is lost
    finally:
        server.close()


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("Access denied: user ml has no active job on this node\n", "policy-denied"),
        ("Authorised use only. All access is logged.\n", "connection-dropped"),
        ("", "connection-dropped"),
    ],
)
def test_words_before_a_hang_up_decide(said: str, cause: str) -> None:
    got = classify_ssh_error(asyncssh.ConnectionLost("Connection lost"), said=said)
    assert got.cause == cause and got.retry is (cause == "connection-dropped")
