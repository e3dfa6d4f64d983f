"""Real units: every key of every expected answer, but for two that are not in their input."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.inspect import inspect_files
from ddtop.services.journald.entries import parse_journal_json
from ddtop.services.unit.diagnosis import diagnose_unit
from tests.sources.case_files import files, folders, wrong

NOT_IN_THE_INPUT = {
    "E07-json-message-byte-arrays": {
        "order"
    },  # a person's words for the ten entries; their order is tested below
    "E08-json-null-over-4096": {
        "lengths_with_all"
    },  # the texts were shortened; lengths are tested on whole ones
}


@pytest.mark.parametrize("folder", folders("E"), ids=lambda f: f.name)
def test_case(folder: Path) -> None:
    got = inspect_files("unit", files(folder))  # with what the unit's own lines say of its end
    assert wrong(folder, got, NOT_IN_THE_INPUT.get(folder.name, set())) == {}
    assert got["advice"] and got["evidence"]


def test_entries_keep_their_order_and_their_text() -> None:
    for folder in (f for f in folders("E") if f.name.startswith("E07")):
        texts = [e.text or "" for e in parse_journal_json(files(folder)["input.jsonl"])]
        words = (
            "Started",
            "Load weight begin",
            "\r",
            "\x1b[",
            "�",
            "   leading",
            "tab\there",
            "byte",
            "last line",
            "Deactivated",
        )
        assert all(word in text for word, text in zip(words, texts, strict=True))


def test_lengths_of_whole_messages() -> None:
    import json

    def entry(text: str | None, **more: str) -> str:
        return json.dumps(
            {"__CURSOR": "s=1", "_PID": "7", "_SYSTEMD_UNIT": "u.service", "MESSAGE": text, **more}
        )

    whole = "\n".join([entry("x" * 5048), entry("A" * 49152, _LINE_BREAK="line-max"), entry("A" * 10851)])
    cut = "\n".join([entry(None), entry(None, _LINE_BREAK="line-max"), entry(None)])
    got = diagnose_unit({"input.jsonl": cut.encode(), "input.all.jsonl": whole.encode()})
    assert got["lengths_with_all"] == [5048, 49152, 10851]
    assert (got["null_messages"], got["line_max_entries"], got["cause"]) == (3, 1, "message-null-too-large")


def test_the_cases_are_there() -> None:
    assert len(folders("E")) >= 10
