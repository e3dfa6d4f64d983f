"""Where labels stand so that none covers another, and which points fall together. Pure; units are the drawer's own."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.bench.worth.break_even import falling


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float] | None:
    """The places nearest to `wanted` that are `gap` apart at least and between `low` and `high`, in the order of their
    values; None where so many do not fit.

    >>> spread_out([9, 5, 5], 2, 0, 10)
    [9.0, 4.0, 6.0]
    """
    top = high - (len(wanted) - 1) * gap
    if top < low:
        return None
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    # Less the gaps before it, each place may be no lower than the one before: the nearest such row is a regression.
    row = falling([n * gap - wanted[i] for n, i in enumerate(order)], [1.0] * len(order))
    places = {
        i: min(max(-value, low), top) + n * gap for n, (i, value) in enumerate(zip(order, row, strict=True))
    }
    return [float(places[i]) for i in range(len(wanted))]


def near(places: Sequence[tuple[float, float]], within: float) -> list[list[int]]:
    """Indices of the places in groups: each place is nearer than `within`, in x and in y, to the first of its group.

    >>> near([(0, 0), (9, 9), (1, -1)], 2)
    [[0, 2], [1]]
    """
    groups: list[list[int]] = []
    for index, (x, y) in enumerate(places):
        for group in groups:
            first = places[group[0]]
            if abs(first[0] - x) < within and abs(first[1] - y) < within:
                group.append(index)
                break
        else:
            groups.append([index])
    return groups
