"""SSH for real: OpenSSH's server on loopback, asyncssh here, the agent in between."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtop.errors import AgentError, HostLostError, HostUnreachableError
from ddtop.hosts import client
from ddtop.hosts.ssh.connection import SshConnector
from tests.agent.helpers import state_dir
from tests.hosts.sshd import Sshd, free_port, make_key, running
from tests.waiting import HANG_S

__all__ = ["state_dir"]


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with running(tmp_path / "sshd") as server:
        yield server


def connector(server: Sshd, state: Path, config: Path | None = None, name: str = "box") -> SshConnector:
    return SshConnector(name, config_paths=[config or server.config()], host_dir=str(state))


async def test_connect_call_stream_close(sshd: Sshd, state_dir: Path, tmp_path: Path) -> None:
    box = connector(sshd, state_dir)
    host = await box.connect()
    assert box.target == f"root@127.0.0.1:{sshd.port}"
    assert (await host.call("exec", argv=["printf", "a\\377b"]))["stdout"] == "a\ufffdb", (
        "bytes never break the link"
    )
    log = tmp_path / "log"
    log.write_text("first\n")
    async with host.stream("file-follow", path=str(log), offset=0) as batches:
        async for batch in batches:
            assert batch[0]["text"] == "first"
            break
    await host.ping()
    await host.close()
    for _ in range(100):
        if not sshd.sessions():
            break
        await asyncio.sleep(0.05)
    assert not sshd.sessions(), "no connection is left behind"


async def test_one_channel_serves_a_host_that_allows_one(tmp_path: Path, state_dir: Path) -> None:
    with running(tmp_path / "one", "MaxSessions 1") as server:
        host = await connector(server, state_dir).connect()
        answers = await asyncio.gather(*[host.call("exec", argv=["echo", str(i)]) for i in range(12)])
        assert [a["stdout"].strip() for a in answers] == [str(i) for i in range(12)]
        await host.close()


async def test_unknown_key_is_refused_with_fingerprint_and_command(sshd: Sshd, state_dir: Path) -> None:
    with pytest.raises(HostUnreachableError) as caught:
        await connector(sshd, state_dir, sshd.config(known="")).connect()
    text = str(caught.value)
    assert "SHA256:" in text
    assert "ssh " in text
    assert "ssh-keygen" not in text or "-R" not in text, "an unknown key is not a changed one"


async def test_changed_key_is_refused_and_told_apart(sshd: Sshd, state_dir: Path, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    with pytest.raises(HostUnreachableError) as caught:
        await connector(sshd, state_dir, sshd.config(known=sshd.known_hosts_line(key=other))).connect()
    text = str(caught.value)
    assert "changed" in text.lower()
    assert "ssh-keygen" in text
    assert "-R" in text
    assert f"[127.0.0.1]:{sshd.port}" in text


async def test_accept_new_writes_the_key_once(sshd: Sshd, state_dir: Path) -> None:
    config = sshd.config(known="")
    config.write_text(
        config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking accept-new")
    )
    host = await connector(sshd, state_dir, config).connect()
    await host.close()
    known = (sshd.folder / "known_hosts").read_text()
    assert f"[127.0.0.1]:{sshd.port}" in known
    host = await connector(sshd, state_dir, config).connect()
    await host.close()
    assert (sshd.folder / "known_hosts").read_text() == known


async def test_denied_key_is_final(sshd: Sshd, state_dir: Path) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    with pytest.raises(HostUnreachableError) as caught:
        await connector(sshd, state_dir).connect()
    assert "denied" in str(caught.value).lower()


async def test_encrypted_key_and_missing_file_do_not_hide_the_good_one(
    sshd: Sshd, state_dir: Path, tmp_path: Path
) -> None:
    locked = make_key(tmp_path / "locked", "secret")
    config = sshd.config()
    config.write_text(
        config.read_text().replace(
            f"  IdentityFile {sshd.user_key}",
            f"  IdentityFile {tmp_path}/absent\n  IdentityFile {locked}\n  IdentityFile {sshd.user_key}",
        )
    )
    host = await connector(sshd, state_dir, config).connect()
    await host.close()


async def test_refused_connection_may_be_tried_again(state_dir: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host box\n HostName 127.0.0.1\n Port {free_port()}\n UserKnownHostsFile /dev/null\n")
    with pytest.raises(HostLostError) as caught:
        await SshConnector("box", config_paths=[config]).connect()
    assert "nothing listens" in str(caught.value)


async def test_killed_connection_is_lost_at_once(sshd: Sshd, state_dir: Path) -> None:
    host = await connector(sshd, state_dir).connect()
    waiting = asyncio.create_task(host.call("exec", argv=["sleep", "60"], timeout_s=90))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    sshd.signal_sessions(signal.SIGKILL)
    with pytest.raises(HostLostError):
        await waiting
    assert time.monotonic() - began < 30
    assert "lost" in await host.wait_lost()
    await host.close()


@pytest.mark.alone
async def test_frozen_connection_is_lost_within_15_s(sshd: Sshd, state_dir: Path) -> None:
    host = await connector(sshd, state_dir).connect()
    await asyncio.sleep(0.2)
    sshd.signal_sessions(signal.SIGSTOP)
    began = time.monotonic()
    async with asyncio.timeout(HANG_S):
        why = await host.wait_lost()
    took = time.monotonic() - began
    sshd.signal_sessions(signal.SIGCONT)
    assert 5 < took <= 15, (took, why)
    await host.close()


async def test_three_megabytes_of_stderr_do_not_stop_the_protocol(sshd: Sshd, state_dir: Path) -> None:
    rc = sshd.folder / "rc.sh"
    rc.write_text("head -c 3000000 /dev/zero | tr '\\0' e >&2\necho; echo; echo motd\n")
    (sshd.folder / "wrap").write_text(f'#!/bin/sh\n. {rc}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    (sshd.folder / "wrap").chmod(0o755)
    key = (sshd.folder / "user_key.pub").read_text()
    (sshd.folder / "authorized_keys").write_text(f'command="{sshd.folder}/wrap" {key}')
    async with asyncio.timeout(HANG_S):
        host = await connector(sshd, state_dir).connect()
        await host.ping()
    assert "motd" in host.noise  # type: ignore[attr-defined]
    await host.close()


async def test_jump_chain_verifies_each_hop(sshd: Sshd, state_dir: Path, tmp_path: Path) -> None:
    with running(tmp_path / "hop") as hop:
        known = sshd.known_hosts_line() + hop.known_hosts_line()
        (hop.folder / "authorized_keys").write_text((sshd.folder / "user_key.pub").read_text())
        jump = (
            f"Host hop\n  HostName 127.0.0.1\n  Port {hop.port}\n  User root\n  IdentityFile "
            f"{sshd.user_key}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {sshd.folder}/known_hosts\n  StrictHostKeyChecking "
            f"yes\n"
        )
        config = sshd.config(known=known, extra="  ProxyJump hop", jump=jump)
        box = connector(sshd, state_dir, config)
        host = await box.connect()
        assert "via hop" in box.target
        await host.ping()
        await host.close()
        (sshd.folder / "known_hosts").write_text(sshd.known_hosts_line())
        with pytest.raises(HostUnreachableError) as caught:
            await connector(sshd, state_dir, config).connect()
        assert "hop" in str(caught.value)


async def test_a_bad_host_dir_is_a_sentence(sshd: Sshd) -> None:
    with pytest.raises(HostUnreachableError) as caught:
        await SshConnector("box", config_paths=[sshd.config()], host_dir="/data/it's").connect()
    assert "host_dir" in str(caught.value)


async def sessions_end(sshd: Sshd) -> bool:
    """Whether no connection is left; the server's processes take a moment to go."""
    for _ in range(100):
        if not sshd.sessions():
            return True
        await asyncio.sleep(0.05)
    return False


