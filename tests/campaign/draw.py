"""What happens in a trial, from its seed alone: which faults, when, alone or in pairs. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddtop.events import Verdict

LINK: frozenset[Verdict] = frozenset({"lost-host"})
POWER: frozenset[Verdict] = frozenset({"lost-host", "rebooted", "failed", "measuring-failed"})
ENDED: frozenset[Verdict] = frozenset({"failed", "measuring-failed", "crash-loop", "never-began"})
HUNG: frozenset[Verdict] = frozenset({"stalled", "slow", "hung-gpu", "no-tokens"})


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how often it is drawn, how long it lasts (seconds), and the verdicts that it explains."""

    weight: int
    lasts_s: tuple[float, float] = (0.0, 0.0)
    explains: frozenset[Verdict] = frozenset()
    not_with: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "kill-runner": Kind(3, (0.0, 15.0), frozenset({"interrupted"})),
    "end-runner": Kind(2, (0.0, 5.0), ENDED | {"interrupted"}),
    "stop-run": Kind(1, (0.0, 5.0), ENDED | {"interrupted"}),
    "suspend-runner": Kind(2, (3.0, 150.0), LINK),
    "kill-dashboard": Kind(2, (1.0, 4.0)),
    "pause": Kind(1, (1.0, 10.0)),
    "kill-agent": Kind(3, explains=LINK),
    "suspend-agent": Kind(2, (2.0, 40.0), LINK),
    "kill-generator": Kind(2, explains=frozenset({"measuring-failed"})),
    "suspend-generator": Kind(1, (1.0, 20.0), frozenset({"measuring-failed"})),
    "kill-server": Kind(3, explains=ENDED),
    "suspend-server": Kind(2, (1.0, 30.0), ENDED | HUNG),
    "kill-supervisor": Kind(2, explains=ENDED),
    "stop-server": Kind(1, explains=ENDED),
    "restart-server": Kind(1, explains=ENDED | {"old-server"}),
    "daemon-reload": Kind(1),
    "edit-unit": Kind(1),
    "owner-drop-in": Kind(1),
    "reboot": Kind(3, (0.5, 8.0), POWER, not_with=("host-disk-full", "host-clock")),
    "power-loss": Kind(2, (0.5, 8.0), POWER, not_with=("host-disk-full", "host-clock")),
    "cut": Kind(4, (1.0, 120.0), LINK),
    "delay": Kind(1, (5.0, 30.0), LINK),
    "loss": Kind(1, (5.0, 30.0), LINK),
    "slow-link": Kind(1, (5.0, 30.0), LINK),
    "kill-sshd": Kind(2, (1.0, 3.0), LINK),
    "max-sessions": Kind(1, (2.0, 20.0), LINK),
    "one-session": Kind(1, (2.0, 20.0), LINK),
    "kill-journald": Kind(2),
    "restart-journald": Kind(1),
    "stop-journald": Kind(
        1, (2.0, 20.0), ENDED | HUNG
    ),  # a server that prints may fail, or leave a request open
    "rotate-journal": Kind(1),
    "client-disk-full": Kind(2, (5.0, 25.0), frozenset({"unknown", "interrupted"})),
    "host-disk-full": Kind(2, (5.0, 20.0), ENDED | {"unknown", "interrupted"}),
    "shm-full": Kind(1, (3.0, 20.0), ENDED | {"staging-failed", "unknown"}),
    "host-clock": Kind(1),
    "client-clock": Kind(1),
    "smi-hang": Kind(2, (2.0, 20.0), frozenset({"unknown"})),
    "port-taken": Kind(2, (4.0, 15.0), ENDED | {"foreign"}),
    "gpu-taken": Kind(1, (5.0, 15.0), ENDED | {"foreign"}),
    "second-connect": Kind(2, not_with=("kill-runner", "reboot", "power-loss", "end-runner", "stop-run")),
}
EVENTS = ("staging", "loading", "measuring", "finished", "leaving")
"""Moments that are waited for, instead of a second."""


@dataclass(frozen=True)
class Fault:
    """One fault: at `at_s` seconds after the run began, or at an event and so many seconds later."""

    kind: str
    at_s: float
    event: str = ""
    lasts_s: float = 0.0
    ahead: bool = False
    """A clock that jumps ahead, else back."""


@dataclass(frozen=True)
class Trial:
    """One sweep and what befalls it."""

    seed: int
    faults: tuple[Fault, ...]
    was_active: bool = False
    """The unit was up when the run began."""
    staged: bool = True
    shape: str = "plain"
    """Which sweep (shapes.py)."""
    kinds: frozenset[str] = field(default_factory=frozenset)

    @property
    def explained(self) -> frozenset[Verdict]:
        """Verdicts that an alert of this trial may have."""
        return frozenset().union(*(KINDS[f.kind].explains for f in self.faults))


SHAPES: Mapping[str, int] = {
    "plain": 10,
    "race": 3,
    "search": 3,
    "handover": 2,
    "refine": 2,
    "rounds": 1,
    "process": 4,
}
"""How often each sweep is drawn."""
OF_UNITS = frozenset({"stop-server", "restart-server", "daemon-reload", "edit-unit", "owner-drop-in"})
"""Kinds that need a unit of systemd."""
OF_PROCESSES = frozenset({"kill-supervisor"})


def fits(kind: str, shape: str) -> bool:
    """Whether a fault can befall a sweep."""
    return kind not in (OF_UNITS if shape == "process" else OF_PROCESSES)


SPAN_S: Mapping[str, float] = {"rounds": 120.0}
"""Over how much of a run the seconds of its faults are spread, where that is not 24."""


def trial(seed: int, kinds: Sequence[str] = (), faults: int = 0, shape: str = "") -> Trial:
    """The trial of a seed: one to five faults of `kinds` (all, if empty), a third of them beside the one before."""
    rng = random.Random(f"ddtop-campaign-{seed}")
    shape = shape or random.Random(f"shape-{seed}").choices(list(SHAPES), list(SHAPES.values()))[0]
    names = [kind for kind in kinds or KINDS if fits(kind, shape)]
    found: list[Fault] = []
    span_s = SPAN_S.get(shape, 24.0)
    for _ in range(faults or rng.choice((1, 2, 3, 3, 4, 5))):
        names = [n for n in names if all(n not in KINDS[f.kind].not_with for f in found)]
        names = [n for n in names if not {f.kind for f in found} & set(KINDS[n].not_with)]
        kind = rng.choices(names, [KINDS[n].weight for n in names])[0]
        found.append(_fault(rng, kind, found[-1] if found and rng.random() < 0.35 else None, span_s))
    was_active = rng.random() < 0.4 and shape != "process"
    staged = was_active or rng.random() < 0.6
    return Trial(
        shape=shape,
        seed=seed,
        faults=tuple(found),
        was_active=was_active,
        staged=staged,
        kinds=frozenset(f.kind for f in found),
    )


def _fault(rng: random.Random, kind: str, before: Fault | None, span_s: float) -> Fault:
    low, high = KINDS[kind].lasts_s
    lasts = low * (high / low) ** rng.random() if low else rng.uniform(low, high)  # most cuts are short
    ahead = rng.random() < 0.5
    if before is not None:
        at_s, event = before.at_s + rng.uniform(0.0, 2.0), before.event
    elif rng.random() < 0.65:
        at_s, event = rng.uniform(0.3, span_s), ""
    else:
        at_s, event = rng.uniform(0.0, 1.0), rng.choice(EVENTS)
    return Fault(kind=kind, at_s=round(at_s, 1), event=event, lasts_s=round(lasts, 1), ahead=ahead)
