"""Distributions of lengths and traces in a plan: what reaches the load generator, what is refused, what is recorded."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.loadgen.asked.lengths import WANTED, problem_of
from ddtop.agent.loadgen.spec import load_spec
from ddtop.plan import InvalidPlanError, expand, parse_plan, show
from ddtop.plan.read.lengths import KEYS
from ddtop.plan.refine import further

from .test_conversations import IDS, TEXT

LOGNORMAL = '{ dist = "lognormal", mean = 300, p99 = 2000 }'
ROWS: list[dict[str, Any]] = [
    {"timestamp": at, "input_length": 600 + at, "output_length": 10, "hash_ids": [1, at]}
    for at in range(0, 5000, 500)
]


def drawn(output: str = "32", context: str = "0") -> str:
    text = TEXT.replace("output_tokens = 32", f"output_tokens = {output}")
    return text.replace("[matrix]\n", f"[matrix]\ncontext = {context}\n")


def traced(more: str = "") -> str:
    head = TEXT[: TEXT.index("prompts =")]
    return f'{head}trace = "t.jsonl"\n{more}'


def write(folder: Path, rows: list[Any]) -> None:
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_both_sides_know_the_same_distributions() -> None:
    assert {name: tuple(sorted(keys)) for name, keys in KEYS.items()} == {
        name: tuple(sorted(keys)) for name, keys in WANTED.items()
    }


def test_a_distribution_reaches_the_load_generator() -> None:
    plan, _ = parse_plan(drawn(LOGNORMAL, '{ dist = "uniform", min = 0, max = 8192 }'))
    cell = expand(plan)[0]
    asked = cell.bench.load
    assert asked["output_lengths"] == {"dist": "lognormal", "mean": 300, "p99": 2000}
    assert asked["context_lengths"] == {"dist": "uniform", "min": 0, "max": 8192} and asked["context"] == 0
    assert (cell.spec.output_tokens, cell.spec.context) == (300, 4096), "the means"
    words = "output lognormal, mean 300, p99 2,000; context uniform, min 0, max 8,192"
    assert cell.spec.shape == words and words in show(plan)
    load_spec(asked)


def test_ids_of_fixed_lengths_stay() -> None:
    assert [c.spec.id for c in expand(parse_plan(drawn())[0])] == IDS
    other = [c.spec.id for c in expand(parse_plan(drawn(LOGNORMAL))[0])]
    same_mean = [c.spec.id for c in expand(parse_plan(drawn("300"))[0])]
    assert len({*IDS, *other, *same_mean}) == 6


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ("{ mean = 3 }", "output_tokens.dist: is missing"),
        ('{ dist = "lognorml" }', "did you mean `lognormal`?"),
        ('{ dist = "lognormal", mean = 300 }', "output_tokens.p99: is missing"),
        ('{ dist = "lognormal", mean = 300, p99 = 200 }', "above the mean"),
        ('{ dist = "lognormal", mean = 300, p99 = 200000 }', "14.9 times the mean (300)"),
        ('{ dist = "uniform", min = 9, max = 3 }', "output_tokens.max: found 3; allowed: at least min (9)"),
        ('{ dist = "uniform", min = 0, max = 3 }', "output_tokens.min: found 0"),
        ('{ dist = "fixed", value = 3, p99 = 3 }', "output_tokens.p99: is not a key ddtop knows"),
        ('{ dist = "list", values = [] }', "output_tokens.values"),
    ],
)
def test_what_is_no_distribution_is_said(lengths: str, said: str) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        parse_plan(drawn(lengths))
    assert said in str(caught.value)


def test_what_a_plan_lets_through_the_load_generator_takes() -> None:
    for text in (
        LOGNORMAL,
        '{ dist = "normal", mean = 9, sd = 0 }',
        '{ dist = "list", values = [1, 2] }',
        '{ dist = "fixed", value = 1 }',
    ):
        asked = expand(parse_plan(drawn(text))[0])[0].bench.load["output_lengths"]
        assert problem_of(asked, 1) == ""


# ---- traces


def test_a_trace_is_a_load_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    plan, warnings = parse_plan(traced("speed = [1.0, 10.0]\n"), folder=tmp_path)
    cells = expand(plan)
    assert [c.spec.load_name for c in cells] == ["2.22 req/s", "10 req/s"], "no matter what [matrix] asks"
    asked = cells[1].bench.load
    assert (asked["arrival"], asked["speed"], asked["requests"], asked["warmup"]) == ("trace", 10.0, 10, 1)
    assert asked["prompts"][2] == {
        "at_ms": 1000,
        "input_tokens": 1600,
        "output_tokens": 10,
        "hash_ids": [1, 1000],
    }
    assert cells[1].spec.shape == "trace t.jsonl, 10 requests at 10 times its speed"
    assert cells[0].spec.output_tokens == 10 and not [w for w in warnings if "trace" in w.path]
    load_spec(asked)


def test_refining_leaves_a_trace_alone(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    text = traced() + TEXT[TEXT.index("[[workload]]") :].replace('"chat"', '"single"')
    text = text.replace("concurrency = [4]", 'concurrency = [4, 16]\nrefine = "break-even"').replace(
        "auto = {}", "auto = {}\nb = { args = ['x'] }"
    )
    found = further(parse_plan(text, folder=tmp_path)[0])
    assert {cell.spec.workload for cell in found} == {"single"}
    assert {cell.spec.concurrency for cell in found} == {6, 8, 11}


def test_the_first_part_of_a_trace(tmp_path: Path) -> None:
    """What is used of the file is recorded, and a resumed run reads it from there."""
    write(tmp_path, ROWS)
    plan, _ = parse_plan(traced("duration_s = 2.6\n"), folder=tmp_path)
    assert expand(plan)[0].bench.load["requests"] == 6
    assert len(plan.files["t.jsonl"].splitlines()) == 6
    again, _ = parse_plan(traced("duration_s = 2.6\n"), files=plan.files)
    assert [c.spec.id for c in expand(again)] == [c.spec.id for c in expand(plan)]


def test_a_trace_that_is_too_large_for_a_line_of_the_agent_is_refused(tmp_path: Path) -> None:
    rng = random.Random(1)
    row = {"input_length": 9000, "output_length": 90}
    write(tmp_path, [{**row, "timestamp": n, "hash_ids": rng.sample(range(10**9), 18)} for n in range(5000)])
    with pytest.raises(
        InvalidPlanError, match=r"has 5,000 requests, .* kB, packed\); its first part: duration_s = \d\n"
    ):
        parse_plan(traced(), folder=tmp_path)


def test_a_trace_that_lasts_longer_than_a_cell_may_is_warned_of(tmp_path: Path) -> None:
    write(tmp_path, [{**row, "timestamp": row["timestamp"] * 1000} for row in ROWS])
    warnings = parse_plan(traced(), folder=tmp_path)[1]
    assert any("lasts 4,500 s at speed 1" in str(one) for one in warnings)


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        (ROWS, "turns = 2\n", "workload[0].turns: is what a trace says by itself"),
        (ROWS, 'prompts = ["a"]\n', "workload[0].prompts: is what a trace says by itself"),
        (ROWS, "output_tokens = 5\n", "workload[0].output_tokens: is what a trace says by itself"),
        (ROWS, "speed = 0\n", "workload[0].speed: found 0"),
        ([], "", "t.jsonl holds no request"),
        ([5], "", "t.jsonl line 1: found 5"),
        ([*ROWS, {**ROWS[0], "timestamp": 5}], "", "line 11: timestamp 5 is before the line ahead of it"),
        ([{**ROWS[0], "input_length": 0}], "", "line 1: input_length: found 0"),
        ([{**ROWS[0], "output_length": "5"}], "", 'line 1: output_length: found "5"'),
        ([{**ROWS[0], "hash_ids": [1.5]}], "", "line 1: hash_ids"),
        ([{"input_length": 1, "output_length": 1}], "", "line 1: timestamp: found"),
    ],
)
def test_what_is_no_trace_is_said_with_its_line(
    tmp_path: Path, rows: list[Any], more: str, said: str
) -> None:
    write(tmp_path, rows)
    with pytest.raises(InvalidPlanError) as caught:
        parse_plan(traced(more), folder=tmp_path)
    assert said in str(caught.value)


def test_a_trace_that_is_not_there_or_no_json(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlanError, match="cannot be read: No such file"):
        parse_plan(traced(), folder=tmp_path)
    (tmp_path / "t.jsonl").write_text(json.dumps(ROWS[0]) + "\n{timestamp\n")
    with pytest.raises(InvalidPlanError, match=r"t.jsonl line 2 is not JSON"):
        parse_plan(traced(), folder=tmp_path)
    with pytest.raises(InvalidPlanError, match="stands without a trace"):
        parse_plan(TEXT + "speed = 2\n")
