"""What a cell needs: how its server is started, and how it is measured. Plain frozen values."""

from __future__ import annotations

from typing import Any

import msgspec

from ddtop.events import CellSpec
from ddtop.plan.model import Engine, Part, ServiceKind


class LaunchSpec(Part, frozen=True, kw_only=True):
    """One start of a server, all placeholders filled in. Cells with the same `restart_key` share it."""

    restart_key: str
    """Hash of what follows, names and limits aside."""
    config: str
    tp: int
    kind: ServiceKind
    unit: str
    engine: Engine
    port: int
    argv: tuple[str, ...] = ()
    """The whole command line; empty where the unit's own, or a script's, is used."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    stop_units: tuple[str, ...] = ()
    """Units that must be down meanwhile: those named, and the plan's others on the same port."""
    configure: tuple[str, ...] = ()
    timeout_s: float = 1000.0
    user: bool = False
    cwd: str | None = None
    model_path: str | None = None


class BenchSpec(Part, frozen=True, kw_only=True):
    """How one cell is measured."""

    kind: str
    """`builtin`: by ddtop's own load generator; `command`: by a benchmark on the host."""
    load: dict[str, Any] = msgspec.field(default_factory=dict)
    """For `builtin`: fields of the load generator's LoadSpec (`id`, `url`, `prompts`, `concurrency`, …)."""
    argv: tuple[str, ...] = ()
    """For `command`: arguments with `{result}` still to be filled in."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    format: str = "auto"
    metrics: dict[str, str] = msgspec.field(default_factory=dict)
    slo: dict[str, float] = msgspec.field(default_factory=dict)
    time_limit_s: float = 600.0


class PlannedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the plan."""

    spec: CellSpec
    launch: LaunchSpec
    bench: BenchSpec
