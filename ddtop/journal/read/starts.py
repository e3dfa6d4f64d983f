"""Start times as results: how long each configuration's server took, cold and warm apart, against the baseline. Pure.

What is cold or warm is told from what was seen, and is unknown otherwise:

files     storage that the server's processes read while it started, against the model's size; else whether an earlier
          server of this boot had read it. A model in tmpfs is in memory already.
compiled  what the engine logged of its compile cache; else new files in the compile caches of the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ddtop.events import PHASES, Phase
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import RestartView
from ddtop.stats.differ import Comparison, differences
from ddtop.stats.spread import Starts, mean, pooled, value_of

Warmth = Literal["cold", "warm", "partly", "in memory", "unknown"]

ACCOUNTED_FS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay", "nfs", "nfs4"})
"""File systems whose reads the kernel counts for the process (read_bytes of /proc/PID/io). ZFS and FUSE do not."""
COLD_SHARE, WARM_SHARE = 0.5, 0.1
"""Of the model's size: read from storage at least that much, or at most that much."""
LEAST_MODEL_MIB = 256.0
"""Below it the engine's own libraries are more to read than the model."""


class StartClass(NamedTuple):
    """What only starts of one class share: they may be compared with each other."""

    files: Warmth
    compiled: Warmth

    @property
    def words(self) -> str:
        """`files cold, compile cache warm`."""
        return f"files {self.files}, compile cache {self.compiled}"


@dataclass(frozen=True, slots=True)
class StartTime:
    """The ready starts of one configuration in one class. `seconds`: from the call to ready, the mean of `n` starts, with
    its 95% interval by the spread pooled over configurations (None without one)."""

    config: str
    tp: int
    kind: StartClass
    n: int
    seconds: float
    low: float | None
    high: float | None
    phases: tuple[tuple[Phase, float], ...]
    """Mean seconds of each phase, over the starts that had it."""
    against: Comparison | None
    """Compared with the baseline's starts of the same class; a ratio below 1 is faster. None: the baseline itself, or it has none."""


def start_classes(state: State) -> dict[str, StartClass]:
    """Attempt id of each ready start → its class."""
    model = state.probe.get("model")
    facts = model if isinstance(model, dict) else {}
    bytes_known = facts.get("tensor_bytes") or facts.get("present_bytes")
    model_mib = bytes_known / 2**20 if isinstance(bytes_known, int) else None
    out: dict[str, StartClass] = {}
    before: list[RestartView] = []
    for restart in state.restarts:
        if restart.outcome == "ready":
            out[restart.attempt_id] = StartClass(
                _files(restart, before, model_mib, str(facts.get("fs") or "")), _compiled(restart, before)
            )
            before.append(restart)
    return out


def start_times(state: State, baseline: str | None = None) -> tuple[StartTime, ...]:
    """All ready starts by configuration, TP and class, in the order of their first."""
    against = baseline if baseline is not None else state.run.baseline
    classes = start_classes(state)
    groups: dict[tuple[int, StartClass], dict[str, list[RestartView]]] = {}
    for restart in state.restarts:
        if restart.attempt_id in classes and restart.ready_s:
            group = groups.setdefault((restart.tp, classes[restart.attempt_id]), {})
            group.setdefault(restart.config, []).append(restart)
    out: list[StartTime] = []
    for (tp, kind), configs in groups.items():
        results: dict[str, Starts] = {
            name: tuple((r.ready_s or 0.0,) for r in mine) for name, mine in configs.items()
        }
        spread = pooled(results.values())
        others = {name: result for name, result in results.items() if name != against}
        compared = differences(results[against], others, spread) if against in results else {}
        for name, mine in configs.items():
            value = value_of(results[name], spread)
            assert value is not None
            out.append(
                StartTime(
                    *(name, tp, kind, len(mine), value.value, value.low, value.high, _phases(mine)),
                    compared.get(name),
                )
            )
    return tuple(out)


def _files(restart: RestartView, before: list[RestartView], model_mib: float | None, fs: str) -> Warmth:
    if fs in ("tmpfs", "ramfs"):
        return "in memory"
    if restart.read_mib is not None and model_mib and model_mib >= LEAST_MODEL_MIB and fs in ACCOUNTED_FS:
        share = restart.read_mib / model_mib
        return "cold" if share >= COLD_SHARE else "warm" if share <= WARM_SHARE else "partly"
    boot = restart.generation.boot if restart.generation is not None else None
    boots = [r.generation.boot for r in before if r.generation is not None]
    if boot is None or not boots:
        return "unknown"
    return "warm" if boot in boots else "cold"


def _compiled(restart: RestartView, before: list[RestartView]) -> Warmth:
    if restart.compile_cache == "miss" or restart.new_cache_files:
        return "cold"
    if restart.compile_cache == "hit":
        return "warm"
    seen = any(r.new_cache_files for r in before)  # so this host's caches are where we look
    return "warm" if restart.new_cache_files == 0 and seen else "unknown"


def _phases(starts: list[RestartView]) -> tuple[tuple[Phase, float], ...]:
    found: dict[Phase, list[float]] = {}
    for restart in starts:
        for phase in restart.phases.values():
            if phase.state == "done" and phase.elapsed_s:
                found.setdefault(phase.phase, []).append(phase.elapsed_s)
    return tuple((phase, mean([found[phase]])) for phase in PHASES if phase in found)
