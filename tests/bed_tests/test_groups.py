"""Acceptance by group against what the bed's servers counted themselves: SIMULATED SGLang, and a real llama.cpp."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.loadgen.measure import run_cell
from ddtop.bench.judge.cell import CellJudgement, judge_cell
from ddtop.plan import expand, parse_plan
from ddtop.plan.launch import PlannedCell
from tests.bed_tests.helpers import get, until
from tests.bed_tests.test_server import start

PLAN = """
name = "groups"
[service]
kind = "systemd"
unit = "ddtree-qwen.service"
engine = "ENGINE"
[configs]
tree = {}
[[workload]]
name = "mixed"
dataset = "file:mine.jsonl"
sample = 12
output_tokens = TOKENS
stop = "length"
MORE
[bench]
requests_per_stream = 1
warmup = 1
"""
WORDS = {
    "code": "Write a function that sorts numbers",
    "prose": "Tell of a lighthouse",
    "math": "Add 17 and 25",
}


def cells(folder: Path, engine: str, tokens: int, more: str = "", each: int = 4) -> list[PlannedCell]:
    rows = [
        {"prompt": f"{text}, {n} times.", "group": group}
        for group, text in WORDS.items()
        for n in range(each)
    ]
    (folder / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = PLAN.replace("ENGINE", engine).replace("TOKENS", str(tokens)).replace("MORE", more)
    return list(expand(parse_plan(text, folder=folder)[0]))


def measure(host: Any, cell: PlannedCell) -> tuple[dict[str, Any], CellJudgement]:
    raw = run_cell({**cell.bench.load, "url": f"http://{host.spec.ip}:30000", "gpus": "none"})
    return raw, judge_cell(raw)


def one_cell_tells_the_groups_apart(ct200: Any, tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, "sglang", 120)
    raw, judged = measure(ct200, cell)
    groups = {f"{cell.spec.id}-{r['i']}": r["group"] for r in raw["requests"]}
    truth: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for served in ct200.requests():
        if served["request_id"] in groups and served["tokens"] == 120:
            one = truth[groups[served["request_id"]]]
            one[0], one[1] = one[0] + served["tokens"], one[1] + served["verify"]
    found = judged.metrics["by_group"]
    assert set(found) == set(truth) == set(WORDS)
    for group, (tokens, steps) in truth.items():
        assert found[group]["acceptance_length"] == pytest.approx(tokens / steps, rel=1e-3)
    lengths = [found[g]["acceptance_length"] for g in ("code", "math", "prose")]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > 2 * lengths[2]


def cells_of_their_own_have_the_global_counters(ct200: Any, tmp_path: Path) -> None:
    mine = cells(tmp_path, "sglang", 120, "group_cells = true")
    assert [c.spec.workload for c in mine] == ["mixed:code", "mixed:prose", "mixed:math"]
    for cell in mine:
        before = len(ct200.requests())
        _, judged = measure(ct200, cell)
        served = ct200.requests()[before:]
        own = [r for r in served if r["request_id"].startswith(cell.spec.id) and r["tokens"] == 120]
        # The warm-up's request has the cell's id too; the counters' window begins after it.
        window = own[-cell.bench.load["requests"] :]
        length = sum(r["tokens"] for r in window) / sum(r["verify"] for r in window)
        assert judged.metrics["acceptance_length"] == pytest.approx(length, rel=1e-3)
        assert judged.metrics["by_group"][cell.spec.group]["acceptance_length"] == pytest.approx(
            length, rel=1e-3
        )


def test_groups_have_what_the_server_counted(ct200: Any, tmp_path: Path) -> None:
    """In one cell by each response's own counter, and in cells of their own by the global ones: one start for both."""
    ct200.fault("SPEED=12", "LOAD_S=0.5", ACCEPT_OF="function:4.3,lighthouse:1.7,Add:2.9")
    start(ct200, "ddtree-qwen")
    one_cell_tells_the_groups_apart(ct200, tmp_path)
    cells_of_their_own_have_the_global_counters(ct200, tmp_path)


def test_a_real_llama_server_tells_its_groups_apart(ct200: Any, tmp_path: Path) -> None:
    ct200.sh("mkdir -p /dev/shm/models && cp -r /data/models/SmolLM2-135M /dev/shm/models/")
    model = "/dev/shm/models/SmolLM2-135M/SmolLM2-135M-Instruct.Q4_1.gguf"
    ct200.sh(
        "systemd-run -q --unit=llama-groups -E PYTHONPATH=/opt/xllamacpp /usr/bin/python3 /opt/real/server.py --host 0.0.0.0 "
        f"--threads 1 --ctx 2048 --model {model} --spec draft_simple --draft-model {model} --draft-max 4"
    )
    until(lambda: get(ct200.spec.ip, "/health")[0] == 200, 60)
    (cell,) = cells(tmp_path, "llamacpp", 16, each=2)
    raw, judged = measure(ct200, cell)
    assert judged.metrics["requests_ok"] == 6, judged.details
    found = judged.metrics["by_group"]
    assert {group: one["n"] for group, one in found.items()} == dict.fromkeys(WORDS, 2)
    for group, one in found.items():
        timings = [r["timings"] for r in raw["requests"] if r["group"] == group]
        tokens = sum(t["predicted_n"] - 1 for t in timings)
        accepted = sum(t["draft_n_accepted"] for t in timings)
        assert accepted > 0
        assert one["acceptance_length"] == pytest.approx(tokens / (tokens - accepted), rel=1e-3)
    counted = sum(one["output_tokens"] for one in found.values())
    assert counted == judged.metrics["server_output_tokens"] == 6 * 16, "the server's own counter"
