"""The log grammar: one line in, facts out; every phase rule on a real line, and every way a line can be spoilt."""

from __future__ import annotations

import pytest

from ddtop.engines.log.grammar import clock_s, guess_engine, load_phase_rules, parse_line
from ddtop.engines.log.line_prefix import pieces, split_prefix
from ddtop.engines.log.structured import plain
from tests.sources.healthy import LLAMA, SGLANG, VLLM


def facts(line: str, engine: str | None = None) -> list[tuple[str, str, str]]:
    return [(f.kind, f.phase, f.event) for f in parse_line(engine, line)]


PHASES = [
    ("[2026-04-27 02:36:03] Init torch distributed begin.", "init", "begin", {}),
    ("[2026-11-30 22:22:29 TP3] Init parallel begin.", "init", "begin", {}),
    ("[2026-11-30 22:22:29 TP3] Init parallel ends. elapsed=0.03 s", "init", "end", {"s": 0.03}),
    ("[2026-04-27 02:36:03 TP1] Init torch distributed ends. mem usage=0.09 GB", "init", "end", {"gb": 0.09}),
    ("[2026-04-27 02:36:03 TP0 EP0] sglang is using nccl==2.28.9", "init", "nccl", {"version": "2.28.9"}),
    ("h:175:175 [0] NCCL INFO NCCL version 2.28.9+cuda13.0", "init", "nccl", {"version": "2.28.9"}),
    ("[2026-04-27 02:36:04 TP0] Load weight begin. avail mem=177.57 GB", "load", "begin", {"gb": 177.57}),
    (
        "[2026-01-16 13:35:33] Load weight end. type=X, dtype=torch.bfloat16, avail mem=12.05 GB, mem usage=3.99 GB.",
        "load",
        "end",
        {"gb": 3.99, "free": 12.05},
    ),
    (
        "Load weight end. Committed real weights after CUDA graph capture in 31.20 s",
        "load",
        "end-late",
        {"s": 31.2},
    ),
    (
        "[..] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 879872, K size: 13.43 GB",
        "kv",
        "allocated",
        {"tok": 879872},
    ),
    (
        "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 992896, KV size: 136.36 GB",
        "kv",
        "allocated",
        {"tok": 992896},
    ),
    (
        "[..] Capture draft cuda graph begin. This can take up to several minutes.",
        "capture",
        "begin",
        {"what": "draft "},
    ),
    (
        "[2026-06-01 00:00:00 TP0] Capture cuda graph end. elapsed=3.74 s, mem usage=0.60 GB",
        "capture",
        "end",
        {"s": 3.74},
    ),
    ("INFO [gpu_worker.py:255] Available KV cache memory: -1.83 GiB", "kv", "available", {"gb": -1.83}),
    (
        "INFO 05-07 04:54:33 [core.py:299] init engine (profile, create kv cache, warmup model) took 163.91 s (compilation: 54.58 s)",
        "sched",
        "ready",
        {"s": 163.91, "compile_s": 54.58},
    ),
    (
        "INFO 05-07 04:54:33 [core.py:193] init engine (profile, create kv cache, warmup model) took 2.93 seconds",
        "sched",
        "ready",
        {"s": 2.93},
    ),
    (
        "INFO 01-01 00:00:00 model_runner.py:1115] Loading model weights took 14.9888 GB",
        "load",
        "end",
        {"gb": 14.9888},
    ),
    (
        "(APIServer pid=1) INFO 05-07 04:54:46 [api_server.py:602] Starting vLLM API server 0 on http://0.0.0.0:8000",
        "http",
        "starting",
        {"port": 8000},
    ),
    (
        "INFO 03-09 12:55:21 [monitor.py:35] torch.compile and initial profiling run took 29.93 s in total",
        "compile",
        "end",
        {"s": 29.93},
    ),
    ("INFO 09-01 [monitor.py:34] torch.compile takes 41.20 s in total", "compile", "end", {"s": 41.2}),
    (
        "INFO 03-09 12:55:33 [serving.py:210] Chat template warmup completed in 1120.4ms",
        "warmup",
        "multimodal",
        {"ms": 1120.4},
    ),
    (
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
        "http",
        "listening",
        {"port": 8080},
    ),
    ("main: model loaded", "ready", "model-loaded", {}),
    ("[2026-04-27 02:36:30] The server is fired up and ready to roll!", "ready", "fired-up", {}),
    ("Gracefully exiting... remaining number of requests 2", "stop", "drain", {"n": 2}),
]


