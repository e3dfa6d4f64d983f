"""The figures of a window under way, against what the finished result says of the same moment; and at a glance as parsed."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.records import served
from ddtop.agent.loadgen.request_builder import RequestBuilder
from ddtop.agent.loadgen.response.exchange import Exchange
from ddtop.agent.loadgen.response.glance import (
    ended_well,
    first_count,
    last_count,
    last_text,
    spec_counts,
    spec_said,
    tokens_until,
)
from ddtop.agent.loadgen.spec import load_spec
from ddtop.agent.loadgen.window import live as live_room
from ddtop.agent.loadgen.window.live import STALE_S, Live, as_heard, bin_of, joined
from ddtop.agent.loadgen.window.slo import figures_ms
from ddtop.agent.loadgen.window.window import Window
from ddtop.bench.figures.acceptance import from_llamacpp_timings, from_requests
from ddtop.bench.figures.live import latency, progress_fields
from ddtop.bench.figures.stats import percentile
from tests.waiting import HANG_S

from .conftest import start
from .servers.lying import BEHAVIOURS


@pytest.fixture(scope="module")
def prefill() -> Iterator[str]:
    argv = [sys.executable, "-m", "tests.bench.servers.prefill", "--prefill-ms", "5", "--step-ms", "8"]
    child, url = start(argv)
    yield url
    child.terminate()
    child.wait(HANG_S)


def watched(spec: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(result, the reports of its window, each once)."""
    told: list[dict[str, Any]] = []

    def tell(item: dict[str, Any]) -> None:
        if item.get("live") and (not told or told[-1]["live"] is not item["live"]):
            told.append(dict(item))

    result = run_cell({"gpus": "none", "prompts": ["a", "b"], **spec}, tell)
    assert told, "the cell was over before its first report"
    return result, told


