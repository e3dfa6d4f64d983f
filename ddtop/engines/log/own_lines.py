"""Whether a line is of a known engine's log, by its form. Pure.

Only such a line, or a mark of a phase that stands at the beginning of its message, shows that an engine has been
launched: its name in a command, a mail or source code does not.
"""

from __future__ import annotations

import re

from ddtop.engines.log.line_prefix import Line

_PROC = re.compile(r"^(?:APIServer|ApiServer|EngineCore|Worker|VllmWorker|DPCoordinator|DP\d|Ray)")
_MESSAGE = re.compile(
    r"^(?:llama_(?:model|context|kv|new|init|perf|memory|params|load|adapter|prepare|server|sampler|decode|graph|backend|output|print|set|build_(?:and|graph))\w*|ggml_\w+|load_(?:tensors|model|backend|hparams)|print_info|llm_load_\w+|common_(?:init|param|chat|spec|perf)\w*|system_info|"
    r"gguf_init\w*|clip_(?:init|model)\w*|set_warmup|init_from_params)\s?:"
    r"|^(?:srv|slot|que|cmn) +\w+: |^slot +\w+: id|^build(?:: \d+ \(|_info: )|^system info: n_threads"
    r"|^main: (?:loading|binding|server|HTTP|model|exiting|setting|chat|initializ|n_parallel)"
    r"|^\[(?:TRT-LLM|TensorRT-LLM)\]|^\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[TRT-LLM\]"
    r"|^time=\S{10,40} level=\w+ source=[\w/]+\.go:\d+ msg="
    r"|^(?:INFO|WARN|ERROR) +text_generation_(?:launcher|router)|\b(?:text_generation_launcher|lmdeploy)\b ?[:\-]"
)
_BAR = re.compile(
    r"^(?:Loading (?:safetensors|pt) checkpoint shards|Multi-thread loading (?:shards|\w+)|Capturing (?:batches|CUDA graph|cuda graph)|Capture cuda graph)"
)


def is_own(line: Line) -> bool:
    """Whether a record (prefixes off) has the form of an engine's own: vLLM's process or level, SGLang's rank, llama.cpp's
    functions, TensorRT-LLM's, ollama's and TGI's tags, or the title of their progress bars."""
    if line.proc and _PROC.match(line.proc):
        return True
    if line.unit == "lmdeploy" and line.level:
        return True
    if line.level and line.time and line.prefixed and not line.rank.startswith("rank"):
        return True  # `[rank0]:[W…]` is of any program that uses torch
    if line.rank and line.time and line.prefixed:
        return True
    return _MESSAGE.match(line.message) is not None or _BAR.match(line.message) is not None


_CODE = re.compile(r"\w\(\s*[frbu]{0,2}[\"'`]|^\s*(?:#|//|>|\*|\+|-\s)\s?|[`]|\bgrep\b|:\d+:\s")


def is_quoted(before: str) -> bool:
    """Whether what stands before a mark in its message shows that the mark is only quoted: in source code, a comment, a
    mail, the output of grep."""
    return _CODE.search(before) is not None
