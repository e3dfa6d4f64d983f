"""Evidence of progress during a start. Pure: `advance(progress, reading) -> progress`.

What counts: a new percentage or shard, a new phase mark, GPU memory of the unit's processes moving, bytes
read moving, new files in compile caches. CPU time alone counts for nothing: a hung collective or scheduler loop
uses 100%. It counts while compile children live, or while memory or bytes moved in the last 120 s. Log
lines are weak: a line never seen before in this start shows that something was reached, but a line that
repeats (numbers aside) shows nothing, for vLLM repeats a waiting line for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddtop.sweep.shared.limits import CPU_FRESH_S, CPU_GRACE_S

CACHES = [
    "~/.cache/flashinfer",
    "~/.triton/cache",
    "~/.cache/torch",
    "~/.cache/vllm",
    "~/.cache/deep_gemm",
    "~/.cache/sglang",
    "~/.cache/tvm-ffi",
    "/tmp/torchinductor_root",
]
"""Folders in which engines and compilers leave new files while they compile."""
GPU_STEP_MIB = 2.0
"""GPU memory of a process does not fluctuate: a change of two MiB is an allocation."""
READ_STEP_B = 1 << 20
RSS_STEP_MIB = 32.0
WINDOW_S = 30.0
"""A creep slower than a step in this time is noise (a hung loop that reads /proc); the mark moves along."""
CPU_BUSY = 0.05
"""Share of one core above which the processes count as computing."""
SHAPES_KEPT = 4000
FILES_COUNTED = 50_000
"""The agent counts no more files than that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivityReading:
    """One sample of all processes of a unit (the agent's `activity` stream). Absent is None, never 0."""

    at: float
    pids: int = 0
    cpu_s: float | None = None
    read_b: int | None = None
    write_b: int | None = None
    rss_mib: float | None = None
    gpu_mem_mib: float | None = None
    compilers: tuple[str, ...] = ()
    cache_files: int | None = None
    storage_wait: bool | None = None
    """A thread waits for a disk or a mount."""
    mono_s: float | None = None
    """The host's clock, for rates."""


