"""Failed starts of every engine: verdict, cause, engine and advice, offline and line by line; answers written first."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ddtop.sources.log.diagnosis import diagnose_log
from ddtop.sources.log.scan_snapshot import LogEntry
from ddtop.sources.log.scanner import LogScanner
from ddtop.sweep.start.evidence.log import cause_of

FOLDER = Path(__file__).parents[1] / "data" / "starts"
EXPECT = tomllib.loads((FOLDER / "expect.toml").read_text("utf-8"))


def test_every_log_has_an_answer() -> None:
    assert {p.name for p in FOLDER.iterdir()} - {"expect.toml"} == set(EXPECT)


@pytest.mark.parametrize("name", sorted(EXPECT))
def test_start(name: str) -> None:
    want = dict(EXPECT[name])
    has, has_not = want.pop("advice_has", ""), want.pop("advice_has_not", None)
    found = diagnose_log((FOLDER / name).read_bytes())
    assert {key: found.get(key) for key in want} == want, (found.get("signature"), found["evidence"])
    assert has in found["advice"] and (has_not is None or has_not not in found["advice"]), found["advice"]


@pytest.mark.parametrize("name", sorted(EXPECT))
def test_the_same_cause_live(name: str) -> None:
    engine = EXPECT[name].get("engine")
    scanner = LogScanner(engine)
    for line in (FOLDER / name).read_text("utf-8").splitlines():
        scanner.feed(LogEntry(line))
    told = cause_of(scanner.snapshot())
    if EXPECT[name]["verdict"] != "failed" or EXPECT[name]["cause"] == "unknown-root-cause-cut":
        assert told is None, "nothing failed, or the cause may still come"
    else:
        assert told is not None and told.slug == EXPECT[name]["cause"]