@pytest.mark.parametrize(
    ("line", "phase", "event", "values"),
    PHASES,
    ids=[f"{p}-{e}-{i}" for i, (_, p, e, _) in enumerate(PHASES)],
)
def test_phase_marks(line: str, phase: str, event: str, values: dict[str, object]) -> None:
    found = [f for f in parse_line(None, line) if (f.phase, f.event) == (phase, event)]
    assert found, facts(line)
    assert {k: found[0].values.get(k) for k in values} == values


def test_every_rule_has_an_anchor_that_its_lines_hold() -> None:
    lines = [line for log in (SGLANG, VLLM, LLAMA) for line in log.splitlines()] + [
        line for line, *_ in PHASES
    ]
    for rule in load_phase_rules():
        assert rule.anchor and rule.source
        for line in lines:
            if rule.regex.search(split_prefix(line).message):
                assert rule.anchor in line, (rule.event, line)


BARS = [
    (
        "\rLoading safetensors checkpoint shards:  25% Completed | 41/163 [01:31<04:32,  2.23s/it]",
        "load",
        25,
        41,
        163,
        272,
    ),
    ("Multi-thread loading shards: 100% Completed | 5/5 [00:01<00:00,  3.08it/s]", "load", 100, 5, 5, 0),
    ("Loading safetensors checkpoint shards: 100% Completed | 163/163", "load", 100, 163, 163, None),
    (
        "Capturing batches (bs=8 avail_mem=2.85 GB):   0%|          | 0/4 [00:00<?, ?it/s]",
        "capture",
        0,
        0,
        4,
        None,
    ),
    (
        "Capturing CUDA graph shapes: 100%|██████████| 35/35 [00:49<00:00,  1.41s/it]",
        "capture",
        100,
        35,
        35,
        0,
    ),
    ("DeepGEMM warmup:  12%|█▉        | 1902/16384 [00:00<00:00, 19014.49it/s]", "jit", 12, 1902, 16384, 0),
    ("Fetching 5 files:  40%|####      | 2/5 [1:00:00<1:30:00, 1800s/it]", "download", 40, 2, 5, 5400),
    (
        "model-00001-of-00003.safetensors:  45%|####      | 2.10G/4.67G [00:30<00:36, 70MB/s]",
        "download",
        45,
        2.1e9,
        4.67e9,
        36,
    ),
]


@pytest.mark.parametrize(
    ("line", "phase", "pct", "n", "of", "eta"), BARS, ids=[b[0].strip()[:24] for b in BARS]
)
def test_progress_bars(line: str, phase: str, pct: int, n: float, of: float, eta: int | None) -> None:
    (fact,) = parse_line(None, line)
    assert (fact.kind, fact.phase, fact.values["pct"]) == ("progress", phase, pct)
    assert fact.values["n"] == pytest.approx(n) and fact.values["of"] == pytest.approx(of)
    assert fact.values.get("eta_s") == eta


def test_a_record_glued_behind_a_bar_is_found() -> None:
    line = " 96%|█████████▌| 22/23 [00:13<00:00,  2.05it/s][2025-03-12 08:52:40 DP0 TP0] max_total_num_tokens=935444, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4097, context_len=32768"
    bar, record = parse_line("sglang", line)
    assert (bar.kind, bar.values["pct"], bar.glued) == ("progress", 96, False)
    assert (record.rank, record.glued, record.values["ctx"]) == ("DP0 TP0", True, 32768)
    two = "Capturing CUDA graph shapes:  69%|█�(VllmWorkerProcess pid=2439532) INFO 05-10 15:54:05 custom_all_reduce.py:226] Registering 4515 cuda graph addresses"
    assert facts(two) == [("progress", "capture", "progress"), ("phase", "capture", "addresses")]


def test_only_the_last_state_of_a_bar_in_one_line_counts() -> None:
    line = "\r".join(f"Capturing batches: {p:3d}%|x| {i}/4 [00:01<00:03]" for i, p in enumerate((0, 25, 100)))
    (fact,) = parse_line(None, line)
    assert (fact.values["pct"], fact.values["n"], fact.values["segments"]) == (100, 2, 3)