def activity_reading(item: Mapping[str, Any], at: float) -> ActivityReading:
    """An item of the agent's `activity` stream."""
    return ActivityReading(
        at=at,
        pids=int(item.get("pids", 0)),
        cpu_s=item.get("cpu_s"),
        read_b=item.get("read_b"),
        write_b=item.get("write_b"),
        rss_mib=item.get("rss_mib"),
        gpu_mem_mib=item.get("gpu_mem_mib"),
        compilers=tuple(item.get("compilers") or ()),
        cache_files=item.get("cache_files"),
        storage_wait=item.get("storage_wait"),
        mono_s=item.get("mono_s"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A counter's value when it was last taken as moved, and when."""

    value: float
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """When something last moved, and what it was. Times are the runner's monotonic clock."""

    since: float
    """When the watch began."""
    last_at: float
    what: str = "the start was asked for"
    moved_at: float | None = None
    """When memory or bytes last moved: what makes CPU time count."""
    cpu_at: float | None = None
    """When CPU time was last seen moving."""
    compiling_at: float | None = None
    storage_at: float | None = None
    """When its processes were last seen to wait for a disk or a mount."""
    storage_known: bool = False
    """Whether that was looked at at all."""
    gap_s: float = 0.0
    """The longest time without evidence so far: later limits are learned from it."""
    gpu: Mark | None = None
    gpu_read_at: float | None = None
    """When GPU memory was last read: it moved after that, not only when the next reading (2 s later) shows it."""
    read: Mark | None = None
    rss: Mark | None = None
    files: int | None = None
    new_files: int | None = None
    """Files that appeared in compile caches; None where they cannot be counted, or are too many to count."""
    read_b: int | None = None
    """Bytes that its processes have read from storage."""
    cpu: Mark | None = None
    pids: int = 0
    """The most processes seen at once."""
    shapes: frozenset[str] = frozenset()
    """Lines seen in this start, numbers left out."""

    def quiet_s(self, now: float) -> float:
        return max(0.0, now - self.last_at)


def begin(at: float) -> Progress:
    return Progress(since=at, last_at=at)


def evidence(p: Progress, at: float, what: str) -> Progress:
    """`p` after something moved at `at`. An older time than the last evidence changes nothing."""
    if at < p.last_at:
        return p
    return replace(p, last_at=at, what=what, gap_s=max(p.gap_s, at - p.last_at))


def reset_gap(p: Progress) -> Progress:
    """For a new phase: its longest gap is counted afresh."""
    return replace(p, gap_s=0.0)


def advance(p: Progress, r: ActivityReading) -> Progress:
    """`p` after one sample of the unit's processes."""
    if r.pids > p.pids:
        # More processes than before: workers were started. A child that comes and goes shows nothing.
        p = evidence(replace(p, pids=r.pids), r.at, f"{r.pids} processes")
    gpu, gpu_moved = _moved(p.gpu, r.gpu_mem_mib, GPU_STEP_MIB, r.at)
    read, read_moved = _moved(p.read, r.read_b, READ_STEP_B, r.at)
    rss, rss_moved = _moved(p.rss, r.rss_mib, RSS_STEP_MIB, r.at)
    gpu_at = r.at if p.gpu_read_at is None else p.gpu_read_at
    p = replace(p, gpu=gpu, read=read, rss=rss, read_b=p.read_b if r.read_b is None else r.read_b)
    if r.gpu_mem_mib is not None:
        p = replace(p, gpu_read_at=r.at)
    if gpu_moved and r.gpu_mem_mib is not None:
        p = evidence(p, gpu_at, f"GPU memory at {r.gpu_mem_mib:.0f} MiB")
    if read_moved and r.read_b is not None:
        p = evidence(p, r.at, f"{r.read_b / 2**20:.0f} MiB read")
    if read_moved or rss_moved:
        p = replace(p, moved_at=r.at)
    elif gpu_moved:
        p = replace(p, moved_at=max(gpu_at, p.moved_at or gpu_at))
    if r.cache_files is not None:
        if p.files is not None and r.cache_files > p.files:
            p = evidence(p, r.at, f"{r.cache_files - p.files} new files in compile caches")
        grown = max(0, r.cache_files - p.files) if p.files is not None else 0
        counted = r.cache_files < FILES_COUNTED
        p = replace(p, files=r.cache_files, new_files=(p.new_files or 0) + grown if counted else None)
    if r.storage_wait is not None:
        p = replace(p, storage_known=True, storage_at=r.at if r.storage_wait else p.storage_at)
    p, busy = _busy(p, r)
    if r.compilers:
        p = replace(p, compiling_at=r.at)
        if busy or p.cpu is None:
            p = evidence(p, r.at, f"compiling ({', '.join(sorted(set(r.compilers)))})")
    return replace(p, cpu_at=r.at) if busy else p


def _moved(mark: Mark | None, value: float | None, step: float, at: float) -> tuple[Mark | None, bool]:
    """The new mark of a counter, and whether it moved by a step."""
    if value is None:
        return mark, False
    if mark is None:
        return Mark(value=value, at=at), False
    if abs(value - mark.value) >= step:
        return Mark(value=value, at=at), True
    if at - mark.at > WINDOW_S:
        return Mark(value=value, at=at), False
    return mark, False


def _busy(p: Progress, r: ActivityReading) -> tuple[Progress, bool]:
    """Whether CPU time moved since the last sample, by the host's clock where it is given."""
    if r.cpu_s is None:
        return p, False
    clock = r.mono_s if r.mono_s is not None else r.at
    before = p.cpu
    p = replace(p, cpu=Mark(value=r.cpu_s, at=clock))
    if before is None or clock <= before.at:
        return p, False
    return p, (r.cpu_s - before.value) / (clock - before.at) >= CPU_BUSY


def cpu_counts(p: Progress, now: float) -> bool:
    """Whether CPU time is to be taken as progress at `now`: it moves, and something real moved lately."""
    if p.cpu_at is None or now - p.cpu_at > CPU_FRESH_S:
        return False
    lately = p.moved_at is not None and now - p.moved_at < CPU_GRACE_S
    compiling = p.compiling_at is not None and now - p.compiling_at <= CPU_FRESH_S
    return lately or compiling


_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*|0x[0-9a-f]+|[0-9a-f]{8,}")


def shape(text: str) -> str:
    """A line without its numbers, by which a repeated one is recognised."""
    return _NUMBERS.sub("#", text.strip())[:160]


def log_line(p: Progress, text: str, at: float) -> Progress:
    """`p` after one log line: evidence only if no line of this shape was seen in this start."""
    key = shape(text)
    if not key or key in p.shapes or len(p.shapes) >= SHAPES_KEPT:
        return p
    return evidence(replace(p, shapes=p.shapes | {key}), at, f"log: {text.strip()[:80]}")
