"""[policy] × kind of cause × what was tried."""

from __future__ import annotations

import pytest

from ddtop.sweep.shared.policy import PastFailure, Policy, decide, decide_cell, parse_rule

DEFAULT = Policy()


def past(*acts: str, cause: str = "x") -> list[PastFailure]:
    return [PastFailure(kind="bug", cause=cause, act=a) for a in acts]  # type: ignore[arg-type]


TABLE = [
    # verdict, kind, cause, earlier acts, policy → act
    ("failed", "transient", "nccl-collective-timeout", [], DEFAULT, "retry"),
    ("failed", "transient", "nccl-collective-timeout", past("retry"), DEFAULT, "fail"),
    ("stalled", "transient", "hang-asleep", past("retry"), Policy(transient="retry-twice"), "retry"),
    ("failed", "bug", "cuda-illegal-memory-access", [], DEFAULT, "retry"),
    ("failed", "bug", "cuda-illegal-memory-access", past("retry"), DEFAULT, "broken"),
    ("failed", "unknown", "main-process-exited", past("retry"), DEFAULT, "broken"),
    ("failed", "config", "oom-gpu", [], DEFAULT, "fail"),
    ("failed", "config", "oom-gpu", [], Policy(config="retry-once"), "fail"),
    ("failed", "config", "oom-gpu", [], Policy(config="stop"), "stop"),
    ("failed", "host", "disk-full", [], DEFAULT, "wait-clean"),
    ("failed", "host", "disk-full", past("wait-clean", cause="disk-full"), DEFAULT, "fail"),
    ("failed", "host", "gpu-busy", past("wait-clean", cause="disk-full"), DEFAULT, "wait-clean"),
    ("failed", "host", "disk-full", [], Policy(host="stop"), "stop"),
    ("failed", "host", "model-path-missing", [], DEFAULT, "restage"),
    (
        "failed",
        "host",
        "model-path-missing",
        past("restage", cause="model-path-missing"),
        DEFAULT,
        "wait-clean",
    ),
    ("foreign", "host", "port-in-use", [], DEFAULT, "wait-foreign"),
    ("failed", "host", "port-in-use", [], DEFAULT, "wait-foreign"),
    ("foreign", "host", "port-in-use", past("wait-foreign"), DEFAULT, "stop"),
    ("foreign", "host", "port-in-use", [], Policy(foreign="stop"), "stop"),
    ("no-tokens", "bug", "zero-tokens", [], DEFAULT, "retry"),
    ("no-tokens", "bug", "zero-tokens", past("retry"), DEFAULT, "broken"),
    ("no-tokens", "bug", "zero-tokens", [], Policy(zero_tokens="fail-and-go-on"), "fail"),
    ("slow", "slow", "slow", [], DEFAULT, "wait"),
]


@pytest.mark.parametrize(("verdict", "kind", "cause", "earlier", "policy", "act"), TABLE)
def test_decisions(
    verdict: str, kind: str, cause: str, earlier: list[PastFailure], policy: Policy, act: str
) -> None:
    got = decide(policy, verdict, kind, cause, earlier, "b15")  # type: ignore[arg-type]
    assert got.act == act and got.words


@pytest.mark.parametrize(
    ("fault", "no_tokens", "tried", "act"),
    [
        ("not-server", False, 0, "retry"),
        ("not-server", False, 1, "retry"),
        ("not-server", False, 2, "fail"),
        ("server", True, 0, "retry"),
        ("server", True, 1, "broken"),
        ("server", False, 1, "broken"),
    ],
)
def test_cells(fault: str, no_tokens: bool, tried: int, act: str) -> None:
    assert decide_cell(DEFAULT, fault, no_tokens, tried).act == act


def test_every_word_of_the_plan_is_understood() -> None:
    for word in (
        "retry-once",
        "retry-twice-then-fail",
        "rerun-twice",
        "wait-3min-then-stop",
        "broken",
        "wait-clean",
        "resume",
    ):
        parse_rule(word)
    for bad in ("retry", "retry-thrice", "wait-min-then-stop", "retry-once-then-dance", ""):
        with pytest.raises(ValueError, match="allowed"):
            parse_rule(bad)
