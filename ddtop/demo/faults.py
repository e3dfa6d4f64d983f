"""SIMULATED: how the demo's engine can be made to fail, by its environment. Without these it works.

- SIM_FAIL_FIRST_START=NAME: dies at load with the log of a failure of `FAILURES`, at its first start
- SIM_FAIL_STARTS=N: … at its first N starts (default 1)
- SIM_HANG=load: stands still in the middle of loading, asleep, at its first start
- SIM_HANG_S=S: … for S seconds (default: for ever)
- SIM_ZERO_TOKENS=N: answers N requests, and gives no token from then on
- SIM_ZERO_TOKENS_IN=V: … only as version V
- SIM_LOG_RATE=R: writes R more log lines a second, numbered, while it is ready
- SIM_LOG_FOR_S=S: … for S seconds (default: for ever)
- SIM_LOG_LONG_B=B: writes one line of B bytes once it is ready
- SIM_STEP_S=S: seconds that one forward pass takes

The file `version` in DDTOP_DEMO_DIR is the version that it says it is: another text is an upgrade of the engine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ddtop.demo.engine_http import Model

FAILURES = {
    "nccl-watchdog": (
        "[rank0]:[E730 12:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for "
        "600029 milliseconds before timing out."
    ),
    "cuda-oom": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total capacity of "
        "95.59 GiB of which 1.12 GiB is free."
    ),
    "cublas": "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
    "cut-shard": (
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered"
    ),
}
"""By name: a transient cause, a cause in the arguments, a bug, and a weight file that is shorter than it should be."""


def first_times(what: str, times: int = 1) -> bool:
    """Whether this is one of the first `times` times that the demo's machine comes to `what`."""
    for n in range(times):
        try:
            Path(os.environ["DDTOP_DEMO_DIR"], f"{what}-{n}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def failure(model: Path) -> str | None:
    """The log line with which this start is to die; None where it is to live. `cut-shard` cuts a file of `model`."""
    name = os.environ.get("SIM_FAIL_FIRST_START")
    if not name or not first_times(f"failed-{name}", int(os.environ.get("SIM_FAIL_STARTS", "1"))):
        return None
    if name == "cut-shard":
        shard = sorted(model.glob("*.safetensors"))[-1]
        os.truncate(shard, shard.stat().st_size // 2)
    return FAILURES[name]


def hang() -> None:
    """Stands still, if this start is to."""
    if os.environ.get("SIM_HANG") == "load" and first_times("hung"):
        time.sleep(float(os.environ.get("SIM_HANG_S", "86400")))


class FaultyModel(Model):
    """The model, which may stop giving tokens."""

    answers_left: int | None = None

    def steps(self, prompt: str, limit: int) -> Iterator[tuple[int, str]]:
        if self.answers_left is None:
            return super().steps(prompt, limit)
        with self.lock:
            self.answers_left -= 1
        return super().steps(prompt, limit if self.answers_left >= 0 else 0)


def arm(model: FaultyModel) -> None:
    """Reads what the environment wants of a model that is ready, and begins it."""
    version = Path(os.environ["DDTOP_DEMO_DIR"], "version")
    if version.exists():
        model.version = version.read_text().strip()
    if (
        "SIM_ZERO_TOKENS" in os.environ
        and os.environ.get("SIM_ZERO_TOKENS_IN", model.version) == model.version
    ):
        model.answers_left = int(os.environ["SIM_ZERO_TOKENS"])
    long_b, rate = int(os.environ.get("SIM_LOG_LONG_B", "0")), float(os.environ.get("SIM_LOG_RATE", "0"))
    if long_b or rate:
        seconds = float(os.environ.get("SIM_LOG_FOR_S", "86400"))
        threading.Thread(target=_chatter, args=(rate, seconds, long_b), daemon=True).start()


def _chatter(rate: float, seconds: float, long_b: int) -> None:
    """Log lines at an even rate, each with its number, so that a missing one is seen."""
    if long_b:
        sys.stdout.write("long " + "x" * (long_b - 10) + " end\n")
        sys.stdout.flush()
    began, written = time.monotonic(), 0
    while rate and (gone := time.monotonic() - began) < seconds:
        due = int(gone * rate)
        sys.stdout.write("".join(f"chatter {n}\n" for n in range(written, due)))
        sys.stdout.flush()
        written = due
        time.sleep(0.05)
    if rate:
        print(f"chatter ends after {written} lines", flush=True)
