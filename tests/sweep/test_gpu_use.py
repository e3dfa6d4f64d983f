"""A server on the CPU where GPUs are wanted: at the gate, before any cell; one that is meant for the CPU is fine."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop import events as ev
from ddtop.events import GpuReading
from ddtop.journal.fold.apply import fold
from ddtop.services.base import Launch
from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.log.scan_snapshot import LogEntry
from ddtop.sources.log.scanner import LogScanner
from ddtop.sweep.shared.gpus.use import (
    GpuUse,
    gpus_of,
    meant_for_cpu,
    not_used,
    runs_on_cpu,
    runs_there_on_purpose,
)
from ddtop.sweep.shared.gpus.watch import GpuWatch

# llama.cpp b9031 with CUDA_VISIBLE_DEVICES=7 on a host with one H200
WRONG_DEVICE = """0.00.016.902 E ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected
warning: no usable GPU found, --gpu-layers option will be ignored
load_tensors:   CPU_Mapped model buffer size = 18432.11 MiB
main: server is listening on http://127.0.0.1:8080 - starting the main loop"""
NO_CUDA_BUILD = """warning: no usable GPU found, --gpu-layers option will be ignored
warning: one possible reason is that llama.cpp was compiled without GPU support
load_tensors:   CPU_REPACK model buffer size =  3460.45 MiB"""
ON_CUDA = """ggml_cuda_init: found 1 CUDA devices:
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
load_tensors:        CUDA0 model buffer size =  4155.99 MiB"""
PARTLY = """load_tensors: offloaded 20/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  2281.81 MiB"""
SGLANG_CPU = """[2026-11-30 10:00:00] WARNING: CUDA is not available, falling back to CPU
[2026-11-30 10:00:01] server_args=ServerArgs(model_path='/m', device='cpu', port=30000)
[2026-11-30 10:00:33] The server is fired up and ready to roll!"""
SGLANG_GPU = """[2026-11-30 10:00:01] server_args=ServerArgs(model_path='/m', device='cuda', port=30000)
[2026-11-30 10:00:05] Load weight begin. avail mem=90.40 GB
[2026-11-30 10:00:33] The server is fired up and ready to roll!"""
VLLM_CPU = """INFO 09-01 09:57:59 [__init__.py:241] Automatically detected platform cpu.
(EngineCore_DP0 pid=12) INFO 09-01 09:58:10 [core.py:140] Initializing a V1 LLM engine (v0.13.0+cpu) with config: model='/m', device_config=cpu, seed=0"""
VLLM_FELL_BACK = """/usr/lib/python3/site-packages/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).
(EngineCore_DP0 pid=12) INFO 09-01 09:58:10 [core.py:140] Initializing a V1 LLM engine (v0.13.0) with config: model='/m', device_config=cpu, seed=0"""
NVML_IN_A_CONTAINER = "WARNING: Failed to initialize NVML: Driver/library version mismatch"


def said(log: str) -> dict[str, tuple[int, str]]:
    scanner = LogScanner()
    for line in log.splitlines():
        scanner.feed(LogEntry(line))
    return dict(scanner.snapshot().devices)


CASES: list[tuple[str, str, dict[str, Any], bool]] = [
    # what, log, what is known beside it, whether no GPU is used
    ("a device that is not there", WRONG_DEVICE, {"gpus": 1, "own_mib": 0.0, "rise_mib": 0.0}, True),
    ("the same, memory not read", WRONG_DEVICE, {"gpus": 1}, True),
    ("the same, nvidia-smi broken", WRONG_DEVICE, {"gpus": None}, True),
    ("the same on a host without GPUs", WRONG_DEVICE, {"gpus": 0}, False),
    ("a build without CUDA", NO_CUDA_BUILD, {"gpus": 8, "own_mib": 0.0, "rise_mib": 0.0}, True),
    (
        "a build without CUDA, -ngl 0",
        NO_CUDA_BUILD,
        {"gpus": 8, "rise_mib": 0.0, "meant_for_cpu": True},
        False,
    ),
    ("CUDA", ON_CUDA, {"gpus": 1, "own_mib": 4700.0, "rise_mib": 4700.0}, False),
    ("CUDA, memory not read", ON_CUDA, {"gpus": 1}, False),
    ("CUDA, another process let go of as much", ON_CUDA, {"gpus": 1, "own_mib": 0.0, "rise_mib": 0.0}, False),
    ("half on the GPU", PARTLY, {"gpus": 1, "own_mib": 2500.0, "rise_mib": 2500.0}, False),
    ("SGLang fell back", SGLANG_CPU, {"gpus": 2, "own_mib": 0.0, "rise_mib": 0.0}, True),
    ("SGLang on a GPU", SGLANG_GPU, {"gpus": 2, "own_mib": 80_000.0, "rise_mib": 80_000.0}, False),
    (
        "SGLang on a GPU, pids not to be seen",
        SGLANG_GPU,
        {"gpus": 2, "own_mib": 0.0, "rise_mib": 80_000.0},
        False,
    ),
    ("SGLang with nothing on any GPU", SGLANG_GPU, {"gpus": 2, "own_mib": 0.0, "rise_mib": 3.0}, True),
    ("vLLM's build for the CPU", VLLM_CPU, {"gpus": 2, "own_mib": 0.0, "rise_mib": 0.0}, False),
    ("vLLM fell back", VLLM_FELL_BACK, {"gpus": 2, "own_mib": 0.0, "rise_mib": 0.0}, True),
    (
        "a warning of NVML, and memory taken",
        NVML_IN_A_CONTAINER,
        {"gpus": 1, "own_mib": 0.0, "rise_mib": 900.0},
        False,
    ),
    ("no log", "", {"gpus": 1, "own_mib": 0.0, "rise_mib": 0.0}, True),
    (
        "no log, others hold memory",
        "",
        {"gpus": 1, "own_mib": 0.0, "rise_mib": 0.0, "held_mib": 70_000.0},
        False,
    ),
    ("no log, memory taken", "", {"gpus": 1, "own_mib": 0.0, "rise_mib": 900.0}, False),
    ("no log, a start that was not seen", "", {"gpus": 1, "own_mib": 0.0}, False),
    ("nothing known", "", {"gpus": None}, False),
]


