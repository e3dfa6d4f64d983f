"""The sanity rules: each finds what no sound result shows, and says nothing of figures that are not stated."""

from __future__ import annotations

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
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_at_its_limit(name: str) -> None:
    useless, sound = CASES[name]
    assert list(found(useless, name)) == [name]
    assert found(sound, name) == {} and found(Figures(), name) == {}


def test_rules_are_the_reasons_of_validity_or_causes_of_other_tools_files() -> None:
    foreign = {"tokens-not-visible", "peak-below-mean", "chunks-as-tokens"}
    assert set(RULES) - foreign <= set(TABLE)


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