def tokens_by(result: dict[str, Any], second: float) -> int:
    """Tokens between the window's zero and a moment, by the finished result."""
    bins = result["bins"]
    upto = int(second * 1e9 // bins["bin_ns"]) - bins["start"]
    return sum(bins["tokens"][: max(0, upto)])


def middle(flat: list[int]) -> float:
    return latency(flat).p50  # type: ignore[union-attr]


# ---- a window under way


@pytest.mark.parametrize("processes", [1, 2])
def test_figures_are_those_of_the_result_at_that_moment(prefill: str, processes: int) -> None:
    """Tokens by the stamps of every chunk, latencies of the same requests: however busy the machine is."""
    spec = {
        "url": prefill,
        "engine": "vllm",
        "output_tokens": 40,
        "warmup": "handover",
        "processes": processes,
    }
    result, told = watched({**spec, "concurrency": 8, "requests": 64})
    reports = [one["live"] for one in told]
    assert reports[0]["phase"] in ("settling", "window")
    window = [one for one in reports if one["phase"] == "window"]
    assert window, reports
    for one in window:
        # chunks may wait in the kernel when it looks, and processes look at moments of their own
        lag_s = 0.5 if processes == 1 else 1.5
        least, most = tokens_by(result, one["s"] - lag_s), tokens_by(result, one["s"] + 0.02)
        assert least <= one["tokens"] <= most, one
        if processes == 1:
            assert one["rate"] == pytest.approx(one["tokens"] / one["s"], rel=0.02)
        assert one["failed"] == 0 and one["total"] == 64 and not one["about"] and one["by"]
        assert one.get("left", 1.0) >= 0, "one of two processes may have closed already"
    assert sum(told[-1]["live"][key] for key in ("ok", "failed")) == told[-1]["done"] == 64, (
        "the last word is of all"
    )
    last = window[-1]
    ended = sorted((r for r in result["requests"]), key=lambda r: r["end"])[: last["ok"]]
    ttft = sorted((r["t"][0] - r["start"]) / 1e6 for r in ended)
    tpot = sorted(sum(r["t"][1:]) / 1e6 / 39 for r in ended)
    assert sum(last["ttft"][1::2]) == last["ok"] == len(ended)
    if processes == 1:
        assert middle(last["ttft"]) == pytest.approx(percentile(ttft, 50), rel=0.02)
    assert middle(last["tpot"]) == pytest.approx(percentile(tpot, 50), rel=0.02)


def test_a_window_counts_from_its_zero_to_its_close(prefill: str) -> None:
    """Its first tokens are of requests that began before, and its last requests go on after it."""
    spec = {"url": prefill, "engine": "vllm", "output_tokens": 40, "warmup": "handover"}
    window = run_window({**spec, "concurrency": 4, "requests": 14})
    assert window.before is not None and window.close_ns > window.zero_ns > window.begun_ns
    both = [*window.before.burst, *window.exchanges]
    truth = served([one.record(window.zero_ns) for one in both], window.close_ns - window.zero_ns)
    assert (window.live.tokens, window.live.ok, window.live.failed) == (truth["tokens"], 14, 0)
    assert truth["tokens"] < 40 * len(both)


def test_failures_are_counted_and_no_latency_of_theirs(lying: str) -> None:
    for behaviour in ("err", "early", "503", "cut", "abort", "empty", "not-http", "reset"):
        path = f"/b/{behaviour}/v1/chat/completions"
        spec = {"url": lying, "endpoint": path, "path_kind": "chat", "model": "SIMULATED"}
        window = run_window({**spec, "concurrency": 2, "requests": 6, "give_up_after": 100})
        live = window.live
        assert (live.ok, live.failed, live.tokens) == (0, 6, 0), behaviour
        assert not live.ttft and not live.tpot and not live.ended


def run_window(spec: dict[str, Any]) -> Window:
    """A window run in this process, and all that has ended looked at."""
    full = load_spec({"gpus": "none", "prompts": ["a"], "output_tokens": 64, **spec})
    window = Window(full, RequestBuilder(full), list(range(full.requests)), full.concurrency)
    window.run()
    while window.live.ended:
        window.live.look(window.end_ns)
    return window


def test_a_count_that_comes_at_the_end_is_estimated_and_says_so(lying: str) -> None:
    path = "/b/final-usage/v1/chat/completions"
    spec = {"url": lying, "endpoint": path, "path_kind": "chat", "model": "SIMULATED"}
    live = run_window({**spec, "concurrency": 2, "requests": 6}).live
    assert live.tokens == 6 * 64 and live.ok == 6
    half = run_window({**spec, "concurrency": 1, "requests": 1}).exchanges[0]
    assert tokens_until(half, half.start_ns) is None or not half.datas


def test_doubtful_responses_are_parsed_in_slices(lying: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_room, "PARSE_READS", 5)
    path = "/b/split-7/v1/chat/completions"
    spec = {"url": lying, "endpoint": path, "path_kind": "chat", "model": "SIMULATED"}
    full = load_spec({"gpus": "none", "prompts": ["a"], "output_tokens": 64, **spec, "requests": 2})
    window = Window(full, RequestBuilder(full), [0, 1], 1)
    window.run()
    slices = sum((len(one.datas) - 1) // 5 for one in window.live.ended)  # a busy machine joins reads
    looks = 0
    while window.live.ended:
        window.live.look(window.end_ns)
        looks += 1
    assert looks > slices and window.live.ok == 2 and window.live.tokens == 128


# ---- at a glance, as when it is parsed


@pytest.mark.parametrize("behaviour", sorted(set(BEHAVIOURS) - {"silent", "stall-50", "no-stream-options"}))
def test_what_is_plain_at_a_glance_is_what_parsing_says(lying: str, behaviour: str) -> None:
    kinds = {"completions": "/v1/completions", "generate": "/generate", "chat": "/v1/chat/completions"}
    kind = next((k for k in kinds if behaviour.startswith(k)), "chat")
    path = f"/b/{behaviour}{kinds[kind]}"
    spec: dict[str, Any] = {"url": lying, "endpoint": path, "path_kind": kind, "model": "SIMULATED"}
    extra = {"extra_body": {"n": 2}} if behaviour == "n2" else {}
    full = load_spec({"gpus": "none", "prompts": ["a"], "output_tokens": 64, "requests": 3, **spec, **extra})
    window = Window(full, RequestBuilder(full), [0, 1, 2], 1)
    window.run()
    plain = 0
    for exchange in window.exchanges[1:]:  # the first was parsed, to see whether tokens come at all
        found = ended_well(exchange)
        stamps, datas = list(exchange.stamps), list(exchange.datas)
        middle_ns = stamps[len(stamps) // 2] if stamps else 0
        half = tokens_until(exchange, middle_ns)
        name = exchange.finish()[0]
        figures, account = figures_ms(exchange), exchange.account
        if behaviour != "n2" and half is not None and account.trusted_chunks() and name == "ok":
            by_chunks = sum(
                k or 0
                for at, k in zip(account.chunk_ns, account.chunk_tokens, strict=True)
                if at <= middle_ns
            )
            # written in pieces, a count is here before the end of its event is
            pieces = 4 if behaviour.startswith("split") or behaviour == "utf8" else 0
            assert by_chunks <= half <= by_chunks + pieces, behaviour
        if found is None:
            continue
        plain += 1
        first, tokens = found
        assert name == "ok" and tokens == account.tokens, behaviour
        assert (stamps[first] - exchange.start_ns) / 1e6 == pytest.approx(figures["ttft_ms"])
        last, begun = last_text(datas, tokens), first_count(datas, first)
        if figures.get("tpot_ms") is not None and tokens and last is not None and begun and behaviour != "n2":
            tpot = (stamps[last] - stamps[first]) / 1e6 / (tokens - begun)
            assert tpot == pytest.approx(figures["tpot_ms"]), behaviour
    if BEHAVIOURS[behaviour].cls != "ok":
        assert not plain
    elif behaviour in ("normal", "llamacpp", "completions", "generate", "reasoning", "tools", "final-usage"):
        assert plain == 2, "the usual forms need no parsing"


@pytest.mark.parametrize(
    "behaviour", ["normal", "utf8", "completions", "generate", "generate-inc", "llamacpp", "crlf"]
)
def test_a_glance_says_the_same_wherever_the_reads_were_cut(lying: str, behaviour: str) -> None:
    """A busy machine joins some writes and not others: 300 random ways of cutting the same bytes."""
    kinds = {"completions": "/v1/completions", "generate": "/generate"}
    kind = next((k for k in kinds if behaviour.startswith(k)), "chat")
    path = f"/b/{behaviour}{kinds.get(kind, '/v1/chat/completions')}"
    spec = {"url": lying, "endpoint": path, "path_kind": kind, "model": "SIMULATED", "requests": 2}
    full = load_spec({"gpus": "none", "prompts": ["a"], "output_tokens": 64, **spec})
    window = Window(full, RequestBuilder(full), [0, 1], 1)
    window.run()
    sent, chance, judged = window.exchanges[1], random.Random(behaviour), 0
    whole, begun_ns = b"".join(sent.datas), sent.start_ns
    for _ in range(300):
        exchange = Exchange(1, 64)
        exchange.start_ns, exchange.ended = begun_ns, sent.ended
        cuts = sorted(
            chance.sample(range(1, len(whole)), min(len(whole) - 1, chance.choice([3, 20, 100, 400, 3000])))
        )
        exchange.datas = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        exchange.stamps = array("q", [begun_ns + 1_000_000 * (1 + place) for place in range(len(cuts) + 1)])
        exchange.end_ns = exchange.stamps[-1]
        found, stamps, datas = ended_well(exchange), list(exchange.stamps), list(exchange.datas)
        at_ns = chance.choice(stamps)
        half, before = tokens_until(exchange, at_ns), exchange.finish()
        by_chunks = zip(exchange.account.chunk_ns, exchange.account.chunk_tokens, strict=True)
        counted = sum(count or 0 for chunk_ns, count in by_chunks if chunk_ns <= at_ns)
        # a count may be here before the end of its event is
        assert half is None or counted <= half <= counted + 4, (half, counted)
        if found is None:
            continue
        first, tokens = found
        assert before[0] == "ok" and tokens == exchange.account.tokens
        figures = figures_ms(exchange)
        assert (stamps[first] - begun_ns) / 1e6 == figures["ttft_ms"]
        last, begun = last_text(datas, tokens), first_count(datas, first)
        if tokens and last is not None and begun and last > first:
            judged += 1
            assert (stamps[last] - stamps[first]) / 1e6 / (tokens - begun) == pytest.approx(
                figures["tpot_ms"]
            )
    assert judged > 20


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b'"usage":{"completion_tokens":12,"completion_tokens_details":{"x":1}}', 12),
        (b'"completion_tokens": 7} ... "completion_tokens": 9, ', 9),
        (b'"timings":{"predicted_n":31,"predicted_ms":5}', 31),
        (b'"completion_tokens":12', None),  # more digits may follow in the next read
        (b'"completion_tokens":null}', None),
        (b"nothing", None),
    ],
)
def test_the_last_count_in_some_bytes(data: bytes, count: int | None) -> None:
    assert last_count(data) == count


