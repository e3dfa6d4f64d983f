"""A Slurm allocation folded, and in words."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ddtop.events import AllocationSeen
from ddtop.journal.act.allocation import allocation_words, report_words, short_words, used
from ddtop.journal.fold.apply import fold

AT = time.mktime((2026, 12, 1, 14, 0, 0, 0, 0, -1))


def seen(job: str, state: str, after_s: float = 0.0, **more: Any) -> AllocationSeen:
    return AllocationSeen(at_s=AT + after_s, mono_s=after_s, host="h", job=job, state=state, **more)


@pytest.mark.parametrize(
    ("event", "words", "short"),
    [
        (seen("7", "PENDING", reason="Resources", start_estimate=AT + 1200), "job 7 PENDING (Resources), est. 14:20", "7 PENDING (Resources), est. 14:20"),
        (seen("7", "PENDING"), "job 7 PENDING", "7 PENDING"),
        (seen("7", "RUNNING", nodes=("n1",), ends_at=AT + 1339), "allocation 7 on n1 ends in 22 min", "allocation ends in 22 min"),
        (seen("7", "RUNNING", nodes=("n1",), ends_at=AT - 5), "allocation 7 on n1 ends in 0 s", "allocation ends in 0 s"),
        (seen("7", "RUNNING", nodes=("n1",)), "allocation 7 on n1 has no end", "allocation 7 on n1 has no end"),
        (seen("7", "TIMEOUT", reason="allocation 7 ended: its walltime is over"), "allocation 7 ended: its walltime is over", "allocation 7 ended"),
    ],
)  # fmt: skip
def test_words(event: AllocationSeen, words: str, short: str) -> None:
    assert allocation_words(event, AT) == words
    assert short_words(fold([event]), AT) == short


def test_walltime_and_gpu_hours_of_two_allocations() -> None:
    """The first ran for half an hour until it was preempted; the second waited, and runs for a quarter of an hour by now."""
    state = fold(
        [
            seen("7", "RUNNING", 0, gpus=8, account="bench", partition="gpu"),
            seen("7", "RUNNING", 600, gpus=8, ends_at=AT + 7200),
            seen("7", "PREEMPTED", 1800, gpus=8),
            seen("8", "PENDING", 1801, gpus=8),
            seen("8", "RUNNING", 3600, gpus=8, account="bench", partition="gpu"),
        ]
    )
    assert used(state, AT + 4500) == (0.75, 6.0)
    assert [a.ended for a in state.allocations.values()] == [True, False]
    assert state.allocation is not None and state.allocation.seen.job == "8"
    assert report_words(state).startswith(
        "2 Slurm allocations (7, 8), 0.50 h of walltime, 4.00 GPU hours, account bench"
    )


def test_an_end_that_nobody_saw_is_that_of_the_walltime_at_most() -> None:
    """A runner that was dead for a day: the allocation ran for an hour."""
    state = fold([seen("7", "RUNNING", ends_at=AT + 3600, gpus=1), seen("7", "GONE", 86_400, gpus=1)])
    assert used(state, AT + 90_000) == (1.0, 1.0)


def test_gpu_hours_without_gpus_are_not_zero() -> None:
    state = fold([seen("7", "RUNNING"), seen("7", "COMPLETED", 3600)])
    assert used(state, AT + 9000) == (1.0, None)
    assert "GPU hours n/a" in report_words(state) and "account n/a" in report_words(state)


def test_another_host_has_none() -> None:
    assert short_words(fold([]), AT) == report_words(fold([])) == ""
