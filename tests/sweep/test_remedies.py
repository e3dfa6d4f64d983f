"""What the policy says it does is what the history knows as a remedy ("fixed by …"): one reads the other's words."""

from __future__ import annotations

import itertools

import pytest

from ddtop.events import CauseKind
from ddtop.journal.history.learn import POLICY_REMEDIES
from ddtop.sweep.shared.policy import AGAIN, Decision, Policy, decide, decide_cell

KINDS: tuple[CauseKind, ...] = ("transient", "config", "bug", "host", "slow", "unknown")
CAUSES = ("nccl-collective-timeout", "model-path-missing", "port-in-use")
POLICY = Policy()
DECISIONS: list[Decision] = [
    *(decide(POLICY, "failed", kind, cause, (), "b16") for kind, cause in itertools.product(KINDS, CAUSES)),
    *(decide_cell(POLICY, side, none, 0) for side in ("server", "not-server") for none in (True, False)),
]


@pytest.mark.parametrize("words", sorted({d.words for d in DECISIONS if d.act in (*AGAIN, "wait")}))
def test_every_try_is_known_as_a_remedy(words: str) -> None:
    assert any(words.startswith(begin) for begin, _ in POLICY_REMEDIES), words
