"""What skip, retry and mark are about: a configuration or a cell by the words that name it, and which states they change. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ddtop import events as ev
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView


@dataclass(frozen=True, slots=True)
class NotNow:
    """Why there is nothing to send."""

    why: str
    unknown: bool = False
    """The target is not known to this run."""
    nobody: bool = False
    """No runner would read it: a replay, a run that has ended, a runner that is gone."""


OPEN: tuple[ev.CellState, ...] = ("planned", "running", "interrupted", "failed")
APPLIES: dict[str, tuple[ev.CellState, ...]] = {
    "retry": ("failed", "broken", "skipped", "interrupted"),
    "skip": OPEN,
    "mark-broken": (*OPEN, "skipped"),
    "unmark": ("broken",),
}
"""Action on cells → the states of cells that it changes; the runner refuses the others."""

VERB = {"retry": "retry", "skip": "skip", "mark-broken": "mark", "unmark": "unmark"}


class Target(NamedTuple):
    """What skip, retry and mark are about."""

    label: str
    args: dict[str, Any]


def config_target(config: str) -> Target:
    """All cells of a configuration."""
    return Target(f"{config}, all of its cells", {"config": config})


def cell_target(spec: ev.CellSpec) -> Target:
    """One cell, in all rounds of starts. Its label names load and repeat: others of its configuration are not meant."""
    return Target(msgspec.structs.replace(spec, start=0).label, {"cell_id": spec.id})


def target_of(state: State, text: str) -> Target | NotNow:
    """The configuration or cell of the plan that `text` names: a configuration, a cell's id or the beginning of one (4
    characters), its label, or words of its label that no other cell has.

    The rounds of a cell count as one: what a person says of a cell holds for all its starts.
    """
    specs = [c.spec for c in state.plan_cells]
    if not specs:
        return NotNow("this run has no cells: no plan was given", unknown=True)
    if text in {s.config for s in specs}:
        return config_target(text)
    words = set(text.split())
    ways: tuple[Callable[[ev.CellSpec], bool], ...] = (
        lambda s: text in (s.id, s.label),
        lambda s: len(text) >= 4 and s.id.startswith(text),
        lambda s: bool(words) and words <= set(s.label.split()),
    )
    for way in ways:
        found = {(s.server, s.load): s for s in reversed(specs) if way(s)}
        if len(found) == 1:
            return cell_target(next(iter(found.values())))
        if found:
            some = ", ".join(s.label for s in list(found.values())[:4])
            return NotNow(f"`{text}` is {len(found)} cells, such as {some}; name one", unknown=True)
    configs = ", ".join(dict.fromkeys(s.config for s in specs))
    return NotNow(f"there is no cell or configuration `{text}`; configurations: {configs}", unknown=True)


def cells_of(state: State, target: Target) -> list[CellView]:
    """The cells that a target names; of one cell also those of its other rounds, as the runner takes it."""
    config, cell_id = target.args.get("config"), target.args.get("cell_id")
    named = {(c.spec.server, c.spec.load) for c in state.plan_cells if c.id == cell_id}
    return [c for c in state.plan_cells if c.spec.config == config or (c.spec.server, c.spec.load) in named]


def no_cells(state: State) -> str:
    """Why a run has no cells, in a sentence."""
    if state.run.mode == "sweep":
        return "The cells of this run are not planned yet."
    return "This host is only watched: no plan was given, so it has no cells."


def nothing_to(state: State, action: str, target: Target) -> NotNow | None:
    """Why `action` changes none of the cells of `target`; None where it changes one."""
    if not state.plan_cells:
        return NotNow(no_cells(state))
    chosen = cells_of(state, target)
    if not chosen or any(c.state in APPLIES[action] for c in chosen):
        return None
    how = "are" if "config" in target.args else "is"
    found = ", ".join(sorted({c.state for c in chosen}))
    return NotNow(f"There is nothing to {VERB[action]}: {target.label} {how} {found}.")


def undoable(state: State, viewer: str) -> bool:
    """Whether this sender has changed cells since the runner began, and not taken all of it back."""
    since_s, changes = state.run.segment_at_s or 0.0, 0
    for seen in state.commands:
        if seen.viewer == viewer and seen.outcome == "obeyed" and seen.at_s >= since_s:
            changes += seen.command in ("skip", "retry", "mark-broken")
            changes -= seen.command == "undo" and changes > 0
    return changes > 0
