"""Real decode and statistics logs: every key of every expected answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.sources.figures.diagnosis import log_metrics
from tests.sources.case_files import files, folders, wrong


@pytest.mark.parametrize("folder", folders("C"), ids=lambda f: f.name)
def test_case(folder: Path) -> None:
    got = log_metrics(files(folder))
    assert wrong(folder, got) == {}
    assert got["advice"] and got["evidence"]


def test_the_cases_are_there() -> None:
    assert len(folders("C")) >= 11
