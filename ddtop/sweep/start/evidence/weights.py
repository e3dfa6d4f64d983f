"""Whether the weights of a load have begun to come: from then on a short quiet says more than before. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ddtop.events import Phase
from ddtop.sweep.start.evidence.progress import Progress

WEIGHTS_MIB = 4096.0
CONTEXT_MIB = 1536.0
"""GPU memory that comes with `loading` and is none of its weights: the context of a rank and its NCCL buffers."""
WEIGHTS_B = 1 << 30
LOG_LATE_S = 0.9
"""journald tells a follower up to half a second late; readings are a second apart."""


class Held(NamedTuple):
    """What the processes of a start held and had read at one moment."""

    gpu_mib: float = 0.0
    read_b: float = 0.0


class Baseline(NamedTuple):
    """What was held before `loading`: the reading before the newest one, and the newest one, with its time."""

    before: Held = Held()
    newest: Held = Held()
    newest_at: float = 0.0


def held(p: Progress) -> Held:
    """As last read; nothing of a process that was not read yet."""
    return Held(p.gpu.value if p.gpu else 0.0, p.read.value if p.read else 0.0)


def before_loading(known: Baseline, p: Progress, phase: Phase | None, at: float) -> Baseline:
    """The last reading that is surely from before `loading`, kept while that lasts: what moved since counts.

    The log is up to LOG_LATE_S late: a reading of the moment before its line may hold all the weights already.
    """
    if phase == "loading":
        return known
    if at - known.newest_at < LOG_LATE_S:
        return known._replace(newest=held(p))
    return Baseline(before=known.newest, newest=held(p), newest_at=at)


def came(baseline: Baseline, p: Progress, *, tp: int) -> bool:
    """Whether memory or bytes have moved since `baseline` by more than what only begins a load."""
    now, before = held(p), baseline.before
    least = max(WEIGHTS_MIB, CONTEXT_MIB * tp)
    return now.gpu_mib - before.gpu_mib >= least or now.read_b - before.read_b >= WEIGHTS_B
