"""The live scan: what each line adds, and what counts as progress."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ddtop.engines.log.grammar import LogFact
from ddtop.sources.log.scan_snapshot import Hit, LogEntry
from ddtop.sources.log.scanner import LogScanner
from ddtop.sources.log.verdict import first_cause, judge
from tests.sources.case_files import folders
from tests.sources.healthy import LLAMA, SGLANG, VLLM


def scan(text: str, step: float = 1.0, engine: str | None = None) -> LogScanner:
    scanner = LogScanner(engine)
    for number, line in enumerate(text.splitlines()):
        scanner.feed(LogEntry(line, realtime=1000.0 + number * step, cursor=f"c{number}"))
    return scanner


HIT = """(EngineCore_DP0 pid=94) INFO 03-09 12:57:29 [backends.py:973] Dynamo bytecode transform time: 2.08 s
(EngineCore_DP0 pid=94) INFO 03-09 12:57:31 [backends.py:283] Directly load the compiled graph(s) for compile range (1, 4096) from the cache, took 0.961 s
(EngineCore_DP0 pid=94) INFO 03-09 12:57:31 [monitor.py:35] torch.compile and initial profiling run took 3.37 s in total"""
AOT = "(EngineCore pid=4775) INFO 06-04 12:28:16 [decorators.py:311] Directly load AOT compilation from path /root/.cache/vllm/torch_compile_cache/x"
MISS = """(EngineCore_DP0 pid=94) INFO 03-09 12:57:29 [backends.py:973] Dynamo bytecode transform time: 2.08 s
(EngineCore_DP0 pid=94) INFO 03-09 12:57:41 [backends.py:319] Compiling a graph for compile range (1, 4096) takes 10.33 s"""


@pytest.mark.parametrize(
    ("log", "said"), [(HIT, "hit"), (AOT, "hit"), (MISS, "miss"), (f"{HIT}\n{MISS}", "miss"), (SGLANG, None)]
)
def test_what_the_log_says_of_the_compile_cache(log: str, said: str | None) -> None:
    """Lines of vLLM 0.11 to 0.20 from public logs."""
    assert scan(log, engine="sglang" if said is None else "vllm").snapshot().compile_cache == said


@pytest.mark.parametrize(("log", "engine"), [(SGLANG, "sglang"), (VLLM, "vllm"), (LLAMA, "llamacpp")])
def test_ready_is_seen_once_with_time_and_cursor(log: str, engine: str) -> None:
    for given in (None, engine):
        seen = scan(log, engine=given).snapshot()
        mark = {"sglang": "fired up", "vllm": "Application startup complete", "llamacpp": "model loaded"}[
            engine
        ]
        number = next(i for i, line in enumerate(log.splitlines()) if mark in line)
        assert (seen.engine, seen.ready, seen.ready_at, seen.ready_cursor) == (
            engine,
            True,
            1000.0 + number,
            f"c{number}",
        )
        assert mark in seen.ready_line


def test_startup_complete_is_no_mark_for_sglang() -> None:
    upto = SGLANG[: SGLANG.index("[2026-04-27 02:36:30]")]
    seen = scan(upto).snapshot()
    assert not seen.ready and seen.phase == "http" and judge(seen).slug == "no-ready-marker-yet"


def test_phases_keep_their_times_and_counts() -> None:
    seen = scan(SGLANG).snapshot()
    load = seen.phases["load"]
    assert load.ended and load.first < load.last and load.count >= 3
    assert list(seen.phases)[:4] == ["launch", "init", "load", "kv"]
    assert seen.server_args["watchdog_timeout"] == 300 and seen.args_whole


def test_a_repeated_line_is_no_progress_and_a_new_percentage_is() -> None:
    scanner = LogScanner()
    bar = "Loading safetensors checkpoint shards:  {p}% Completed | {n}/163 [01:31<04:32,  2.23s/it]"
    scanner.feed(LogEntry(bar.format(p=10, n=16), realtime=100.0))
    scanner.feed(LogEntry(bar.format(p=20, n=33), realtime=110.0))
    for at in (120.0, 130.0, 140.0):
        scanner.feed(LogEntry(bar.format(p=20, n=33), realtime=at))
        scanner.feed(
            LogEntry(
                "(EngineCore_DP0 pid=1) INFO 11-04 18:54:33 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.",
                realtime=at,
            )
        )
    seen = scanner.snapshot()
    assert (seen.last_progress, seen.last_line, seen.waiting) == (110.0, 140.0, 3)
    (loading,) = seen.bars.values()
    assert loading.pct == 20 and loading.eta_at(110.0) == pytest.approx(80.0)
    scanner.feed(LogEntry(bar.format(p=21, n=34), realtime=150.0))
    assert (scanner.snapshot().last_progress, scanner.snapshot().waiting) == (150.0, 0)


def test_eta_without_a_pace_is_the_bars_own() -> None:
    scanner = LogScanner()
    scanner.feed(
        LogEntry(
            "Loading safetensors checkpoint shards:  25% Completed | 41/163 [01:31<04:32,  2.23s/it]",
            realtime=5.0,
        )
    )
    (bar,) = scanner.snapshot().bars.values()
    assert bar.eta_at(5.0) == 272 and bar.of == 163


def test_feed_returns_facts_and_hits() -> None:
    scanner = LogScanner("sglang")
    assert scanner.feed(LogEntry("nothing to see")) == ()
    (fact,) = scanner.feed(LogEntry("[x TP0] Load weight begin. avail mem=177.57 GB"))
    assert isinstance(fact, LogFact) and fact.event == "begin"
    hits = scanner.feed(
        LogEntry(
            "[2026-01-01 00:00:00 TP3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 616.00 MiB.",
            realtime=7.0,
            cursor="c",
            pid=9,
        )
    )
    (hit,) = [h for h in hits if isinstance(h, Hit)]
    assert (hit.slug, hit.rank, hit.pid, hit.realtime, hit.cursor, hit.phase) == (
        "oom-loading-weights",
        "TP3",
        9,
        7.0,
        "c",
        "load",
    )


def test_the_first_cause_of_each_rank_is_kept() -> None:
    scanner = LogScanner("sglang")
    for rank, text in (
        (1, "RuntimeError: CUDA error: device-side assert triggered"),
        (2, "RuntimeError: CUDA error: an illegal memory access was encountered"),
        (1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ):
        scanner.feed(LogEntry(f"[2026-01-01 00:00:00 TP{rank}] {text}"))
    seen = scanner.snapshot()
    assert {rank: hit.slug for rank, hit in seen.causes.items()} == {
        "TP1": "cuda-device-assert",
        "TP2": "cuda-illegal-memory-access",
    }
    hit, _ = first_cause(seen)
    assert hit is not None and hit.slug == "cuda-device-assert"


def test_a_snapshot_is_frozen_and_does_not_move() -> None:
    scanner = scan(SGLANG[:800])
    seen = scanner.snapshot()
    with pytest.raises(dataclasses.FrozenInstanceError):
        seen.phase = "x"
    lines = seen.lines
    scanner.feed(LogEntry("another"))
    assert seen.lines == lines and scanner.snapshot().lines == lines + 1


def test_an_argument_dump_wrapped_over_lines_is_joined() -> None:
    scanner = LogScanner()
    scanner.feed(LogEntry("[2025-03-10 16:19:28] server_args=ServerArgs(model_path='/m', tp_s"))
    assert scanner.snapshot().server_args == {"model_path": "/m"}
    scanner.feed(LogEntry("ize=4, port=30001)"))
    assert scanner.snapshot().server_args == {"model_path": "/m", "tp_size": 4, "port": 30001}
    scanner.feed(LogEntry("[2025-03-10 16:19:29] server_args=ServerArgs(model_path='/m', tp_s"))
    scanner.feed(LogEntry("[2025-03-10 16:19:30 TP0] Load weight begin. avail mem=1.00 GB"))
    assert scanner.snapshot().phase == "load" and not scanner.snapshot().args_whole


def test_an_entry_of_several_lines_is_read_line_by_line() -> None:
    scanner = LogScanner("sglang")
    scanner.feed(
        LogEntry(
            '[x TP1] Scheduler hit an exception: Traceback (most recent call last):\n  File "a.py", line 1, in load_model\nKeyError: 1',
            cursor="c",
        )
    )
    (raised,) = scanner.snapshot().raised
    assert (raised.name, raised.phase, scanner.snapshot().lines) == ("KeyError", "load", 3)


def test_access_lines_with_an_error_status_are_no_failure_of_the_server() -> None:
    for status in ("401 Unauthorized", "403 Forbidden", "500 Internal Server Error"):
        for form in (
            '[2026-04-27 02:36:29] INFO:     127.0.0.1:1 - "GET /x HTTP/1.1" {}',
            '127.0.0.1:1 - "GET /x HTTP/1.1" {}',
        ):
            assert LogScanner().feed(LogEntry(form.format(status))) == ()


LOGS = [folder for folder in folders("B") if (folder / "input.log").exists()]


@pytest.mark.parametrize("folder", LOGS, ids=lambda f: f.name)
def test_a_live_log_is_numbered_and_judged_like_its_file(folder: Path) -> None:
    lines = (folder / "input.log").read_bytes().decode("utf-8", "replace").split("\n")[:2_000]
    live, file = LogScanner(), LogScanner()
    for number, line in enumerate(lines, 1):
        live.feed(LogEntry(line))
        file.feed(LogEntry(line, number=number))
    assert live.snapshot() == file.snapshot()
    assert first_cause(live.snapshot()) == first_cause(file.snapshot())


def test_numbers_go_on_over_a_restart_and_count_an_entry_of_several_lines_once() -> None:
    scanner = LogScanner()
    for line in (
        "RuntimeError: CUDA error: out of memory",
        "[x] server_args=ServerArgs(port=1)",
        "a\nb",
        "c",
    ):
        scanner.feed(LogEntry(line))
    assert scanner.snapshot().tail == ((3, "a"), (3, "b"), (4, "c"))
