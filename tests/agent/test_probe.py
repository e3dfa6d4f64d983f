"""The probe on this machine, and the small judgements in it."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ddtop.agent.host.facts import pressure
from ddtop.agent.host.logind import setting
from ddtop.agent.host.servers import engine_of, option
from ddtop.agent.host.state_folder import filesystem_of, find_state_dir, read_json, write_whole
from tests.agent.helpers import agent, agent_pythons
from tests.waiting import HANG_S


@pytest.mark.parametrize("python", agent_pythons())
async def test_everything_in_one_answer(python: str, state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "r.json").write_text("{}")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        async with agent(state_dir, python=python) as host:
            found = await host.call(
                "probe",
                timeout_s=10,
                port=port,
                model=str(tmp_path / "no-model"),
                sources=[str(tmp_path)],
                results=[str(tmp_path / "out"), "/nope"],
                disks=["/dev/shm", str(tmp_path / "not" / "yet")],
                units=["x.service"],
            )
    assert found["boot"] == host.hello.boot
    assert found["listeners"][0]["port"] == port
    assert found["listeners"][0]["pid"]
    assert found["model"]["exists"] is False
    assert set(found["sources"]) == {str(tmp_path)}
    assert found["results"][str(tmp_path / "out")]["files"] == 1
    assert found["results"]["/nope"] == {"exists": False, "files": 0, "newest_at_s": None}
    assert found["disks"]["/dev/shm"]["tmpfs"] is True
    assert found["disks"][str(tmp_path / "not" / "yet")]["of"] == str(tmp_path)
    assert found["memory"]["total_b"] > found["memory"]["available_b"] > 0
    assert found["jobs"] == []
    assert found["overrides"] == []
    if not Path("/run/systemd/system").is_dir():
        assert found["units"]["code"] == "not-found", "what cannot be asked is an error, not an empty answer"
        assert "linger" not in found
    assert set(found["psi"]) == set(pressure())


@pytest.mark.parametrize("python", agent_pythons())
async def test_of_an_environment_only_what_is_asked_for_is_read(python: str, state_dir: Path) -> None:
    env = {"SGLANG_SIMULATE_ACC_LEN": "2.5", "HF_TOKEN": "not to be seen"}
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env)
    try:
        async with agent(state_dir, python=python) as host:
            names = ["SGLANG_SIMULATE_ACC_LEN", "NOT_SET"]
            found = await host.call("ticket", pid=child.pid, env=names)
            plain = await host.call("ticket", pid=child.pid)
    finally:
        child.kill()
        child.wait()
    assert found["env"] == {"SGLANG_SIMULATE_ACC_LEN": "2.5"}
    assert "env" not in plain


async def test_a_serving_process_is_found_by_its_command_line(state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("")
    (tmp_path / "sglang" / "launch_server.py").write_text("import time\ntime.sleep(60)\n")
    words = [sys.executable, "-m", "sglang.launch_server", "--model-path", "/dev/shm/Q", "--port=30123"]
    process = subprocess.Popen(words, cwd=tmp_path)
    try:
        async with agent(state_dir) as host:
            servers: list[dict[str, object]] = []
            async with asyncio.timeout(HANG_S):
                while not servers:
                    rows = (await host.call("probe"))["servers"]
                    servers = [row for row in rows if row["pid"] == process.pid]
        assert (servers[0]["engine"], servers[0]["port"], servers[0]["model"]) == (
            "sglang",
            30123,
            "/dev/shm/Q",
        )
    finally:
        process.kill()
        process.wait()


async def test_activity_of_a_process_tree_only_grows(state_dir: Path, tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5 6 7 8; do cat /etc/* > /dev/null 2>&1; sleep 0.1; done; sleep 60"
    process = subprocess.Popen(["sh", "-c", script])
    try:
        async with agent(state_dir) as host:
            items = []
            async with asyncio.timeout(HANG_S), contextlib.AsyncExitStack() as stack:
                batches = await stack.enter_async_context(
                    host.stream("activity", pid=process.pid, every_s=0.2, caches=[str(tmp_path)])
                )
                async for batch in batches:
                    items += batch
                    if len(items) >= 5:
                        break
        reads = [item["read_b"] for item in items]
        assert reads == sorted(reads)
        assert reads[-1] > reads[0], "bytes of the dead cat processes stay counted"
        assert all(item["pids"] >= 1 and item["rss_mib"] > 0 for item in items)
        assert items[0]["cache_files"] == 0
    finally:
        process.kill()
        process.wait()


IN_THE_KERNEL = """import ctypes, os, platform, threading, time
def wait():  # clone(CLONE_VFORK) waits in state D until its child has ended
    if not ctypes.CDLL(None).syscall({"x86_64": 56, "aarch64": 220}[platform.machine()], 0x4000 | 17, 0, 0, 0, 0):
        time.sleep(60), os._exit(0)
