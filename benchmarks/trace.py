"""How well a trace is replayed: the lag of its schedule at a rate, against stampd, and the arrivals that the server's kernel saw.

python benchmarks/trace.py [--pin] [--rate 500] [--seconds 10] [--tokens 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from typing import Any

from common import ROOT, Stampd, build_stampd, machine, percentile, pinned, run_counted, save


def requests(rate: float, seconds: float, tokens: int) -> list[dict[str, Any]]:
    """A SIMULATED trace: random arrivals, prompts of about so many tokens of which half is shared by ten others."""
    source, at_ms, out = random.Random(1), 0.0, []
    while at_ms < seconds * 1e3:
        size = max(1, int(source.lognormvariate(0, 0.6) * tokens))
        blocks = -(-size // 512)
        group = source.randrange(max(1, int(rate * seconds / 10)))
        ids = [f"g{group}-{n}" if n < blocks // 2 else f"{len(out)}-{n}" for n in range(blocks)]
        out.append(
            {"at_ms": at_ms, "input_tokens": size, "output_tokens": source.randint(5, 40), "hash_ids": ids}
        )
        at_ms += source.expovariate(rate) * 1e3
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--out", default="trace.json")
    options = parser.parse_args()
    rows = requests(options.rate, options.seconds, options.tokens)
    folder = tempfile.mkdtemp(prefix="ddtop-trace-")
    with Stampd(build_stampd(), options.pin, ttft_us=20000, dt_us=5000) as server:
        cell = {
            "id": "t",
            "url": server.url,
            "model": "stampd",
            "prompts": rows,
            "gpus": "none",
            "nonce": "b",
        }
        with open(f"{folder}/job.json", "w") as file:
            json.dump({"schema": 1, "cells": [{**cell, "mode": "open", "arrival": "trace"}]}, file)
        argv = [sys.executable, "-m", "ddtop.agent.loadgen", f"{folder}/job.json", folder]
        run = run_counted(pinned(argv, 0, 10, options.pin), cwd=str(ROOT))
        truth = {row["id"]: row for row in server.dump()}
    from ddtop.agent.loadgen.records import unpack

    with open(f"{folder}/cell-t.json") as file:
        result = unpack(json.load(file))
    zero, records = result["window"]["zero_mono_ns"], result["requests"]
    ok = [one for one in records if one["class"] == "ok"]
    lags = sorted((one["start"] - one["sched"]) / 1e6 for one in ok)
    arrived = sorted(
        (truth[f"t-{one['i']}"]["arrive_ns"] - zero - one["sched"]) / 1e6
        for one in ok
        if f"t-{one['i']}" in truth
    )
    client = result["clients"][0]
    found = {
        "requests": len(records),
        "ok": len(ok),
        "rate": len(records) / (max(one["sched"] for one in records) / 1e9),
        "lag_ms": {"p50": percentile(lags, 0.5), "p99": percentile(lags, 0.99), "max": lags[-1]},
        "arrival_ms": {"p50": percentile(arrived, 0.5), "p99": percentile(arrived, 0.99), "max": arrived[-1]},
        "utilisation": client["utilisation"],
        "cpu_s": run["cpu_s"],
        "max_rss_mib": run["max_rss_mib"],
    }
    print(json.dumps(found, indent=1))
    save(options.out, {"machine": machine(), "options": vars(options), "trace": found})
    os.unlink(f"{folder}/job.json")


if __name__ == "__main__":
    main()
