"""A whole run to be published: the real runner, agent, load generator and SSH server; SIMULATED GPUs and engine."""

from __future__ import annotations

import json
import zipfile

from ddtop.commands.plans.again import plan_again
from ddtop.journal.read.reader import read_state
from ddtop.journal.read.server_figures import load_of
from ddtop.journal.results.per_gpu import per_gpu
from ddtop.plan import check_plan, expand
from ddtop.report.bundle.write import write_bundle

from .rig import Rig


def test_what_a_run_records_is_what_a_reviewer_gets(rig: Rig) -> None:
    """GPUs held, server figures, selftest, licence, prompts from a file; the bundle shows them; its plan is the same."""
    prompts = rig.world.root / "own prompts.jsonl"
    prompts.write_text('"Count to ten."\n"Count to twenty."\n')
    text = rig.plan(tokens="[48]", requests=8, step_s=0.03, tail="[record]\nselftest = true\n")
    inline = 'prompts = ["Write a Python program that prints the first 50 Fibonacci numbers."]'
    assert inline in text
    text = text.replace(inline, f'prompts_file = "{prompts}"\nlicense = "CC0-1.0"')
    runner = rig.start(text)
    assert runner.wait() == 0, runner.said()
    prompts.unlink()

    state = read_state(runner.recording)
    cells = [c for c in state.plan_cells if c.state == "done"]
    assert cells
    assert state.selftest is not None and state.selftest["token_mismatches"] == 0
    assert {r.provenance.gpus for r in state.restarts if r.provenance is not None} == {(0,)}
    for cell in cells:
        assert set(cell.metrics["gpus"]) == {"0"}, "the host's idle GPUs are not the server's"
        found = load_of(cell)
        assert found["n"] >= 2
        assert 0 < found["running"]["max"] <= 1 and found["queued"]["max"] == 0
        assert 0 < found["kv_pct"]["max"] < 5
    assert [p.gpus for p in per_gpu(state)] == [1] * len({c.spec.config for c in cells})

    out = rig.home / "out.zip"
    rig.home.mkdir(exist_ok=True)
    write_bundle(runner.recording, out)
    with zipfile.ZipFile(out) as archive:
        checks = {c["id"]: c for c in json.loads(archive.read("checklist.json"))["checks"]}
    assert checks["prompts"]["met"] == "met", checks["prompts"]
    assert "CC0-1.0" in checks["prompts"]["why"]
    assert checks["client-error"]["why"].startswith(("ITL error", "not fit"))
    assert checks["command"]["met"] == "met"
    assert checks["image"]["met"] == "n/a"
    assert checks["complete"]["met"] == "met"
    assert checks["real"]["met"] == "not met"

    text, code = plan_again(str(out), rig.home / "again.toml")
    assert code == 0, text
    plan, _ = check_plan(rig.home / "again.toml", environ={})
    assert {c.spec.id for c in expand(plan)} == {c.spec.id for c in state.plan_cells}
