"""A recording of 24 hours: what it takes on disk, and how long it takes to look at it.

python benchmarks/long.py [--hours 24] [--lines 1] [--keep FILE]

SIMULATED, in the form of a real one: the cells, starts and results are those of the demo's recorded run, 432 cells of 200 s
each, 18 to a start; 8 GPUs and the server's figures once a second, progress once a second, the round trip every 3 s,
`--lines` log lines a second with cursors as journald writes them. Times are wall seconds and CPU seconds of this process or
of a command (its start included), the best of three to five; memory is the process's most. Times promised: a viewer has all of it within
1 s, a report is written within 3 s. `pace_ms` is the CPU time of a fixed piece of work, by which busier machines compare.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from common import ROOT, machine, save
from dashboard import Screen, cpu_s, pace_ms

from ddtop.dashboard.watched import Watched
from ddtop.events import CellSeries, Event, decode_event
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.fold.sweep import series_due
from ddtop.journal.read.reader import JournalReader, read_state
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.tables import kind_of
from ddtop.journal.write.writer import JournalWriter

EVENTS = ROOT / "tests" / "data" / "demo-run" / "events.jsonl"
CELL_S = 200
CELLS_A_START = 18
TOLD = ("cell-started", "cell-state", "cell-outputs", "cell-measured")
CURSOR = "s=0639ccf3a5b24fd9b1c2a60b52a8d7a1;i={:x};b=2771971bce6e4d8daded66a710d1628b;m={:x};t={:x};x=3f2a9c0d1e4b5a67"


def tiled(hours: float, lines_s: float) -> Iterator[Event]:
    """The events of so many hours, in order."""
    kept = [json.loads(line) for line in EVENTS.read_text().splitlines()]
    first = {}
    for one in kept:
        first.setdefault(one["type"], one)
    gpus = first["gpu"]["gpus"]
    cell_id = next(e["cell_id"] for e in kept if e["type"] == "cell-measured")
    cell = {e["type"]: e for e in kept if e.get("cell_id") == cell_id and e["type"] in TOLD}
    start = [e for e in kept if e.get("attempt_id") == first["restart-started"]["attempt_id"]]
    planned = first["cells-planned"]["cells"]
    count, dice = int(hours * 3600 / CELL_S), random.Random(1)
    begin, seen = 1_796_000_000.0, itertools.count(1)

    def said(event: dict[str, Any], at: float, **more: Any) -> Event:
        body = {**event, **more, "at_s": begin + at, "mono_s": at, "host": "demo"}
        return decode_event(json.dumps(body))

    def line(at: float) -> dict[str, Any]:
        text = f"[2026-12-01 08:00:00] Decode batch. #running-req: 8, #token: {next(seen)}, token usage: 0.03, accept len: 3.12, cuda graph: True, gen throughput (token/s): {dice.gauss(900, 30):.2f}, #queue-req: 0"
        cursor = CURSOR.format(next(seen), int(at * 1e6), int((begin + at) * 1e6))
        return {"text": text, "at_s": begin + at, "cursor": cursor, "pid": 4535, "priority": 6}

    cells = [
        {
            **planned[0],
            "id": f"{n:012x}",
            "config": f"b{n // CELLS_A_START}",
            "concurrency": n % CELLS_A_START + 1,
            "baseline": n < CELLS_A_START,
            "restart_key": f"{n // CELLS_A_START:012x}",
        }
        for n in range(count)
    ]
    yield said(first["run-started"], 0)
    yield said(first["cells-planned"], 0, cells=cells, baseline="b0")
    yield said(first["host-connected"], 0)
    attempt, owed = "", 0.0
    for second in range(count * CELL_S):
        n, into = divmod(second, CELL_S)
        if into == 0 and n % CELLS_A_START == 0:
            attempt = f"a-{n}"
            of = [c["id"] for c in cells[n : n + CELLS_A_START]]
            for step, event in enumerate(start):
                more = {"cell_ids": of} if event["type"] == "restart-started" else {}
                yield said(
                    event, second + step / 1000, attempt_id=attempt, **({"config": cells[n]["config"]} | more)
                )
        if into == 0:
            yield said(cell["cell-started"], second + 0.5, cell_id=cells[n]["id"])
            yield said(cell["cell-state"], second + 0.5, cell_id=cells[n]["id"], state="running")
        yield said(
            first["gpu"],
            second + 0.6,
            gpus=[
                {
                    **g,
                    "power_w": round(dice.gauss(430, 20), 2),
                    "util_gpu_pct": dice.randrange(80, 100),
                    "mem_used_mib": 71000.0,
                }
                for g in gpus
            ],
        )
        figures = {
            "type": "server-figures",
            "unit": "sglang-demo",
            "running": 8.0,
            "queued": 0.0,
            "kv_pct": round(dice.uniform(10, 60), 2),
            "host_mono_s": second + 0.6,
            "took_ms": 2.1,
        }
        yield said(figures, second + 0.61)
        yield said(
            {"type": "cell-progress", "phase": "window", "requests_total": 400},
            second + 0.7,
            cell_id=cells[n]["id"],
            requests_done=2 * into,
            tok_s=round(dice.gauss(900, 5), 2),
            now_tok_s=round(dice.gauss(900, 30), 2),
            tokens=900 * into,
            in_flight=8,
            left_s=float(CELL_S - into),
        )
        if second % 3 == 0:
            yield said(first["rtt"], second + 0.8, rtt_ms=round(dice.uniform(4, 6), 2))
        owed += lines_s
        if owed >= 1:
            yield said(
                {"type": "log", "unit": "sglang-demo"},
                second + 0.9,
                lines=[line(second + 0.9) for _ in range(int(owed))],
            )
            owed -= int(owed)
        if into == CELL_S - 1:
            yield said(cell["cell-outputs"], second + 0.95, cell_id=cells[n]["id"])
            yield said(cell["cell-measured"], second + 0.96, cell_id=cells[n]["id"])
            yield said(cell["cell-state"], second + 0.97, cell_id=cells[n]["id"], state="done")
    yield said(first["run-ended"], count * CELL_S)


def kept(events: Iterable[Event]) -> Iterator[Event]:
    """The events as a runner records them: after each try at a cell its series."""
    state = State()
    for event in events:
        yield event
        apply(state, event)
        if (series := series_due(state, event)) is not None:
            more = CellSeries(at_s=event.at_s, mono_s=event.mono_s, host=event.host, **series)
            yield more
            apply(state, more)


def make(path: Path, hours: float, lines_s: float) -> None:
    with JournalWriter.open(path) as writer:
        events = kept(tiled(hours, lines_s))
        while batch := list(itertools.islice(events, 5000)):
            writer.extend(batch)


def command(*argv: str) -> dict[str, float]:
    """Wall and CPU seconds of `ddtop ARGV`, and its most memory."""
    before = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "ddtop.cli", *argv],
            stdout=out,
            cwd=ROOT,
            env=environment(),
        )
        most = 0.0
        while not (ended := os.wait4(child.pid, os.WNOHANG))[0]:
            most = max(most, peak_mib(child.pid))
            time.sleep(0.01)
    _, status, used = ended
    assert status == 0, (argv, status)
    return {"wall_s": time.monotonic() - before, "cpu_s": used.ru_utime + used.ru_stime, "mib": most}


def peak_mib(pid: int) -> float:
    """The most memory of a process so far; 0 once it has ended. (rusage has that of the process it was forked from.)"""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def first_screen(path: Path) -> dict[str, float]:
    """Wall and CPU seconds from `ddtop replay` to its first screen on a terminal."""
    began = time.monotonic()
    screen = Screen([sys.executable, "-m", "ddtop.cli", "replay", str(path)], environment())
    try:
        came = screen.drain(60, b"fib")
        assert came is not None
        return {"wall_s": came - began, "cpu_s": cpu_s(screen.terminal.process.pid)}
    finally:
        screen.terminal.press("q")
        screen.drain(3)
        screen.terminal.close()


def environment() -> dict[str, str]:
    """As a user has it: compiled modules are kept, whatever this shell says."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}


