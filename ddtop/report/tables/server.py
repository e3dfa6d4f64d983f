"""What the servers said of their load over each cell's window, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ddtop.journal.fold.state import State
from ddtop.journal.read.server_figures import load_of
from ddtop.report.text import number

TITLE = "What the server said of its load over each window (mean, largest)"
HEAD = ("cell", "running", "queued", "KV cache %", "prefix hits %", "GPU power W", "readings")


def server_rows(state: State) -> list[list[str]]:
    """Header and a row for each cell with readings; empty where no cell has one."""
    rows = [[cell.spec.label, *_fields(load)] for cell in state.plan_cells if (load := load_of(cell))]
    return [list(HEAD), *rows] if rows else []


def _fields(load: dict[str, Any]) -> Iterable[str]:
    for name in ("running", "queued", "kv_pct"):
        yield _pair(load.get(name))
    yield _one(load.get("prefix_hit_pct"))
    yield _pair(load.get("power_w"))
    yield str(load["n"])


def _pair(told: dict[str, float] | None) -> str:
    return "not known" if told is None else f"{_one(told['mean'])}, {_one(told['max'])}"


def _one(value: float | None) -> str:
    return "not known" if value is None else number(value) if value else "0"
