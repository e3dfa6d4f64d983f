"""One trial of the campaign by its seed; `make campaign` runs as many as wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.campaign import draw
from tests.campaign.trial import run

KINDS = ("kill-runner", "kill-agent", "kill-generator", "kill-dashboard", "daemon-reload", "kill-sshd")


@pytest.mark.bed
def test_a_trial_has_no_violation(ct200: Any, tmp_path: Path) -> None:
    row = run(ct200, tmp_path / "trial", draw.trial(4, KINDS, 3))
    assert len(row.faults) + len(row.void) == 3 and row.faults
    assert row.violations == [] and row.done == 6, row