@pytest.mark.parametrize(("what", "log", "known", "unused"), CASES, ids=[case[0] for case in CASES])
def test_whether_a_gpu_is_used(what: str, log: str, known: dict[str, Any], unused: bool) -> None:
    held = {"held_mib": known["rise_mib"]} if "rise_mib" in known else {}
    assert bool(not_used(GpuUse(said=said(log), **{**held, **known}))) is unused


@pytest.mark.parametrize(
    ("log", "meant"),
    [
        (VLLM_CPU, True),
        (VLLM_FELL_BACK, False),
        (SGLANG_CPU, False),
        (ON_CUDA, False),
        (WRONG_DEVICE, False),
        ("", False),
    ],
)
def test_what_its_log_shows_to_be_meant_is_kept_for_the_judge(log: str, meant: bool) -> None:
    """vLLM's build for the CPU calls itself 0.32.0 at /version: only its log says cpu."""
    assert runs_there_on_purpose(GpuUse(gpus=2, said=said(log))) is meant
    ready = ev.RestartReady(
        at_s=1.0, mono_s=1.0, host="h", attempt_id="a", generation=ev.Generation(boot="b", id="g"),
        ready_s=1.0, meant_for_cpu=meant,
    )  # fmt: skip
    begun = ev.RestartStarted(
        at_s=1.0, mono_s=1.0, host="h", attempt_id="a", config="c", tp=1, unit="u", cell_ids=()
    )
    assert fold([begun, ready]).restarts[-1].meant_for_cpu is meant


@pytest.mark.parametrize(
    ("argv", "env", "facts", "version", "meant"),
    [
        (["python", "-m", "sglang.launch_server", "--device", "cpu"], {}, {}, "0.5.23", True),
        (["python", "-m", "sglang.launch_server", "--device=cpu"], {}, {}, None, True),
        (["llama-server", "-m", "/m.gguf", "-ngl", "0"], {}, {}, None, True),
        (["llama-server", "--n-gpu-layers", "0"], {}, {}, None, True),
        (["llama-server", "-m", "/m.gguf", "-ngl", "99"], {}, {}, None, False),
        (["vllm", "serve", "/m"], {}, {}, "0.32.0+cpu", True),
        (["vllm", "serve", "/m"], {}, {}, "0.32.0", False),
        (["llama-server"], {"CUDA_VISIBLE_DEVICES": ""}, {}, None, True),
        (["llama-server"], {"CUDA_VISIBLE_DEVICES": "-1"}, {}, None, True),
        (["llama-server"], {"CUDA_VISIBLE_DEVICES": "7"}, {}, None, False),
        ([], {}, {"device": "cpu"}, None, True),
        (["python", "-m", "sglang.launch_server"], {}, {"device": "cpu"}, None, False),
        ([], {}, {}, None, False),
    ],
)
def test_what_is_meant_for_the_cpu(
    argv: list[str], env: dict[str, str], facts: dict[str, Any], version: str | None, meant: bool
) -> None:
    assert meant_for_cpu(argv, env, facts, version) is meant


def test_the_alert_says_so_before_any_cell() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "7"}
    launch = Launch(
        key="k", config="c", tp=1, kind="process", unit="llama", engine="llamacpp", port=1, env=env
    )
    j = runs_on_cpu(launch, GpuUse(gpus=1, said=said(WRONG_DEVICE), own_mib=0.0, rise_mib=0.0, held_mib=0.0))
    assert j is not None
    assert (j.verdict, j.cause, j.kind, j.title) == ("failed", "no-gpu-used", "config", "NO GPU USED")
    assert "no CUDA-capable device" in j.text and [e.source for e in j.evidence] == ["log", "gpu", "gpu"]


@pytest.mark.parametrize(
    ("probe", "sampled", "gpus"),
    [
        ({}, 2, 2),
        ({"gpus": {"error": "there is no nvidia-smi on this host"}}, 0, 0),
        ({"gpus": {"error": "NVIDIA-SMI has failed"}}, 0, None),
        ({}, 0, None),
    ],
)
def test_how_many_gpus_the_host_has(probe: dict[str, Any], sampled: int, gpus: int | None) -> None:
    assert gpus_of(probe, sampled) == gpus


def test_how_much_memory_a_start_took() -> None:
    watch = GpuWatch()

    def tick(at: float, *mib: float | None, starting: bool = True) -> None:
        samples = [GpuSample(index=n, mem_used_mib=amount) for n, amount in enumerate(mib)]
        watch.take(samples, at, starting=starting)

    assert watch.rise_mib() is None
    tick(0.0, 70_000.0, 70_000.0, starting=False)  # the old server
    tick(1.0, 70_000.0, 70_000.0)
    tick(2.0, 4.0, 4.0)  # it is gone
    tick(3.0, 500.0, 500.0)
    tick(4.0, 80_000.0, 80_000.0)
    assert watch.rise_mib() == 159_992.0
    tick(5.0, 80_000.0, 80_000.0, starting=False)
    tick(6.0, 80_000.0, 80_000.0)
    assert watch.rise_mib() == 0.0, "another start begins anew"
    watch.readings = (GpuReading(index=0),)
    assert watch.rise_mib() is None
