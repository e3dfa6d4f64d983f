"""One trial of the campaign by its seed; `make campaign` runs as many as wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.campaign import draw
from tests.campaign.trial import run

KINDS = (
    *("kill-runner", "kill-agent", "kill-generator", "kill-dashboard", "kill-sshd", "daemon-reload"),
    *("end-runner", "suspend-agent", "edit-unit", "smi-hang", "max-sessions", "rotate-journal", "pause"),
)
"""Those that cost a run of half a minute few seconds. Seed 524: the agent is suspended, the unit edited, the runner killed, nobody let in."""


@pytest.mark.bed
def test_a_trial_has_no_violation(ct200: Any, tmp_path: Path) -> None:
    row = run(ct200, tmp_path / "trial", draw.trial(524, KINDS, 4, "plain"))
    assert len(row.faults) + len(row.void) == 4 and row.faults
    assert row.violations == [] and row.done == 6, row
