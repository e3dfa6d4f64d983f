"""How long a server may be silent under a cell: by what it was seen to need, and by what it still does. Pure.

`Silences` remembers how long a configuration let its clients wait for the next byte; `hang_limit_s` makes of that and
of the signs of life the time after which it hangs. A long prefill is silent and works; a stopped server does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ddtop.events import GpuReading
from ddtop.sweep.shared.limits import (
    CPU_ALONE_S,
    DOUBTFUL_S,
    LIFELESS_EXPECT_MOST_S,
    LIFELESS_S,
    NO_TOKEN_S,
    SLOWEST_PREFILL_TOK_S,
    STILL_S,
    UNREAD_PREFILL_TOK_S,
)

Counters = Literal["move", "still", "mute"]
"""The server's own counters between two readings; `mute`: it no longer gives them."""
GpuState = Literal["works", "low", "idle"]
"""`low`: busy, but at far less power than when tokens came: the sign of a collective that spins."""
LifeKind = Literal["works", "cpu-alone", "doubtful", "none", "unknown"]

BUSY_PCT = 5.0
"""Utilisation from which on a GPU does something."""
SPIN_PCT, SPIN_POWER = 99.0, 0.45
"""As `start.evidence.busy_gpus`: utilisation and share of the power limit of a collective that spins."""
FLOW_POWER = 0.6
"""Share of the power drawn while tokens came below which a busy GPU does not do that work."""
LEARN_MOST_S = 10.0
"""A longer silence teaches only if the server was seen to work meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Life:
    """What a silent server was last seen to do. None: not known, which speaks for and against nothing."""

    cpu_still_s: float | None = None
    """For how long the CPU time of its processes has stood still; 0.0: it moves."""
    gpu: GpuState | None = None
    gpu_wanted: bool = False
    """GPUs worked while tokens came from this server."""
    counters: Counters | None = None
    compiling: bool = False


def kind_of_life(life: Life) -> LifeKind:
    """What the signs amount to. CPU time alone may be a loop that spins; a GPU alone may be somebody else's."""
    if life.counters == "move" or life.compiling:
        return "works"
    dead = life.cpu_still_s is not None and life.cpu_still_s >= STILL_S
    moves = life.cpu_still_s is not None and not dead
    if life.gpu == "works":
        return "doubtful" if dead else "works"
    if life.gpu == "low":
        return "doubtful"
    if moves:
        return "doubtful" if life.gpu_wanted else "cpu-alone"
    if dead or (life.gpu == "idle" and life.gpu_wanted):
        return "none"
    return "unknown"


def life_words(life: Life) -> str:
    """The signs, for the alert's evidence."""
    words = []
    if life.cpu_still_s is not None:
        words.append(
            f"the CPU time of its processes has stood still for {life.cpu_still_s:.0f} s"
            if life.cpu_still_s >= STILL_S
            else "its processes use CPU time"
        )
    if life.gpu is not None:
        low = "the GPUs are busy, but at far less power than under load"
        words.append({"works": "the GPUs work", "idle": "the GPUs are idle", "low": low}[life.gpu])
    if life.counters is not None:
        still = "its own counters stand still"
        words.append(
            {"move": "its own counters move", "still": still, "mute": "/metrics does not respond"}[
                life.counters
            ]
        )
    if life.compiling:
        words.append("compilers run")
    return "; ".join(words) or "no sign of life can be read"


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """One silence under way."""

    quiet_s: float
    expected_s: float
    """The longest silence that this configuration was seen to end by itself, for as much work as is open now."""
    known: bool
    """Such work was seen; else `expected_s` is a guess from less."""
    prompt_tokens: float
    """Of all open requests together."""
    life: Life


def hang_limit_s(s: Silence) -> float:
    """After how many seconds without a byte the server hangs.

    Nothing that works needs no clock: a server that does nothing at all is told as soon as it should have spoken.
    """
    match kind_of_life(s.life):
        case "none":
            return min(s.expected_s, LIFELESS_EXPECT_MOST_S) + LIFELESS_S
        case "unknown":
            unread = 2 * min(s.expected_s, NO_TOKEN_S / 3) + DOUBTFUL_S
            return max(unread, s.prompt_tokens / UNREAD_PREFILL_TOK_S)
        case "doubtful":
            return 3 * min(s.expected_s, NO_TOKEN_S / 3) + DOUBTFUL_S
        case "cpu-alone" if s.known:
            return max(CPU_ALONE_S, 5 * s.expected_s + DOUBTFUL_S)
    slowest = s.prompt_tokens / SLOWEST_PREFILL_TOK_S
    return max(NO_TOKEN_S, 10 * s.expected_s, slowest)


def is_hung(s: Silence) -> bool:
    return s.quiet_s >= hang_limit_s(s)


@dataclass(slots=True)
class Silences:
    """The silences of one configuration that ended with a byte. `warm`: of a warm-up, which may compile."""

    _longest: dict[tuple[bool, float, int], float] = field(default_factory=dict)

    def learn(self, silence_s: float, *, warm: bool, prompt_tokens: float, streams: int, alive: bool) -> None:
        """A byte came after `silence_s`. `alive`: the server was seen to work meanwhile."""
        if silence_s > LEARN_MOST_S and not alive:
            return  # it stood still: that teaches nothing of what it needs
        key = (warm, prompt_tokens, streams)
        self._longest[key] = max(silence_s, self._longest.get(key, 0.0))

    def expected(self, *, first: bool, prompt_tokens: float, streams: int) -> tuple[float, bool]:
        """(the longest silence to be expected, whether as much work was seen). `first`: no byte of this window came."""
        longest, known = 0.0, False
        for (warm, tokens, width), seen_s in self._longest.items():
            if warm and not first:
                continue
            more = max(1.0, prompt_tokens / max(1.0, tokens)) * max(1.0, streams / max(1, width))
            longest = max(longest, seen_s * more)
            known = known or more <= 4.0
        return longest, known


def gpu_state(gpus: tuple[GpuReading, ...], flow_power_w: float | None = None) -> GpuState | None:
    """What the GPUs do. `flow_power_w`: what they drew together while tokens came; None where that was not seen."""
    utils = [g.util_gpu_pct for g in gpus if g.util_gpu_pct is not None]
    if not utils:
        return None
    if max(utils) < BUSY_PCT:
        return "idle"
    power = power_w(gpus)
    if flow_power_w and power is not None:
        return "works" if power >= FLOW_POWER * flow_power_w else "low"
    busiest = max(gpus, key=lambda g: g.util_gpu_pct or 0.0)
    share = busiest.power_w / busiest.power_limit_w if busiest.power_w and busiest.power_limit_w else None
    spins = (busiest.util_gpu_pct or 0.0) >= SPIN_PCT and share is not None and share < SPIN_POWER
    return "low" if spins else "works"


def power_w(gpus: tuple[GpuReading, ...]) -> float | None:
    """What the GPUs draw together; None where none says it."""
    draws = [g.power_w for g in gpus if g.power_w is not None]
    return sum(draws) if draws else None