async def test_no_python_there(sshd: Sshd, state_dir: Path) -> None:
    box = SshConnector("box", config_paths=[sshd.config()], python="/opt/none/python3")
    with pytest.raises(HostUnreachableError) as caught:
        await box.connect()
    assert "python3" in str(caught.value)
    assert await sessions_end(sshd)


async def test_cancelled_connect_leaves_nothing(sshd: Sshd, state_dir: Path) -> None:
    """Cancelled while the server says nothing yet, and in the middle of the login."""
    assert await sessions_end(sshd), "those of earlier tests"
    assert sshd.process is not None
    os.kill(sshd.process.pid, signal.SIGSTOP)
    try:
        task = asyncio.create_task(connector(sshd, state_dir).connect())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        os.kill(sshd.process.pid, signal.SIGCONT)
    assert await sessions_end(sshd)
    for pause_s in (0.05, 0.03, 0.01):  # a machine that stands still for a moment may be through before
        task = asyncio.create_task(connector(sshd, state_dir).connect())
        await asyncio.sleep(pause_s)
        if task.cancel():
            break
        await (await task).close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await sessions_end(sshd)


def test_the_limits_of_the_facts() -> None:
    from ddtop.hosts.ssh import connection as ssh

    assert (ssh.KEEPALIVE_S, ssh.KEEPALIVE_COUNT, ssh.CONNECT_S, ssh.LOGIN_S) == (3, 3, 10, 10)
    assert client.LOST_AFTER_S <= 15
    assert AgentError("x", code="failed").exit_code == 1


async def test_proxy_command_and_its_own_jump(sshd: Sshd, state_dir: Path, tmp_path: Path) -> None:
    with running(tmp_path / "hop") as hop:
        (hop.folder / "authorized_keys").write_text((sshd.folder / "user_key.pub").read_text())
        way = tmp_path / "way"
        way.write_text(
            f"Host hop\n  HostName 127.0.0.1\n  Port {hop.port}\n  User root\n  IdentityFile {sshd.user_key}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {tmp_path}/hop_known\n  BatchMode yes\n"
        )
        (tmp_path / "hop_known").write_text(hop.known_hosts_line())
        config = sshd.config(extra=f"  ProxyCommand ssh -F {way} -W %h:%p hop")
        host = await connector(sshd, state_dir, config).connect()
        assert len(hop.sessions()) > 0, "the way leads over the hop"
        await host.ping()
        await host.close()


async def test_the_key_may_be_in_an_agent(
    sshd: Sshd, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket_path = tmp_path / "agent.sock"
    keeper = await asyncio.create_subprocess_exec(
        "ssh-agent", "-D", "-a", str(socket_path), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        while not socket_path.exists():
            await asyncio.sleep(0.02)
        env = {**os.environ, "SSH_AUTH_SOCK": str(socket_path)}
        add = await asyncio.create_subprocess_exec("ssh-add", "-q", str(sshd.user_key), env=env)
        assert await add.wait() == 0
        config = sshd.config()
        text = (
            config.read_text()
            .replace(f"  IdentityFile {sshd.user_key}\n", "")
            .replace("IdentitiesOnly yes", "")
        )
        config.write_text(text)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        host = await connector(sshd, state_dir, config).connect()
        await host.close()
    finally:
        keeper.terminate()
        await keeper.wait()
