"""What the world does to a live runner: full and read-only disks, a killed agent, other keys, clocks, a flood of log lines."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from ddtop import events as ev
from ddtop.journal.fold.state import State
from ddtop.sweep.commands import CommandHandler
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.requests import Requests
from tests.runner.rig import Rig, Runner, alive, cmdline
from tests.waiting import HANG_S

GET_FLAGS, SET_FLAGS, IMMUTABLE = 0x80086601, 0x40086602, 0x10
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_IMMUTABLE_FL of linux/fs.h."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("CI") != "true", reason="mounting and immutable files need root"
)


class Disk:
    """A small tmpfs. (In a mount namespace of its own it could not be read from here: SQLite resolves /proc/PID/root.)"""

    def __init__(self, folder: Path, mib: int) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)], check=True)

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(rig: Rig) -> Iterator[Disk]:
    # Room for the whole recording also where the machine is slow: the engine logs 4,000 lines/s as long as the cells last.
    made = Disk(rig.home.parent / "disk", 64)
    try:
        yield made
    finally:
        for runner in rig.runners:
            runner.kill()
        made.close()


def one_done_one_running(state: State) -> bool:
    states = [c.state for c in state.plan_cells]
    return states[:1] == ["done"] and "running" in states


@needs_root
def test_a_full_disk_pauses_the_run_and_nothing_is_lost(rig: Rig, disk: Disk) -> None:
    recording = disk.folder / "run.ddtop"
    plan = rig.plan(
        'a = { env = { SIM_LOG_RATE = "4000" } }\nb = {}', tokens="[8, 12, 16]", requests=8, step_s=0.03
    )

    def start(text: str | None) -> Runner:
        return rig.start(text, recording=recording)

    runner = start(plan)
    runner.until(one_done_one_running, "the second cell")
    disk.fill()
    alert = runner.alert("unknown")
    assert alert.raised.cause == "client-disk-full" and str(disk.folder) in alert.raised.advice
    assert runner.state().paused is not None
    assert "! DISK FULL HERE" in runner.said(), runner.said()
    time.sleep(6)  # the job on the host goes on with its configuration; no other is begun
    assert runner.process.poll() is None and "Traceback" not in runner.said()
    assert "running" not in runner.states("b") and len(runner.of(ev.RestartStarted)) == 1

    (disk.folder / "filler").unlink()
    assert runner.wait() == 0, runner.said()
    assert runner.states() == ["done"] * 6
    assert all(len(c.attempts) == 1 for c in runner.state().plan_cells), "nothing was measured twice"
    assert [a.resolved.how for a in runner.state().alerts.values() if a.resolved] == ["there is room again"]
    assert runner.state().paused is None and rig.engines() == []

    disk.remount("ro")
    later = start(None)
    assert later.wait() == 12
    assert "Traceback" not in later.said() and "run.ddtop" in later.said()
    assert re.search(r"read.only|may not be written|cannot be (made|written|created)", later.said()), (
        later.said()
    )


@needs_root
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ended_while_the_disk_is_full_it_goes_on_once_there_is_room(rig: Rig, disk: Disk, how: int) -> None:
    recording = disk.folder / "run.ddtop"
    runner = rig.start(
        rig.plan('a = { env = { SIM_LOG_RATE = "4000" } }', tokens="[8, 12, 16]", requests=8, step_s=0.03),
        recording=recording,
    )
    runner.until(one_done_one_running, "the second cell")
    disk.fill()
    runner.alert("unknown")
    time.sleep(2)
    runner.process.send_signal(how)
    code = runner.wait()
    if how == signal.SIGTERM:
        assert code == 12 and "the run was ended: the disk is full" in runner.said(), runner.said()
        assert "the host is as it was found" in runner.said() and rig.engines() == []
    (disk.folder / "filler").unlink()
    again = rig.start(None, recording=recording)
    assert again.wait() == 0
    assert again.states() == ["done"] * 3 and not again.state().open_alerts
    assert len(again.state().plan_cells[0].attempts) == 1, "what was committed is not measured again"
    assert rig.engines() == []


@needs_root
@pytest.mark.stories  # the full disk's twin: what it shows beyond that is a real EPERM
def test_a_recording_made_read_only_under_the_runner(rig: Rig) -> None:
    runner = rig.start(rig.plan("a = {}", tokens="[8, 16]", requests=8, step_s=0.03))
    runner.until(one_done_one_running, "the second cell")
    wal = runner.recording.with_name(runner.recording.name + "-wal")
    try:
        set_immutable(wal, True)
    except OSError as error:
        pytest.skip(f"this file system has no immutable files: {error}")
    try:
        assert runner.wait() == 12
    finally:
        set_immutable(wal, False)
    assert "Traceback" not in runner.said(), runner.said()
    assert "the run was ended:" in runner.said() and rig.engines() == []
    again = rig.start(None)
    assert again.wait() == 0 and again.states() == ["done", "done"]
    assert len(again.state().plan_cells[0].attempts) == 1


def set_immutable(path: Path, on: bool) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flags = array.array("i", [0])
        fcntl.ioctl(descriptor, GET_FLAGS, flags, True)
        flags[0] = flags[0] | IMMUTABLE if on else flags[0] & ~IMMUTABLE
        fcntl.ioctl(descriptor, SET_FLAGS, flags)
    finally:
        os.close(descriptor)


@pytest.mark.stories  # a cut, a reboot and a frozen link are in every run on the bed
def test_the_link_breaks_in_every_way(rig: Rig) -> None:
    """Agent killed; SSH server killed and back, another Python there; then back with another key, which is final."""
    runner = rig.start(rig.plan("a = {}", tokens="[8, 12, 16, 20, 24, 28]", requests=11, step_s=0.02))
    runner.running("a")

    (agent,) = agents(rig)
    os.kill(agent, signal.SIGKILL)
    alert = runner.alert("lost-host")
    runner.until(lambda s: not s.alerts[alert.id].open, "connected again")
    assert not alive(agent)

    rig.kill_server()
    second = runner.alert("lost-host")
    python = rig.world.bin / "python3"
    python.write_text(f'#!/bin/sh\nexec "{other_python()}" "$@"\n')
    rig.serve(rig.ssh_port)
    runner.until(lambda s: not s.alerts[second.id].open, "connected again")
    assert len(runner.of(ev.HostConnected)) == 3
    done = runner.until(lambda s: [c.id for c in s.plan_cells if c.state == "done"], "a finished cell")

    rig.kill_server()
    runner.until(lambda s: len(s.alerts) == 3, "the third loss")
    key = asyncssh.generate_private_key("ssh-ed25519", comment="another")
    key.write_private_key(str(rig.world.host_key))
    key.write_public_key(str(rig.world.host_key.with_suffix(".pub")))
    rig.serve(rig.ssh_port)
    assert runner.wait() == 11
    ended = runner.state().run.ended
    assert ended is not None and ended.outcome == "host-lost"
    for words in (ended.reason, runner.said()):
        assert key.get_fingerprint() in words and "ssh-keygen" in words, words
    assert any("could not be put back" in w for w in ended.left_behind)
    assert "Traceback" not in runner.said()
    last = list(runner.state().alerts.values())[-1]
    assert (
        last.open
        and key.get_fingerprint() in str(last.raised.evidence) + last.raised.cause_text + last.raised.advice
    )

    public = key.export_public_key().decode().split()
    rig.world.known_hosts.write_text(f"[127.0.0.1]:{rig.ssh_port} {public[0]} {public[1]}\n")
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    again = rig.start(None)
    assert again.wait() == 0
    assert again.states() == ["done"] * 6
    measured = [e.cell_id for e in again.of(ev.CellMeasured)]
    assert [measured.count(i) for i in done] == [1] * len(done)
    assert len(again.of(ev.RestartStarted)) == 1, "the server was never restarted for any of it"
    assert rig.engines() == []


def agents(rig: Rig) -> list[int]:
    """Agents of the machine: what an SSH session started with `-I -S -c`, and no job of it."""
    found = [pid for pid in rig.world.processes() if cmdline(pid).split(b"\0")[1:4] == [b"-I", b"-S", b"-c"]]
    server = rig.server.pid if rig.server is not None else 0
    return [pid for pid in found if server in parents(pid)]


def parents(pid: int) -> list[int]:
    line: list[int] = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        line.append(pid)
    return line


def other_python() -> str:
    """Another interpreter than this one where there is one, else this one outside its environment."""
    for name in ("python3.8", "python3.9", "python3.12", "python3.13"):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return str(Path(sys.executable).resolve())


def test_a_flood_of_log_lines_is_kept_whole(rig: Rig) -> None:
    """20,000 lines a second for 3 s and one line of 1 MiB: every line is in the recording, or a gap says which are not."""
    rate, seconds = 20_000, 3
    env = f'SIM_LOG_RATE = "{rate}", SIM_LOG_FOR_S = "{seconds}", SIM_LOG_LONG_B = "{1 << 20}"'
    runner = rig.start(rig.plan(f"a = {{ env = {{ {env} }} }}", tokens="[8, 12]", requests=10, step_s=0.02))
    began = time.monotonic()
    runner.until(lambda s: s.restarts and s.restarts[0].outcome == "ready", "ready")
    peak, cpu_s = 0.0, 0.0
    while runner.process.poll() is None and time.monotonic() - began < HANG_S:
        with contextlib.suppress(OSError, TypeError):
            peak, cpu_s = usage(runner.process.pid)
        time.sleep(0.1)
    assert runner.wait() == 0
    log = next(rig.world.home.rglob("proc-sglang-demo*/log"), None) or newest_log(rig)
    there = [line for line in log.read_text().splitlines() if line.startswith(("chatter ", "long "))]
    here = [
        line.text
        for e in runner.of(ev.LogRead)
        for line in e.lines
        if line.text.startswith(("chatter ", "long "))
    ]
    numbered = [line for line in there if line.startswith("chatter ")]
    assert len(numbered) > rate * seconds * 0.8, "the flood was one"
    gaps = runner.of(ev.LogGap)
    if not gaps:
        assert [line for line in here if line.startswith("chatter ")] == numbered
    (long,) = [line for line in here if line.startswith("long ")]
    assert len(long) == 256 << 10 and long.endswith("[cut: the line is longer than 256 KiB]")
    print(f"{len(numbered)} lines, {len(gaps)} gaps, runner: {peak:.0f} MiB at most, {cpu_s:.1f} s of CPU")
    assert peak < 400, f"{peak:.0f} MiB"
    assert cpu_s < 30, f"{cpu_s:.1f} s of CPU"


def newest_log(rig: Rig) -> Path:
    """The server's own log file on the machine: the one with the flood in it."""
    return max(
        (
            p
            for p in rig.world.home.rglob("*")
            if p.is_file() and p.stat().st_size > 500_000 and "log" in p.name
        ),
        key=lambda p: p.stat().st_size,
    )


