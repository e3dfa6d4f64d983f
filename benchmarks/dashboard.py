"""What watching costs: CPU of dashboard, runner and agent at four loads, and from a key to its paint.

python benchmarks/dashboard.py [--seconds 40] [--loads 10:1000,1000:250,10000:250] [--first]

One run on the demo's machine (a real SSH server, the real agent, SIMULATED GPUs and engine). For each load a sweep is
begun whose engine writes so many log lines a second (`lines:milliseconds between two GPU samples`), a dashboard follows it
on a terminal of 120 × 40, and an empty Textual app stands beside it on another. All figures are CPU seconds by /proc, as a
share of one core over the same window; `pace_ms` is the CPU time of a fixed piece of work beside it, by which runs on a busier
machine can be compared. Keys are pressed at random moments; the
time runs until the bytes that the key changes have come out of the terminal, drawn. With `--first` (root) the
dashboard does not wait for a CPU meanwhile, so that the time is its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, machine, percentile, save

from ddtop.dashboard.draw.metrics import SHOWN
from ddtop.errors import RefusedError
from ddtop.events import StopRun
from tests.runner.rig import Rig, Runner
from tests.terminal import Terminal

EMPTY = "from textual.app import App\nApp().run()"
WARM_S = 6.0
PACE_S = 0.5
"""Between two looks at how fast the machine is."""


def pace_ms() -> float:
    """CPU milliseconds of a fixed piece of Python: on a busy machine the same work takes more of them."""
    began = time.process_time()
    table = {}
    for n in range(20_000):
        table[f"{n % 997}"] = (n, n * 1.5)
    return 1000 * (time.process_time() - began)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lines_in(recording: Path) -> int:
    """Log lines of a recording so far."""
    with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as db:
        return int(db.execute("SELECT count(*) FROM log").fetchone()[0])


def children(pid: int) -> list[int]:
    """A process and all that it started."""
    out, found = [pid], {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(
                int(stat.parent.name)
            )
    for one in out:
        out.extend(found.get(one, ()))
    return out


def agents(server_pid: int) -> list[int]:
    """The agent processes: those that the SSH server started and that read a zip from memory."""
    out = []
    for pid in children(server_pid)[1:]:
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"ddtop.demo" not in line and b"python" in line and b"nvidia-smi" not in line:
                out.append(pid)
    return out


class Screen:
    """A program on a terminal whose output is taken and thrown away, but for the words that a key makes appear."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.terminal = Terminal(argv, columns=120, lines=40, env=env)

    def drain(self, seconds: float, words: bytes = b"") -> float | None:
        """Reads for `seconds`, or until `words` came; returns when they did (monotonic), None if they did not."""
        until, tail = time.monotonic() + seconds, b""
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.terminal.master], [], [], left)[0]:
                break
            try:
                tail = tail[-200:] + os.read(self.terminal.master, 1 << 16)
            except OSError:  # it has ended
                break
            if words and words in tail:
                return time.monotonic()
        return None


def key_to_paint(screen: Screen, shown: int) -> tuple[float | None, int]:
    """(seconds from `m` to the title with the next metric, index of the metric then shown)."""
    following = (shown + 1) % len(SHOWN)
    before = time.monotonic()
    screen.terminal.press("m")
    came = screen.drain(3.0, SHOWN[following].label.encode())
    return (came - before if came is not None else None), following


def one_load(
    rig: Rig, lines_s: int, gpu_ms: int, seconds: float, empty: Screen, first_in_line: bool = False
) -> dict[str, Any]:
    """The figures of one load; the sweep is stopped afterwards."""
    config = f'a = {{ env = {{ SIM_LOG_RATE = "{lines_s}" }} }}'
    plan = rig.plan(
        config, tokens="[32, 48, 64, 96]", requests=max(4, int((seconds + 30) / 1.5)), step_s=0.035
    ).replace("time_limit_s = 60", "time_limit_s = 3000")
    recording = rig.home.parent / f"load-{lines_s}.ddtop"
    runner = rig.start(plan, recording=recording, patch={"ddtop.sweep.host.streams.GPU_MS": gpu_ms})
    runner.running("a", 90)
    env = {**os.environ, "DDTOP_HOME": str(rig.home), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "ddtop.cli", "connect", "demo"]
    screen = Screen(argv, env)
    try:
        return {"lines_s": lines_s, "gpu_hz": 1000 / gpu_ms} | _measured(
            rig, runner, screen, seconds, empty, first_in_line
        )
    finally:
        screen.terminal.press("q")
        screen.drain(3.0)
        with contextlib.suppress(RefusedError):
            runner.send(StopRun)
        screen.terminal.close()
        runner.wait(60)


def _measured(
    rig: Rig, runner: Runner, screen: Screen, seconds: float, empty: Screen, first_in_line: bool = False
) -> dict[str, Any]:
    assert rig.server is not None
    screen.terminal.wait_for("fib", seconds=60)
    screen.drain(WARM_S)
    pids = {
        "empty": [empty.terminal.process.pid],
        "dashboard": [screen.terminal.process.pid],
        "runner": [runner.process.pid],
        "agent": agents(rig.server.pid),
    }
    lines_before = lines_in(runner.recording)
    first = {name: sum(map(cpu_s, some)) for name, some in pids.items()}
    began = time.monotonic()
    paces: list[float] = []
    while (left := began + seconds - time.monotonic()) > 0:
        screen.drain(min(left, PACE_S))
        empty.drain(0.001)
        paces.append(pace_ms())
    lines = lines_in(runner.recording)
    lasted = time.monotonic() - began
    shares = {
        f"{name}_pct": round(100 * (sum(map(cpu_s, some)) - first[name]) / lasted, 2)
        for name, some in pids.items()
    }
    for pid in (os.getpid(), screen.terminal.process.pid) if first_in_line else ():
        os.setpriority(os.PRIO_PROCESS, pid, -15)
    waits: list[float] = []
    missed, shown = 0, 0
    for _ in range(100):
        screen.drain(random.uniform(0.1, 0.3))
        took, shown = key_to_paint(screen, shown)
        missed += took is None
        if took is not None:
            waits.append(1000 * took)
    if first_in_line:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    waits.sort()
    return {
        **shares,
        "lines_s_came": round((lines - lines_before) / lasted),
        "pace_ms": round(statistics.median(paces), 1),
        "key_ms": {"p50": round(statistics.median(waits), 1), "p99": round(percentile(waits, 0.99) or 0, 1)}
        if waits
        else None,
        "keys": len(waits),
        "keys_missed": missed,
        "agents": len(pids["agent"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument(
        "--loads", default="10:1000,1000:250,10000:250", help="lines a second:ms between GPU samples"
    )
    parser.add_argument(
        "--first", action="store_true", help="for the keys: the dashboard and this before all others (root)"
    )
    parser.add_argument("--name", default="dashboard.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    best = min(pace_ms() for _ in range(200))
    folder = Path(tempfile.mkdtemp(prefix="ddtop-cost-", dir="/var/tmp"))
    empty = Screen([sys.executable, "-c", EMPTY], dict(os.environ))
    try:
        with Rig(folder) as rig:
            for load in options.loads.split(","):
                lines_s, gpu_ms = map(int, load.split(":"))
                rows.append(one_load(rig, lines_s, gpu_ms, options.seconds, empty, options.first))
                print(rows[-1], flush=True)
    finally:
        empty.terminal.close()
        shutil.rmtree(folder, ignore_errors=True)
    save(options.name, {"machine": machine(), "best_pace_ms": round(best, 1), "rows": rows})


if __name__ == "__main__":
    main()
