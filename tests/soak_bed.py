"""A long run on a host of the test bed at ten times the usual rate of events: does anything grow?

    DDTOP_BED=N python -m tests.soak_bed [MINUTES] [CSV]      (default 60 minutes; `make soak-bed`)

A real host (systemd, journald, sshd), the real agent, a dashboard on a pty; SIMULATED GPUs and SGLang. Ten times the
usual: GPU samples and the server's figures at 10 Hz, the round trip every 0.3 s, 100 log lines a second, cells of a few
seconds, a start of the server every few cells. Of runner, dashboard and agent: memory, descriptors, threads, asyncio's
tasks; files that are ours on both sides. What grows is told by the slope of a straight line through what was read after
the warm-up, an hour; one number at the end would hide in the noise. Exits 1 where a slope is over its LIMITS.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ddtop.errors import JournalError, RefusedError
from ddtop.events import CellMeasured, GpuSampled, LogGap, LogRead, RestartReady, StopRun
from ddtop.journal.commands import append_command
from ddtop.journal.read.reader import JournalReader
from ddtop.plan import parse_plan
from ddtop.runner import RunOptions, _pack
from tests.bed.client import Bed
from tests.bed.config import REPO
from tests.soak import size_mib, usage
from tests.stories.harness import plan_text
from tests.terminal import Terminal

HOST = "ct200"
EVERY_S = 15.0
WARM_UP_SHARE = 0.4
"""Caches and what is bounded fill first: the dashboard's 100,000 log lines take 20 minutes at 90 a second."""
LIMITS = {"mib": 30.0, "fds": 6.0, "threads": 3.0, "tasks": 10.0, "files": 6.0}
"""The most growth an hour that is taken for noise."""

TENFOLD = {
    "ddtop.sweep.host.streams.GPU_MS": 100,
    "ddtop.sweep.host.streams.RTT_S": 0.3,
    "ddtop.sweep.cell.server_figures.EVERY_S": 0.1,
}
CHATTY = """
import threading, time
def talk():
    n = 0
    while True:
        log(f"Decode batch. #running-req: 1, #token: {n}, token usage: 0.01, gen throughput (token/s): 143.2, #queue-req: 0")
        n += 1
        time.sleep(0.01)
threading.Thread(target=talk, daemon=True).start()
"""
COUNTED = """
import asyncio, importlib, os, threading, time
def count(path=os.environ.get("SOAK_TASKS", "")):
    path += f".{os.getpid()}"
    while True:
        try:
            n = sum(not t.done() for t in list(asyncio.tasks._all_tasks))
            with open(path, "w") as out:
                out.write(str(n))
        except (RuntimeError, OSError):  # the set changed meanwhile; the folder is gone
            pass
        time.sleep(5)
if os.environ.get("SOAK_TASKS"):
    threading.Thread(target=count, daemon=True).start()
"""
"""As sitecustomize: writes how many asyncio tasks a process has to a file."""
STARTED = """
import importlib, json, sys
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)
from ddtop.runner import _main
raise SystemExit(_main())
"""
ON_HOST = r"""
import glob, os
for stat in glob.glob("/proc/[0-9]*/stat"):
    pid = stat.split("/")[2]
    try:
        line = open("/proc/%s/cmdline" % pid, "rb").read()
        if b"runpy.run_path" not in line or b"\0-c\0" not in line:
            continue
        words = open(stat).read().rpartition(")")[2].split()
        print(pid, int(words[21]) * 4096 / 2**20, len(os.listdir("/proc/%s/fd" % pid)), words[17])
    except OSError:
        pass
print("files", sum("ddtop" in p.lower() and "ddtop-bed" not in p for top in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/root")
    for d, _, names in os.walk(top) for p in [d] + [os.path.join(d, n) for n in names]))
"""


def slope_per_h(points: Sequence[tuple[float, float]]) -> float:
    """Growth an hour of (seconds, value): the slope of the straight line through them, 0 for fewer than two."""
    if len(points) < 2:
        return 0.0
    return 3600 * statistics.linear_regression(*zip(*points, strict=True)).slope


def of_process(name: str, pid: int, tasks: Path) -> dict[str, float]:
    row = {
        f"{name} mib": usage(pid)[0],
        f"{name} cpu_s": usage(pid)[1],
        f"{name} fds": len(os.listdir(f"/proc/{pid}/fd")),
        f"{name} threads": len(os.listdir(f"/proc/{pid}/task")),
    }
    with contextlib.suppress(OSError, ValueError):
        row[f"{name} tasks"] = int(Path(f"{tasks}.{pid}").read_text())
    return row


def of_host(bed: Bed) -> dict[str, float]:
    """The agents' largest figures, and the files and folders with our name there."""
    row = {"agent mib": 0.0, "agent fds": 0.0, "agent threads": 0.0, "agents": 0.0, "host files": 0.0}
    for line in bed.sh(HOST, f"python3 - <<'END'\n{ON_HOST}\nEND").splitlines():
        words = line.split()
        if words[:1] == ["files"]:
            row["host files"] = float(words[1])
        elif len(words) == 4:
            row["agents"] += 1
            for key, word in zip(("agent mib", "agent fds", "agent threads"), words[1:], strict=True):
                row[key] = max(row[key], float(word))
    return row


