"""BOOT run for real: under every login shell and every Python of this machine, with noise, decoys and damage."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from ddtop.hosts.agent_zip import agent_zip, start_argv, start_command
from ddtop.hosts.handshake import BootError
from ddtop.hosts.local import ChildPipe
from ddtop.hosts.start import new_nonce, open_host, shake_hands
from tests.agent.helpers import disk_folder, pythons
from tests.waiting import HANG_S

SHELLS = ["sh", "dash", "bash", "zsh", "fish", "csh", "tcsh", "mksh", "ksh"]
SUPPORTED = {v: p for v, p in pythons().items() if tuple(map(int, v.split("."))) >= (3, 8)}
TOO_OLD = {v: p for v, p in pythons().items() if (3, 6) <= tuple(map(int, v.split("."))) < (3, 8)}


def shell_path(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have {name} (apt-get install {name})")
        pytest.skip(f"{name} is not installed")
    return path


async def hello_of(
    argv: list[str], zip_hash_of: str, env: dict[str, str] | None = None, cwd: str | None = None
) -> str:
    """Starts `argv`, whose command holds the nonce `zip_hash_of`; returns the agent's version from its hello."""
    pipe = await ChildPipe.start(argv, env=env, cwd=cwd)
    host = await open_host("here", pipe, agent_zip(), zip_hash_of)
    try:
        assert (await host.call("exec", argv=["echo", "ok"]))["stdout"] == "ok\n"
        return host.hello.agent
    finally:
        await host.close()


@pytest.mark.parametrize("name", SHELLS)
async def test_every_shell_hands_boot_on_whole(name: str) -> None:
    nonce = new_nonce()
    with disk_folder() as folder:
        command = start_command(agent_zip(), nonce, str(folder / "a b"), sys.executable)
        assert await hello_of([shell_path(name), "-c", command], nonce) == agent_zip().sha256


@pytest.mark.parametrize("version", sorted(SUPPORTED))
async def test_every_supported_python(version: str) -> None:
    nonce = new_nonce()
    with disk_folder() as folder:
        argv = start_argv(agent_zip(), nonce, str(folder), SUPPORTED[version])
        assert await hello_of(argv, nonce) == agent_zip().sha256


@pytest.mark.parametrize(
    "version", sorted(TOO_OLD) or [pytest.param("none", marks=pytest.mark.skip("no old python"))]
)
async def test_old_python_says_so(version: str) -> None:
    nonce = new_nonce()
    pipe = await ChildPipe.start(start_argv(agent_zip(), nonce, None, TOO_OLD[version]))
    with pytest.raises(BootError) as caught:
        await shake_hands(pipe, agent_zip(), nonce)
    assert caught.value.reason == "old-python"
    assert "77" in await pipe.ended()
    await pipe.close()


async def test_corrupt_zip_is_refused() -> None:
    nonce = new_nonce()
    good = agent_zip()
    damaged = good._replace(data=good.data[:-1] + bytes([good.data[-1] ^ 1]))
    pipe = await ChildPipe.start(start_argv(good, nonce, None, sys.executable))
    with pytest.raises(BootError) as caught:
        await shake_hands(pipe, damaged, nonce)
    assert caught.value.reason == "bad-zip"
    await pipe.close()


async def test_decoys_in_the_login_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("json.py", "asyncio.py", "agent.py", "os.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit('decoy imported')\n")
    nonce = new_nonce()
    with disk_folder() as folder:
        argv = start_argv(agent_zip(), nonce, str(folder), sys.executable)
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        assert await hello_of(argv, nonce, env=env, cwd=str(tmp_path)) == agent_zip().sha256


NOISY = {
    "greeting": "echo 'Welcome to node 7'; printf 'no newline here'",
    "fake hello": """echo '{"hello":{"protocol":1}}'""",
    "reads standard input": "read -t 0.5 line || true",
    "echoes its commands": "exec 2>&1; set -xv",
    "talks on standard error": "echo 'bash: warning: setlocale' >&2",
}


@pytest.mark.parametrize("what", sorted(NOISY))
async def test_rc_files_that_make_noise(what: str, tmp_path: Path) -> None:
    rc = tmp_path / "rc"
    rc.write_text(NOISY[what] + "\n")
    nonce = new_nonce()
    with disk_folder() as folder:
        command = start_command(agent_zip(), nonce, str(folder), sys.executable)
        env = {**os.environ, "BASH_ENV": str(rc)}
        assert await hello_of([shell_path("bash"), "-c", command], nonce, env=env) == agent_zip().sha256


async def test_three_megabytes_on_stderr_before_the_start(tmp_path: Path) -> None:
    rc = tmp_path / "rc"
    rc.write_text("head -c 3000000 /dev/zero | tr '\\0' e >&2\n")
    nonce = new_nonce()
    with disk_folder() as folder:
        command = start_command(agent_zip(), nonce, str(folder), sys.executable)
        env = {**os.environ, "BASH_ENV": str(rc)}
        async with asyncio.timeout(HANG_S):
            assert await hello_of([shell_path("bash"), "-c", command], nonce, env=env) == agent_zip().sha256


async def test_no_python_names_the_remedy() -> None:
    from ddtop.errors import HostUnreachableError

    nonce = new_nonce()
    command = start_command(agent_zip(), nonce, None, "python3-that-is-not-there")
    pipe = await ChildPipe.start([shell_path("sh"), "-c", command])
    with pytest.raises(HostUnreachableError) as caught:
        await open_host("bare", pipe, agent_zip(), nonce)
    text = str(caught.value)
    assert "no python3" in text
    assert "install python3" in text
    assert "[hosts.bare]" in text


async def test_nologin_shows_what_it_said() -> None:
    from ddtop.errors import HostUnreachableError

    nonce = new_nonce()
    pipe = await ChildPipe.start(
        [shell_path("sh"), "-c", "echo This account is currently not available.; exit 1"]
    )
    with pytest.raises(HostUnreachableError) as caught:
        await open_host("h", pipe, agent_zip(), nonce)
    assert "currently not available" in str(caught.value)


@pytest.mark.parametrize("number, name", [(9, "SIGKILL"), (40, "signal 40")])
async def test_an_agent_that_is_killed_while_it_starts_is_started_again(number: int, name: str) -> None:
    """Seed 11507 of the campaign: the run ended, as if nothing could help. A real-time signal has no name."""
    from ddtop.errors import HostLostError

    pipe = await ChildPipe.start([shell_path("sh"), "-c", f"kill -{number} $$"])
    with pytest.raises(HostLostError, match=f"killed by {name}"):
        await open_host("h", pipe, agent_zip(), new_nonce())


async def test_without_proc_the_agent_starts_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a local macOS: no memfd, no /proc/self/fd."""
    from ddtop.hosts import local

    monkeypatch.setattr(local, "_has_proc", lambda: False)
    with disk_folder() as folder:
        host = await local.LocalConnector(host_dir=str(folder)).connect()
        try:
            assert host.hello.agent == agent_zip().sha256
            assert host.hello.state_dir == str(folder)
            assert (await host.call("exec", argv=["echo", "ok"]))["stdout"] == "ok\n"
        finally:
            await host.close()
