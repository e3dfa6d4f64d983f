"""Tails with and without the burst: a server that works on one prompt at a time (20 ms), 64 tokens 10 ms apart.

python benchmarks/steady.py [--pin] [--streams 1,8,32,128] [--per-stream 8] [--runs 1]

For each number of streams: TTFT with a warm-up of one request, as the first versions had it; the same requests without the
first of each stream (the truth of a short run); with the hand-over; and of a long run (--truth requests a stream), which is
the truth that the p99 is held to. Nearest rank, so that a p99 exists for few requests too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from common import ROOT, machine, pinned, save

from ddtop.agent.loadgen.measure import run_cell
from ddtop.bench.figures.requests import read_request
from ddtop.bench.judge.cell import judge_cell


def measured(url: str, streams: int, per_stream: int, warmup: int | str) -> dict[str, Any]:
    """One cell."""
    return run_cell(
        {"url": url, "model": "m", "metrics_url": "", "gpus": "none", "output_tokens": 64}
        | {"concurrency": streams, "requests": streams * per_stream, "warmup": warmup}
    )


def ttft(records: list[dict[str, Any]]) -> dict[str, float]:
    """p50, p90, p99 by nearest rank, in ms, and n."""
    values = sorted(one.ttft_s * 1e3 for one in map(read_request, records) if one.ttft_s is not None)
    rank = {p: values[min(len(values) - 1, int(len(values) * p / 100))] for p in (50, 90, 99)}
    return {"n": len(values), **{f"p{p}": round(value, 1) for p, value in rank.items()}}


def compare(url: str, streams: int, per_stream: int, truth: int) -> dict[str, Any]:
    """The figures of one number of streams."""
    old = measured(url, streams, per_stream, 1)
    new = measured(url, streams, per_stream, "handover")
    long = measured(url, streams, truth, 1)
    by_start = sorted(old["requests"], key=lambda one: one["start"])
    long_run = sorted(long["requests"], key=lambda one: one["start"])
    ended = sum(one.get("end", 0) <= 0 for one in new["burst"])
    judged = judge_cell(new)
    return {
        "streams": streams,
        "warmup_1": ttft(old["requests"]),
        "warmup_1_without_first": ttft(by_start[streams:]),
        "handover": ttft(new["requests"]),
        "truth": ttft(long_run[2 * streams :]),
        "burst": ttft(new["burst"]),
        "handover_by": new["handover"]["by"],
        "requests_before_zero_per_stream": round(ended / streams, 2),
        "tok_s": {
            "warmup_1": judge_cell(old).metrics["output_tok_s"],
            "handover": judged.metrics["output_tok_s"],
        },
        "reasons": list(judged.reasons),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pin", action="store_true", help="the server on the last core, this on the first, SCHED_FIFO"
    )
    parser.add_argument("--streams", default="1,8,32,128")
    parser.add_argument("--per-stream", type=int, default=8)
    parser.add_argument("--truth", type=int, default=24)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.pin:
        os.sched_setaffinity(0, {0})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    last = (os.cpu_count() or 1) - 1
    argv = pinned([sys.executable, "-m", "tests.bench.servers.prefill"], last, 20, options.pin)
    for streams in [int(one) for one in options.streams.split(",")] * options.runs:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert child.stdout is not None
        try:
            url = "http://" + child.stdout.readline().split()[-1]
            rows.append(compare(url, streams, options.per_stream, options.truth))
        finally:
            child.terminate()
            child.wait(5)
        print(rows[-1], flush=True)
    child = subprocess.Popen([*argv, "--slower-pct", "1"], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None
    try:
        never = measured("http://" + child.stdout.readline().split()[-1], 8, options.per_stream, "handover")
    finally:
        child.terminate()
        child.wait(5)
    named = judge_cell(never)
    print("slower by 1 % with every prompt, 8 streams:", named.validity, named.details)
    save("steady.json", {"machine": machine(), "rows": rows, "never_settles": named.details})


if __name__ == "__main__":
    main()
