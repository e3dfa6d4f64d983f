"""What the benchmarks share: stampd, pinning, the machine's description, running a client with its resources counted."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
RESULTS = ROOT / "benchmarks" / "results"


def build_stampd() -> Path:
    """Compile the stamping server into a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="ddtop-bench-"))
    subprocess.run(["cc", "-O2", "-o", folder / "stampd", ROOT / "ddtop/bench/stampd.c"], check=True)
    return folder / "stampd"


def pinned(argv: list[str], cpu: int, priority: int, pin: bool) -> list[str]:
    """The command under taskset and SCHED_FIFO, if asked and possible."""
    if not pin or not shutil.which("chrt"):
        return argv
    return ["taskset", "-c", str(cpu), "chrt", "-f", str(priority), *argv]


class Stampd:
    """The server as a context manager; `settings` as its command line takes them (ttft_us, dt_us, k, step, …)."""

    def __init__(self, binary: Path, pin: bool, **settings: float) -> None:
        argv = [str(binary), "--port", "0"]
        for name, value in settings.items():
            argv += ["--" + name.replace("_", "-"), str(value)]
        self.argv = pinned(argv, (os.cpu_count() or 1) - 1, 20, pin)

    def __enter__(self) -> Stampd:
        self.child = subprocess.Popen(self.argv, stdout=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        self.url = "http://" + self.child.stdout.readline().split()[-1]
        return self

    def __exit__(self, *_: object) -> None:
        self.child.terminate()
        self.child.wait(5)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            data: bytes = answer.read()
        return data

    def dump(self) -> list[dict[str, Any]]:
        """Truth of all finished requests, which the server then forgets."""
        return [json.loads(line) for line in self.get("/dump").splitlines() if line.strip()]


def machine() -> dict[str, Any]:
    """What it ran on."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "?",
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
        "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def run_counted(
    argv: list[str], *, env: dict[str, str] | None = None, timeout_s: float = 600, cwd: str | None = None
) -> dict[str, Any]:
    """Run a client to its end; {rc, wall_s, cpu_s, max_rss_mib, started_ns, output}. CPU and memory hold its children's."""
    with tempfile.TemporaryFile() as out:
        started = time.monotonic_ns()
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout_s
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.killpg(child.pid, 9)
                deadline = float("inf")
            time.sleep(0.02)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = (time.monotonic_ns() - started) / 1e9
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
    return {
        "rc": child.returncode,
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "max_rss_mib": usage.ru_maxrss / 1024,
        "started_ns": started,
        "output": text,
    }


def percentile(ordered: list[float], p: float) -> float | None:
    """As stampd's own scorer: the order statistic at that share."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * p))] if ordered else None


def truth_figures(
    truth: list[dict[str, Any]], ideal_round_s: float, rounds: int, started_ns: int
) -> dict[str, Any]:
    """What really happened, by the server: TTFT percentiles, delivered share, time from process start to first request."""
    done = [one for one in truth if one["status"] == "done" and one["chunks"]]
    if not done:
        return {"requests": 0}
    ttft = sorted((one["first_ns"] - one["arrive_ns"]) / 1e6 for one in done)
    begin, end = min(one["arrive_ns"] for one in done), max(one["last_ns"] for one in done)
    span = (end - begin) / 1e9
    return {
        "requests": len(done),
        "chunks": sum(one["chunks"] for one in done),
        "tokens": sum(one["tokens"] for one in done),
        "ttft_p50_ms": percentile(ttft, 0.5),
        "ttft_p99_ms": percentile(ttft, 0.99),
        "span_s": span,
        "delivered_share": rounds * ideal_round_s / span,
        "start_to_first_request_s": (begin - started_ns) / 1e9,
        "chunks_queued_in_server": sum(one["queued"] for one in done),
    }


def save(name: str, value: Any) -> None:
    """Write a result file and say where."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / name
    path.write_text(json.dumps(value, indent=1) + "\n")
    print("written:", path)
