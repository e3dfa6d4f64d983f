"""Diagnosis of logs beyond the shipped cases: which rank, which cause, which run, and when it is no failure."""

from __future__ import annotations

import json
import time

import pytest

from ddtop.sources.log.diagnosis import diagnose_log
from tests.sources.healthy import LLAMA, SGLANG, SYSTEMD, VLLM

BARRIER = "[rank0]:[E421 04:13:43.426633564 ProcessGroupGloo.cpp:143] Rank 0 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 3. Please check rank 3 logs for faulty rank.\n"
PEER = """\
[2026-11-30 08:00:10 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/model_executor/model_runner.py", line 700, in load_model
    raise ValueError(
ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't finish loading. It is likely due to unexpected failures (e.g., OOM) or a slow node.
"""
SIGQUIT = "[2026-11-30 08:00:11] Received sigquit from a child process. It usually means the child failed.\n"
OOM3 = """\
[2026-11-30 08:00:12 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/model_executor/model_runner.py", line 647, in load_model
    self.model = get_model(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 616.00 MiB. GPU 3 has a total capacity of 95.00 GiB of which 300.00 MiB is free.
"""
CRASH = """\
[2026-04-27 03:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/managers/scheduler.py", line 1308, in process_batch_result_decode
RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`
[2026-04-27 03:00:00] Received sigquit from a child process. It usually means the child failed.
"""
RESTART = """\
[2026-04-27 03:02:00] server_args=ServerArgs(model_path='x', port=30000)
[2026-04-27 03:02:09 TP0] Load weight begin. avail mem=177.57 GB
Loading safetensors checkpoint shards:  25% Completed | 41/163 [01:31<04:32,  2.23s/it]
"""
REQUEST_ERROR = """\
[2026-04-27 02:37:00] Traceback (most recent call last):
  File "/sgl/entrypoints/openai/serving_chat.py", line 100, in handle
ValueError: The input (50000 tokens) is longer than the model's context length (40960 tokens).
"""
DECODE = "".join(
    f"[2026-04-27 02:37:{i:02d} TP0] Decode batch, #running-req: 1, #token: {i * 40}, token usage: 0.00, cuda graph: True, gen throughput (token/s): 201.00, #queue-req: 0\n"
    for i in range(6)
)
HUNG = "(APIServer pid=1) INFO 09-01 10:01:10 [loggers.py:283] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%\n"
WAIT = "(EngineCore_DP0 pid=25527) INFO 11-04 18:54:33 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when\n"
KERNEL_OOM = "Nov 30 08:00:01 host kernel: Out of memory: Killed process 8123 (sglang::schedul) total-vm:912345678kB, anon-rss:91234567kB, file-rss:0kB, shmem-rss:0kB\n"
DIED_9 = "[2026-11-30 08:00:02] RuntimeError: Rank 3 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.\n"
XID = "[123.456789] NVRM: Xid (PCI:0000:61:00): 79, pid=1365, name=python3, GPU has fallen off the bus.\n"
UNKNOWN = """\
[2026-04-27 02:36:04 TP0] Load weight begin. avail mem=177.57 GB
[2026-04-27 02:37:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/models/qwen3.py", line 3, in load_weights
    x = d[k]
KeyError: 'rope_interleave_plan'
"""
VLLM_OOM = (
    "".join(
        f"(EngineCore_DP0 pid=77) ERROR 10-20 03:20:50 [core.py:720] {line}\n"
        for line in (
            "EngineCore failed to start.",
            "Traceback (most recent call last):",
            '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 3000, in capture_model',
            "    self._capture(",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free.",
        )
    )
    + "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_0': 1}\n"
)
DRAIN = "[2026-04-27 02:40:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n[2026-04-27 02:40:05] Gracefully exiting... Remaining number of requests 0.\n"
SD = "Nov 30 06:39:03 gpuhost systemd[1]: "
KILLED = f"{SD}Started llm-server.service - LLM inference server.\n{SD}llm-server.service: Main process exited, code=killed, status=9/KILL\n{SD}llm-server.service: Failed with result 'signal'.\n"
STOPPED = f"{SD}Started llm-server.service - LLM inference server.\n{SD}Stopping llm-server.service - LLM inference server...\n{SD}llm-server.service: Main process exited, code=killed, status=15/TERM\n{SD}Stopped llm-server.service - LLM inference server.\n"
BED = "[2026-11-30 08:00:00] server_args=ServerArgs(model_path='/dev/shm/m', tp_size=8, port=30000)\nTraceback (most recent call last):\n  ...\nOSError: Can't load the configuration of '/dev/shm/m'. Make sure the path is right\n"

