"""Unknown is unknown: what strangers give as a log is never called a start that goes well, and an error is never fine."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ddtop.engines.log.last_words import bad_news
from ddtop.engines.log.line_prefix import split_prefix
from ddtop.engines.log.own_lines import is_own
from ddtop.inspect import inspect_files
from ddtop.inspect.inspectors import main_inspect
from ddtop.sources.log.diagnosis import diagnose_log
from ddtop.sources.log.first_cause import is_configuration

FOLDER = Path(__file__).parents[1] / "data" / "strangers"
EXPECT = tomllib.loads((FOLDER / "expect.toml").read_text("utf-8"))


def test_every_input_has_an_answer() -> None:
    assert {p.name for p in FOLDER.iterdir()} - {"expect.toml"} == set(EXPECT)


@pytest.mark.parametrize("name", sorted(EXPECT))
def test_stranger(name: str) -> None:
    want = EXPECT[name]
    got = inspect_files(None, {name: (FOLDER / name).read_bytes()})
    assert {key: got.get(key) for key in want} == want, got["evidence"]
    assert got["advice"] and got["evidence"] and "taken for" in got["guessed"]


@pytest.mark.parametrize("name", sorted(n for n in EXPECT if n.startswith("d")))
def test_named_as_a_log_it_is_no_start_either(name: str) -> None:
    got = inspect_files("log", {name: (FOLDER / name).read_bytes()})
    assert got["verdict"] in ("unknown", "failed") and got["severity"] != "info"


def test_binary_data_named_as_a_log_is_unknown() -> None:
    assert inspect_files("log", {"x": bytes(range(256)) * 20})["verdict"] == "unknown"


@pytest.mark.parametrize("name", ["d01-mail.txt", "d09-nginx-error.log", "d20-vllm-errorend.log"])
def test_unknown_ends_with_12_and_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_inspect("log", str(FOLDER / name), True) == 12
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "unknown" and told["evidence"][0]["line"] and "retryable" not in told


def test_what_it_looks_like_is_said() -> None:
    looks = {
        name: inspect_files("log", {name: (FOLDER / name).read_bytes()}).get("looks_like", "")
        for name in (
            "d01-mail.txt",
            "d02-passwd.txt",
            "d07-source.txt",
            "d11-plan.toml",
            "d09-nginx-error.log",
        )
    }
    words = ("mail", "password", "source code", "plan", "nginx")
    assert all(word in said for word, said in zip(words, looks.values(), strict=True)), looks


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[2026-11-30 10:00:00 TP0] Load weight begin. avail mem=78.00 GB", ""),
        ("(EngineCore pid=1) ERROR 11-30 10:00:00 [core.py:1] it broke", "error"),
        ("(EngineCore pid=1) INFO 11-30 10:00:00 [core.py:1] 0 errors", ""),
        ("(APIServer pid=1) WARNING 11-30 10:00:00 [x.py:1] failed to raise the limit", ""),
        ('time=2026-08-29T08:50:23Z level=ERROR source=sched.go:575 msg="error loading"', "error"),
        ('{"level":"error","msg":"no"}', "error"),
        ('{"level":"info","error":null,"msg":"up"}', ""),
        ("panic: runtime error: index out of range", "end"),
        ("Segmentation fault (core dumped)", "end"),
        ("llm-1 exited with code 139", "end"),
        ("llm-1 exited with code 0", ""),
        ("waiting for the port: timed out", "timeout"),
        ("[04/28/2025-09:56:44] [TRT-LLM] [E] Failed to build", "error"),
        ("errors: 0, failed: 0", ""),
        ("cannot open shared object", "suspect"),
    ],
)
def test_bad_news(line: str, kind: str) -> None:
    assert bad_news(line) == kind


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("(EngineCore pid=1) INFO 11-30 10:00:00 [v1/engine/core.py:1] x", True),
        ("[2026-11-30 10:00:00 TP0] x", True),
        ("[2026-11-30 10:00:00] x", False),
        ("llama_context: n_ctx = 4096", True),
        ("    logger.info('llama_context: x')", False),
        ("python3 -m sglang.launch_server --model x", False),
    ],
)
def test_own_lines(line: str, own: bool) -> None:
    assert is_own(split_prefix(line)) is own


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("RuntimeError: Direct DCP kv-gather requires NVLS symmetric-memory multicast.", True),
        ("RuntimeError: Remote engine 3 must use --headless unless in external or hybrid dp lb mode", True),
        (
            "RuntimeError: Multiple platform plugins activated: ['a', 'b']. Set SGLANG_PLATFORM to select one.",
            True,
        ),
        ("RuntimeError: Current MXFP4 MoE layer does not satisfy Marlin constraints.", True),
        ("Exception: VisionFlash4Attention is only available for cuda", True),
        ("vllm.utils.CacheConfigMismatchError: WeightCacheKey mismatch on fields: dtype", True),
        ("RuntimeError: the rendezvous with peer 3 is not available", False),
        ("RuntimeError: CUDA error: unspecified failure, --foo is not supported", False),
        ("RuntimeError: Engine process died unexpectedly, set VLLM_LOGGING_LEVEL", False),
        ("TimeoutError: the store must be reached", False),
        ("RuntimeError: unexpected error", False),
        ("RuntimeError: value verify planned without a custom mask", False),
    ],
)
def test_a_general_exception_that_says_what_is_lacking_is_the_configurations(text: str, again: bool) -> None:
    assert is_configuration(text.partition(":")[0], text) is again


_QUOTES = """(EngineCore pid=9) ERROR 10-21 02:11:42 [core.py:708] Traceback (most recent call last):
(EngineCore pid=9) ERROR 10-21 02:11:42 [core.py:708]   File "/v/multiproc_executor.py", line 264, in get_response
(EngineCore pid=9) ERROR 10-21 02:11:42 [core.py:708]     raise RuntimeError(
(EngineCore pid=9) ERROR 10-21 02:11:42 [core.py:708] RuntimeError: Worker failed with error '{words}', please check the stack trace above for the root cause
(APIServer pid=2) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("CUDA error: an illegal memory access was encountered", "cuda-illegal-memory-access"),
        ("FlashMLA is only supported on Hopper", "gpu-arch-unsupported"),
        ("'layers.0.mlp.gate.weight'", "checkpoint-mismatch"),
        ("the rotary table has 3 rows where 4 are read", "unhandled-exception"),
    ],
)
def test_what_a_wrapper_quotes_is_the_cause(words: str, cause: str) -> None:
    """vLLM's core only repeats what a worker said; its own lines may be cut off."""
    got = diagnose_log(_QUOTES.format(words=words).encode())
    assert (got["verdict"], got["cause"]) == ("failed", cause)
    assert words in f"{got['meaning']} {got['evidence']}"


