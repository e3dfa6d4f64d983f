"""Silent failures are named, each in its time, and slow starts raise nothing: a part of them here, all with `make stories`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.campaign.silent import SILENT, SLOW, failing, healthy
from tests.stories.harness import took

IN_CI = ("ExecStartPre fails", "another model name")


@pytest.mark.bed
@pytest.mark.parametrize("name", IN_CI)
def test_a_silent_failure_is_named(ct200: Any, tmp_path: Path, name: str) -> None:
    told = failing(ct200, tmp_path, name)
    assert told.wrong == "", told


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("name", [name for name in SILENT if name not in IN_CI])
def test_all_silent_failures_are_named(ct200: Any, tmp_path: Path, name: str) -> None:
    told = failing(ct200, tmp_path, name)
    assert told.wrong == "", told
    if told.seconds is not None:
        took("silent failures, to the alert", name, told.seconds)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("name", list(SLOW))
def test_slow_starts_raise_nothing(ct200: Any, tmp_path: Path, name: str) -> None:
    told = healthy(ct200, tmp_path, name)
    assert told.wrong == "", told
    took("slow and healthy starts, whole run", name, told.whole_s)