TABLE = [
    ("healthy sglang", SGLANG, "ready", "serving", "serving"),
    ("healthy vllm", VLLM, "ready", "ready", "ready"),
    ("healthy llama.cpp", LLAMA, "ready", "serving", "serving"),
    ("systemd only", SYSTEMD, "starting", "just-launched", None),
    (
        "noise of a login before it",
        "Letzte Anmeldung: Mo 30. Nov\nbash: warning: setlocale: cannot change locale\n" + SGLANG,
        "ready",
        "serving",
        None,
    ),
    (
        "barrier, peer, sigquit, then the culprit",
        BARRIER + PEER + SIGQUIT + OOM3,
        "failed",
        "oom-loading-weights",
        "load-weights",
    ),
    ("only the peers", BARRIER + PEER, "failed", "peer-rank-failed-or-slow-load", "load-weights"),
    ("only a pointer", SIGQUIT, "failed", "unknown-root-cause-cut", None),
    ("crash after ready", SGLANG + CRASH, "failed", "cublas-execution-failed", "serving"),
    ("crash, then a new start", SGLANG + CRASH + RESTART, "starting", "loading", "load-weights"),
    ("a request's error, serving goes on", SGLANG + REQUEST_ERROR + DECODE, "ready", "serving", "serving"),
    ("an exception nobody knows", UNKNOWN + SIGQUIT, "failed", "unhandled-exception", "load-weights"),
    (
        "unknown exception beats peers",
        BARRIER + UNKNOWN + PEER,
        "failed",
        "unhandled-exception",
        "load-weights",
    ),
    ("vllm hung", VLLM + HUNG * 3, "stalled", "engine-hung-zero-throughput", "serving"),
    ("vllm busy for a moment", VLLM + HUNG, "ready", "ready", None),
    ("vllm capture out of memory", VLLM_OOM, "failed", "oom-cuda-graph-capture", "cuda-graph-capture"),
    ("kernel wins over engine", DIED_9 + KERNEL_OOM, "failed", "killed-by-oom-killer", None),
    ("exit -9 without kernel log", DIED_9, "failed", "killed-by-signal", None),
    ("xid wins over cuda", SGLANG + CRASH + XID, "failed", "gpu-lost-from-bus", None),
    ("drained", SGLANG + DRAIN, "failed", "stopped-by-request", "stopping"),
    ("killed", KILLED, "failed", "main-process-killed", None),
    ("stopped by systemd on request", STOPPED, "failed", "stopped-by-request", "stopping"),
    ("model path missing", BED, "failed", "model-path-missing", None),
    ("workers wait", WAIT * 2, "starting", "workers-not-answering", None),
    ("workers wait too long", WAIT * 6, "stalled", "workers-not-answering", None),
    (
        "workers waited, then went on",
        WAIT * 6 + "INFO Graph capturing finished in 12 secs, took 1.20 GiB\n",
        "starting",
        "cuda-graph-capture",
        None,
    ),
    ("workers wait while serving", VLLM + WAIT, "degraded", "workers-not-answering", None),
    (
        "unknown algorithm",
        "launch_server.py: error: argument --speculative-algorithm: invalid choice: 'DDTREE' (choose from 'EAGLE')\n",
        "failed",
        "speculative-algorithm-unknown",
        None,
    ),
    (
        "unknown flag",
        "launch_server.py: error: unrecognized arguments: --speculative-ddtree-budget 16\n",
        "failed",
        "speculative-algorithm-unknown",
        None,
    ),
    (
        "toolkit too old",
        "RuntimeError: SM 120 requires CUDA >= 12.8\n",
        "failed",
        "cuda-toolkit-too-old",
        None,
    ),
    (
        "topk overridden",
        SGLANG.replace(
            "[2026-04-27 02:36:03 TP0] Init",
            "DFLASH only supports speculative_eagle_topk == 1; overriding speculative_eagle_topk=4 to 1.\n[2026-04-27 02:36:03 TP0] Init",
            1,
        ),
        "degraded",
        "speculative-argument-overridden",
        None,
    ),
    (
        "llama.cpp port",
        "main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080\n",
        "failed",
        "port-in-use",
        None,
    ),
    (
        "llama.cpp file",
        "gguf_init_from_file: failed to open GGUF file '/models/m.gguf'\nllama_model_load: error loading model: failed to load model\n",
        "failed",
        "model-weights-missing",
        None,
    ),
    (
        "a request's exception, nothing after",
        SGLANG
        + 'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 500 Internal Server Error\nERROR:    Exception in ASGI application\n'
        + REQUEST_ERROR.split("] ", 1)[1],
        "ready",
        "serving",
        None,
    ),
    (
        "an exception after ready without any other sign",
        SGLANG + REQUEST_ERROR,
        "degraded",
        "unhandled-exception",
        None,
    ),
    (
        "the traceback's start is cut off",
        '(APIServer pid=8052)   File "/x/vllm/config.py", line 48, in get_config\n(APIServer pid=8052)     x()\n(APIServer pid=8052) RuntimeError: something new\n',
        "failed",
        "unhandled-exception",
        None,
    ),
    (
        "only an error record",
        "(EngineCore_DP0 pid=1) ERROR 06-30 13:53:19 [core.py:515] RuntimeError: something new\n",
        "failed",
        "unhandled-exception",
        None,
    ),
    (
        "vllm's context too long, in its own spelling",
        "(EngineCore_DP0 pid=1) ERROR 06-30 13:53:19 [core.py:515] ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (7.36 GiB). Based on the available memory, the estimated maximum model length is 60304.\n",
        "failed",
        "context-exceeds-kv-cache",
        None,
    ),
    (
        "watchdog of nccl, then abort",
        "[rank0]:[E1104 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\nterminate called after throwing an instance of 'c10::DistBackendError'\nFatal Python error: Aborted\n",
        "failed",
        "nccl-collective-timeout",
        None,
    ),
    (
        "compiler missing",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable\n",
        "failed",
        "jit-build-failed",
        None,
    ),
    (
        "a warning of the engine is no failure",
        VLLM.replace(
            "(APIServer pid=1) INFO 09-01 10:00:01",
            "(Worker_TP0 pid=20) WARNING 09-01 10:00:00 [x.py:1] CUBLAS_STATUS_NOT_SUPPORTED, falling back\n(APIServer pid=1) INFO 09-01 10:00:01",
            1,
        ),
        "ready",
        "ready",
        None,
    ),
    (
        "an optional import is no failure",
        SGLANG.replace(
            "[2026-04-27 02:36:04 TP0] Ignore",
            "[2026-04-27 02:36:04 TP0] Ignore import error: ModuleNotFoundError: No module named 'mindspore'\n[2026-04-27 02:36:04 TP0] Ignore",
            1,
        ),
        "ready",
        "serving",
        None,
    ),
    (
        "a container that compose restarts",
        "llm-1  | (APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\nllm-1 exited with code 1 (restarting)\nllm-1  | (APIServer pid=1) INFO 03-09 12:56:57 [utils.py:238] non-default args: {'model': '/m'}\n",
        "starting",
        "just-launched",
        None,
    ),
    (
        "a container that ended",
        "llm-1  | (APIServer pid=1) INFO 03-09 12:56:57 [utils.py:238] non-default args: {'model': '/m'}\nllm-1 exited with code 137\n",
        "failed",
        "main-process-exited",
        None,
    ),
    ("empty", "", "starting", "no-log-lines", None),
]


