"""What a line says of the devices a server runs on: a GPU, none that it can use, or the CPU on purpose. Pure."""

from __future__ import annotations

import re

_NONE = re.compile(
    r"no usable GPU found|compiled without GPU support|[Nn]o (?:CUDA-capable|compatible|suitable|usable|supported) (?:CUDA |ROCm )?(?:GPUs?|devices?)\b"
    r"|CUDA (?:is )?(?:not|un)[ -]?available|CUDA unavailable|torch\.cuda\.is_available\(\)(?: is|:| =| ==| returned)? ?False"
    r"|[Ff]ailed to initialize (?:CUDA|NVML|the NVIDIA)|CUDA initialization: |CUDA driver (?:initialization failed|version is insufficient)"
    r"|[Ff]ound no NVIDIA driver|[Nn]o NVIDIA driver|[Nn]o (?:NVIDIA |AMD |CUDA )?GPUs? (?:was |were |is |are )?(?:found|detected|available|visible|discovered)"
    r"|[Nn]o (?:devices|accelerators?) (?:was |were |is )?(?:found|detected|available)|ggml_\w+: no \w* ?devices found"
    r"|GPU (?:is )?not (?:found|available|detected)|library=cpu\b|id=cpu library|[Ff]all(?:s|ing)? ?back to (?:the )?CPU\b|fell back to (?:the )?CPU\b"
    r"|[Uu]sing (?:the )?CPU instead|offloaded 0/\d+ layers",
)
_CPU = re.compile(
    r"\bCPU(?:_\w+)?\s+model buffer size = *(?:0*[1-9]|0\.0*[1-9])|\bdevice(?:_config)?\s?[:=]\s?['\"]?cpu\b"
    r"|[Uu]sing (?:device:? )?['\"]?cpu\b|[Rr]unning on (?:the )?(?:CPU|cpu)\b|backend[:=] ?['\"]?cpu\b",
)
_USED = re.compile(
    r"(?<![A-Z_])(?:CUDA\d*|CUDA\d*_Split|ROCm\d*\w*|HIP\d*|Vulkan\d*|Metal\w*|MTL\d*\w*|SYCL\d*|CANN\d*|MUSA\d*|OpenCL|RPC\S*)\s+"
    r"(?:model |KV |RS )buffer size = *(?:0*[1-9]|0\.0*[1-9])"
    r"|offloaded [1-9]\d*/\d+ layers|NCCL version \d|is using nccl|(?i:cuda) graph (?:begin|end)\.|Capturing CUDA graph|Registering \d+ cuda graph"
    r"|library=(?:cuda|CUDA|rocm|ROCm|Metal|metal|Vulkan|vulkan)\b|# (?:GPU|cuda) blocks: [1-9]",
)
_MEANT = re.compile(
    r"--device[ =](?:cpu|none)\b|vllm[-_]cpu|\bv?\d+\.\d+[\w.]{0,20}\+cpu\b|VLLM_CPU_\w+|SGLANG_CPU_\w+|SGLANG_USE_CPU_ENGINE"
    r"|(?:-ngl|--n-gpu-layers|--gpu-layers)[ =]0\b|CUDA_VISIBLE_DEVICES=(?:-1|\"\"|''|\s|$)|[Aa]utomatically detected platform cpu"
    r"|--cpu\b|num_gpu[ =:]0\b",
)
_CPU_ENGINE = re.compile(
    r"['\"]device['\"]: ?['\"]cpu['\"]|\bdevice='cpu'|cpu_worker\.py|cpu_model_runner\.py|platforms/cpu|\[cpu\.py:\d|available_cpu_mem="
)


def device_said(line: str) -> str:
    """What a line shows, ``""`` for nothing:

    ``meant-cpu``   the server was told to run on the CPU, or is a build for it
    ``cpu-engine``  the engine's CPU backend runs: on purpose, unless another line says that no GPU was found
    ``gpu``         a GPU is used
    ``none``        no GPU can be used
    ``cpu``         the weights lie in host memory, or the device is the CPU
    """
    text = line if len(line) <= 8_000 else f"{line[:4_000]} {line[-4_000:]}"
    for word, rule in (
        ("meant-cpu", _MEANT),
        ("gpu", _USED),
        ("none", _NONE),
        ("cpu-engine", _CPU_ENGINE),
        ("cpu", _CPU),
    ):
        if rule.search(text):
            return word
    return ""


_GATE = re.compile(r"(?i:cpu|gpu|ngl[ =]|cuda|devices? |accelerator|nccl|nvidia|buffer size)")


def may_say(line: str) -> bool:
    """Whether a line holds any word that `device_said` looks for: most do not."""
    return _GATE.search(line, 0, 8_000) is not None
