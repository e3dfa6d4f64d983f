"""The sanity rules: each finds what no sound result shows, and says nothing of figures that are not stated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddtop.bench.importers.verdict import judge_record
from ddtop.bench.judge.sanity import RULES, Figures, failed_share, found
from ddtop.bench.judge.validity import TABLE

CASES = {
    "no-tokens": (Figures(tokens=0), Figures(tokens=1)),
    "most-failed": (Figures(ok=1, failed=1), Figures(ok=2, failed=1)),
    "some-failed": (Figures(ok=2, failed=1), Figures(ok=2)),
    "few-samples": (Figures(ok=4), Figures(ok=5)),
    "garbage-output": (Figures(garbage_share=0.5), Figures(garbage_share=0.49)),
    "acceptance-out-of-bounds": (
        Figures(acceptance_length=5.1, draft_tokens=4),
        Figures(acceptance_length=5.0, draft_tokens=4),
    ),
    "speculation-inactive": (Figures(ok=8, acceptance_length=1.05), Figures(ok=8, acceptance_length=1.06)),
    "server-disagrees": (
        Figures(output_tokens=100, server_tokens=106),
        Figures(output_tokens=100, server_tokens=104, output_tok_s=100, server_tok_s=81),
    ),
    "far-off-neighbours": (
        Figures(output_tok_s=49, neighbours=(100, 100)),
        Figures(output_tok_s=200, neighbours=(100, 100)),
    ),
    "tokens-not-visible": (
        Figures(output_tokens=100, retokenized_tokens=49),
        Figures(output_tokens=100, retokenized_tokens=50),
    ),
    "peak-below-mean": (
        Figures(output_tok_s=100, peak_tok_s=97),
        Figures(output_tok_s=100, peak_tok_s=98),
    ),
    "chunks-as-tokens": (
        Figures(itl_ms=12.1, output_tok_s=100, streams=1),
        Figures(itl_ms=11.9, output_tok_s=100, streams=1),
    ),
    "empty-answers": (Figures(ok=10, output_tokens=9), Figures(ok=10, output_tokens=10)),
    "impossible-times": (
        Figures(ok=9, duration_s=10, whole_run=True, times_ms={"ttft": {"p99": 10_521}}),
        Figures(ok=9, duration_s=10, whole_run=True, times_ms={"ttft": {"p99": 10_500}}),
    ),
    "figures-disagree": (
        Figures(duration_s=10, whole_run=True, output_tokens=1000, output_tok_s=106),
        Figures(duration_s=10, whole_run=True, output_tokens=1000, output_tok_s=104),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_at_its_limit(name: str) -> None:
    useless, sound = CASES[name]
    assert list(found(useless, name)) == [name]
    assert found(sound, name) == {} and found(Figures(), name) == {}


def test_every_rule_is_a_reason_of_validity() -> None:
    assert set(RULES) <= set(TABLE)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"ttft": {"mean": -1.0}}, "negative"),
        ({"itl": {"p50": 9.0, "p99": 8.0}}, "p50 of 9 ms is above its p99"),
        ({"e2e": {"mean": 50.0, "max": 40.0}}, "above its max"),
        ({"e2e": {"mean": 5.0, "min": 40.0}}, "below its min"),
        ({"ttft": {"p50": 300.0}, "e2e": {"p50": 200.0}}, "above E2E latency"),
    ],
)
def test_impossible_times_without_a_run(times: dict[str, dict[str, float]], words: str) -> None:
    assert words in found(Figures(times_ms=times), "impossible-times")["impossible-times"]


def test_times_that_do_not_fit_into_the_run() -> None:
    run = Figures(ok=10, duration_s=10, whole_run=True, output_tokens=1000)
    assert found(replace(run, times_ms={"tpot": {"mean": 90}}), "impossible-times") == {}
    assert found(replace(run, times_ms={"tpot": {"mean": 200}}), "impossible-times")
    held = replace(run, most_streams=2, times_ms={"e2e": {"mean": 1900}})
    assert found(held, "impossible-times") == {}
    assert found(replace(held, times_ms={"e2e": {"mean": 2600}}), "impossible-times")
    assert found(replace(run, duration_s=0), "impossible-times")
    assert found(Figures(duration_s=10, times_ms={"ttft": {"p99": 99_000}}), "impossible-times") == {}, (
        "a tool whose duration leaves out warm-up may hold longer requests"
    )


def test_rates_that_contradict_each_other() -> None:
    for wrong in (
        Figures(output_tok_s=100, total_tok_s=90),
        Figures(output_tok_s=-1),
        Figures(not_numbers=("duration_s",)),
        Figures(ok=100, requests_s=20, duration_s=10, whole_run=True),
        Figures(input_tokens=100, input_tok_s=20, duration_s=10, whole_run=True),
    ):
        assert found(wrong, "figures-disagree"), wrong
    # two printed decimals of a short run, and a rate of successes where others failed
    assert not found(
        Figures(output_tokens=6, output_tok_s=150, duration_s=0.04, whole_run=True), "figures-disagree"
    )
    assert not found(
        Figures(ok=90, failed=10, requests_s=10, duration_s=10, whole_run=True), "figures-disagree"
    )


def test_findings_come_in_the_order_asked_for() -> None:
    both = Figures(ok=3, failed=1, failures="1 refused")
    assert found(both, "few-samples", "some-failed") == {
        "few-samples": "3 requests",
        "some-failed": "1 of 4: 1 refused",
    }


def test_a_cancelled_file_without_counts_is_not_comparable() -> None:
    assert failed_share(Figures()) == 1.0
    assert judge_record({"cancelled": True}).severity == "error"
    assert judge_record({"cancelled": True, "requests_ok": 9}).severity == "warn"
