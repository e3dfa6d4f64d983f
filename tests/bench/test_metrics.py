"""Metrics against figures computed by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ddtop.agent.loadgen.records import pack, token_bins, unpack
from ddtop.bench.figures.metrics import Slo, cell_metrics, itl_ms, peak_tok_s, steady_window
from ddtop.bench.figures.requests import read_request
from ddtop.bench.figures.stats import percentile, summary, weighted_summary

MS = 1_000_000


def record(
    i: int, start_ms: float, first_ms: float, gaps_ms: list[float], k: Any, **more: Any
) -> dict[str, Any]:
    times = [int(first_ms * MS)] + [int(gap * MS) for gap in gaps_ms]
    counts = [k] * len(times) if isinstance(k, int) else k
    last = sum(times)
    return {
        "i": i,
        "class": "ok",
        "start": int(start_ms * MS),
        "end": last,
        "last_event": last,
        "tokens": sum(counts),
        "prompt_tokens": 10,
        "t": times,
        "k": k,
        "chunks": len(times),
        **more,
    }


def test_the_case_of_the_facts() -> None:
    """D14: chunks of 3, 4, 1 tokens at 100, 140, 180 ms → 62.5 tok/s, not 25 and not 87.5."""
    one = read_request(record(0, 0, 100, [40, 40], [3, 4, 1]))
    assert one.ttft_s == pytest.approx(0.1)
    assert one.ttsc_s == pytest.approx(0.14)
    assert one.decode_tok_s == pytest.approx(62.5)
    assert one.tpot_s == pytest.approx(0.016)
    # ITL: 4 tokens of 10 ms, 1 token of 40 ms
    assert itl_ms([one]) == {
        "n": 5,
        "mean": 16.0,
        "sd": pytest.approx(13.4164, abs=1e-3),
        "p50": 10.0,
        "max": 40.0,
    }


def test_a_cell_by_hand() -> None:
    """Two streams, two requests each; 1 + 4 tokens in 20 ms each way."""
    records = [
        record(0, 0, 100, [20, 20], [1, 4, 4]),  # ends at 140
        record(1, 0, 110, [20, 20], [1, 4, 4]),  # ends at 150
        record(2, 140, 240, [20, 20], [1, 4, 4]),  # ends at 280
        record(3, 150, 250, [20, 20], [1, 4, 4]),  # ends at 290
    ]
    got = cell_metrics([read_request(one) for one in records], concurrency=2)
    assert got["requests_ok"] == 4 and got["requests_failed"] == 0 and got["failures"] == {}
    assert got["output_tokens"] == 36
    assert got["wall_s"] == pytest.approx(0.290)
    assert got["output_tok_s"] == pytest.approx(36 / 0.290)
    assert got["total_tok_s"] == pytest.approx(76 / 0.290)
    assert got["requests_s"] == pytest.approx(4 / 0.290)
    assert got["ttft_ms"]["mean"] == pytest.approx((100 + 110 + 100 + 100) / 4)
    assert got["tpot_ms"]["mean"] == pytest.approx(5.0)
    assert got["decode_tok_s"]["p50"] == pytest.approx(200.0)
    assert got["icl_ms"]["p50"] == pytest.approx(20.0)
    assert got["itl_ms"]["p50"] == pytest.approx(5.0)
    assert got["tokens_per_chunk"] == pytest.approx(3.0)
    assert got["steady_s"] == pytest.approx(0.280)  # both run from 0 to 280, then one has nothing left
    assert got["steady_tok_s"] == pytest.approx((9 * 3 + 5) / 0.280)  # the last 4 tokens of r3 come at 290
    assert got["in_flight_max"] == 2 and got["in_flight_mean"] == pytest.approx(2.0)
    assert "p99" not in got["ttft_ms"] and "p90" not in got["ttft_ms"]
    assert "peak_tok_s" not in got  # no whole second


def test_failed_requests_are_counted_and_enter_nothing() -> None:
    good = record(0, 0, 100, [20] * 5, 1)
    bad = record(1, 0, 1, [1] * 500, 50, **{"class": "short"})
    got = cell_metrics([read_request(good), read_request(bad)], concurrency=2)
    assert got["requests_ok"] == 1 and got["requests_failed"] == 1 and got["failures"] == {"short": 1}
    assert got["output_tokens"] == 6 and got["ttft_ms"]["n"] == 1
    assert got["output_tok_s"] == pytest.approx(6 / 0.2)


def test_no_success_is_no_measurement() -> None:
    got = cell_metrics([read_request({"i": 0, "class": "empty", "start": 0, "end": 5 * MS})], concurrency=1)
    assert got == {
        "requests_ok": 0,
        "requests_failed": 1,
        "requests_unfinished": 0,
        "failures": {"empty": 1},
        "in_flight_max": 1,
    }


def test_unknown_counts_give_no_rates() -> None:
    one = record(0, 0, 100, [20] * 9, 1)
    del one["k"], one["tokens"]
    got = cell_metrics([read_request(one)], concurrency=1)
    assert got["ttft_ms"]["mean"] == pytest.approx(100) and got["icl_ms"]["n"] == 9
    assert not {"output_tok_s", "itl_ms", "tpot_ms", "decode_tok_s", "tokens_per_chunk"} & set(got)


def test_final_count_with_one_token_a_chunk_is_enough() -> None:
    one = record(0, 0, 100, [20] * 9, 1)
    del one["k"]
    assert read_request(one).decode_tok_s == pytest.approx(50.0)
    one["tokens"] = 25  # several a chunk, and nobody says which: no rate
    assert read_request(one).decode_tok_s is None


def test_tokens_of_cut_requests_were_served_too() -> None:
    cut = record(1, 0, 100, [20] * 4, 1, **{"class": "unfinished"})
    got = cell_metrics([read_request(record(0, 0, 100, [20] * 4, 1)), read_request(cut)], concurrency=2)
    assert got["output_tokens"] == 5 and got["output_tokens_unfinished"] == 5
    assert got["output_tok_s"] == pytest.approx(10 / 0.18)
    assert got["ttft_ms"]["n"] == 1 and got["requests_unfinished"] == 1


def test_goodput() -> None:
    requests = [read_request(record(i, 0, 100 + 50 * i, [20] * 4, 1)) for i in range(4)]
    got = cell_metrics(requests, concurrency=4, slo=Slo(ttft_ms=160))
    assert got["goodput_share"] == 0.5 and got["goodput_s"] == pytest.approx(2 / 0.33)


def test_peak_counts_tokens_in_a_sliding_second() -> None:
    events = [(i * 0.25, 4) for i in range(9)]  # 0 … 2 s, 4 tokens each 250 ms
    assert peak_tok_s(events) == 16
    assert peak_tok_s([(0.0, 1), (0.5, 100), (0.9, 100), (1.6, 1)]) == 201
    assert peak_tok_s([(0.0, 5), (0.5, 5)]) is None


def test_steady_window_needs_all_streams() -> None:
    assert steady_window([(0.0, 1), (1.0, 0)], 2) is None


def test_open_loop_shows_what_the_schedule_hides() -> None:
    one = record(0, 50, 150, [20] * 4, 1, sched=10 * MS)
    got = cell_metrics([read_request(one)])
    assert got["start_lag_ms"]["mean"] == pytest.approx(40)
    assert got["e2e_from_schedule_ms"]["mean"] == pytest.approx(220)


def test_thinned_records_keep_what_latencies_need() -> None:
    noise = random.Random(1)
    records = [record(i, 0, 100 + i, [noise.uniform(19, 21) for j in range(1000)], 1) for i in range(220)]
    bins = token_bins(records)
    result = pack({"requests": records, "bins": bins})
    assert "requests_z" in result and len(result["requests_z"]) < 600_000 and result["chunks_kept"] < 220
    back = unpack(result)
    whole = cell_metrics([read_request(one) for one in records], concurrency=220)
    thin = cell_metrics([read_request(one) for one in back["requests"]], concurrency=220, bins=back["bins"])
    for key in ("output_tok_s", "output_tokens", "wall_s"):
        assert thin[key] == pytest.approx(whole[key])
    assert thin["ttft_ms"] == pytest.approx(whole["ttft_ms"])
    assert thin["decode_tok_s"]["mean"] == pytest.approx(whole["decode_tok_s"]["mean"])
    assert thin["peak_tok_s"] == pytest.approx(whole["peak_tok_s"], rel=0.03)


def test_percentiles() -> None:
    assert percentile([1, 2, 3, 4], 50) == 2.5
    assert summary([]) == {}
    assert summary([5.0]) == {"n": 1, "mean": 5.0, "p50": 5.0, "max": 5.0}
    assert "p99" in summary([1.0] * 100) and "p99" not in summary([1.0] * 99)
    assert weighted_summary([(1.0, 3), (5.0, 1)]) == {"n": 4, "mean": 2.0, "sd": 2.0, "p50": 1.0, "max": 5.0}


def test_chunks_of_one_step_that_come_in_a_burst_are_one_step() -> None:
    """llama.cpp sends each token of a verification step in a chunk of its own: 20 ms, then three within 0.1 ms."""
    burst = [20.0, 0.04, 0.03, 0.03]
    bursts = read_request(record(0, 0, 50, burst * 16, 1))
    stats = itl_ms([bursts])
    assert stats["p50"] == pytest.approx(20.1 / 4) and stats["mean"] == pytest.approx(20.1 / 4)
    even = itl_ms([read_request(record(0, 0, 50, [5.0] * 64, 1))])
    assert even["p50"] == pytest.approx(5.0)
    jitter = itl_ms([read_request(record(0, 0, 50, [5.0, 0.9, 9.1] * 20, 1))])
    assert jitter["p50"] == pytest.approx(5.0) and jitter["max"] == pytest.approx(9.1), (
        "a stutter is no burst"
    )
