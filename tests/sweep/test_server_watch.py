"""Whether tokens still come from a server that is measured. Time is an argument."""

from __future__ import annotations

import pytest

from ddtop.sweep.cell.server_watch import ChunkWatch
from ddtop.sweep.shared.limits import NO_TOKEN_S

RUNNING = {"cell": "a", "phase": "running", "chunks": 7, "done": 1, "in_flight": 4}


@pytest.mark.parametrize(
    ("what", "later", "hung"),
    [
        ("no chunk since", RUNNING, True),
        ("a chunk more", {**RUNNING, "chunks": 8}, False),
        ("the next cell", {**RUNNING, "cell": "b"}, False),
        ("nothing in flight", {**RUNNING, "in_flight": 0}, False),
        ("before the window", {**RUNNING, "phase": "warm-up"}, False),
    ],
)
def test_a_server_hangs_when_no_chunk_comes_while_requests_run(
    what: str, later: dict[str, object], hung: bool
) -> None:
    watch = ChunkWatch(0.0)
    watch.take(RUNNING, 10.0)
    watch.take(later, 200.0)
    assert watch.hung(10.0 + NO_TOKEN_S) is hung, what
    assert not watch.hung(10.0 + NO_TOKEN_S - 1.0)
