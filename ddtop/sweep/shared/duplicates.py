"""Configurations that differ in name and command line only, because the engine overrode the difference. Pure.

DFLASH forces top-k 1, so `topk 4` and `topk 1` are the same server; their cells are repeats, not a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ddtop.engines.base import Engine
from ddtop.journal.fold.views import RestartView


def in_effect(
    engine: Engine, argv: Sequence[str], resolved: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Any]:
    """The values of the named arguments: as the server reports them, else from its command line."""
    reported, asked = engine.resolved_args(dict(resolved), ()), engine.resolved_args(None, argv)
    return {name: _plain(reported.get(name, asked.get(name))) for name in names}


def _plain(value: Any) -> str:
    return str(value).lower()


def duplicate_of(
    engine: Engine,
    config: str,
    tp: int,
    argv: Sequence[str],
    resolved: Mapping[str, Any],
    earlier: Iterable[RestartView],
) -> str | None:
    """The configuration started before at the same TP, by the same program, that has the same arguments in effect;
    None where there is none, or a command line is not known."""
    if not argv:
        return None
    mine = engine.resolved_args(None, argv)
    for other in earlier:
        if (
            other.outcome != "ready"
            or other.config == config
            # the difference was asked for elsewhere (the environment), or none was (A/A)
            or tuple(other.argv) == tuple(argv)
            or other.tp != tp
            or not other.argv
        ):
            continue
        if other.argv[0] != argv[0] or not other.resolved_args:
            continue
        names = {*mine, *engine.resolved_args(None, other.argv)}
        if in_effect(engine, argv, resolved, names) == in_effect(
            engine, other.argv, other.resolved_args, names
        ):
            return other.config
    return None