def test_colour_is_removed() -> None:
    (fact,) = parse_line(
        "vllm",
        "\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m INFO 11-02 09:00:01 [default_loader.py:1] Loading weights took 11.67 seconds",
    )
    assert (fact.event, fact.rank, fact.pid) == ("weights", "DP0", 7)


@pytest.mark.parametrize(
    ("line", "rank", "pid", "message"),
    [
        ("[2025-03-12 08:52:40 DP0 TP0 EP0] hello", "DP0 TP0 EP0", None, "hello"),
        ("[2025-03-12 08:52:40.123 TP7] hello", "TP7", None, "hello"),
        ("[TP0] hello", "TP0", None, "hello"),
        ("DP2 TP2] hello", "DP2 TP2", None, "hello"),
        (
            "(Worker_TP3 pid=12) [Stage-0] ERROR 03-12 08:22:28 [multiproc_executor.py:800] hello",
            "TP3",
            12,
            "hello",
        ),
        (
            "(VllmWorker rank=1 pid=9) INFO 05-10 15:54:05 [custom_all_reduce.py:226] hello",
            "rank1",
            9,
            "hello",
        ),
        ("ERROR 06-30 13:53:19 [core.py:515] hello", "", None, "hello"),
        (
            "(EngineCore pid=311) (RayWorkerWrapper pid=144, ip=172.18.0.2) ERROR 03-19 19:10:25 [ray_utils.py:74] hello",
            "",
            144,
            "hello",
        ),
        ("[rank3]:[E421 04:13:43.426633564 ProcessGroupGloo.cpp:143] hello", "rank3", None, "hello"),
        ("gpuhost:175:175 [4] NCCL INFO hello", "gpu4", 175, "NCCL INFO hello"),
        ("0.06.895.980 I hello", "", None, "hello"),
        ("Apr 03 09:19:00 gpuhost python3[612]: [2025-03-12 08:52:40 TP1] hello", "TP1", 612, "hello"),
        ("2026-03-12T08:52:40+0000 gpuhost systemd[1]: hello", "", 1, "hello"),
        ("2026-03-12T08:52:40.000000001Z stderr F [2025-03-12 08:52:40 TP1] hello", "TP1", None, "hello"),
        ("sglang-1  | [2025-10-29 11:26:03] hello", "", None, "hello"),
        ('sglang-1  |   File "x"', "", None, '  File "x"'),
        ("INFO:     hello", "", None, "hello"),
        ("plain hello", "", None, "plain hello"),
    ],
)
def test_prefixes(line: str, rank: str, pid: int | None, message: str) -> None:
    found = split_prefix(line)
    assert (found.rank, found.pid, found.message) == (rank, pid, message)


DECODE = [
    (
        "[2025-06-07 21:25:14 TP0] Decode batch. #running-req: 1, #token: 9322, token usage: 0.00, gen throughput (token/s): 97.52, #queue-req: 0",
        {"running": 1, "tokens": 9322, "gen_tps": 97.52, "queued": 0},
        {"accept_len"},
    ),
    (
        "[2025-10-22 10:27:57 TP0] Decode batch. #running-req: 1, #token: 108, token usage: 0.00, accept len: 2.17, accept rate: 0.54, cuda graph: True, gen throughput (token/s): 0.39, #queue-req: 0, ",
        {"accept_len": 2.17, "accept_rate": 0.54, "cuda_graph": True, "gen_tps": 0.39},
        set(),
    ),
    (
        "[2026-04-05 20:02:51] Decode batch, gen throughput (token/s): 1635.11, #running-req: 32, #queue-req: 0",
        {"gen_tps": 1635.11, "running": 32},
        {"accept_len"},
    ),
    (
        "[x] Decode batch [17], #running-req: 2, #full token: 11, full token usage: 0.08, #swa token: 5, swa token usage: 0.01, mamba num: 1, mamba usage: 0.02, cap len: 4.00, block accept len: 3.20, est. decode TFLOPS/s: 12.5, gen throughput (token/s): 235.11, #queue-req: 1",
        {
            "tokens": 11,
            "token_usage": 0.08,
            "cap_len": 4.0,
            "block_accept_len": 3.2,
            "mamba_usage": 0.02,
            "est. decode TFLOPS/s": 12.5,
        },
        {"accept_len"},
    ),
    (
        "[x] Decode batch, #running-req: 1, accept len: nan, gen throughput (token/s): 1.0, #queue-req: 0",
        {"gen_tps": 1.0},
        {"accept_len"},
    ),
]


