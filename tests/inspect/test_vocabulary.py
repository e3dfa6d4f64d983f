"""The documented vocabulary is the program's own, and holds every cause of the cases."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ddtop.inspect import GROUP_KINDS
from ddtop.inspect.vocabulary import as_markdown, vocabulary

CASES = Path(__file__).parents[1] / "cases"
# Verdicts on forms, not on a situation of the GPUs or of the connection.
FORMS = {"header-format-changed", "some-process-rows-unreadable", "output-framed"}


@pytest.mark.parametrize("group", ["A", "F", "G"])
def test_every_cause_of_the_cases_is_in_it(group: str) -> None:
    known = {w.cause for w in vocabulary() if w.kind == GROUP_KINDS[group]}
    told = {tomllib.loads((f / "expect.toml").read_text())["cause"] for f in CASES.glob(f"{group}*")}
    assert told - known - FORMS == set()


def test_each_cause_has_one_verdict_and_advice() -> None:
    words = vocabulary()
    assert len({(w.kind, w.cause) for w in words}) == len(words) > 80
    assert all(w.advice and w.verdict and w.severity in {"info", "warn", "error", "critical"} for w in words)
    assert "{" not in as_markdown()


def test_it_agrees_with_the_cases() -> None:
    for word in vocabulary():
        for folder in CASES.glob("[AFG]*"):
            expect = tomllib.loads((folder / "expect.toml").read_text())
            if (
                GROUP_KINDS[expect["group"]] == word.kind
                and expect["cause"] == word.cause
                and word.cause != "host-key-unknown"
            ):
                assert expect["verdict"] == word.verdict, folder.name
