"""The client end against a real agent: requests side by side, streams, limits, and how a loss is told."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from ddtop.agent.lines import Window
from ddtop.agent.wire import MAX_LINE
from ddtop.errors import AgentError, HostLostError
from ddtop.hosts import client
from tests.agent.helpers import agent, agent_pythons, changed_zip, runs, state_dir
from tests.waiting import HANG_S

__all__ = ["state_dir"]


@pytest.mark.parametrize("python", agent_pythons())
async def test_requests_run_side_by_side(python: str, state_dir: Path, tmp_path: Path) -> None:
    begun, end = tmp_path / "begun", tmp_path / "end"
    script = f"touch {begun}; until [ -e {end} ]; do sleep 0.05; done"
    async with agent(state_dir, python=python) as host, asyncio.timeout(HANG_S):
        slow = asyncio.create_task(host.call("exec", argv=["sh", "-c", script], timeout_s=HANG_S))
        while not begun.exists():
            await asyncio.sleep(0.02)
        for _ in range(50):
            await host.ping()
        assert not slow.done(), "a blocked child does not delay the others"
        end.touch()
        assert (await slow)["rc"] == 0


async def test_refusals_carry_their_code(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        for op, args, code in (
            ("no-such-op", {}, "bad-request"),
            ("exec", {}, "bad-request"),
            ("file-read", {"path": "/nope"}, "not-found"),
            ("exec", {"argv": ["no-such-program"]}, "not-found"),
            ("unit-action", {"unit": "-x", "action": "start"}, "bad-request"),
        ):
            with pytest.raises(AgentError) as caught:
                await host.call(op, **args)
            assert caught.value.code == code, op
            assert caught.value.host == "here"


def _systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


async def test_a_time_limit_is_the_agents_answer(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        began = time.monotonic()
        with pytest.raises(AgentError) as caught:
            await host.call("exec", argv=["sleep", "30"], timeout_s=0.5)
        assert caught.value.code == "timeout"
        assert "sleep 30" in caught.value.what
        assert time.monotonic() - began < 25
        await host.ping()


async def test_cancel_ends_the_child(state_dir: Path, tmp_path: Path) -> None:
    async with agent(state_dir) as host:
        pid_file = tmp_path / "pid"
        task = asyncio.create_task(
            host.call("exec", argv=["sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"], timeout_s=90)
        )
        while not (pid_file.exists() and pid_file.read_text().strip()):
            await asyncio.sleep(0.02)
        pid = int(pid_file.read_text())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if not runs(pid):
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("the child lives on")
        await host.ping()


async def test_streams_end_with_their_context(state_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\n")
    async with agent(state_dir) as host:
        async with host.stream("file-follow", path=str(log), offset=0) as batches:
            texts = []
            async for batch in batches:
                texts += [item["text"] for item in batch]
                if len(texts) == 2:
                    break
        assert texts == ["one", "two"]
        assert not host._streams
        await host.ping()


async def test_a_slow_reader_slows_its_own_source_only(state_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = "x" * 1000 + "\n"
    with log.open("w") as file:
        for _ in range(40_000):  # 40 MB: more than every buffer on the way
            file.write(line)
    async with agent(state_dir) as host:
        async with host.stream("file-follow", path=str(log), offset=0) as batches:
            iterator = aiter(batches)
            got = len(await anext(iterator))
            for _ in range(20):
                await asyncio.sleep(0.1)
                await host.ping()
            held = sum(len(batch) for stream in host._streams.values() for batch in _queued(stream))
            assert held * 1000 < 8 * Window.FIRST_B, "more than its credit lies here"
            while got < 40_000:
                got += len(await anext(iterator))
        assert got == 40_000, "nothing is lost or doubled"


def _queued(stream: object) -> list[list[dict[str, object]]]:
    return [found[0] for found in stream.queue._queue if found is not None]  # type: ignore[attr-defined]


async def test_lines_of_almost_a_mebibyte_pass_and_longer_answers_are_refused(
    state_dir: Path, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"\x01" * 700_000)  # each byte becomes six in JSON
    async with agent(state_dir) as host:
        fine = await host.call("file-read", path=str(big), max_b=160_000)
        assert len(fine["text"]) == 160_000
        with pytest.raises(AgentError) as caught:
            await host.call("file-read", path=str(big), max_b=700_000)
        assert "more than a line of the protocol holds" in caught.value.what
        with pytest.raises(HostLostError):
            await host.call("exec", argv=["true"], env={"X": "y" * (MAX_LINE + 10)})
        assert "more than" in await host.wait_lost()


async def test_a_killed_agent_is_a_lost_host_at_once(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        pid = host._pipe._process.pid  # type: ignore[attr-defined]
        waiting = asyncio.create_task(host.call("exec", argv=["sleep", "30"], timeout_s=60))
        await asyncio.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(HostLostError):
            await waiting
        assert time.monotonic() - began < 25
        with pytest.raises(HostLostError):
            await host.call("probe")
        with pytest.raises(HostLostError):
            async with host.stream("gpu-follow") as batches:
                async for _ in batches:
                    pass


async def test_a_frozen_agent_is_lost_by_heartbeat(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PING_S", 0.3)
    monkeypatch.setattr(client, "LOST_AFTER_S", 1.5)
    async with agent(state_dir) as host:
        pid = host._pipe._process.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            async with asyncio.timeout(HANG_S):
                why = await host.wait_lost()
            assert "nothing heard" in why
            assert time.monotonic() - began > 1.2
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_a_time_limit_that_passes_in_silence_is_a_loss(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that lost its power while this side slept: the call's limit is over first, and says nothing of the host."""
    monkeypatch.setattr(client, "PING_S", 0.3)
    monkeypatch.setattr(client, "LOST_AFTER_S", 3.0)
    async with agent(state_dir) as host:
        pid = host._pipe._process.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(HostLostError):
                await host.call("host-facts", timeout_s=1.0)
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_this_side_has_slept_and_the_answer_waits(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PING_S", 0.5)
    monkeypatch.setattr(client, "LOST_AFTER_S", HANG_S)
    async with agent(state_dir) as host:
        asked = asyncio.create_task(host.call("ping", timeout_s=1.0))
        await asyncio.sleep(0)
        time.sleep(
            2.0
        )  # a suspended laptop: the loop stands still, the limit passes, the answer is in the pipe
        assert await asked is not None


def test_the_real_heartbeat_limit_is_under_15_s() -> None:
    assert client.LOST_AFTER_S + client.PING_S / 2 + 0.3 < 15
    assert client.LOST_AFTER_S >= 3 * client.PING_S


@pytest.mark.parametrize("python", agent_pythons())
async def test_the_agent_ends_when_it_hears_nothing(
    python: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = changed_zip("agent/wire.py", "DEADLINE_S = 30.0", "DEADLINE_S = 1.0")
    monkeypatch.setattr(client, "PING_S", 60.0)
    async with agent(state_dir, python=python, zip_=short) as host:
        async with asyncio.timeout(HANG_S):
            assert "79" in await host.wait_lost()


async def test_a_partial_line_is_a_protocol_error(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        host._pipe.write(b'{"id": 5, "op": "pi')
        host._pipe._process.stdin.close()  # type: ignore[attr-defined]
        why = await host.wait_lost()
        assert "middle of a line" in why or "78" in why


async def test_garbage_is_a_protocol_error(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        host._pipe.write(b"[1,2,3]\n")
        assert "not a request" in await host.wait_lost()


async def test_the_hello_says_what_this_login_can(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        hello = host.hello
        assert hello.uid == os.getuid()
        assert hello.state_dir == str(state_dir)
        assert hello.boot.count("/") == 1
        assert ("systemd" in hello.can) == _systemd()
        assert not hello.can & hello.unknown
        assert hello.python.startswith(".".join(map(str, sys.version_info[:2])))


async def test_a_tmpfs_is_no_state_folder() -> None:
    async with agent("/dev/shm/ddtop-test-state") as host:
        assert host.hello.state_dir is None
        assert "tmpfs" in host.hello.state_why
        assert "jobs" not in host.hello.can
        with pytest.raises(AgentError) as caught:
            await host.call("job-start", job="x", kind="exec", spec={"argv": ["true"]})
        assert caught.value.code == "not-permitted"
        assert "--host-dir" in caught.value.do
        assert (await host.call("probe"))["jobs"] == []
    Path("/dev/shm/ddtop-test-state").rmdir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_the_end_of_the_session_ends_the_agent_and_its_children(
    number: int, state_dir: Path, tmp_path: Path
) -> None:
    async with agent(state_dir) as host:
        pid_file = tmp_path / "pid"
        script = f"trap '' HUP TERM; echo $$ > {pid_file}; sleep 60"
        task = asyncio.create_task(host.call("exec", argv=["sh", "-c", script], timeout_s=90))
        while not (pid_file.exists() and pid_file.read_text().strip()):
            await asyncio.sleep(0.02)
        os.kill(host._pipe._process.pid, number)  # type: ignore[attr-defined]
        with pytest.raises((HostLostError, AgentError)):
            await task
        await host.wait_lost()
        for _ in range(60):
            if not runs(int(pid_file.read_text())):
                break
            await asyncio.sleep(0.05)
        assert not runs(int(pid_file.read_text()))
