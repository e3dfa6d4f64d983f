"""SIMULATED: stands in for an SGLang server in the demo: its arguments, log lines, readiness order and answers.

No model runs. One request at a time or many, each stream gets a chunk a verify step; the step takes as long as
`speed.step_s` says of the tokens in it, and brings as many as the chosen drafter would have accepted. So throughput,
acceptance length and GPU load change together as on a real host, and a draft that pays for one stream costs with many.

Environment: DDTOP_DEMO_DIR (where GPU state goes), SIM_LOAD_S (how long a start takes), and the faults of `faults.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

from ddtop.demo import faults
from ddtop.demo.engine_http import Handler
from ddtop.demo.speed import STEP_S, Speed


def parse(argv: list[str]) -> argparse.Namespace:
    """The part of SGLang's command line that the demo uses; unknown arguments are refused, as there."""
    parser = argparse.ArgumentParser(prog="sglang (SIMULATED)", allow_abbrev=False)
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--tp-size", "--tp", type=int, default=1)
    parser.add_argument("--speculative-algorithm")
    parser.add_argument("--speculative-num-draft-tokens", type=int)
    parser.add_argument("--speculative-dflash-block-size", type=int)
    parser.add_argument("--speculative-ddtree-budget", type=int)
    parser.add_argument("--random-seed", type=int, default=random.randint(0, 1 << 30))
    return parser.parse_args(argv)


def speed_of(args: argparse.Namespace) -> Speed:
    """The speed of this start. SIM_STEP_S sets the length of a step; SIM_SPREAD how far starts lie apart (sd)."""
    spread = random.gauss(0.0, float(os.environ.get("SIM_SPREAD", "0")))
    return Speed.of(
        algorithm=args.speculative_algorithm,
        draft_tokens=args.speculative_num_draft_tokens,
        budget=args.speculative_ddtree_budget,
        step_s=float(os.environ.get("SIM_STEP_S", STEP_S)) * max(0.5, 1 + spread),
    )


class Gpu:
    """What `nvidia-smi` will say of this process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.path = Path(os.environ["DDTOP_DEMO_DIR"], "gpu", f"{os.getpid()}.json")
        self.tp = args.tp_size
        self.model_path = Path(args.model_path)

    def say(
        self, phase: str, mib: float, activity: float = 0.0, busy: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        look = {"phase": phase, "mib": int(mib), "activity": activity, "busy": busy}
        new.write_text(json.dumps({"pid": os.getpid(), "tp": self.tp, **look}))
        new.rename(self.path)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def log(text: str) -> None:
    print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + text, flush=True)


def fail_if_told(gpu: Gpu) -> None:
    """Dies as SGLang does when a scheduler process fails, if this start is to."""
    words = faults.failure(gpu.model_path)
    if words is None:
        return
    log("Scheduler hit an exception: Traceback (most recent call last):")
    print(words, file=sys.stderr, flush=True)
    log("Received sigquit from a child process. It usually means the child failed.")
    gpu.forget()
    os.kill(os.getpid(), signal.SIGKILL)


def load(args: argparse.Namespace, gpu: Gpu) -> None:
    """The start of a server, line by line, with memory that grows as shards are read."""
    log(f"server_args={vars(args)!r}")
    model = Path(args.model_path)
    if not (model / "config.json").exists():
        print(
            f"OSError: {model} does not appear to have a file named config.json.", file=sys.stderr, flush=True
        )
        sys.exit(1)
    seconds = float(os.environ.get("SIM_LOAD_S", "4"))
    shards = len(list(model.glob("*.safetensors")))
    gpu.say("load", 600)
    log("Init parallel begin.")
    time.sleep(seconds * 0.1)
    log("Init parallel ends. elapsed=0.27 s")
    log("Load weight begin. avail mem=94.50 GB")
    for i in range(shards + 1):
        done = 100 * i // shards
        print(
            f"Loading safetensors checkpoint shards: {done:3d}% Completed | {i}/{shards} [00:0{i}<00:0{shards - i},  1.00it/s]",
            file=sys.stderr,
            flush=True,
        )
        if i == shards // 2:
            fail_if_told(gpu)
            faults.hang()
        gpu.say("load", 600 + 52_000 * i / shards)
        time.sleep(seconds * 0.5 / (shards + 1))
    log("Load weight end. elapsed=2.00 s, type=Qwen3ForCausalLM, avail mem=43.10 GB, mem usage=51.40 GB.")
    log("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 834615, K size: 16.12 GB, V size: 16.12 GB")
    log("Memory pool end. avail mem=10.20 GB")
    gpu.say("idle", 84_000)
    log("Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=9.95 GB")
    time.sleep(seconds * 0.2)
    log(
        "Capture target decode CUDA graph end. bs=[1, 2, 4, 8], elapsed=0.80 s, mem usage=1.41 GB, avail mem=8.54 GB."
    )
    log(
        "max_total_num_tokens=834615, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=2048, context_len=32768, available_gpu_mem=8.54 GB"
    )


def main(argv: list[str] | None = None) -> None:
    args = parse(sys.argv[1:] if argv is None else argv)
    gpu = Gpu(args)

    def stop(*_: object) -> None:
        log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        log("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        gpu.forget()
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    print("SIMULATED: no model runs here; this is the demo's stand-in for SGLang", flush=True)
    load(args, gpu)
    model = faults.FaultyModel(
        args=vars(args),
        speed=speed_of(args),
        gpu=gpu,
        log=log,
    )
    server = ThreadingHTTPServer((args.host, args.port), Handler)
    server.daemon_threads = True
    server.model = model  # type: ignore[attr-defined]  # how http.server hands things to its handlers
    log(f"INFO:     Started server process [{os.getpid()}]")
    log("INFO:     Waiting for application startup.")
    log("INFO:     Application startup complete.")
    log(f"INFO:     Uvicorn running on http://{args.host}:{args.port} (Press CTRL+C to quit)")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    time.sleep(0.5)
    model.ready.set()
    log("The server is fired up and ready to roll!")
    faults.arm(model)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