threading.Thread(target=wait).start()"""


@pytest.mark.parametrize(("code", "waits"), [(IN_THE_KERNEL, True), ("import time; time.sleep(60)", False)])
async def test_a_thread_that_waits_in_the_kernel_is_seen(state_dir: Path, code: str, waits: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        async with agent(state_dir) as host, asyncio.timeout(HANG_S):
            async with host.stream("activity", pid=process.pid, every_s=0.2) as batches:
                seen: list[bool] = []
                async for batch in batches:
                    seen += [item["storage_wait"] for item in batch]
                    if True in seen or (not waits and len(seen) >= 5):
                        break
        assert (seen[-1] is True) if waits else not any(seen)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("number", "found"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EROFS, False)]
)
def test_a_full_disk_is_no_missing_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, found: bool
) -> None:
    """It may have room again: the run waits for that. What can never be written is refused."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("ddtop.agent.host.state_folder.write_whole", refuse)
    path, why = find_state_dir(str(tmp_path))
    assert (path == str(tmp_path), bool(why)) == (found, not found)


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        (["python3", "-m", "sglang.launch_server"], "sglang"),
        (["/opt/sglang/bin/python", "-u", "-m", "sglang.launch_server", "--tp", "8"], "sglang"),
        (["/usr/bin/python3", "/usr/local/bin/sglang", "serve"], "sglang"),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], "vllm"),
        (["vllm", "serve", "m"], "vllm"),
        (["./llama-server", "-m", "x.gguf"], "llamacpp"),
        (["vim", "sglang.launch_server"], None),
        (["bash", "-c", "python3 -m sglang.launch_server"], None),
        (["python3", "-c", "import vllm"], None),
        ([], None),
    ],
)
def test_engines(words: list[str], engine: str | None) -> None:
    assert engine_of(words) == engine


def test_options_and_settings() -> None:
    assert option(["x", "--port"], "--port") is None
    assert option(["x", "-m", "a", "--model", "b"], "--model", "-m") == "b"
    assert setting("#RemoveIPC=no\n RemoveIPC = yes \n[X]\n", "RemoveIPC") == "yes"
    assert setting("#RemoveIPC=no\n", "RemoveIPC") is None


def test_state_folder(state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_state_dir(str(state_dir)) == (str(state_dir), "")
    assert find_state_dir(str(state_dir)) == (str(state_dir), ""), "again"
    folder, why = find_state_dir("/dev/shm/ddtop-x")
    assert folder is None
    assert "a reboot empties" in why
    Path("/dev/shm/ddtop-x").rmdir()
    assert find_state_dir("/proc/nope")[0] is None
    monkeypatch.setenv("HOME", str(state_dir.parent))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert find_state_dir(None)[0] == str(state_dir.parent / ".local/state/ddtop")
    assert filesystem_of("/dev/shm") == "tmpfs"
    assert filesystem_of("/proc/self") == "proc"
    write_whole(str(state_dir / "x.json"), b"[1]")
    assert read_json(str(state_dir / "x.json")) is None
    assert read_json(str(state_dir / "none")) is None
