"""A Slurm allocation in words, for the screen, `ddtop status` and reports. Pure; time is an argument."""

from __future__ import annotations

import time

from ddtop.events import AllocationSeen
from ddtop.journal.fold.state import State
from ddtop.journal.read.eta import rough


def rest(seconds: float) -> str:
    """A time that is left, never longer than it is.

    >>> [rest(s) for s in (-5, 45, 61, 1379, 7260)]
    ['0 s', '45 s', '1 min', '22 min', '2 h 1 min']
    """
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def allocation_words(seen: AllocationSeen, now_s: float) -> str:
    """`job 12 PENDING (Resources), est. 14:20`, `allocation 12 ends in 22 min`, or how it ended."""
    if seen.state in ("PENDING", "CONFIGURING"):
        why = f" ({seen.reason})" if seen.reason else ""
        at = seen.start_estimate
        when = f", est. {time.strftime('%H:%M', time.localtime(at))}" if at is not None else ""
        day = f" (in {rough(at - now_s)})" if at is not None and at - now_s > 6 * 3600 else ""
        return f"job {seen.job} {seen.state}{why}{when}{day}"
    if seen.state in ("RUNNING", "SUSPENDED", "RESIZING"):
        where = f" on {', '.join(seen.nodes[:4])}" if seen.nodes else ""
        if seen.ends_at is None:
            return f"allocation {seen.job}{where} has no end"
        return f"allocation {seen.job}{where} ends in {rest(seen.ends_at - now_s)}"
    return seen.reason or f"allocation {seen.job} {seen.state}"


def short_words(state: State, now_s: float) -> str:
    """The present allocation in few words, for the header; "" where the host is none, or the run has ended."""
    now = state.allocation
    if now is None or state.run.ended is not None:
        return ""
    words = allocation_words(now.seen, now_s)
    head, _, tail = words.partition(" ends in ")
    if tail:
        return f"allocation ends in {tail}"
    return words.partition(" ")[2] if head.startswith("job ") and now.waits else words.partition(":")[0]


def used(state: State, now_s: float) -> tuple[float, float | None]:
    """(hours, GPU hours) of all the run's allocations; the second is None where no GPUs were asked for."""
    hours, gpu_hours = 0.0, None
    for one in state.allocations.values():
        spent = one.hours(now_s)
        hours += spent
        if one.seen.gpus is not None:
            gpu_hours = (gpu_hours or 0.0) + spent * one.seen.gpus
    return hours, gpu_hours


def report_words(state: State) -> str:
    """For a report: `2 allocations, 1.4 h of walltime, 5.6 GPU hours, account bench, partition gpu`; "" without any."""
    if not state.allocations:
        return ""
    hours, gpu_hours = used(state, state.at_s)
    count = len(state.allocations)
    last = list(state.allocations.values())
    account = next((a.seen.account for a in reversed(last) if a.seen.account), "")
    partition = next((a.seen.partition for a in reversed(last) if a.seen.partition), "")
    parts = [
        f"{count} Slurm allocation{'s' if count > 1 else ''} ({', '.join(state.allocations)})",
        f"{hours:.2f} h of walltime",
        f"{gpu_hours:.2f} GPU hours" if gpu_hours is not None else "GPU hours n/a (no GPUs were asked for)",
        f"account {account}" if account else "account n/a",
        f"partition {partition}" if partition else "",
    ]
    return ", ".join(part for part in parts if part)
