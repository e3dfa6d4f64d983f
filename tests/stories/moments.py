"""The six moments at which the machine, or ddtop itself, goes away; and the sweep in which they are met."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddtop.journal.fold.state import State
from tests.stories.desk import Desk
from tests.stories.harness import plan_text

MOMENTS = ("stopping", "loading", "warm-up", "mid-cell", "between cells", "collecting")

CONFIGS = """
a = {}
z = { args = ["--context-length", "2048"] }
b = { args = ["--context-length", "8192"] }
c = { args = ["--context-length", "4096"] }
"""
MARKS = {"a": "", "z": "--context-length 2048", "b": "--context-length 8192", "c": "--context-length 4096"}
TOKENS, REQUESTS = (40, 56, 72), 5
CELLS = len(TOKENS)

AFTERWARDS = ("SPEED=10", "LOAD_S=5", "WARM_S=3")


def faults(moment: str) -> tuple[str, ...]:
    """a is quick; z never gives a token; b measures slowly. What the moment is of takes seconds longer than the rest."""
    return (
        "SPEED=10",
        "LOAD_S=5",
        "WARM_S=3",
        "WHEN=--context-length 2048",
        "ZERO_TOKENS=1",
        f"STOP_S={40 if moment == 'stopping' else 2}",
        "WHEN=--context-length 8192",
        "SPEED=4",
        "STOP_S=1",
        f"LOAD_S={12 if moment == 'loading' else 2}",
        f"WARM_S={10 if moment == 'warm-up' else 1}",
    )


def plan(name: str, answer_s: float) -> str:
    """Four configurations of three cells each; the second one is broken, the third one is the victim."""
    tokens = ", ".join(map(str, TOKENS))
    return plan_text(name, configs=CONFIGS, tokens=tokens, requests=REQUESTS, answer_s=answer_s)


def is_there(state: State, moment: str) -> bool:
    """Whether configuration b has come to `moment`, as the recording tells it."""
    last = state.restart
    phases = last.phases if last is not None and last.config == "b" else {}
    cells = [c for c in state.plan_cells if c.spec.config == "b"]
    match moment:
        case "stopping":
            return "stopping" in phases and phases["stopping"].state == "running"
        case "loading":
            return "loading" in phases and phases["loading"].state == "running"
        case "warm-up":
            return (
                ("listening" in phases or "warming" in phases)
                and last is not None
                and last.outcome == "running"
            )
        case "mid-cell" | "collecting":
            return any(
                c.state == "running" and c.progress and (c.progress.requests_done or 0) >= 1 for c in cells
            )
    return any(c.state == "done" for c in cells)


@contextmanager
def at_moment(desk: Desk, moment: str, seed: int) -> Iterator[None]:
    """Waits until configuration b has come to `moment`, and a seeded moment longer.

    "collecting": the job has ended on the host and the runner, held still meanwhile, has not taken its results; it is let go
    at the end of the block.
    """
    rng = random.Random(f"{moment}{seed}")
    desk.until(lambda _: is_there(desk.state(), moment), 120, f"moment: {moment}")
    if moment != "collecting":
        time.sleep(rng.random() * (0.1 if "cell" in moment else 1.0))
        yield
        return
    pid = desk.signal_runner(signal.SIGSTOP)
    try:
        wait_for_jobs(desk.host)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_for_jobs(host: Any, timeout_s: float = 30) -> None:
    """Until no load generator runs on the host."""
    deadline = time.monotonic() + timeout_s
    while "ddtop-job" in host.sh("systemctl list-units --no-legend --state=running 'ddtop-*'"):
        assert time.monotonic() < deadline, "the job does not end"
        time.sleep(0.1)