@pytest.mark.parametrize(
    ("said", "record", "by"),
    [
        ({"spec_verify_ct": 60}, {"spec": {"spec_verify_ct": 60}}, from_requests),
        (
            {"num_spec_steps": 50, "num_accepted_draft_tokens": 78},
            {"spec": {"num_spec_steps": 50, "num_accepted_draft_tokens": 78}},
            from_requests,
        ),
        (
            {"predicted_n": 128, "draft_n": 130, "draft_n_accepted": 80},
            {"timings": {"predicted_n": 128, "draft_n": 130, "draft_n_accepted": 80}},
            from_llamacpp_timings,
        ),
    ],
)
def test_acceptance_is_defined_as_in_results(said: dict[str, int], record: dict[str, Any], by: Any) -> None:
    tokens, steps = spec_counts(128, said)
    exact = by([{"class": "ok", "tokens": 128, **record}])
    assert (tokens, steps) == (exact.tokens, exact.steps)


def test_what_a_response_says_of_speculation_is_read_from_its_end() -> None:
    end = b'data: {"timings":{"predicted_n":128,"draft_n":130,"draft_n_accepted":80}}\n\n'
    assert spec_said([b"a", b"b", end, b"data: [DONE]\n\n"]) == {
        "predicted_n": 128,
        "draft_n": 130,
        "draft_n_accepted": 80,
    }
    assert spec_counts(128, {}) == (0, 0)


