"""What happens where no viewer decides: `[policy]` × kind of cause × what was tried → a decision. Pure.

The words of `[policy]` are a small grammar; each means the same under every key:

    retry-once | retry-twice [-then-broken | -then-fail | -then-stop]    start it again, so often at most
    rerun-once | rerun-twice                                             measure it again, so often at most
    fail-and-go-on | broken | stop | wait | wait-clean | wait-<N>min-then-stop
    restage-and-resume | resume

`retry-once` alone ends in fail. A config cause is never retried, whatever the plan says of others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ddtop.events import CauseKind, Verdict

Act = Literal["retry", "fail", "broken", "wait-clean", "wait-foreign", "restage", "wait", "stop", "skip"]

AGAIN: tuple[Act, ...] = ("retry", "restage", "wait-clean", "wait-foreign")
"""Acts after which it is tried again."""

RESTAGE_CAUSES = frozenset(
    {"model-path-missing", "model-weights-missing", "model-weights-damaged", "model-missing"}
)
"""Causes that copying the model again removes; of kind `config` where the plan's model is not what is missing."""

_COUNTS = {"once": 1, "twice": 2}
_WAIT = re.compile(r"wait-(\d+)min-then-stop\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The meaning of one word of `[policy]`."""

    tries: int
    """How often it is tried again."""
    then: Act
    """What is done once the tries are used up."""
    wait_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """`[policy]` of the plan, with the documented defaults."""

    transient: str = "retry-once"
    bug: str = "retry-once-then-broken"
    config: str = "fail-and-go-on"
    host: str = "wait-clean"
    host_lost_wait_min: float = 60.0
    reboot: str = "restage-and-resume"
    zero_tokens: str = "retry-once-then-broken"
    foreign: str = "wait-10min-then-stop"
    invalid_client: str = "rerun-twice"
    answer_s: float = 60.0
    allocation: str = "requeue-and-resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class PastFailure:
    """One earlier failed try of the same configuration (or cell) in this run."""

    kind: CauseKind
    cause: str
    act: Act | None = None
    """What was done after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What is done, and the words in which it is reported."""

    act: Act
    words: str
    wait_s: float | None = None


def parse_rule(word: str) -> Rule:
    """The meaning of one word of `[policy]`. Raises ValueError with the allowed words.

    >>> parse_rule("retry-once-then-broken")
    Rule(tries=1, then='broken', wait_s=None)
    >>> parse_rule("wait-10min-then-stop").wait_s
    600.0
    """
    if match := _WAIT.match(word):
        return Rule(tries=1, then="stop", wait_s=60.0 * int(match[1]))
    simple: dict[str, Rule] = {
        "fail-and-go-on": Rule(tries=0, then="fail"),
        "broken": Rule(tries=0, then="broken"),
        "stop": Rule(tries=0, then="stop"),
        "wait": Rule(tries=0, then="wait"),
        "wait-clean": Rule(tries=1, then="fail"),
        "restage-and-resume": Rule(tries=1, then="fail"),
        "resume": Rule(tries=1, then="fail"),
    }
    if word in simple:
        return simple[word]
    head, _, tail = word.partition("-then-")
    verb, _, count = head.partition("-")
    ends: dict[str, Act] = {"": "fail", "broken": "broken", "fail": "fail", "stop": "stop"}
    if verb in ("retry", "rerun") and count in _COUNTS and tail in ends:
        return Rule(tries=_COUNTS[count], then=ends[tail])
    raise ValueError(
        f"{word!r} is no policy; allowed: retry-once, retry-twice (also with -then-broken, -then-fail, -then-stop),"
        " rerun-once, rerun-twice, fail-and-go-on, broken, stop, wait, wait-clean, wait-<N>min-then-stop,"
        " restage-and-resume, resume"
    )


def decide(
    policy: Policy,
    verdict: Verdict,
    kind: CauseKind,
    cause: str,
    past: Sequence[PastFailure],
    what: str = "it",
) -> Decision:
    """What to do about a start of configuration `what` that failed for `cause`. `past`: its earlier failures."""
    if kind == "slow":
        return Decision(act="wait", words="wait: it is slow, but moving")
    if cause in RESTAGE_CAUSES and kind != "config" and not any(p.act == "restage" for p in past):
        return Decision(act="restage", words=f"re-stage the model, then start {what} again")
    if verdict == "foreign" or cause == "port-in-use":
        return _foreign(policy, past, what)
    if kind == "host":
        return _host(policy, cause, past, what)
    word = {
        "transient": policy.transient,
        "config": policy.config,
        "bug": policy.bug,
        "unknown": policy.bug,
    }[kind]
    if verdict == "no-tokens" and kind == "bug":
        word = policy.zero_tokens
    rule = parse_rule(word)
    tried = sum(p.act == "retry" for p in past)
    if tried < rule.tries and kind != "config":
        return Decision(act="retry", words=f"start {what} again (try {tried + 2} of {rule.tries + 1})")
    return _end(rule.then, what, tried)


def _end(act: Act, what: str, tried: int) -> Decision:
    times = f" {tried + 1} times" if tried else ""
    words = {
        "broken": f"{what} failed{times}: its open cells are marked broken; the sweep goes on",
        "stop": "the sweep stops",
        "wait": "wait",
    }.get(act, f"{what} failed{times}: its open cells are marked failed; the sweep goes on")
    return Decision(act=act, words=words)


def _foreign(policy: Policy, past: Sequence[PastFailure], what: str) -> Decision:
    rule = parse_rule(policy.foreign)
    if rule.wait_s is not None and not any(p.act == "wait-foreign" for p in past):
        minutes = f"{rule.wait_s / 60:.0f} min"
        return Decision(
            act="wait-foreign",
            wait_s=rule.wait_s,
            words=f"wait up to {minutes} until it is gone, then start {what} again",
        )
    if rule.wait_s is None and sum(p.act == "retry" for p in past) < rule.tries:
        return Decision(act="retry", words=f"start {what} again")
    return _end(rule.then, what, 0)


def _host(policy: Policy, cause: str, past: Sequence[PastFailure], what: str) -> Decision:
    rule = parse_rule(policy.host)
    again = sum(p.act in ("wait-clean", "retry") and p.cause == cause for p in past)
    if policy.host == "wait-clean" and not again:
        return Decision(
            act="wait-clean", words=f"wait until a probe of the host is clean, then start {what} again"
        )
    if policy.host != "wait-clean" and again < rule.tries:
        return Decision(act="retry", words=f"start {what} again")
    return _end(rule.then, what, again)


def decide_cell(policy: Policy, fault: str, no_tokens: bool, tried: int) -> Decision:
    """What to do about one cell whose result is INVALID.

    `fault`: `server` or `not-server`; `tried`: how often it was measured and found invalid for that side before
    this time.
    """
    if fault == "not-server":
        rule = parse_rule(policy.invalid_client)
        if tried < rule.tries:
            return Decision(act="retry", words=f"measure it again (run {tried + 2} of {rule.tries + 1})")
        return Decision(act="fail", words=f"failed: not to be measured in {tried + 1} runs")
    rule = parse_rule(policy.zero_tokens if no_tokens else policy.bug)
    if tried < rule.tries:
        return Decision(act="retry", words="restart the server and measure it again")
    what = "0 tok/s" if no_tokens else "invalid by the server's fault"
    times = {0: "once", 1: "twice"}.get(tried, f"{tried + 1} times")
    return Decision(act=rule.then, words=f"{what} {times}")