def test_an_idle_server_that_prints_its_counters_is_up() -> None:
    line = "INFO 07-04 07:25:31 metrics.py:218] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.0%, CPU KV cache usage: 0.0%"
    assert diagnose_log(f"{line}\n{line}\n".encode())["verdict"] == "ready"


_UP = "(APIServer pid=1) INFO:     Application startup complete.\n(EngineCore pid=9) INFO 12-02 10:11:12 [core.py:93] ready\n"
_ASGI = """(APIServer pid=1) ERROR:    Exception in ASGI application
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1)   File "/v/httptools_impl.py", line 409, in run_asgi
(APIServer pid=1)     result = await app(
(APIServer pid=1) {words}
"""
_PREPROCESSING = """(APIServer pid=1) ERROR 12-02 10:12:12 [serving_chat.py:257] Traceback (most recent call last):
(APIServer pid=1) ERROR 12-02 10:12:12 [serving_chat.py:257]   File "/v/serving_chat.py", line 250, in create_chat_completion
(APIServer pid=1) ERROR 12-02 10:12:12 [serving_chat.py:257] {words}
"""
_GOES_ON = '(APIServer pid=1) INFO:     172.17.0.1:53816 - "GET /health HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize("form", [_ASGI, _PREPROCESSING], ids=["asgi", "preprocessing"])
@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 30] Read-only file system: '/tmp/upload'",
        "ModuleNotFoundError: No module named 'librosa'",
        "ValueError: 170 is not divisible by 14",
        "MemoryError",
    ],
)
def test_one_failed_request_is_no_end_of_a_ready_server(form: str, words: str) -> None:
    got = diagnose_log((_UP + form.format(words=words) + _GOES_ON).encode())
    assert got["verdict"] in ("ready", "degraded"), got["cause"]
