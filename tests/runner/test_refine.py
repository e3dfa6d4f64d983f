"""A break-even refined by a real runner on the demo's machine, killed on the way; a wrapper that simulates acceptance."""

from __future__ import annotations

import json
import os
import signal

from ddtop.bench.worth.advice import advise
from ddtop.bench.worth.curves import all_curves
from ddtop.events import RestartReady

from .rig import Rig

SPEED = {"a": {1: 100, 2: 190, 3: 280, 5: 450, 8: 700}, "b": {1: 150, 2: 250, 3: 310, 5: 420, 8: 500}}
"""tok/s by concurrency: b gains up to 3 and loses from 5. `c` is as `b`, and its wrapper simulates acceptance."""
BENCH = f"""
import json, pathlib, sys
config, streams, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
speed = {SPEED}
with open(pathlib.Path(sys.argv[0]).with_suffix(".told"), "a") as told:
    told.write(config + " " + str(streams) + chr(10))
pathlib.Path(out).write_text(json.dumps({{"tok_s": speed.get(config, speed["b"])[streams]}}))
"""


def plan_of(rig: Rig) -> str:
    python = rig.world.bin / "python3"
    script, wrapper = rig.world.root / "bench.py", rig.world.root / "start.sh"
    script.write_text(BENCH)
    # It does not exec: the server is its child, and what it exports is in no launch.
    wrapper.write_text(
        '#!/bin/sh\nif [ "$1" = simulate ]; then export SGLANG_SIMULATE_ACC_LEN=3.3; fi\nshift\n"$@"\nexit $?\n'
    )
    wrapper.chmod(0o755)
    bench = json.dumps([str(python), str(script), "{config}", "{concurrency}", "{result}"])
    plan = rig.plan(
        "a = { set = { how = 'plain' } }\n"
        "b = { args = ['--speculative-algorithm', 'DFLASH'], set = { how = 'plain' } }\n"
        "c = { args = ['--speculative-algorithm', 'DDTREE'], set = { how = 'simulate' } }"
    )
    plan = plan.replace(f'command = ["{python}"', f'command = ["{wrapper}", "{{how}}", "{python}"')
    plan = plan.replace('baseline = "a"', 'baseline = "a"\nconcurrency = [1, 8]\nrefine = "break-even"')
    return plan.replace(
        "requests_per_stream = 2\nwarmup = 0\n",
        f'kind = "command"\nargv = {bench}\nmetrics = {{ output_tok_s = "tok_s" }}\n',
    )


def test_a_killed_runner_refines_the_same(rig: Rig) -> None:
    plan = plan_of(rig)
    first = rig.start(plan)
    first.until(lambda s: [c for c in s.plan_cells if c.spec.refines and c.state == "done"], "a refined cell")
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.wait(10)
    runner = rig.start(plan)
    assert runner.wait() == 0, runner.said()[-4000:]
    state = runner.state()
    measured = {(c.spec.config, c.spec.concurrency) for c in state.plan_cells if c.state == "done"}
    assert measured == {(x, c) for x in "ab" for c in (1, 2, 3, 5, 8)} | {("c", 1), ("c", 8)}
    assert len(state.plan_cells) == len(measured)
    assert len(runner.of(RestartReady)) in (4, 5), (
        "a, b, c and a once more; the killed runner's server may have to start again"
    )
    by_config = {r.config: r.acceptance_simulated or "" for r in state.restarts if r.outcome == "ready"}
    assert by_config["a"] == by_config["b"] == ""
    assert by_config["c"].startswith("SGLANG_SIMULATE_ACC_LEN=3.3 in the environment of process ")
    assert all(("acceptance-simulated" in c.reasons) == (c.spec.config == "c") for c in state.plan_cells)
    (found,) = (advise(curves) for curves in all_curves(state))
    assert found.words == "c 1–3: b · from 4: a"
    assert "c at c 1, 8: its acceptance is simulated" in found.not_measured