# ---- its figures as they are shown


def bins_of(values: list[float]) -> list[int]:
    counts: dict[int, int] = {}
    for value in values:
        counts[bin_of(value)] = counts.get(bin_of(value), 0) + 1
    return [number for place in sorted(counts) for number in (place, counts[place])]


@pytest.mark.parametrize("n", [1, 12, 50, 500, 2000])
def test_percentiles_come_within_a_bin_and_by_the_rules_of_finished_cells(n: int) -> None:
    """SIMULATED: log-normal latencies over two decades."""
    import random

    from ddtop.bench.figures.bounds import bounded_summary
    from ddtop.bench.figures.stats import shown_percentile

    rng = random.Random(n)
    values = [rng.lognormvariate(4, 0.8) for _ in range(n)]
    seen, exact = latency(bins_of(values)), bounded_summary(values)
    assert seen is not None and seen.n == n == sum(seen.counts)
    assert seen.p50 == pytest.approx(exact["p50"], rel=0.02)
    assert seen.most == pytest.approx(exact["max"], rel=0.02)
    for name, value in (("p90", seen.p90), ("p99", seen.p99)):
        shown = shown_percentile(exact, name)
        assert (value is None) == (shown is None), name
        if value is not None and shown is not None:
            assert value == pytest.approx(shown[1], rel=0.02)
    assert len(seen.counts) <= 32
    assert 10 ** (seen.first / seen.per_decade) <= min(values)
    assert max(values) <= 10 ** ((seen.first + len(seen.counts)) / seen.per_decade)


