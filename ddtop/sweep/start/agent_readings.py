"""What the agent's answers say of a start, as readings. Pure."""

from __future__ import annotations

from typing import Any

from ddtop.sweep.start.gate import MarkReading
from ddtop.sweep.start.progress import ActivityReading

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


def health_mark(generation: str, before: int | None, status: int | None, at: float) -> MarkReading:
    """The ready mark of an engine that gives it by its health path."""
    was = before if before is not None else "refused"
    return MarkReading(
        generation=generation, text=f"/health turned from {was} to {status}", at=at, source="http"
    )


def activity_reading(item: dict[str, Any], at: float) -> ActivityReading:
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
        mono_s=item.get("mono_s"),
    )
