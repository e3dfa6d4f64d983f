"""Hands the figures that a test measured to the end of the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stories.harness import MEASURED


@pytest.fixture(autouse=True)
def _measured(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    request.node.user_properties += [("measured", row) for row in MEASURED]
    MEASURED.clear()
