"""What the tools report of servers that lie: the conformance server's behaviours, 16 requests of 64 tokens, 4 streams.

    python benchmarks/conformance.py --peers DIR [--tools ddtop,sglang,aiperf,guidellm] [--behaviours empty,cut,…]

A behaviour is told by the URL's path; each tool appends its own /v1/chat/completions. See peers.py for DIR.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, machine, run_counted, save
from peers import Tools, make_tokenizer

BEHAVIOURS = "normal,empty,cut,err,err-first,early,abort,no-usage,final-usage,reasoning-only,tools,comments,keepalive-events,crlf,utf8,gzip,http10,big,503,stall-50"
STREAMS, REQUESTS, TOKENS = 4, 16, 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--tools", default="ddtop,sglang,guidellm,aiperf")
    parser.add_argument("--behaviours", default=BEHAVIOURS)
    parser.add_argument("--timeout", type=float, default=100)
    parser.add_argument("--out", default="conformance.json")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.bench.servers.lying import BEHAVIOURS as TRUTHS

    work = Path(tempfile.mkdtemp(prefix="ddtop-bench-"))
    tools = Tools(options.peers.resolve(), work, make_tokenizer(work, str(options.peers / "sg/bin/python")))
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.servers.lying", "--step", "0.01"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert server.stdout is not None
    url = "http://" + server.stdout.readline().split()[-1]
    result: dict[str, Any] = {
        "machine": machine(),
        "streams": STREAMS,
        "requests": REQUESTS,
        "tokens": TOKENS,
        "rows": {},
    }
    try:
        for behaviour in options.behaviours.split(","):
            truth = TRUTHS[behaviour]
            row: dict[str, Any] = {
                "truth": {"class": truth.cls, "tokens_per_request": truth.tokens, "note": truth.note}
            }
            for tool in options.tools.split(","):
                found = tools.argv(tool, f"{url}/b/{behaviour}", STREAMS, REQUESTS, TOKENS)
                if found is None:
                    continue
                argv, env = found
                begun = time.monotonic()
                run = run_counted(
                    argv, env=env, timeout_s=options.timeout, cwd=str(ROOT) if tool == "ddtop" else str(work)
                )
                row[tool] = {
                    "rc": run["rc"],
                    "wall_s": round(time.monotonic() - begun, 1),
                    **tools.reported(tool),
                }
                if run["rc"]:
                    row[tool]["tail"] = run["output"][-400:]
                print(behaviour, tool, {k: v for k, v in row[tool].items() if k != "tail"}, flush=True)
            result["rows"][behaviour] = row
            save(options.out, result)
    finally:
        server.terminate()
        server.wait(5)
    print("load", os.getloadavg())


if __name__ == "__main__":
    main()