async def to(session: ReplaySession, watched: Watched, ready: Callable[[], bool]) -> None:
    async with contextlib.aclosing(session.events()) as batches:
        async for batch in batches:
            watched.take(batch)
            if ready():
                return


def viewer(path: Path) -> dict[str, float]:
    """Seconds until a replay knows all times of it, shows its end, and after seeks shows the moments asked for."""
    figures: dict[str, float] = {}

    def timed(name: str, do: Callable[[], Any]) -> Any:
        wall, cpu = time.monotonic(), time.process_time()
        value = do()
        figures[name + "_s"], figures[name + "_cpu_s"] = time.monotonic() - wall, time.process_time() - cpu
        return value

    session = timed("open", lambda: ReplaySession(path))
    session.pause()
    timed("all_times", lambda: session.timeline)
    watched = Watched(session)
    line = session.timeline
    timed("late_dashboard", lambda: read_state(path, check=False))
    places = {"end": 1.0, "middle": 0.5, "three_quarters": 0.75, "a_step_on": 0.7504, "a_step_back": 0.75}
    for name, share in places.items():
        session.seek(line.wall[0] + share * (line.wall[-1] - line.wall[0]))
        aim = session._aim()
        timed(f"seek_{name}", lambda aim=aim: asyncio.run(to(session, watched, lambda: session.shown == aim)))
    return figures


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--hours", type=float, default=24)
    options.add_argument("--lines", type=float, default=1)
    options.add_argument("--keep", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = chosen.keep or Path(folder) / "long.ddtop"
        if not path.exists():
            make(path, chosen.hours, chosen.lines)
        with JournalReader(path, check=False) as reader:
            kinds = Counter(kind_of(event) for _, event in reader.since())
        out: dict[str, Any] = {
            "hours": chosen.hours,
            "lines_s": chosen.lines,
            "mib": path.stat().st_size / 2**20,
            "events": kinds,
        }
        os.environ["DDTOP_HOME"] = folder
        commands = {
            "report": ("report", str(path), "--html", f"{folder}/out.html"),
            "status": ("status", str(path)),
            "cells": ("cells", str(path), "--json"),
        }
        out["pace_ms"] = min(pace_ms() for _ in range(5))
        for name, argv in commands.items():
            out[name] = min((command(*argv) for _ in range(3)), key=lambda used: used["cpu_s"])
            print(name, out[name], flush=True)
        out["first_screen"] = min((first_screen(path) for _ in range(5)), key=lambda used: used["cpu_s"])
        print("first screen", out["first_screen"], flush=True)
        seen = [viewer(path) for _ in range(3)]
        out["viewer"] = {name: min(one[name] for one in seen) for name in seen[0]}
        print(json.dumps(out["viewer"], indent=1))
    out["machine"] = machine()
    save("long.json", out)


if __name__ == "__main__":
    main()
