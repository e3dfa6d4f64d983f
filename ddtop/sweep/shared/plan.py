"""The plan as the sweep runs it: cells, launches, the model, how to measure. Frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ddtop.events import CellSpec, CellState
from ddtop.plan.model import SlurmSettings
from ddtop.services.base import Launch
from ddtop.stats.race import Rules
from ddtop.sweep.shared.policy import Policy

OPEN_STATES: frozenset[CellState] = frozenset({"planned", "interrupted", "running"})
"""States in which a cell is still to be measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelWanted:
    """Where the model must be, and where it may be copied from."""

    path: str
    sources: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """How cells are measured."""

    kind: str = "loadgen"
    """`loadgen` (ddtop's own, part of the agent) or `command` (any benchmark on the host)."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """LoadSpec fields that hold for all cells."""
    cells: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Cell id → its LoadSpec fields."""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Cell id → argv of the benchmark, with `{result}` still to be filled in."""
    format: str = "auto"
    metrics: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    slo: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """One plan, ready to run on one host."""

    name: str
    cells: tuple[CellSpec, ...]
    further: tuple[CellSpec, ...] = ()
    """Cells that are planned once results ask for them (`CellSpec.refines`); `bench` has their loads."""
    launches: Mapping[str, Launch]
    """Restart key → how its server is started."""
    baseline: str | None = None
    rounds: Rules | None = None
    """When configurations are started no more; None: every planned cell is measured."""
    model: ModelWanted | None = None
    bench: Bench = field(default_factory=Bench)
    policy: Policy = field(default_factory=Policy)
    slurm: SlurmSettings | None = None
    """What the plan says of the allocation to ask for."""
    endpoint: str = "chat"
    log_mib: float = 512.0
    selftest: bool = False
    """Measure the load generator's own error on the host, once for the run."""
    notify_command: tuple[str, ...] = ()
    webhook_env: str | None = None
    plan_toml: str | None = None
    plan_path: str | None = None
    plan_files: Mapping[str, str] = field(default_factory=dict)
    plan_env: Mapping[str, str] = field(default_factory=dict)
    plan_datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the plan's text refers to: see `PlanSource`."""

    @property
    def rule(self) -> Literal["", "race", "precision"]:
        """By what configurations are started no more; empty: by nothing."""
        return self.rounds.rule if self.rounds is not None else ""

    @property
    def units(self) -> tuple[str, ...]:
        """Every unit the sweep touches: those of its servers, and those that must be stopped meanwhile."""
        found: dict[str, None] = {}
        for launch in self.launches.values():
            found[launch.unit] = None
            found.update(dict.fromkeys(launch.stop_units))
        return tuple(found)

    @property
    def port(self) -> int | None:
        """The port of the servers; None without a launch."""
        return next((launch.port for launch in self.launches.values()), None)

    def rivals(self, launch: Launch) -> tuple[str, ...]:
        """Units that must be stopped before `launch` starts: those it names, and the sweep's others on its port."""
        found = dict.fromkeys(launch.stop_units)
        for other in self.launches.values():
            if other.unit != launch.unit and other.port == launch.port:
                found[other.unit] = None
        return tuple(unit for unit in found if unit != launch.unit)


def open_cells(cells: Iterable[tuple[CellSpec, CellState]]) -> list[CellSpec]:
    """Cells still to be measured, in their order."""
    return [spec for spec, state in cells if state in OPEN_STATES]


def next_key(todo: Iterable[CellSpec], running_key: str | None) -> str | None:
    """The configuration to measure next: that of the running server if it has open cells, else the first one's."""
    keys = list(dict.fromkeys(spec.restart_key for spec in todo))
    if running_key in keys:
        return running_key
    return keys[0] if keys else None
