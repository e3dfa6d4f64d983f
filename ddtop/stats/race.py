"""After a round of starts: which configurations are worth another one, and why the others are not. Pure.

Two rules. A *race* looks for the best: a configuration is left where it lies below the leader at every load, by a
one-sided 95% test, and the race ends when one is left or all are within epsilon of the leader. *Precision* wants
every value known to a per cent: a configuration is left once its intervals are narrow enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ddtop.stats.spread import Spread, Starts, around, mean, pooled
from ddtop.stats.student import quantile

PRIOR_SD, PRIOR_FREEDOM = 0.015, 3
"""What a race takes the spread between starts for until it has seen some: 1.5%, worth three degrees of freedom."""
LEVEL = 0.90
"""Two-sided, so that each side has 5%."""

Results = Mapping[str, Mapping[str, Starts]]
"""Load → configuration → its starts so far. More is better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """When configurations of a plan are started no more. `most`: rounds at most."""

    rule: Literal["race", "precision"]
    most: int
    epsilon: float = 0.02
    """A race ends where all that are left are within this share of the leader."""
    precision: float = 0.02
    """Half the 95% interval of a value, as a share of it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows a round: who is started again, why the others are not (in words, with numbers), why it ended."""

    go_on: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""
    leaders: Mapping[str, str] = field(default_factory=dict)
    """Load → the configuration that leads there."""


def decide(results: Results, contenders: Sequence[str], rules: Rules, rounds: int) -> Decision:
    """What follows the first `rounds` rounds. One without a result goes on: nothing is known against it."""
    found = _race(results, contenders, rules) if rules.rule == "race" else _narrow(results, contenders, rules)
    if rounds < rules.most or found.ended:
        return found
    return Decision((), found.left, f"no start is left: {rules.most} at most", found.leaders)


def _race(results: Results, contenders: Sequence[str], rules: Rules) -> Decision:
    standings = {
        load: one
        for load, found in results.items()
        if (one := _standing(found, contenders, rules.epsilon)) is not None
    }
    needed = {config for one in standings.values() if not one.settled for config in one.alive}
    known = {config for one in standings.values() for config in (*one.alive, *one.behind)}
    go_on = tuple(config for config in contenders if config in needed or config not in known)
    settled = [f"{load}: {one.words}" if len(standings) > 1 else one.words for load, one in standings.items()]
    left = {
        config: "; ".join(
            _why(config, load if len(standings) > 1 else "", one) for load, one in standings.items()
        )
        for config in contenders
        if config not in go_on
    }
    leaders = {load: one.leader for load, one in standings.items()}
    return Decision(go_on, left, "" if go_on else "; ".join(settled), leaders)


@dataclass(frozen=True, slots=True)
class _Standing:
    """One load: who leads, who is not below the leader, and of the others by how much they are."""

    leader: str
    alive: tuple[str, ...]
    behind: Mapping[str, str]
    settled: bool
    words: str


def _standing(found: Mapping[str, Starts], contenders: Sequence[str], epsilon: float) -> _Standing | None:
    measured = [config for config in found if found[config]]
    if not measured:
        return None
    spread = with_prior(pooled(found.values()))
    # Also one that is started no more leads: a load may be settled while others still wait for their first result.
    leader = max(measured, key=lambda config: mean(found[config]))
    alive, behind, settled = [leader], {}, True
    for config in contenders:
        if config == leader or config not in measured:
            continue
        low, ratio, high = _ratio(found[config], found[leader], spread)
        if high < 1:
            interval = f"90% interval {100 * (1 - high):.1f} to {100 * (1 - low):.1f}%"
            behind[config] = f"{100 * (1 - ratio):.1f}% below {leader} ({interval})"
        else:
            alive.append(config)
            settled = settled and low >= 1 - epsilon
    names = f"{', '.join(alive[:-1])} and {alive[-1]}" if len(alive) > 1 else leader
    words = f"{names} are within {100 * epsilon:g}% of each other" if len(alive) > 1 else f"{leader} leads"
    return _Standing(leader, tuple(alive), behind, settled, words)


def _why(config: str, load: str, one: _Standing) -> str:
    """Why `config` is started no more, as far as this load goes."""
    if config not in (*one.alive, *one.behind):
        why = "not measured"
    else:
        why = one.behind.get(config, one.words)
    return f"{load}: {why}" if load else why


def _narrow(results: Results, contenders: Sequence[str], rules: Rules) -> Decision:
    widths: dict[str, float | None] = dict.fromkeys(contenders, 0.0)
    measured: set[str] = set()
    for found in results.values():
        spread = pooled(found.values())
        for config in contenders:
            starts = found.get(config)
            if not starts:
                continue
            measured.add(config)
            half = spread.half_width(len(starts)) if spread.basis == "starts" else None
            before = widths[config]
            widths[config] = None if half is None or before is None else max(before, half)
    wide = [c for c in contenders if c not in measured or (w := widths[c]) is None or w > rules.precision]
    left = {c: f"known to ±{100 * (widths[c] or 0):.1f}%" for c in contenders if c not in wide}
    ended = "" if wide else f"every value is known to ±{100 * rules.precision:g}%"
    return Decision(tuple(wide), left, ended)


def with_prior(spread: Spread) -> Spread:
    """The spread between starts as a race takes it: what was seen, and the prior."""
    squares, freedom = PRIOR_FREEDOM * PRIOR_SD**2, PRIOR_FREEDOM
    if spread.basis == "starts":
        squares, freedom = squares + spread.freedom * spread.sd**2, freedom + spread.freedom
    return Spread("starts", math.sqrt(squares / freedom), freedom)


def _ratio(starts: Starts, leader: Starts, spread: Spread) -> tuple[float, float, float]:
    """(low, ratio, high) of the value to the leader's, of which each side is right with 95%."""
    ratio = mean(starts) / mean(leader) if mean(leader) else 1.0
    half = quantile(LEVEL, spread.freedom) * math.hypot(spread.error(starts), spread.error(leader))
    low, high = around(ratio, half)
    return low, ratio, high
