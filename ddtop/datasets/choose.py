"""Which items of a dataset a workload sends, and in which order: the same on every machine. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from ddtop.datasets.item import Item

SAMPLE = 80
"""Prompts of a workload that does not say how many."""


def shares(groups: Mapping[str, int], sample: int) -> dict[str, int]:
    """How many of each group, as even as may be; a group that has too few gives all it has. `groups`: {name: prompts}.

    >>> shares({"a": 100, "b": 2, "c": 100}, 12)
    {'a': 5, 'b': 2, 'c': 5}
    """
    out = dict.fromkeys(groups, 0)
    for _ in range(min(sample, sum(groups.values()))):
        open_groups = [name for name, whole in groups.items() if out[name] < whole]
        out[min(open_groups, key=out.__getitem__)] += 1
    return out


def choose(items: Sequence[Item], groups: Sequence[str], sample: int, seed: int) -> tuple[Item, ...]:
    """`sample` items of these groups, one group after the other in turn, so that any beginning has all groups alike.

    Which ones is decided by a hash of seed and text alone: not by a random generator, a platform, or the order of the file.
    Choosing from what was chosen gives the same again.
    """
    by_group: dict[str, list[Item]] = {name: [] for name in groups}
    for item in items:
        if item.group in by_group:
            by_group[item.group].append(item)
    unique = {name: list({_rank(i, seed): i for i in found}.items()) for name, found in by_group.items()}
    counts = shares({name: len(found) for name, found in unique.items()}, sample)
    picked = {
        name: [i for _, i in sorted(unique[name], key=lambda p: p[0])[:n]] for name, n in counts.items()
    }
    longest = max(counts.values(), default=0)
    return tuple(found[place] for place in range(longest) for found in picked.values() if place < len(found))


def _rank(item: Item, seed: int) -> str:
    return hashlib.sha256(b"%d\0" % seed + msgspec.json.encode(item, order="sorted")).hexdigest()
