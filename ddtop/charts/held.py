"""What a picture holds still, and what its series are called. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ddtop.charts.fields import Field, field_of
from ddtop.errors import UsageError
from ddtop.events import CellSpec

NONE = "none"
"""`by` of one series for all."""


def split_of(main: Sequence[Field], asked: Collection[str]) -> str:
    """What splits a picture over a variable: the first of these that differs and was not asked to be held still."""
    names = [name for name in ("workload", "load", "context") if name not in asked]
    return next((name for name in names if len({f.where(name) for f in main}) > 1), NONE)


def free_of(x: str, by: str, own: Sequence[str], placed: bool) -> set[str]:
    """What need not be held still: the axis and the series show it."""
    covered = {"concurrency": "load", "rate": "load", "output_tokens": "workload"}
    free = {covered.get(x, x), covered.get(by, by)}
    if by in own or x in own:
        free.add("config")
    if not placed:  # points of any configuration under any load
        free |= {"config", "load", "tp"} if by != "tp" else {"config", "load"}
    return free


def held_still(
    main: Sequence[Field], free: set[str], like: CellSpec | None, asked: Mapping[str, str]
) -> dict[str, str]:
    """What is held still, in words: as asked for, else as in the cell `like` where there are results like it, else where most are.

    Raises UsageError where nothing was measured at what is asked for."""
    held: dict[str, str] = {}
    left = list(main)
    wanted = field_of(like) if like is not None else None
    for name in ("tp", "workload", "context", "load", "config"):
        if name in free and name not in asked:
            continue
        counted = Counter(f.where(name) for f in left)
        if name in asked:
            words = {f"{n:g}": f.where(name) for f in left if (n := f.number(name)) is not None}
            value = words.get(asked[name], asked[name])
            if value not in counted:
                raise UsageError(
                    f"nothing of this picture was measured at {name} `{asked[name]}`",
                    do=f"{name} is one of: {', '.join(counted)}",
                )
        else:
            mine = wanted.where(name) if wanted is not None else ""
            value = mine if counted.get(mine) else counted.most_common(1)[0][0]
        held[name] = value
        left = [f for f in left if f.where(name) == value]
    if held.get("context") == "0 ctx" and len({f.where("context") for f in main}) == 1:
        held["context"] = ""
    return held


def label_of(field: Field, by: str, inner: Sequence[str]) -> str:
    words = [field.where(name) for name in (by, *inner) if name != NONE]
    return " ".join(w for w in words if w) or "all"
