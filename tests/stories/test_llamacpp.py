"""The same kind of sweep with a real server and a real model: llama.cpp and SmolLM2-135M on the CPU of the bed's ct200.

Draft-model speculation with --draft-max 2, 4, 8 against none; here the draft model is the model itself, so nearly every
draft is accepted and nothing may change an answer. The server's own account of each request is the judge.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.figures.requests import read_request
from ddtop.events import CellMeasured, CellOutputs, Event
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.sweep.cell.accuracy_guard import outputs_of
from tests.stories.harness import Runner, left_behind, noted, took

PLAN = """
name = "real-llamacpp"
host = "ct200"
[model]
name = "SmolLM2-135M"
path = "/dev/shm/models/SmolLM2-135M"
sources = ["/data/models/SmolLM2-135M"]
[service]
kind = "systemd"
unit = "llama-bench.service"
engine = "llamacpp"
port = 30000
command = ["/usr/bin/python3", "/opt/real/server.py", "--model", "{model.path}/SmolLM2-135M-Instruct.Q4_1.gguf",
           "--host", "0.0.0.0", "--port", "{port}", "--threads", "1", "--ctx", "4096", "--parallel", "2"]
env = { CUDA_VISIBLE_DEVICES = "" }  # the bed's GPUs are SIMULATED: this real server runs on the CPU, and is meant to
[configs]
none = {}
"draft{n}" = { for = { n = [2, 4, 8] }, args = [
  "--spec", "draft_simple", "--draft-model", "{model.path}/SmolLM2-135M-Instruct.Q4_1.gguf", "--draft-max", "{n}"] }
[matrix]
baseline = "none"
[[workload]]
name = "prose"
prompts = ["Tell the story of a lighthouse keeper who rang a bell all night.", "Explain how bread rises.", "How is a bridge tested?"]
output_tokens = [@TOKENS@]
[sampling]
temperature = 0
ignore_eos = true
[bench]
requests_per_stream = @REQUESTS@
warmup = 1
time_limit_s = 300
[policy]
answer_s = 5
"""
CONFIGS = ("none", "draft2", "draft4", "draft8")
TITLE = "a real llama.cpp: ddtop's figures ÷ the server's own"


def requests_of(event: CellMeasured) -> list[dict[str, Any]]:
    """The single requests of a cell, as the recording keeps them."""
    found: list[dict[str, Any]] = unpack(event.raw)["requests"]
    return found


def sweep(host: Any, tmp_path: Path, tokens: int, requests: int, limit_s: float) -> tuple[State, list[Event]]:
    plan = PLAN.replace("@TOKENS@", str(tokens)).replace("@REQUESTS@", str(requests))
    before, started = host.snapshot(), time.monotonic()
    with Runner(host.bed, plan, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        code = runner.wait(limit_s)
        events, text = runner.events(), runner.text()
    took("a real llama.cpp", f"4 cells of {requests} requests, {tokens} tokens", time.monotonic() - started)
    state = fold(events)
    assert code == 0, text[-4000:]
    assert {c.state for c in state.plan_cells} == {"done"}, [
        (c.spec.config, c.state, c.reason) for c in state.plan_cells
    ]
    left = left_behind(host, before, ("/dev/shm/models",))
    assert left == [], "as found, but for the model that was staged"
    return state, events


def agreement(events: list[Event]) -> list[float]:
    """Each request's decode rate ÷ the server's `predicted_per_second`; its tokens must be the server's."""
    ratios = []
    for event in events:
        if not isinstance(event, CellMeasured):
            continue
        for record in requests_of(event):
            assert record["class"] == "ok", record
            assert record["tokens"] == record["timings"]["predicted_n"]
            rate = read_request(record).decode_tok_s
            assert rate is not None
            ratios.append(rate / record["timings"]["predicted_per_second"])
    return ratios


def check(state: State, events: list[Event], tokens: int, requests: int) -> None:
    """Rates, acceptance, answers and verdicts of the four cells."""
    by_config = {c.spec.config: c for c in state.plan_cells}
    assert tuple(by_config) == CONFIGS
    ratios = agreement(events)
    assert len(ratios) == 4 * requests >= 30
    for ratio in ratios:
        noted(TITLE, "decode tok/s of a request", ratio)
    assert abs(statistics.median(ratios) - 1) <= 0.02, statistics.median(ratios)
    measured = {e.cell_id: e for e in events if isinstance(e, CellMeasured)}
    for config, cell in by_config.items():
        assert cell.metrics["output_tokens"] == tokens * requests and cell.metrics["requests_ok"] == requests
        if config == "none":
            assert "acceptance_length" not in cell.metrics
            continue
        most = int(config.removeprefix("draft"))
        length, about = cell.metrics["acceptance_length"], cell.metrics["acceptance"]
        assert about["exact"] and about["source"] in ("llamacpp counters", "llama.cpp timings")
        timings = [r["timings"] for r in requests_of(measured[cell.id])]
        predicted, accepted = (
            sum(t["predicted_n"] for t in timings),
            sum(t["draft_n_accepted"] for t in timings),
        )
        assert accepted > 0 and 1.05 < length <= most + 1.005, (config, length)
        steps = predicted - requests - accepted  # the first token is no step's
        # The counters leave out steps without a draft; a request has at most one, its last.
        least, greatest = 1 + accepted / steps, 1 + accepted / max(1, steps - requests)
        noted(TITLE, f"acceptance length of {config} by {about['source']}", length / least)
        noted("a real llama.cpp: acceptance length", config, length)
        assert 0.99 * least <= length <= 1.01 * greatest, (config, least, length, greatest)
        assert cell.metrics["accuracy"]["compared"] == requests
        noted(
            "a real llama.cpp: share of answers equal to the baseline's",
            config,
            cell.metrics["accuracy"]["equal_share"],
        )
    lengths = [by_config[c].metrics["acceptance_length"] for c in CONFIGS[1:]]
    assert lengths[0] < lengths[1] < lengths[2], lengths
    kept = {e.cell_id: outputs_of(e) for e in events if isinstance(e, CellOutputs)}
    assert {len(a.texts) for a in kept.values()} == {requests}
    base = kept[by_config["none"].id]
    assert base.again and set(base.again) <= set(base.texts)


@pytest.mark.bed
def test_draft_speculation_against_none(ct200: Any, tmp_path: Path) -> None:
    check(*sweep(ct200, tmp_path, 12, 8, 600), 12, 8)


@pytest.mark.bed
@pytest.mark.stories
def test_draft_speculation_at_length(ct200: Any, tmp_path: Path) -> None:
    check(*sweep(ct200, tmp_path, 48, 30, 1500), 48, 30)
