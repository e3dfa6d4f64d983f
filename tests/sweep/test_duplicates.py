"""Configurations that turn out to be the same server."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.engines import ENGINES
from ddtop.journal.fold.views import RestartView
from ddtop.sweep.shared.duplicates import duplicate_of

SGLANG = ENGINES["sglang"]
BASE = ("/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/m", "--tp-size", "1")
DFLASH = (*BASE, "--speculative-algorithm", "DFLASH")
TOPK4 = (*DFLASH, "--speculative-eagle-topk", "4")


def told(**changes: Any) -> dict[str, Any]:
    """The server's account: DFLASH forces top-k 1, and every start has a seed of its own."""
    return {
        "model_path": "/m",
        "tp_size": 1,
        "speculative_algorithm": "DFLASH",
        "speculative_eagle_topk": 1,
        "random_seed": 7,
        **changes,
    }


def ready(config: str, argv: tuple[str, ...], tp: int = 1, **changes: Any) -> RestartView:
    view = RestartView(attempt_id=config, config=config, tp=tp, unit="s.service", argv=argv)
    view.outcome, view.resolved_args = "ready", told(random_seed=99, **changes)
    return view


def test_an_overridden_argument_makes_duplicates() -> None:
    assert duplicate_of(SGLANG, "topk4", 1, TOPK4, told(), [ready("linear", DFLASH)]) == "linear"


@pytest.mark.parametrize(
    ("argv", "mine", "other"),
    [
        (TOPK4, told(speculative_eagle_topk=4), ready("linear", DFLASH)),
        (TOPK4, told(), ready("linear", DFLASH, tp=4)),
        (TOPK4, told(), ready("topk4", TOPK4)),
        (TOPK4, told(), ready("topk4-aa", TOPK4)),  # A/A, or another environment
        (TOPK4, told(), ready("fork", ("/opt/fork/bin/python", *DFLASH[1:]))),
        (BASE, told(speculative_algorithm=None), ready("linear", DFLASH)),
        ((), told(), ready("linear", DFLASH)),
        (TOPK4, told(), ready("script", ())),
    ],
)
def test_no_duplicates(argv: tuple[str, ...], mine: dict[str, Any], other: RestartView) -> None:
    assert duplicate_of(SGLANG, "topk4", 1, argv, mine, [other]) is None


def test_a_failed_start_has_no_duplicate() -> None:
    other = ready("linear", DFLASH)
    other.outcome = "failed"
    assert duplicate_of(SGLANG, "topk4", 1, TOPK4, told(), [other]) is None
