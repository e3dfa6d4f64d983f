"""The phases of a server's log: the one list of their names, and the texts that show a phase. Pure.

Lines that mark a phase are in phases.toml; here are the titles of progress bars, the frames of tracebacks and the ready
mark. Nothing else names a phase from text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ddtop.events import Phase


class LogPhase(NamedTuple):
    """A phase of the log, the phase of the start that it shows, and how long it may be silent (s, None: no limit)."""

    name: str
    start: Phase
    silent_s: float | None


LOG_PHASES = (
    LogPhase("launch", "launching", 180.0),
    LogPhase("init", "initialising", 120.0),
    LogPhase("download", "loading", 600.0),
    LogPhase("load", "loading", 600.0),
    LogPhase("post-load", "loading", 900.0),
    LogPhase("kv", "kv", 180.0),
    LogPhase("compile", "capturing", 1200.0),
    LogPhase("jit", "capturing", 1800.0),
    LogPhase("capture", "capturing", 900.0),
    LogPhase("sched", "capturing", 180.0),
    LogPhase("http", "listening", 180.0),
    LogPhase("warmup", "warming", 600.0),
    LogPhase("ready", "answering", None),
    LogPhase("run", "ready", None),
    LogPhase("stop", "stopping", None),
)
"""In their usual order. `post-load` is a loaded model after which nothing has been logged yet.

The limits hold where this host has taught nothing better: proposals from public logs and the engines' own limits
(JIT: the line itself says 10 to 20 minutes)."""

START_PHASE: Mapping[str, Phase] = {phase.name: phase.start for phase in LOG_PHASES}
"""Phase of the log → phase of the start."""

SILENT_LIMIT_S: Mapping[str, float] = {
    "": 180.0,  # nothing has named a phase yet
    **{phase.name: phase.silent_s for phase in LOG_PHASES if phase.silent_s is not None},
}
"""Phase of the log → seconds without a line that count as stalled."""

_BARS = (
    ("jit", re.compile(r"DeepGEMM|JIT|[Aa]utotun|tuning", re.ASCII)),
    ("capture", re.compile(r"Captur", re.ASCII)),
    ("compile", re.compile(r"Compil|[Ii]nductor", re.ASCII)),
    ("download", re.compile(r"^(?:Fetching|Downloading)|\.safetensors$", re.ASCII)),
    ("load", re.compile(r"[Ll]oading|shards|checkpoint", re.ASCII)),
    ("warmup", re.compile(r"[Ww]arm", re.ASCII)),
)
_FRAMES = (
    (
        "capture",
        re.compile(
            r"cuda_?graph|init_device_graphs|capture_model|_capture|capture_one|graph_runner|\bcapture\b"
        ),
    ),
    (
        "kv",
        re.compile(
            r"init_memory_pool|determine_available_memory|kv_cache_(?:config|planning)|_initialize_kv_caches|profile_(?:run|max_num_token)"
        ),
    ),
    (
        "load",
        re.compile(
            r"load_model|load_weights?\b|get_model\b|model_loader|weight_utils|default_loader|initialize_model\b|safetensors"
        ),
    ),
    (
        "init",
        re.compile(
            r"init_torch_distributed|init_distributed_environment|initialize_model_parallel|init_worker_distributed|init_process_group|parallel_state|init_device\b|new_group"
        ),
    ),
    ("jit", re.compile(r"build_and_load|cpp_ext|deep_gemm|compile_utils|\bjit\b")),
    ("warmup", re.compile(r"_wait_and_warmup|_execute_server_warmup|server_warmup")),
    (
        "run",
        re.compile(
            r"event_loop|process_batch_result|run_batch|forward_batch_generation|execute_model|sample_tokens|run_busy_loop|process_input_requests|busy_loop|forward_decode|forward_extend"
        ),
    ),
    (
        "launch",
        re.compile(r"prepare_server_args|parse_args|from_cli_args|from_pretrained|get_config\b|ModelConfig"),
    ),
)


def phase_of_bar(title: str) -> str:
    """The phase that a progress bar's title shows; ``""`` where it shows none."""
    return next((phase for phase, rule in _BARS if rule.search(title)), "")


def phase_of_frame(where: str) -> str:
    """The phase in which a traceback's frame ran, by its `file function` or its code; ``""`` where they show none."""
    return next((phase for phase, rule in _FRAMES if rule.search(where)), "")


def phase_of_error(line: str) -> str:
    """The phase that an error names itself; ``""`` where it names none."""
    return "capture" if "Capture cuda graph failed" in line else ""
