"""A soak: a live runner under 500 log lines a second and GPU samples at 10 Hz, a dashboard following on a pty.

    python -m tests.soak [MINUTES]          (default 10; `make soak`)

Prints memory and CPU of runner and dashboard every half minute, and at the end their growth and the size of the
recording an hour. Exits 1 where memory grew by more than GROWTH_MIB after the first warm-up, or CPU is over the limit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ddtop.errors import RefusedError
from ddtop.events import GpuSampled, LogGap, LogRead, StopRun
from ddtop.journal.read.reader import JournalReader
from tests.runner.rig import REPO, Rig
from tests.terminal import Terminal

LINES_S = 500
GPU_MS = 100
WARM_UP_SHARE = 0.75
"""What is bounded fills first: the dashboard's 100,000 log lines take 200 s."""
GROWTH_MIB = 15.0
CPU_PCT = 50.0


def usage(pid: int) -> tuple[float, float]:
    """(resident MiB, CPU seconds so far) of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    mib = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return mib, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def size_mib(recording: Path) -> float:
    return sum(p.stat().st_size for p in recording.parent.glob(recording.name + "*")) / 2**20


def soak(seconds: float) -> int:
    """Runs it; returns the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="ddtop-soak-", dir="/var/tmp"))
    try:
        with Rig(folder) as rig:
            return _soak(rig, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _soak(rig: Rig, seconds: float) -> int:
    config = f'a = {{ env = {{ SIM_LOG_RATE = "{LINES_S}" }} }}'
    plan = rig.plan(
        config, tokens="[32, 48, 64, 96]", requests=max(4, int(seconds / 4 / 1.5)), step_s=0.035
    ).replace("time_limit_s = 60", "time_limit_s = 3000")
    runner = rig.start(plan, patch={"ddtop.sweep.host.streams.GPU_MS": GPU_MS})
    runner.running("a", 60)
    env = {**os.environ, "DDTOP_HOME": str(rig.home), "PYTHONPATH": str(REPO)}
    terminal = Terminal([sys.executable, "-m", "ddtop.cli", "connect", "demo"], env=env)
    try:
        return _watch(runner.process.pid, terminal, runner.recording, seconds)
    finally:
        with contextlib.suppress(RefusedError):  # it has ended by itself
            runner.send(StopRun)
        terminal.close()
        print(f"the runner ended with {runner.wait(60)}")


def _watch(pid: int, terminal: Terminal, recording: Path, seconds: float) -> int:
    terminal.wait_for("fib", seconds=30)
    procs = {"runner": pid, "dashboard": terminal.process.pid}
    began = time.monotonic()
    size0 = size_mib(recording)
    first = {name: usage(p) for name, p in procs.items()}
    warm: dict[str, tuple[float, float]] = {}
    told = began
    while (gone := time.monotonic() - began) < seconds:
        terminal.read(0.2)
        if not warm and gone >= WARM_UP_SHARE * seconds:
            warm = {name: usage(p) for name, p in procs.items()}
        if time.monotonic() - told >= 30:
            told = time.monotonic()
            now = {name: usage(p) for name, p in procs.items()}
            words = ", ".join(
                f"{name} {mib:.1f} MiB {100 * (cpu - first[name][1]) / gone:.1f} % CPU"
                for name, (mib, cpu) in now.items()
            )
            print(f"{gone:5.0f} s: {words}; recording {size_mib(recording):.1f} MiB", flush=True)
    last = {name: usage(p) for name, p in procs.items()}
    lasted = time.monotonic() - began
    bad = 0
    for name in procs:
        grown = last[name][0] - warm[name][0]
        cpu = 100 * (last[name][1] - first[name][1]) / lasted
        bad += grown > GROWTH_MIB or cpu > CPU_PCT
        print(
            f"{name}: {first[name][0]:.1f} → {warm[name][0]:.1f} (warm) → {last[name][0]:.1f} MiB, {grown:+.1f} MiB since warm; {cpu:.1f} % CPU"
        )
    print(f"recording: {(size_mib(recording) - size0) / lasted * 3600:.0f} MiB an hour")
    with JournalReader(recording, check=False) as reader:
        events = [event for _, event in reader.since()]
    lines = sum(len(e.lines) for e in events if isinstance(e, LogRead))
    samples = sum(isinstance(e, GpuSampled) for e in events)
    gaps = sum(isinstance(e, LogGap) for e in events)
    print(
        f"in it: {lines} log lines, {samples} GPU samples, {gaps} gaps, in {lasted:.0f} s and the start before"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(soak(60 * float(sys.argv[1] if len(sys.argv) > 1 else 10)))
