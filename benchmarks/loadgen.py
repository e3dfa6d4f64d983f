"""ddtop's load generator against stampd: TTFT bias, ITL error, CPU a chunk, delivered share, memory; and its saturation.

python benchmarks/loadgen.py [--pin] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from common import ROOT, Stampd, build_stampd, machine, percentile, pinned, run_counted, save, truth_figures

TTFT_MS, DT_MS, TOKENS, ROUNDS = 100.0, 20.0, 100, 3


def one(
    server: Stampd,
    folder: str,
    pin: bool,
    *,
    streams: int,
    tokens: int,
    rounds: int,
    connections: str,
    dt_ms: float,
    python: str,
) -> dict[str, Any]:
    """One run of the generator as the detached job runs it: its own process, a job file in, a result file out."""
    server.dump()
    job = {
        "schema": 1,
        "cells": [
            {
                "id": "b",
                "url": server.url,
                "model": "stampd",
                "prompts": ["word " * 200],
                "concurrency": streams,
                "requests": streams * rounds,
                "output_tokens": tokens,
                "gpus": "none",
                "connections": connections,
            }
        ],
    }
    path = f"{folder}/job.json"
    with open(path, "w") as file:
        json.dump(job, file)
    result_path = f"{folder}/cell-b.json"
    if os.path.exists(result_path):
        os.unlink(result_path)
    argv = pinned([python, "-m", "ddtop.agent.loadgen", path, folder], 0, 10, pin)
    run = run_counted(argv, cwd=str(ROOT))
    truth = server.dump()
    from ddtop.agent.loadgen.records import unpack

    with open(result_path) as file:
        result = unpack(json.load(file))
    return figures(result, truth, run, rounds, dt_ms, tokens)


def figures(
    result: dict[str, Any],
    truth: list[dict[str, Any]],
    run: dict[str, Any],
    rounds: int,
    dt_ms: float,
    tokens: int,
) -> dict[str, Any]:
    zero = result["window"]["zero_mono_ns"]
    true = {row["id"]: row for row in truth}
    ttft: list[float] = []
    itl: list[float] = []
    mismatches = shared = chunks = thinned = 0
    for record in result["requests"]:
        row = true.get(f"b-{record['i']}")
        if (
            row is None
            or record["class"] != "ok"
            or record["tokens"] != row["tokens"]
            or record["chunks"] != row["chunks"]
        ):
            mismatches += 1
            continue
        chunks += record["chunks"]
        shared += record.get("shared", 0)
        times = record.get("t")
        first = times[0] if times else record["first"]
        ttft.append((first - record["start"] - (row["first_ns"] - row["arrive_ns"])) / 1e6)
        if not times:
            thinned += 1
            continue
        doubtful = set(record.get("shared_at") or [])
        itl += [
            abs(times[i] - (row["stamps"][i] - row["stamps"][i - 1])) / 1e3
            for i in range(1, len(times))
            if i not in doubtful and i - 1 not in doubtful
        ]
    assert zero
    ttft.sort()
    itl.sort()
    ideal = TTFT_MS / 1e3 + dt_ms / 2e3 + (tokens - 1) * dt_ms / 1e3
    client = result["clients"][0]
    return {
        "ttft_bias_p50_ms": percentile(ttft, 0.5),
        "ttft_bias_p99_ms": percentile(ttft, 0.99),
        "itl_error_p50_us": percentile(itl, 0.5),
        "itl_error_p99_us": percentile(itl, 0.99),
        "gaps_compared": len(itl),
        "requests_without_chunk_times": thinned,
        "mismatches": mismatches,
        "coalesced_share": shared / chunks if chunks else None,
        "chunks": chunks,
        "cpu_us_per_chunk_window": sum(c["cpu_s"] for c in result["clients"]) * 1e6 / chunks
        if chunks
        else None,
        "cpu_us_per_chunk_process": run["cpu_s"] * 1e6 / chunks if chunks else None,
        "utilisation": client["utilisation"],
        "clock": client["clock"],
        "window_rss_mib": client["max_rss_mib"],
        "max_rss_mib": run["max_rss_mib"],
        "process_wall_s": run["wall_s"],
        **{
            "true_" + key: value
            for key, value in truth_figures(truth, ideal, rounds, run["started_ns"]).items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", default="loadgen.json")
    options = parser.parse_args()
    binary = build_stampd()
    folder = str(binary.parent)
    result: dict[str, Any] = {
        "machine": machine(),
        "pinned": options.pin,
        "aligned": {},
        "cold": {},
        "cold_start": {},
        "tokens_4": {},
        "saturation": {},
    }
    counts = (16, 256) if options.quick else (1, 16, 64, 256, 512)
    with Stampd(binary, options.pin, ttft_us=TTFT_MS * 1e3, dt_us=DT_MS * 1e3, step=1) as server:
        for streams in counts:
            for name, how in (("aligned", "keep-alive"), ("cold", "cold"), ("cold_start", "cold-start")):
                if name != "aligned" and streams not in (64, 256):
                    continue
                got = one(
                    server,
                    folder,
                    options.pin,
                    streams=streams,
                    tokens=TOKENS,
                    rounds=ROUNDS,
                    connections=how,
                    dt_ms=DT_MS,
                    python=options.python,
                )
                result[name][streams] = got
                print(
                    name,
                    streams,
                    {
                        k: got[k]
                        for k in (
                            "ttft_bias_p50_ms",
                            "ttft_bias_p99_ms",
                            "itl_error_p50_us",
                            "itl_error_p99_us",
                            "cpu_us_per_chunk_window",
                            "true_delivered_share",
                            "mismatches",
                        )
                    },
                )
        server.get("/ctl?k=4&k0=1")
        got = one(
            server,
            folder,
            options.pin,
            streams=64,
            tokens=TOKENS,
            rounds=ROUNDS,
            connections="keep-alive",
            dt_ms=DT_MS,
            python=options.python,
        )
        result["tokens_4"][64] = got
        print("4 tokens a chunk, 64 streams: mismatches", got["mismatches"])
    for streams, dt_ms in ((256, 16.0), (512, 16.0), (512, 12.8), (512, 11.4)):
        with Stampd(binary, options.pin, ttft_us=TTFT_MS * 1e3, dt_us=dt_ms * 1e3, step=0) as server:
            got = one(
                server,
                folder,
                options.pin,
                streams=streams,
                tokens=200,
                rounds=1,
                connections="keep-alive",
                dt_ms=dt_ms,
                python=options.python,
            )
        rate = round(streams * 1e3 / dt_ms)
        result["saturation"][rate] = got
        print(
            "saturation",
            rate,
            "chunks/s",
            {
                k: got[k]
                for k in (
                    "itl_error_p50_us",
                    "itl_error_p99_us",
                    "utilisation",
                    "true_delivered_share",
                    "coalesced_share",
                )
            },
        )
    save(options.out, result)


if __name__ == "__main__":
    main()
