"""Real start logs: every key of every expected answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.sources.log.diagnosis import diagnose_log
from tests.sources.case_files import files, folders, wrong


@pytest.mark.parametrize("folder", folders("B"), ids=lambda f: f.name)
def test_case(folder: Path) -> None:
    got = diagnose_log(files(folder))
    assert wrong(folder, got) == {}
    assert got["advice"] and got["evidence"] and all(e["text"] for e in got["evidence"])


def test_the_cases_are_there() -> None:
    assert len(folders("B")) >= 18