def usage(pid: int) -> tuple[float, float]:
    """(largest resident size in MiB, CPU seconds) of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    kib = int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]
    return kib / 1024, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- the client's clock


class Clock:
    def __init__(self) -> None:
        self.wall, self.mono = 1_700_000_000.0, 100.0


def made(clock: Clock) -> tuple[CommandHandler, Requests, list[ev.Event]]:
    seen: list[ev.Event] = []
    ctx = SweepContext(
        run_id="r",
        host_name="h",
        sink=seen.append,
        state=State(),
        sweep=None,
        wall=lambda: clock.wall,
        mono=lambda: clock.mono,
    )
    requests = Requests()
    return CommandHandler(ctx, requests, lambda: None), requests, seen


@pytest.mark.parametrize("jump_s", [-7200.0, -30.0, 30.0, 86400.0])
def test_viewers_outlive_a_jump_of_the_clock(jump_s: float) -> None:
    """The suspend of a laptop or NTP moves the wall clock; who is there is told by the monotonic one."""
    clock = Clock()
    command_handler, requests, _ = made(clock)
    command_handler.take([ev.Attend(id="1", viewer="anna", at_s=clock.wall)])
    clock.wall += jump_s
    clock.mono += 5
    command_handler.take([])
    assert requests.attended
    command_handler.take([ev.Attend(id="2", viewer="anna", at_s=clock.wall)])
    clock.mono += 12
    command_handler.take([])
    assert requests.attended, "its next sign of life counts, whatever the wall clock says"
    clock.mono += 4
    command_handler.take([])
    assert not requests.attended


@pytest.mark.parametrize(
    ("jump_s", "outcome"), [(3.0, "obeyed"), (-3.0, "obeyed"), (60.0, "late"), (-60.0, "late")]
)
def test_a_command_from_another_time_is_late(jump_s: float, outcome: str) -> None:
    """One that lay in the recording while the clock was set may be of any age: it is not obeyed."""
    clock = Clock()
    command_handler, requests, seen = made(clock)
    command = ev.Pause(id="1", viewer="anna", at_s=clock.wall)
    clock.wall += jump_s
    command_handler.take([command, command])
    (answer,) = [e for e in seen if isinstance(e, ev.CommandSeen)]
    assert answer.outcome == outcome and (outcome == "obeyed" or "send it again" in answer.reason)
    assert (requests.paused_by == "anna") is (outcome == "obeyed")
