"""When the weights of a load have begun to come, and what only begins it."""

from __future__ import annotations

import pytest

from ddtop.events import Phase
from ddtop.sweep.start.evidence.progress import ActivityReading, advance, begin
from ddtop.sweep.start.evidence.weights import Baseline, before_loading, came

GIB = 1 << 30
Reading = tuple[Phase, float | None, int]
ROWS: list[tuple[str, int, list[Reading], bool]] = [
    ("all of it between two readings", 1, [("launching", 600.0, 0), ("loading", 30000.0, 0)], True),
    ("no reading of the GPUs before", 1, [("launching", None, 0), ("loading", 30000.0, 0)], True),
    ("the first reading is in the load", 1, [("loading", 30000.0, 0)], True),
    ("one context", 1, [("launching", None, 0), ("loading", 600.0, 0)], False),
    ("eight contexts with their buffers", 8, [("launching", None, 0), ("loading", 9600.0, 0)], False),
    (
        "eight ranks' weights",
        8,
        [("launching", 0.0, 0), ("loading", 9600.0, 0), ("loading", 20000.0, 0)],
        True,
    ),
    ("bytes alone, into pinned memory", 1, [("launching", 600.0, 0), ("loading", 600.0, 2 * GIB)], True),
    (
        "libraries read before",
        1,
        [("launching", 0.0, 3 * GIB), ("launching", 0.0, 3 * GIB), ("loading", 600.0, 3 * GIB + 5)],
        False,
    ),
    (
        "the log is late: the reading before its line holds all of it",
        1,
        [("launching", 600.0, 0), ("launching", 30000.0, 0), ("loading", 30000.0, 0)],
        True,
    ),
    (
        "the same with the first reading of all",
        1,
        [("launching", 30000.0, 0), ("loading", 30000.0, 0)],
        True,
    ),
    (
        "the draft model begins",
        1,
        [("loading", 30000.0, 0), ("kv", 30000.0, 0), ("kv", 30000.0, 0), ("loading", 30000.0, 0)],
        False,
    ),
]


@pytest.mark.parametrize(("what", "tp", "readings", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_weights_have_come(what: str, tp: int, readings: list[Reading], answer: bool) -> None:
    p, before = begin(0.0), Baseline()
    for n, (phase, gpu_mib, read_b) in enumerate(readings):
        p = advance(p, ActivityReading(at=float(n), pids=2, gpu_mem_mib=gpu_mib, read_b=read_b))
        before = before_loading(before, p, phase, float(n + 1))
    assert came(before, p, tp=tp) is answer, what
