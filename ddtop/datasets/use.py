"""What a workload takes of a dataset. Frozen values; pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddtop.datasets.choose import choose
from ddtop.datasets.item import Item, count_by_group


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """`sample` prompts of these groups of the dataset `name`, chosen by `seed`."""

    name: str
    groups: tuple[str, ...]
    sample: int
    seed: int

    def of(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """The prompts, in the order in which they are sent."""
        return choose(tuple(items), self.groups, self.sample, self.seed)


def words(items: Iterable[Item]) -> str:
    """How many of each group: `coding 40, math 40`."""
    return ", ".join(f"{group} {count}" for group, count in count_by_group(items).items())