def soak(seconds: float, out: Path) -> int:
    bed = Bed()
    bed.up(real=False)
    folder = Path(tempfile.mkdtemp(prefix="ddtop-soak-", dir="/var/tmp"))
    try:
        bed.restore(HOST)
        bed.sh(HOST, f"cat > /root/chatty.py <<'END'\n{CHATTY}\nEND")
        bed.fault(HOST, "LOAD_S=3", "WARM_S=0.3", "BOOT_PY=/root/chatty.py")
        return _soak(bed, folder, seconds, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        bed.restore(HOST)
        bed.down()


def _soak(bed: Bed, folder: Path, seconds: float, out: Path) -> int:
    text = plan_text("soak", tokens="128, 256, 512", requests=2).replace(
        'baseline = "a"', 'baseline = "a"\nstarts = 100'
    )
    recording, tasks = folder / "run.ddtop", folder / "tasks"
    for name in ("home", "tmp", "site"):
        (folder / name).mkdir()
    (folder / "site" / "sitecustomize.py").write_text(COUNTED)
    env = {
        **os.environ,
        "DDTOP_HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": f"{folder / 'site'}:{REPO}",
        "SOAK_TASKS": str(tasks),
    }

    options = RunOptions(
        host=HOST, plan=parse_plan(text)[0], record=recording, attended=False, ssh_config=Path(bed.ssh_config)
    )
    with (folder / "said.txt").open("wb") as said:
        runner = subprocess.Popen(
            [sys.executable, "-c", STARTED, json.dumps(TENFOLD), _pack(options)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=env,
            start_new_session=True,
        )
    terminal = None
    try:
        while not recording.exists():
            assert runner.poll() is None, (folder / "said.txt").read_text()
            time.sleep(0.1)
        time.sleep(5)
        terminal = Terminal(
            [sys.executable, "-m", "ddtop.cli", "connect", HOST, "--ssh-config", str(bed.ssh_config)], env=env
        )
        return _watch(bed, folder, runner, terminal, recording, seconds, out)
    except BaseException:
        print((folder / "said.txt").read_text()[-3000:])
        if terminal:
            print(terminal.text())
        raise
    finally:
        with contextlib.suppress(RefusedError, JournalError):
            append_command(recording, StopRun(id="soakend", viewer="soak", at_s=time.time()))
        if terminal:
            terminal.close()
        try:
            print(f"the runner ended with {runner.wait(90)}")
        except subprocess.TimeoutExpired:
            runner.kill()
            print("the runner did not end in 90 s")


def _watch(
    bed: Bed,
    folder: Path,
    runner: subprocess.Popen[bytes],
    terminal: Terminal,
    recording: Path,
    seconds: float,
    out: Path,
) -> int:
    terminal.wait_for("fib", seconds=60)
    tasks = folder / "tasks"
    began, rows, due = time.monotonic(), [], 0.0
    while (gone := time.monotonic() - began) < seconds:
        terminal.read(0.5)
        terminal.raw = b""
        assert runner.poll() is None, (folder / "said.txt").read_text()
        if gone < due:
            continue
        due += EVERY_S
        row = {"s": gone, "recording_mib": size_mib(recording)}
        row |= of_process("runner", runner.pid, tasks)
        row |= of_process("dashboard", terminal.process.pid, tasks) | of_host(bed)
        row["our files"] = sum(
            len(names) for part in ("home", "tmp") for _, _, names in os.walk(folder / part)
        )
        rows.append(row)
        with out.open("w", newline="") as file:
            table = csv.DictWriter(file, sorted({k for r in rows for k in r}, key=lambda k: (k != "s", k)))
            table.writeheader()
            table.writerows(rows)
    verdict = judge(rows)
    print(told(recording, rows))
    return verdict


def judge(rows: Sequence[dict[str, float]]) -> int:
    """Prints each figure's slope; 1 where one is over its limit."""
    warm = [row for row in rows if row["s"] >= WARM_UP_SHARE * rows[-1]["s"]]
    bad = 0
    for name in sorted({k for r in rows for k in r} - {"s", "recording_mib"}):
        if name.endswith("cpu_s"):
            print(
                f"{name}: {(rows[-1][name] - rows[0][name]) / (rows[-1]['s'] - rows[0]['s']):.1%} of a core"
            )
            continue
        points = [(row["s"], row[name]) for row in warm if name in row]
        slope, limit = slope_per_h(points), LIMITS.get(name.split()[-1])
        over = limit is not None and slope > limit
        bad += over
        values = [v for _, v in points]
        print(
            f"{name}: first {rows[0].get(name, float('nan')):.1f}, then {min(values):.1f} to {max(values):.1f}, {slope:+.2f} an hour{' OVER' * over}"
        )
    return 1 if bad else 0


def told(recording: Path, rows: Sequence[dict[str, float]]) -> str:
    """What is in the recording, and its size an hour."""
    with JournalReader(recording, check=False) as reader:
        events = [event for _, event in reader.since()]
    grew = (rows[-1]["recording_mib"] - rows[0]["recording_mib"]) / (rows[-1]["s"] - rows[0]["s"]) * 3600
    kinds = {
        k: sum(isinstance(e, k) for e in events) for k in (GpuSampled, CellMeasured, RestartReady, LogGap)
    }
    lines = sum(len(e.lines) for e in events if isinstance(e, LogRead))
    return (
        f"recording: {grew:.0f} MiB an hour; {len(events)} events in {rows[-1]['s']:.0f} s: {lines} log lines, "
        + ", ".join(f"{n} {k.__name__}" for k, n in kinds.items())
    )


if __name__ == "__main__":
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    raise SystemExit(soak(60 * minutes, Path(sys.argv[2] if len(sys.argv) > 2 else "soak.csv")))
