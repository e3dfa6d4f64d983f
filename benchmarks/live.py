"""What the live figures of a window cost the load generator: the same load with and without them, in turn, as ratios.

python benchmarks/live.py [--pin] [--pairs 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from typing import Any

from common import ROOT, Stampd, build_stampd, machine, pinned, run_counted, save
from loadgen import figures

TTFT_MS, DT_MS = 100.0, 20.0
OFF = "import ddtop.agent.loadgen.window.live as l; l.Live.look = lambda *_: None; l.Live.finished = lambda *_: None; "
RUN = "import runpy; runpy.run_module('ddtop.agent.loadgen', run_name='__main__', alter_sys=True)"
LOADS = (
    # name, streams, output tokens, requests a stream, how much of the token count is asked for
    ("1 stream", 1, 100, 4, "each"),
    ("16 streams", 16, 100, 4, "each"),
    ("256 streams, 12,800 chunks/s", 256, 100, 4, "each"),
    ("the same, counted only at the end", 256, 100, 4, "final"),
    ("512 streams, 25,600 chunks/s", 512, 100, 3, "each"),
    ("64 streams, 300 short requests/s", 64, 6, 30, "each"),
)
SHOWN = (
    "cpu_us_per_chunk_window",
    "cpu_us_per_chunk_process",
    "ttft_bias_p50_ms",
    "ttft_bias_p99_ms",
    "itl_error_p50_us",
    "itl_error_p99_us",
)


def one(
    server: Stampd, folder: str, pin: bool, live: bool, streams: int, tokens: int, rounds: int, usage: str
) -> dict[str, Any]:
    """One run, as a detached job runs it; without `live` nothing is looked at, and all else is the same."""
    from ddtop.agent.loadgen.records import unpack

    server.dump()
    cell = {
        "id": "b",
        "url": server.url,
        "model": "stampd",
        "prompts": ["word " * 200],
        "concurrency": streams,
    }
    cell |= {
        "requests": streams * rounds,
        "output_tokens": tokens,
        "gpus": "none",
        "processes": 1,
        "usage": usage,
    }
    path, result = f"{folder}/job.json", f"{folder}/cell-b.json"
    with open(path, "w") as file:
        json.dump({"schema": 1, "cells": [cell]}, file)
    if os.path.exists(result):
        os.unlink(result)
    code = RUN if live else OFF + RUN
    run = run_counted(pinned([sys.executable, "-c", code, path, folder], 0, 10, pin), cwd=str(ROOT))
    with open(result) as file:
        found = unpack(json.load(file))
    return figures(found, server.dump(), run, rounds, DT_MS, tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    binary = build_stampd()
    result: dict[str, Any] = {"machine": machine(), "pinned": options.pin, "loads": {}}
    with Stampd(binary, options.pin, ttft_us=TTFT_MS * 1e3, dt_us=DT_MS * 1e3, step=1) as server:
        for name, streams, tokens, rounds, usage in LOADS:
            runs: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
            for pair in range(options.pairs):
                for live in (False, True) if pair % 2 == 0 else (True, False):
                    runs[live].append(
                        one(server, str(binary.parent), options.pin, live, streams, tokens, rounds, usage)
                    )
            kept = {
                "live" if live else "without": {
                    key: [run[key] for run in runs[live]] for key in (*SHOWN, "mismatches", "utilisation")
                }
                for live in runs
            }
            ratios = {
                key: statistics.median(kept["live"][key]) / statistics.median(kept["without"][key])
                for key in SHOWN
                if None not in (*kept["live"][key], *kept["without"][key])
                and statistics.median(kept["without"][key])
            }
            result["loads"][name] = {**kept, "ratio": ratios}
            medians = {
                key: [round(statistics.median(kept[how][key]), 3) for how in ("without", "live")]
                for key in SHOWN
                if None not in (*kept["live"][key], *kept["without"][key])
            }
            print(name, medians, {key: round(value, 3) for key, value in ratios.items()}, flush=True)
    save("live.json", result)


if __name__ == "__main__":
    main()
