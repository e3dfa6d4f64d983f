"""The demo's machine for one test, on a disk (the agent refuses a state folder on a tmpfs)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """The demo's machine, up; gone after the test with everything that ran on it."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the demo's machine is Linux only")
    folder = Path(tempfile.mkdtemp(prefix="ddtop-rig-", dir="/var/tmp"))
    try:
        with Rig(folder) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
