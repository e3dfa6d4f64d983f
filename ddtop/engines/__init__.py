"""What is served: flags, endpoints, log grammar and load phases of each engine. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.engines.base import Engine
from ddtop.engines.llamacpp import LlamaCpp
from ddtop.engines.sglang import SGLang
from ddtop.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {"sglang": SGLang(), "vllm": VLLM(), "llamacpp": LlamaCpp()}
"""Every engine by its name in a plan."""


def engine_of(argv: Sequence[str]) -> Engine | None:
    """The engine whose server a process with this argv is; None for any other process."""
    return next((engine for engine in ENGINES.values() if engine.is_engine_cmdline(argv)), None)
