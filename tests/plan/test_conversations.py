"""`turns`, `think_ms` and `shared_prefix_tokens` of a workload: what is asked, what is refused, and which ids stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.plan import InvalidPlanError, Plan, expand, parse_plan, show

TEXT = """
name = "w"
[service]
kind = "process"
unit = "u"
engine = "sglang"
port = 30000
command = ["python3", "serve.py"]
[configs]
auto = {}
[matrix]
concurrency = [4]
load = [{ rate = 2.0, duration_s = 10 }]
[[workload]]
name = "chat"
prompts = ["a", "b", "c"]
output_tokens = 32
"""
IDS = ["5d9b4a86445e", "04a186d7bd9c"]
"""As they were before a workload could have turns."""


def plan(workload: str = "", bench: str = "", folder: Path | None = None) -> Plan:
    return parse_plan(TEXT + workload + bench, folder=folder)[0]


def test_ids_of_single_prompts_are_what_they_were() -> None:
    assert [cell.spec.id for cell in expand(plan())] == IDS
    assert [
        cell.spec.id for cell in expand(plan("turns = 1\nthink_ms = 0\nshared_prefix_tokens = 0\n"))
    ] == IDS


def test_a_conversation_reaches_the_load_generator() -> None:
    closed, opened = expand(plan("turns = 3\nthink_ms = 500\nshared_prefix_tokens = 1024\n"))
    for cell in (closed, opened):
        asked = cell.bench.load
        assert (asked["turns"], asked["think_ms"], asked["shared_prefix_tokens"]) == (3, 500, 1024)
        assert cell.spec.shape == "3 turns, 500 ms apart; 1,024 tokens shared by all prompts"
        assert cell.spec.id not in IDS
    assert closed.bench.load["requests"] == 4 * 9, "8 requests a stream are 3 whole conversations"
    assert opened.bench.load["requests"] == 20 * 3 and opened.bench.load["rate"] == 2.0
    assert "3 turns, 500 ms apart" in show(plan("turns = 3\nthink_ms = 500\n"))


def test_other_turns_are_other_texts() -> None:
    """Else a server would have the beginnings of one cell in its cache when the other is measured."""
    nonces = {expand(plan(f"turns = {turns}\n"))[0].bench.load["nonce"] for turns in (1, 2, 3)}
    assert len(nonces) == 3


def test_a_stream_holds_two_conversations_at_least() -> None:
    assert expand(plan("turns = 3\n[bench]\nrequests_per_stream = 1\n"))[0].bench.load["requests"] == 4 * 6


def test_prompts_that_are_conversations_say_the_turns(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"turns": ["a", "b", "c", "d"], "output_tokens": 5}\n"single"\n')
    text = TEXT.replace('prompts = ["a", "b", "c"]', 'prompts_file = "p.jsonl"')
    read, warnings = parse_plan(text, folder=tmp_path)
    assert read.workloads[0].turns == 4 and not [w for w in warnings if "turns" in w.path]
    assert read.workloads[0].prompts == ({"turns": ["a", "b", "c", "d"], "output_tokens": 5}, "single")
    assert parse_plan(text + "turns = 2\n", folder=tmp_path)[0].workloads[0].turns == 2
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "turns": ["b"]}\n{"turns": [5]}\n')
    with pytest.raises(InvalidPlanError, match="line 2 holds no prompt"):
        parse_plan(text, folder=tmp_path)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("turns = 0", "workload[0].turns: found 0; allowed: a whole number from 1 to 1000"),
        ("turns = true", "workload[0].turns: found true"),
        ("think_ms = 5", "workload[0].think_ms: is the time between two turns, and there is one turn"),
        ("turns = 2\nthink_ms = -1", "workload[0].think_ms: found -1"),
        ("shared_prefix_tokens = -1", "workload[0].shared_prefix_tokens: found -1"),
        (
            'turns = 2\n[bench]\nkind = "command"\nargv = ["x"]',
            "workload[0].turns: needs ddtop's own load generator",
        ),
    ],
)
def test_what_cannot_be_is_said(more: str, said: str) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        plan(more + "\n")
    assert said in str(caught.value)


def test_the_same_question_again_is_warned_of() -> None:
    warnings = parse_plan(TEXT + "turns = 4\n")[1]
    assert "asks 3 prompts in 4 turns" in str(warnings[0])
