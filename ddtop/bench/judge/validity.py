"""ONE table: reason → verdict → whose fault → what becomes of the cell. Pure.

Only causes on the server's side can make a configuration broken; a cell that our side or the host spoiled is run
again. INVALID never counts as done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["SUSPECT", "INVALID"]
Fault = Literal["server", "not-server", ""]
State = Literal["done", "broken-candidate", "rerun"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason: its verdict, whose fault it is, what it means and what to do, for people."""

    verdict: Verdict
    fault: Fault
    meaning: str
    advice: str


def _server(meaning: str, advice: str) -> Rule:
    return Rule("INVALID", "server", meaning, advice)


def _ours(meaning: str, advice: str) -> Rule:
    return Rule("INVALID", "not-server", meaning, advice)


def _doubt(meaning: str, advice: str) -> Rule:
    return Rule("SUSPECT", "", meaning, advice)


TABLE: dict[str, Rule] = {
    # ---- INVALID, the server's side: retried once after a restart, then the configuration is broken
    "no-tokens": _server("no request gave a token", "read the server's log; 0 tok/s is not a result"),
    "most-failed": _server(
        "half of the requests or more failed", "check the failures by class, and the server's log"
    ),
    "garbage-output": _server(
        "the answers are garbage", "read some of them: speculation or a GPU kernel is broken"
    ),
    # ---- INVALID, not the server's: run again, at most twice
    "client-bound": _ours(
        "the load generator was the limit", "fewer streams, more processes, or a less busy machine"
    ),
    "host-paused": _ours(
        "the machine was suspended or stalled during the cell",
        "run again; check for suspends and stolen CPU time",
    ),
    "link-lost": _ours(
        "the link that carried the load was lost", "run on the host itself, or over a more stable link"
    ),
    "server-gone": _ours(
        "the server was gone while the cell was measured",
        "run the cell again; the server's log says why it stopped",
    ),
    "server-stood-still": _ours(
        "the server stood still while requests were open",
        "run the cell again; check what stopped it (a signal, a debugger, memory, a collective)",
    ),
    "wrong-arguments": _ours("the server does not run the cell's arguments", "restart it with them"),
    "gpu-not-used": _server(
        "tokens came, and no GPU did anything: the server runs on the CPU",
        "make the GPU usable; for a server on the CPU say so in its arguments (--device cpu)",
    ),
    "two-servers": _ours("two servers answer on the port", "stop the other one"),
    "generator-failed": _ours(
        "the load generator failed", "read the error; if it comes again, it is a bug in ddtop"
    ),
    "wrong-spec": _ours("the cell asks for something impossible", "correct the plan"),
    "host-fault": _ours(
        "the host had a fault during the cell (Xid, OOM kill, GPU reset needed)",
        "do what the alert advises on the host; the cell is then measured again",
    ),
    # ---- SUSPECT: kept and marked
    "kernel-fault": _doubt(
        "the kernel reported an error during the cell",
        "read the kernel's line; measure again before you use the result",
    ),
    "server-paused": _doubt(
        "the server paused while requests were open, for a tenth of the cell or more",
        "measure again, or longer; check what stopped it (a signal, a compile, memory, the machine)",
    ),
    "some-failed": _doubt("some requests failed", "check the failures by class"),
    "not-settled": _doubt(
        "the load had not settled: its figures still moved",
        "measure longer (requests_per_stream, min_window_s); find what still changes: clocks, caches, compiling",
    ),
    "time-limit": _doubt("the time limit ended the cell", "set a longer limit, or fewer requests"),
    "under-delivery": _doubt("fewer requests were in flight than planned", "check the client's figures"),
    "no-usage": _doubt(
        "the server does not count its tokens", "no token rate is known; enable include_usage"
    ),
    "not-streamed": _doubt("the server ignored `stream`", "no first-token time is known"),
    "bad-events": _doubt("some events were not JSON", "check a raw response with `ddtop inspect sse`"),
    "speculation-inactive": _doubt(
        "acceptance is 1.05 or less: the drafter gains nothing", "check the draft model"
    ),
    "acceptance-out-of-bounds": _doubt(
        "the acceptance length is impossible", "do not use the acceptance length"
    ),
    "acceptance-simulated": _doubt(
        "the server simulates its acceptance: its tok/s say nothing of what speculation is worth",
        "take the setting out of the server's arguments and environment; never publish this result",
    ),
    "thermal-cap": _doubt("a GPU slowed down because it was hot", "check cooling; run again"),
    "power-cap": _doubt("a GPU was held at its power limit", "compare only with cells at the same limit"),
    "cache-hits": _doubt("the prefix cache answered part of the prompts", "flush it, or use a nonce"),
    "cache-not-flushed": _doubt(
        "the prefix cache was not flushed", "check the server's response to the flush"
    ),
    "retractions": _doubt(
        "the engine retracted or preempted requests", "its KV cache is too small for this load"
    ),
    "arguments-overridden": _doubt(
        "the engine overrode arguments", "this cell may repeat another configuration"
    ),
    "slo-not-met": _doubt(
        "no load met the service levels",
        "looser limits, a lower start of the search, or a faster configuration",
    ),
    "slo-undecided": _doubt(
        "too few requests ended at the lowest load to say whether it meets the service levels",
        "a longer point_s of the search, or shorter responses",
    ),
    "knee-above-max": _doubt(
        "the highest load that the search may try still met the service levels", "raise max of the search"
    ),
    "few-samples": _doubt("fewer than 5 requests", "run more requests"),
    "clock-moved": _doubt("the wall clock was changed during the cell", "times may be wrong by that much"),
    "generator-waited": _doubt(
        "the generator waited for a CPU more than 1% of the time", "keep a core free for it"
    ),
    "server-waited": _doubt(
        "the server waited for a CPU more than 1% of the time", "check what else runs on the host"
    ),
    "cpu-pressure": _doubt(
        "tasks waited for a CPU on this machine (PSI)",
        "if the server or the generator runs here, stop other work",
    ),
    "cpu-stolen": _doubt(
        "the hypervisor took CPU time away", "results vary with the other guests of this machine"
    ),
    "telemetry-missing": _doubt("GPU readings are missing", "energy and bound are not known for this cell"),
    "drift-in-start": _doubt(
        "the server changed during its start: its first load, measured again as the last, came out otherwise",
        "look for heat, clocks, other work and caches that grow; measure this start again",
    ),
    "far-off-neighbours": _doubt("far from the neighbouring cells", "run it again before you use it"),
    "empty-answers": _doubt(
        "there are fewer tokens than successful requests", "read some answers: empty ones are no successes"
    ),
    "impossible-times": _doubt(
        "times contradict the length of the run, or each other", "a clock is wrong: measure again"
    ),
    "figures-disagree": _doubt(
        "a rate is not what its tokens and seconds give", "do not use it; check what wrote the result"
    ),
    "tokens-not-visible": _doubt(
        "the client saw less text than the server counted", "use throughput only, not the times"
    ),
    "peak-below-mean": _doubt("the peak is below the mean", "the tool counts chunks: use throughput"),
    "chunks-as-tokens": _doubt(
        "the tool reports gaps between chunks as gaps between tokens", "use throughput and TPOT"
    ),
    "figures-not-read": _doubt(
        "the result does not state what its form always states", "check the result file, or give metric paths"
    ),
    "declared-invalid": _doubt("the benchmark itself calls its result invalid", "read why; run it again"),
    "server-disagrees": _doubt("the server's own throughput differs from ours", "compare both figures"),
    "foreign-load": _doubt(
        "the server answered requests that are not ours during the cell",
        "keep others away from the server, then measure again",
    ),
    "context-off": _doubt(
        "the context does not have the planned length", "check the context's token count in the result"
    ),
    "answers-differ": _doubt("the answers differ from the baseline's", "speculation must not change answers"),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """What the reasons together amount to."""

    validity: Literal["VALID", "SUSPECT", "INVALID"]
    fault: Fault
    state: State
    cause: str


def judge_reasons(reasons: Iterable[str]) -> Judged:
    """Reasons → validity, fault, state, and the one reason that decided. A spoiled measurement says nothing about the
    server, so our own faults come before the server's. Raises KeyError on a reason that is not in the table."""
    found = [(name, TABLE[name]) for name in reasons]
    for name, rule in found:
        if rule.verdict == "INVALID" and rule.fault == "not-server":
            return Judged("INVALID", "not-server", "rerun", name)
    for name, rule in found:
        if rule.verdict == "INVALID":
            return Judged("INVALID", "server", "broken-candidate", name)
    if found:
        return Judged("SUSPECT", "", "done", found[0][0])
    return Judged("VALID", "", "done", "")
