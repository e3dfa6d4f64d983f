"""Whether a server that was meant for GPUs runs on the CPU: by its arguments, its log, and GPU memory. Pure.

Told before any cell is measured; what the GPUs do while tokens come is the judge of a cell's (`bench/judge/cell.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtop.engines.log.devices import device_said
from ddtop.events import Evidence
from ddtop.services.base import Launch
from ddtop.services.causes import cause
from ddtop.sweep.shared.verdict import Judgement

CONTEXT_MIB = 100.0
"""A process that uses a GPU holds more than this on it, before any model (a CUDA context alone: 200 to 500 MiB)."""
HIDDEN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuUse:
    """What is known of a start that is ready. None: not known, which speaks for and against nothing."""

    gpus: int | None
    """GPUs of the host; 0: it has none."""
    meant_for_cpu: bool = False
    said: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """What the log said of devices (`engines.log.devices`), with the line."""
    own_mib: float | None = None
    """GPU memory of the server's processes; 0.0 also where nvidia-smi cannot see whose memory it is."""
    rise_mib: float | None = None
    """By how much the memory in use on all GPUs rose over the start."""
    held_mib: float | None = None
    """Memory in use on all GPUs together: where others hold some, it cannot be told whose a small rise is."""


def meant_for_cpu(
    argv: Sequence[str], env: Mapping[str, str], facts: Mapping[str, Any], version: str | None
) -> bool:
    """Whether the plan (or the build that it starts) says that the server shall run on the CPU."""
    if device_said(" ".join(argv)) == "meant-cpu" or "cpu" in (version or "").lower():
        return True
    if any(env[name].strip() in ("", "-1") for name in HIDDEN if name in env):
        return True
    return not argv and facts.get("device") == "cpu"


def runs_there_on_purpose(use: GpuUse) -> bool:
    """Whether arguments, build or log say that the server is meant for the CPU."""
    engine = "cpu-engine" in use.said and "none" not in use.said and "gpu" not in use.said
    return use.meant_for_cpu or "meant-cpu" in use.said or engine


def not_used(use: GpuUse) -> tuple[str, ...]:
    """What shows that no GPU is used though one is wanted; empty where one is, none is wanted, or it is not known."""
    said = use.said
    if use.gpus == 0 or runs_there_on_purpose(use) or "gpu" in said:
        return ()
    if use.own_mib is not None and use.own_mib > 0:
        return ()
    words = []
    if "none" in said:
        words.append(said["none"][1])
    elif "cpu" in said:
        words.append(said["cpu"][1])
    empty = use.held_mib is not None and use.held_mib < CONTEXT_MIB * (use.gpus or 0)
    if empty and use.rise_mib is not None and use.rise_mib < CONTEXT_MIB:
        if use.own_mib is not None:
            words.append("none of its processes holds memory on a GPU")
        words.append(f"GPU memory in use rose by {max(0.0, use.rise_mib):.0f} MiB while it started")
    elif use.gpus and use.rise_mib is not None and use.rise_mib >= CONTEXT_MIB:
        return ()  # memory was taken: by it, as far as can be known
    return tuple(words)


def gpus_of(probe: Mapping[str, Any], sampled: int) -> int | None:
    """GPUs of the host: those that are sampled, else 0 where a probe says that it has no nvidia-smi; None: not known."""
    if sampled:
        return sampled
    gpus = probe.get("gpus")
    return 0 if isinstance(gpus, Mapping) and "no nvidia-smi" in str(gpus.get("error")) else None


def runs_on_cpu(launch: Launch, use: GpuUse) -> Judgement | None:
    """The verdict on a ready server that uses no GPU; None where it uses one, or need not."""
    words = not_used(use)
    if not words:
        return None
    row = cause("no-gpu-used")
    logged = {text for _, text in use.said.values()}
    return Judgement(
        verdict="failed",
        cause=row.slug,
        kind="config" if any(name in launch.env for name in HIDDEN) else "host",
        text=f"{launch.unit} answers, but it runs on the CPU: {words[0].strip()}",
        advice=row.advice,
        evidence=tuple(Evidence(source="log" if w in logged else "gpu", text=w[:400]) for w in words),
        title="NO GPU USED",
    )
