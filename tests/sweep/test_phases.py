"""Phases are a set with counters: what comes twice adds up, and the ETA comes from the pace."""

from __future__ import annotations

from ddtop.engines import ENGINES
from ddtop.events import LogLine
from ddtop.sweep.start.evidence.log import StartLog
from ddtop.sweep.start.evidence.phases import Phases, bar, enter, eta_s, leave
from ddtop.sweep.start.evidence.progress import begin

NEW = "b" * 32


def test_a_draft_model_loads_a_second_time() -> None:
    p = enter(Phases(), "loading", 10.0)
    p = enter(p, "kv", 40.0, gap_s=12.0)
    p = enter(p, "loading", 45.0)
    p = leave(p, 55.0)
    one = p.of["loading"]
    assert one.count == 2 and one.elapsed_s(99.0) == 40.0 and one.gap_s == 12.0
    assert p.of["kv"].elapsed_s(99.0) == 5.0


def test_the_eta_comes_from_the_pace() -> None:
    p = bar(Phases(), "loading", 10, 100.0)
    assert eta_s(p, 100.0, {"loading": 50.0}) == 50.0
    p = bar(p, "loading", 60, 150.0)
    assert eta_s(p, 150.0) == 40.0 and eta_s(p, 160.0) == 30.0
    p = bar(p, "loading", 5, 200.0)  # another bar
    assert eta_s(p, 200.0) is None
    assert eta_s(bar(p, "loading", 100, 210.0), 211.0) == 0.0


def lines(*texts: str, invocation: str | None = NEW) -> list[LogLine]:
    return [LogLine(text=t, cursor=f"c{i}", invocation=invocation) for i, t in enumerate(texts)]


def test_a_start_read_from_its_log() -> None:
    log, progress, phases = StartLog(ENGINES["sglang"], "a" * 32), begin(0.0), Phases()
    log.generation = NEW
    for i, line in enumerate(
        lines(
            "[2026-04-27 02:36:04 TP0] Load weight begin. avail mem=177.57 GB",
            "Loading safetensors checkpoint shards:  25% Completed | 41/163 [01:31<04:32,  2.23s/it]",
            "[2026-04-27 02:36:06] Load weight end. elapsed=1.97 s, type=Qwen3ForCausalLM, avail mem=162.30 GB, mem usage=15.28 GB.",
            "[..] Capture cuda graph begin. This can take up to several minutes. avail mem=24.14 GB",
            "[2026-04-27 02:36:30] The server is fired up and ready to roll!",
        )
    ):
        progress, phases = log.feed(line, float(i), progress, phases)
    assert list(phases.of) == ["loading", "capturing", "answering"]
    assert phases.of["loading"].pct == 25
    mark = log.mark_of(f"{NEW}/container@x")
    assert mark is not None and mark.generation == f"{NEW}/container@x"
    assert log.mark_of("c" * 32).generation == NEW  # type: ignore[union-attr]
    assert log.cause() is None


def test_the_old_processs_last_words_do_not_count() -> None:
    log, progress, phases = StartLog(ENGINES["sglang"], "a" * 32), begin(0.0), Phases()
    for line in lines(
        "The server is fired up and ready to roll!",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB",
        invocation="a" * 32,
    ):
        progress, phases = log.feed(line, 5.0, progress, phases)
    assert log.mark is None and log.cause() is None and progress.last_at == 0.0


def test_the_first_failure_of_a_loop_is_the_telling_one() -> None:
    log, progress, phases = StartLog(ENGINES["sglang"], None), begin(0.0), Phases()
    log.generation = NEW
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total capacity of 95 GiB of which 1 GiB is free."
    for line in lines("Load weight begin. avail mem=1 GB", oom) + lines(
        "OSError: [Errno 98] Address already in use", invocation="c" * 32
    ):
        progress, phases = log.feed(line, 1.0, progress, phases)
    assert log.cause() is not None and log.cause().slug.startswith("oom")  # type: ignore[union-attr]
