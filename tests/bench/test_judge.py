"""The table of validity, and cells judged by it: measured ones against the lying servers, and made ones."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.agent.loadgen.measure import run_cell
from ddtop.bench.judge.cell import judge_cell
from ddtop.bench.judge.validity import TABLE, judge_reasons

from .test_conformance import cell
from .test_metrics import record

CLIENT = {"clock": "kernel", "utilisation": 0.1, "lags_ns": [1000], "wait_share": 0.0, "stamped_share": 1.0}


def made(n: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "spec": {"concurrency": 2},
        "window": {"wall_s": 1.0, "stopped": ""},
        "requests": [record(i, 100 * i, 100 * i + 50, [10] * 14, 4) for i in range(n)],
        "clients": [dict(CLIENT)],
        "gpu": {"error": "not asked"},
        **more,
    }


def reasons(raw: dict[str, Any], **spec: Any) -> tuple[str, ...]:
    return judge_cell(raw, spec=spec).reasons


def test_every_rule_is_consistent() -> None:
    for name, rule in TABLE.items():
        assert (rule.verdict == "INVALID") == (rule.fault != ""), name
        assert rule.meaning and rule.advice
        state = judge_reasons([name]).state
        assert state == {"server": "broken-candidate", "not-server": "rerun", "": "done"}[rule.fault]


def test_our_own_fault_comes_before_the_servers() -> None:
    assert judge_reasons(["no-tokens", "link-lost"]).state == "rerun"
    assert judge_reasons(["some-failed", "no-tokens"]).cause == "no-tokens"
    with pytest.raises(KeyError):
        judge_reasons(["never heard of"])


def test_valid() -> None:
    judged = judge_cell(made())
    assert judged.validity == "VALID" and judged.state == "done" and judged.reasons == ()
    assert judged.metrics["output_tok_s"] > 0


@pytest.mark.parametrize(
    ("behaviour", "validity", "cause", "state"),
    [
        ("normal", "SUSPECT", "few-samples", "done"),
        ("empty", "INVALID", "no-tokens", "broken-candidate"),
        ("cut", "INVALID", "most-failed", "broken-candidate"),
        ("err", "INVALID", "most-failed", "broken-candidate"),
        ("early", "INVALID", "most-failed", "broken-candidate"),
        ("503", "INVALID", "no-tokens", "broken-candidate"),
    ],
)
def test_lying_servers(lying: str, behaviour: str, validity: str, cause: str, state: str) -> None:
    judged = judge_cell(cell(lying, behaviour, keep_texts=False))
    assert (judged.validity, judged.state) == (validity, state), judged.details
    assert cause in judged.reasons
    if validity == "INVALID":
        assert "output_tok_s" not in judged.metrics and "ttft_ms" not in judged.metrics
        assert judged.metrics["requests_failed"] == 4


@pytest.mark.parametrize(
    ("spec", "utils", "reasons_"),
    [
        ({"gpu_wanted": True}, [0] * 12, ("gpu-not-used",)),
        ({"gpu_wanted": False}, [0] * 12, ()),  # --device cpu
        ({}, [0] * 12, ()),  # nobody knows what is meant: no energy, and no doubt
        ({"gpu_wanted": True}, [0] * 8 + [7] * 4, ()),
    ],
)
def test_a_server_on_the_cpu_is_no_result_where_a_gpu_is_wanted(
    spec: dict[str, Any], utils: list[int], reasons_: tuple[str, ...]
) -> None:
    samples = [
        {"t": int(n * 1e8), "gpu": 0, "power_instant_w": 80.0, "util_gpu_pct": u} for n, u in enumerate(utils)
    ]
    judged = judge_cell(made(gpu={"gpus": []}, gpu_samples=samples), spec=spec)
    assert judged.reasons == reasons_
    assert judged.validity == ("INVALID" if reasons_ else "VALID")
    assert ("energy_j" in judged.metrics) is (max(utils) > 0)


def test_garbage_is_the_servers_fault(lying: str) -> None:
    judged = judge_cell(cell(lying, "normal", requests=6))
    assert judged.cause == "garbage-output" and judged.state == "broken-candidate"


def test_wrong_spec_is_ours() -> None:
    judged = judge_cell(run_cell({"url": "http://127.0.0.1:1", "endpoint": "nonsense"}))
    assert judged.cause == "wrong-spec" and judged.state == "rerun"


def test_some_failed_is_kept_half_is_not() -> None:
    raw = made()
    raw["requests"][0]["class"] = "timeout"
    assert reasons(raw) == ("some-failed",)
    for one in raw["requests"][:4]:
        one["class"] = "http 500"
    judged = judge_cell(raw)
    assert judged.cause == "most-failed" and judged.metrics["failures"] == {"http 500": 4}


@pytest.mark.parametrize(
    ("change", "spec", "reason"),
    [
        ({"clients": [{**CLIENT, "utilisation": 0.9}]}, {}, "client-bound"),
        ({"clients": [{**CLIENT, "clock": "read", "lags_ns": [2_000_000] * 9}]}, {}, "client-bound"),
        ({"clients": [{**CLIENT, "suspended_ns": 10**9}]}, {}, "host-paused"),
        ({"clients": [{**CLIENT, "clock_moved_ns": 2_000_000}]}, {}, "clock-moved"),
        ({"clients": [{**CLIENT, "wait_share": 0.02}]}, {}, "generator-waited"),
        ({"pressure": {"server_wait_share": 0.02}}, {}, "server-waited"),
        ({"pressure": {"steal_share": 0.05}}, {}, "cpu-stolen"),
        ({"pressure": {"psi_cpu_some_share": 0.2}}, {}, "cpu-pressure"),
        ({"flush": {"ok": False, "text": "busy"}}, {}, "cache-not-flushed"),
        ({"gpu": {"error": "no nvidia-smi on this machine"}}, {}, "telemetry-missing"),
        ({"context": {"asked": 8192, "ok": False}}, {}, "context-off"),
        ({}, {"link_lost": "ssh"}, "link-lost"),
        ({}, {"server_gone": "killed"}, "server-gone"),
        ({}, {"wrong_arguments": "--tp 4"}, "wrong-arguments"),
        ({}, {"two_servers": "pids 1, 2"}, "two-servers"),
        ({}, {"arguments_overridden": "top-k 1"}, "arguments-overridden"),
        ({}, {"neighbours": [10.0, 12.0]}, "far-off-neighbours"),
        ({}, {"server_tok_s": 10.0}, "server-disagrees"),
        ({}, {"acceptance_log": [(1.01, 40)]}, "speculation-inactive"),
        ({}, {"acceptance_log": [(9.0, 40)], "draft_tokens": 4}, "acceptance-out-of-bounds"),
    ],
)
def test_reasons(change: dict[str, Any], spec: dict[str, Any], reason: str) -> None:
    assert reasons(made(**change), **spec) == (reason,)


def test_read_lag_does_not_count_with_kernel_stamps() -> None:
    assert reasons(made(clients=[{**CLIENT, "lags_ns": [9_000_000] * 9}])) == ()


def test_pressure_does_not_count_where_the_servers_threads_were_asked() -> None:
    assert reasons(made(pressure={"psi_cpu_some_share": 0.2, "server_wait_share": 0.001})) == ()


def test_a_nonce_does_where_no_flush_is_known() -> None:
    flush = {"asked": False, "ok": False, "text": "no known way to flush the cache of 'llamacpp'"}
    assert reasons(made(flush=flush, spec={"nonce": "n", "concurrency": 1})) == ()
    assert reasons(made(flush=flush, spec={"concurrency": 1})) == ("cache-not-flushed",)
    assert reasons(made(flush={**flush, "asked": True}, spec={"nonce": "n"})) == ("cache-not-flushed",)


@pytest.mark.parametrize(
    ("engine", "hits", "asked"),
    [
        ("vllm", "prefix_cache_hits_total", "prefix_cache_queries_total"),
        ("sglang", "cached_tokens_total", "prompt_tokens_total"),
    ],
)
def test_a_cache_that_answered_nothing_needs_no_flush(engine: str, hits: str, asked: str) -> None:
    """An ordinary vLLM answers 404 where its cache would be flushed; its counters say that nothing came from it."""
    flush = {"asked": True, "ok": False, "status": 404, "text": "Not Found"}

    def counted(share: float) -> dict[str, Any]:
        after = {f"{engine}:{hits}": 80 * share, f"{engine}:{asked}": 80.0}  # 8 prompts of 10 tokens
        return {"before": {"values": dict.fromkeys(after, 0.0)}, "after": {"values": after}}

    assert reasons(made(flush=flush, counters=counted(0.0))) == ()
    assert reasons(made(flush=flush, counters=counted(0.5))) == ("cache-not-flushed",)
    assert reasons(made(flush=flush)) == ("cache-not-flushed",), "where nothing is known it stays a doubt"


def test_retractions_and_own_count() -> None:
    def counters(retracted: float, tokens: float) -> dict[str, Any]:
        names = ("sglang:num_retracted_requests_total", "sglang:generation_tokens_total")
        return {
            "before": {"values": dict.fromkeys(names, 5.0)},
            "after": {"values": dict(zip(names, (5.0 + retracted, 5.0 + tokens), strict=True))},
        }

    assert reasons(made(counters=counters(0, 8 * 60))) == ()
    assert reasons(made(counters=counters(3, 8 * 60))) == ("retractions",)
    assert reasons(made(counters=counters(0, 8 * 40))) == ("server-disagrees",)
    assert reasons(made(counters=counters(0, 8 * 80))) == ("foreign-load",)


def test_cache_hits_need_more_than_the_template() -> None:
    few, many = made(), made()
    for one in few["requests"]:
        one.update(prompt_tokens=40, cached_tokens=4)
    for one in many["requests"]:
        one.update(prompt_tokens=4000, cached_tokens=3900)
    assert reasons(few) == () and reasons(many) == ("cache-hits",)


def test_missing_usage_and_streams() -> None:
    raw = made()
    for one in raw["requests"]:
        del one["tokens"], one["k"]
    assert reasons(raw) == ("no-usage",)


def test_a_rate_promises_no_streams() -> None:
    raw = made(16)
    starts = [0, 10, *range(300, 3000, 300), 3000, 3010]  # two at once at both ends, one at a time between
    raw["requests"] = [record(i, s, s + 50, [10] * 14, 4) for i, s in enumerate(starts)]
    assert "under-delivery" in reasons(raw)
    raw["spec"] = {"mode": "open", "rate": 1.0, "concurrency": 2}
    assert "under-delivery" not in reasons(raw)


def test_under_delivery() -> None:
    raw = made(16)
    raw["spec"]["concurrency"] = 4
    assert "under-delivery" not in reasons(raw)  # four never ran at once: no steady window to judge by
    raw["spec"]["concurrency"] = 2
    assert reasons(raw) == ()
    raw["requests"][5]["start"] += 0


@pytest.mark.parametrize("damage", [{"burst": [None]}, {"requests": [3]}, {"window": 7}, {"clients": 1}])
def test_a_result_whose_parts_have_the_wrong_form_is_damaged_and_no_traceback(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wrong form"):
        judge_cell({**made(), **damage})