@pytest.mark.parametrize(("name", "log", "verdict", "cause", "phase"), TABLE, ids=[row[0] for row in TABLE])
def test_diagnosis(name: str, log: str, verdict: str, cause: str, phase: str | None) -> None:
    got = diagnose_log(log.encode())
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    if phase is not None:
        assert got["phase"] == phase
    assert got["advice"] and got["evidence"]
    lines = log.split("\n")
    for proof in got["evidence"]:
        if proof["line"]:
            assert proof["text"][:60] in lines[proof["line"] - 1]


@pytest.mark.parametrize(("name", "log", "verdict", "cause", "phase"), TABLE, ids=[row[0] for row in TABLE])
def test_the_same_log_through_the_journal(
    name: str, log: str, verdict: str, cause: str, phase: str | None
) -> None:
    """`journalctl -o json` of the same lines, one entry each, gives the same answer."""
    if name == "empty":
        return
    entries = []
    for number, line in enumerate(log.splitlines()):
        text = line.removeprefix(SD)
        fields = {
            "__CURSOR": f"s=1;i={number}",
            "__REALTIME_TIMESTAMP": str(1796020784000000 + number),
            "_PID": "277",
            "_SYSTEMD_UNIT": "u.service",
            "MESSAGE": text,
        }
        if line.startswith(SD) or name == "systemd only":
            fields |= {
                "UNIT": "u.service",
                "_PID": "1",
                "SYSLOG_IDENTIFIER": "systemd",
                "_SYSTEMD_UNIT": "init.scope",
            }
        entries.append(json.dumps(fields))
    got = diagnose_log({"input.jsonl": "\n".join(entries).encode()})
    assert (got["verdict"], got["cause"]) == (verdict, cause)


