"""`python -m tests.campaign N [--seed S] [--host ct200]`: random faults until N of them have acted; one line of JSON a trial."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from tests.bed.client import Bed
from tests.bed.config import HOSTS, INSTANCE
from tests.bed.oracle import Oracle
from tests.campaign import draw
from tests.campaign.trial import run
from tests.conftest import BedHost

MOST_BROKEN = 5
"""Trials that the harness itself may fail before it gives up."""


def main() -> int:
    ap = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    ap.add_argument("faults", type=int, help="how many faults are to act")
    ap.add_argument("--seed", type=int, default=1, help="seed of the first trial; each one has the next")
    ap.add_argument("--host", choices=HOSTS, default="ct200")
    ap.add_argument("--kinds", default="", help="only these kinds, by commas")
    ap.add_argument("--shape", choices=draw.SHAPES, default="", help="only this sweep")
    ap.add_argument("--out", type=Path, default=Path("/tmp/ddtop-campaign"))
    args = ap.parse_args()
    bed = Bed()
    bed.up()
    host = BedHost(args.host, bed, Oracle(bed))
    acted, bad, broken, seed = 0, 0, 0, args.seed
    rows = args.out / "trials.jsonl"
    args.out.mkdir(parents=True, exist_ok=True)
    while acted < args.faults and broken < MOST_BROKEN:
        trial = draw.trial(seed, [k for k in args.kinds.split(",") if k], shape=args.shape)
        seed += 1
        began = time.monotonic()
        try:
            row = asdict(run(host, args.out / f"{INSTANCE}-{args.host}-{trial.seed}", trial))
        except Exception:  # the harness failed: no verdict on ddtop
            row = {"host": args.host, "seed": trial.seed, "harness": traceback.format_exc()[-1500:]}
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        acted += len(row.get("faults", ()))
        bad += bool(row.get("violations"))
        broken += "harness" in row
        kinds = " ".join(f"{f['kind']}@{f['at_s']}" for f in row.get("faults", ()))
        said = "; ".join(f"{v[0]}: {v[1][:160]}" for v in row.get("violations", ())) or "ok"
        said = row.get("harness", "")[-300:] or said
        took = time.monotonic() - began
        print(
            f"{args.host} {trial.seed} {trial.shape} [{kinds}] done {row.get('done')} anew {row.get('anew')} {took:.0f} s: {said}",
            flush=True,
        )
    print(
        f"{acted} faults in {seed - args.seed} trials, {bad} trials with a violation, {broken} not judged: the harness failed"
    )
    return bool(bad or broken)


if __name__ == "__main__":
    sys.exit(main())
