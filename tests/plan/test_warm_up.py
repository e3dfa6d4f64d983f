"""`warmup`, `min_window_s` and `settle_pct` of a plan: what they mean, and what they change in a cell's id."""

from __future__ import annotations

import pytest

from ddtop.plan import InvalidPlanError, Plan, as_begun, expand, parse_plan

TEXT = """
name = "w"
[service]
kind = "process"
unit = "u"
engine = "sglang"
port = 30000
command = ["python3", "serve.py"]
[configs]
b8 = { args = ["--draft", "8"] }
auto = {}
[matrix]
concurrency = [1, 4]
[[workload]]
name = "fib"
prompts = ["Count."]
output_tokens = 32
[bench]
"""


def plan(bench: str = "") -> Plan:
    return parse_plan(TEXT + bench)[0]


def load(bench: str = "") -> dict[str, object]:
    return expand(plan(bench))[0].bench.load


def ids(read: Plan) -> set[str]:
    return {cell.spec.id for cell in expand(read)}


def test_the_default_is_the_hand_over_and_it_is_said() -> None:
    wanted = {"warmup": "handover", "min_window_s": 10.0, "settle_pct": 5.0}
    assert {key: load()[key] for key in wanted} == wanted
    _, warnings = parse_plan(TEXT)
    assert [w.key for w in warnings] == ["bench"]
    assert "handed over" in str(warnings[0]) and "warmup = 1" in str(warnings[0])
    assert not parse_plan(TEXT + 'warmup = "handover"')[1]
    assert ids(plan()) == ids(plan('warmup = "handover"\nmin_window_s = 10\nsettle_pct = 5.0'))


def test_a_number_means_what_it_did() -> None:
    """The id of a cell of a plan that names a number is that of the first versions."""
    numbered = load("warmup = 1")
    assert numbered["warmup"] == 1 and not {"min_window_s", "settle_pct"} & numbered.keys()
    assert [cell.spec.id for cell in expand(plan("warmup = 1"))] == OLD_IDS
    assert load("warmup = 1\nmin_window_s = 5")["min_window_s"] == 5.0
    assert load("warmup = 0\nmin_window_s = 0")["warmup"] == 0


OLD_IDS = ["8ce14f358dbd", "30390d8845d2", "0fb07b91df14", "7c4bb8b6f6c6"]


def test_a_recording_keeps_what_it_was_begun_with() -> None:
    old, now = plan("warmup = 1"), plan()
    assert ids(as_begun(now, ids(old))) == ids(old), "begun before there was a hand-over"
    assert as_begun(now, ids(now)) is now and as_begun(now, ()) is now
    assert as_begun(now, {"0" * 12}) is now, "another plan's"
    written = plan('warmup = "handover"')
    assert as_begun(written, ids(old)) is written, "the plan was edited to ask for it"
    assert as_begun(now, [*ids(old)][:1]).bench.warmup == 1


def test_a_short_limit_gives_a_short_window() -> None:
    assert load("time_limit_s = 8")["min_window_s"] == 2.0
    assert ids(plan("time_limit_s = 8")) == ids(plan("time_limit_s = 8\nmin_window_s = 2"))
    assert ids(plan("time_limit_s = 8")) != ids(plan()), "a window of 2 s is not one of 10 s"
    assert ids(plan("time_limit_s = 60")) == ids(plan()), "limits themselves are in no id"
    assert load("time_limit_s = 20\nmin_window_s = 10")["min_window_s"] == 10.0, "what is written holds"
    assert "min_window_s" not in load("min_window_s = 0")


def test_a_rate_and_a_search_have_their_own_times() -> None:
    text = TEXT.replace(
        "concurrency = [1, 4]", 'load = [{ rate = 4 }, { search = "rate", slo = { ttft_ms = 9 } }]'
    )
    rate, search = (cell.bench.load for cell in expand(parse_plan(text)[0])[:2])
    assert rate["warmup"] == "handover" == search["warmup"]
    assert "min_window_s" not in rate and "min_window_s" not in search


@pytest.mark.parametrize(
    ("bench", "word"),
    [
        ('warmup = "hand-over"', 'bench.warmup: found "hand-over"'),
        ("warmup = -1", "bench.warmup: found -1"),
        ("warmup = true", "bench.warmup: found true"),
        ("min_window_s = -1", "bench.min_window_s: found -1"),
        ("min_window_s = 600", "less than time_limit_s"),
        ("settle_pct = 0", "bench.settle_pct: found 0"),
    ],
)
def test_wrong_values_are_named(bench: str, word: str) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        plan(bench)
    (problem,) = caught.value.problems
    assert word in str(problem) and str(problem).startswith("line 19: ")