def test_the_culprits_rank_and_numbers() -> None:
    got = diagnose_log((BARRIER + PEER + SIGQUIT + OOM3).encode())
    assert (got["failing_rank"], got["gpu"], got["tried_mib"], got["capacity_gib"]) == ("TP3", 3, 616.0, 95.0)
    assert got["exception"] == "torch.OutOfMemoryError" and got["retryable"] is False
    assert diagnose_log((SGLANG + CRASH + RESTART).encode())["previous_runs"] == ["cublas-execution-failed"]
    assert diagnose_log(KERNEL_OOM.encode())["killed_pid"] == 8123
    assert diagnose_log(XID.encode())["xid"] == 79


def test_silence_makes_a_stall_only_past_the_phases_limit() -> None:
    loading = RESTART.encode()
    assert (
        diagnose_log({"input.log": loading, "meta.toml": b"silence_after_last_line_s = 300"})["verdict"]
        == "starting"
    )
    late = diagnose_log({"input.log": loading, "meta.toml": b"silence_after_last_line_s = 700"})
    assert (late["verdict"], late["cause"], late["silence_s"]) == ("stalled", "silent-too-long", 700)
    jit = b"[2025-12-26 08:51:31 TP0] Entering DeepGEMM JIT Pre-Complie session. It may take a long time (typically 10-20 mins)"
    assert (
        diagnose_log({"input.log": jit, "meta.toml": b"silence_after_last_line_s = 1200"})["cause"]
        == "deepgemm-jit"
    )
    assert (
        diagnose_log({"input.log": SGLANG.encode(), "meta.toml": b"silence_after_last_line_s = 9999"})[
            "verdict"
        ]
        == "ready"
    )


def test_ranks_in_one_journal_are_told_apart_by_pid() -> None:
    """Two ranks' tracebacks interleaved line by line: each keeps its own exception and phase."""
    one = [
        "[x TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "a.py", line 1, in load_model',
        "    x()",
        "ValueError: first",
    ]
    two = [
        "[x TP1] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "b.py", line 1, in event_loop_overlap',
        "    y()",
        "RuntimeError: CUDA error: device-side assert triggered",
    ]
    entries = [
        json.dumps({"__CURSOR": f"s={i}", "_PID": pid, "_SYSTEMD_UNIT": "u", "MESSAGE": text})
        for i, pair in enumerate(zip(one, two, strict=True))
        for pid, text in zip(("10", "11"), pair, strict=True)
    ]
    got = diagnose_log({"input.jsonl": "\n".join(entries).encode()})
    assert (got["cause"], got["exception"], got["phase"]) == ("cuda-device-assert", "RuntimeError", "serving")


def test_fifty_megabytes_take_seconds_not_minutes() -> None:
    """Measured 0.2 s for 52 MB on two shared cores; the bound is loose, so that a busy machine does not fail it."""
    body = SGLANG + DECODE * 60_000 + CRASH
    assert len(body) > 50e6
    begin = time.process_time()
    got = diagnose_log(body.encode())
    assert time.process_time() - begin < 6
    assert got["cause"] == "cublas-execution-failed" and got["evidence"][0]["line"] == body.count("\n") - 1


@pytest.mark.parametrize(
    "line",
    [
        "x" * 1_000_000,
        "Init torch distributed ends. Load weight end. avail " * 20_000,
        "Traceback (most recent call last): " * 30_000,
        "server_args=ServerArgs(a='" + "x, y=(" * 160_000,
        "\rCapturing batches:  50%|## | 2/4 [00:01<00:03]" * 20_000,
        "args: Namespace(" + "(" * 900_000,
        "%|" * 500_000,
        " " * 1_000_000,
        "[2026-04-27 02:36:04 TP0] " * 38_000,
        "(EngineCore pid=1" * 60_000,
        "Decode batch, " + "a: 1, " * 160_000,
        "\x1b[" * 500_000,
        "SpecDecoding metrics: Per-position acceptance rate: " + "0.1, " * 200_000,
        "draft acceptance = 0.5 ( " * 40_000,
        "was skipped because of an unmet condition check (" * 20_000,
        "Command '[" * 100_000,
    ],
    ids=range(16),
)
def test_a_megabyte_line_is_not_quadratic(line: str) -> None:
    begin = time.process_time()
    diagnose_log(line.encode())
    assert time.process_time() - begin < 2