def test_no_latency_and_nonsense_are_none() -> None:
    assert latency([]) is None and latency(None) is None and latency("ab") is None


def test_an_older_agent_gives_what_it_gives() -> None:
    old = {"cell": "a", "phase": "running", "done": 3, "requests": 8, "in_flight": 4, "chunks": 77}
    assert progress_fields(old) == {
        "phase": "running",
        "in_flight": 4,
        "requests_done": 3,
        "requests_total": 8,
        "pct": 37.5,
    }
    assert progress_fields({"phase": "running", "live": {"phase": "window"}})["phase"] == "window"
    later = progress_fields({"phase": "running", "done": 112, "live": {"phase": "window", "total": 107}})
    assert (later["requests_done"], later["requests_total"]) == (112, 112)


def test_processes_add_up_and_only_what_all_know() -> None:
    def part(**more: Any) -> dict[str, Any]:
        base = {"phase": "window", "s": 2.0, "ok": 3, "failed": 1, "total": 8, "ttft": {5: 2}, "tpot": {}}
        return {**base, "spec": [10, 4], "tokens": 100, "rate": 50.0, "about": False, "by": "settled", **more}

    one = joined([part(), part(ttft={5: 1, 9: 1}, by="time", left=3.0, now=40.0)])
    assert (one["ok"], one["failed"], one["tokens"], one["rate"], one["total"]) == (6, 2, 200, 100.0, 16)
    assert one["ttft"] == [5, 3, 9, 1] and one["spec"] == [20, 8] and one["by"] == "time"
    assert "left" not in one and "now" not in one, "the other process did not say it"
    assert joined([part(phase="settling"), part()])["phase"] == "settling"
    ended = joined([part(phase="draining"), part(left=3.0, now=40.0)])
    assert (ended["left"], ended["now"], ended["tokens"]) == (3.0, 40.0, 200), (
        "one that is over holds nothing back"
    )


def test_figures_stay_while_a_process_lags() -> None:
    """One of three has said nothing yet, or said it long ago: what the others know is shown, no sum is too small."""
    said = {
        "phase": "window",
        "s": 2.0,
        "ok": 3,
        "failed": 1,
        "total": 8,
        "ttft": {5: 2},
        "tpot": {7: 1},
        "spec": [10, 4],
        "tokens": 100,
        "rate": 50.0,
        "now": 40.0,
        "left": 3.0,
        "about": False,
    }
    some = joined([said, said], 1)
    assert (some["phase"], some["ttft"], some["tpot"], some["spec"]) == ("window", [5, 4], [7, 2], [20, 8])
    assert not {"tokens", "rate", "now", "left", "ok", "failed", "total"} & set(some)
    fields = progress_fields({"phase": "running", "done": 6, "requests": 24, "live": some})
    assert (fields["requests_total"], fields["tok_s"], fields["failed"]) == (24, None, None)
    assert fields["ttft"] is not None
    stale = joined([said, as_heard(said, STALE_S + 1, over=False)])
    assert (stale["tokens"], "now" in stale, "left" in stale) == (200, False, False)
    over = joined([as_heard(said, 0.1, over=False), as_heard(said, 60.0, over=True)])
    assert (over["phase"], over["now"], over["left"]) == ("window", 40.0, 3.0)


def test_many_requests_are_looked_at_over_several_looks() -> None:
    nothing = SimpleNamespace(
        parse=lambda _exchange: "refused",
        traffic=SimpleNamespace(conns={}),
        exchanges=[],
        before=None,
        watch=None,
        open_loop=False,
        **dict.fromkeys(("begun_ns", "until_ns", "last_due_ns", "in_flight", "total"), 0),
    )
    from ddtop.agent.loadgen.response.exchange import Exchange

    live = Live(nothing)  # type: ignore[arg-type]
    for index in range(600):
        live.finished(Exchange(index, None))
    assert live.look(1) is None and (live.failed, live.done) == (live_room.MOST_ENDED, 600)
    live.look(2)
    live.look(3)
    assert live.failed == 600
