"""Whether the weights of a load have begun to come: from then on a short quiet says more than before. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ddtop.events import Phase
from ddtop.sweep.start.evidence.progress import Progress

WEIGHTS_MIB = 4096.0
CONTEXT_MIB = 1536.0
"""GPU memory that comes with `loading` and is none of its weights: the context of a rank and its NCCL buffers."""
WEIGHTS_B = 1 << 30


class Held(NamedTuple):
    """What the processes of a start held and had read at one moment."""

    gpu_mib: float = 0.0
    read_b: float = 0.0


def held(p: Progress) -> Held:
    """As last read; nothing of a process that was not read yet."""
    return Held(p.gpu.value if p.gpu else 0.0, p.read.value if p.read else 0.0)


def before_loading(known: Held, p: Progress, phase: Phase | None) -> Held:
    """The last reading before `loading`, kept while that lasts: what moved until the first reading in it counts too."""
    return known if phase == "loading" else held(p)


def came(before: Held, p: Progress, *, tp: int) -> bool:
    """Whether memory or bytes have moved since `before` by more than what only begins a load."""
    now = held(p)
    least = max(WEIGHTS_MIB, CONTEXT_MIB * tp)
    return now.gpu_mib - before.gpu_mib >= least or now.read_b - before.read_b >= WEIGHTS_B