@pytest.mark.parametrize(("line", "values", "absent"), DECODE)
def test_decode_lines_are_pairs_in_any_order(line: str, values: dict[str, object], absent: set[str]) -> None:
    (fact,) = parse_line("sglang", line)
    assert fact.kind == "decode"
    assert {k: fact.values.get(k) for k in values} == values
    assert not absent & fact.values.keys()


def test_prefill_has_its_own_throughput() -> None:
    (fact,) = parse_line(
        None,
        "[2026-04-05 20:02:51] Prefill batch, #new-seq: 1, #new-token: 158, #cached-token: 0, token usage: 0.08, #running-req: 31, #queue-req: 0, cuda graph: True, input throughput (token/s): 559.53",
    )
    assert fact.kind == "prefill" and fact.values["input_tps"] == 559.53 and "gen_tps" not in fact.values


def test_vllm_statistics_and_spec_lines() -> None:
    (stats,) = parse_line(
        None,
        "INFO 04-28 22:54:32 [loggers.py:257] Engine 003: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.5%, Prefix cache hit rate: 92.0%",
    )
    assert (
        stats.values["engine"],
        stats.values["gen_tps"],
        stats.values["queued"],
        stats.values["kv_usage_pct"],
    ) == (3, 5.4, 14, 76.5)
    (spec,) = parse_line(
        None,
        "SpecDecoding metrics: Draft acceptance rate: 77.5%, Mean acceptance length: 3.33, Accepted: 155 tokens, Drafted: 200 tokens, Per-position acceptance rate: 0.850, 0.775, 0.700",
    )
    assert (spec.values["accept_len"], spec.values["per_pos"], spec.values["draft_rate_pct"]) == (
        3.33,
        [0.85, 0.775, 0.7],
        77.5,
    )
    (nan,) = parse_line(
        None,
        "SpecDecoding metrics: Mean acceptance length: nan, Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: nan, nan, Avg Draft acceptance rate: nan%",
    )
    assert not {"accept_len", "per_pos", "draft_rate_pct"} & nan.values.keys() and nan.values["drafted"] == 0


def test_engine_is_guessed_and_vllms_line_form_alone_is_weak() -> None:
    assert [guess_engine(log) for log in (SGLANG, VLLM, LLAMA)] == ["sglang", "vllm", "llamacpp"]
    assert (
        guess_engine("INFO 03-10 16:19:26 __init__.py:190] Automatically detected platform cuda.") == "vllm"
    )
    assert guess_engine("hello\nworld") is None and guess_engine("") is None


def test_pieces_are_never_empty() -> None:
    assert pieces("") == [""] and pieces("\r\r") == [""] and pieces("a\rb\r\n") == ["a", "b"]


def test_clock() -> None:
    assert [clock_s(t) for t in ("01:31", "1:02:03", "?", None, "1:x", "00:00")] == [
        91,
        3723,
        None,
        None,
        None,
        0,
    ]


def test_a_json_record_gives_the_lines_that_it_stands_for() -> None:
    record = '{"timestamp": "2025-03-02T10:00:01Z", "level": "warn", "logger": "sglang.srt", "msg": "low", "exc_info": "a\\nb"}'
    assert plain(record) == "WARNING 03-02 10:00:01 low\na\nb"
    assert plain('{"time": 1700000000.5, "levelname": "ERROR", "message": "boom"}') == "ERROR:    boom"
    assert plain("web-1  | " + record) == "web-1  | WARNING 03-02 10:00:01 low\na\nb"


@pytest.mark.parametrize(
    "line",
    ['{"message": "no level, no time"}', '{"level": "info"}', '{"level": "info", "msg": 5}', "{'a'}", "{"],
)
def test_what_is_no_record_is_left_alone(line: str) -> None:
    assert plain(line) is None
