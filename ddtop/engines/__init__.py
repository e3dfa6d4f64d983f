"""What is served: flags, endpoints, log grammar and load phases of each engine. Pure."""

from __future__ import annotations

from ddtop.engines.base import Engine
from ddtop.engines.llamacpp import LlamaCpp
from ddtop.engines.log.grammar import LogFact
from ddtop.engines.sglang import SGLang
from ddtop.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {"sglang": SGLang(), "vllm": VLLM(), "llamacpp": LlamaCpp()}
"""Every engine by its name in a plan."""


def is_ready_mark(engine: str | None, fact: LogFact) -> bool:
    """Whether a fact is the ready mark of the engine with this name; of an unknown one only a line that says so."""
    if engine == "trtllm":  # its HTTP server is made when the model is loaded
        return fact.phase == "ready" or fact.event == "startup-complete"
    return fact.phase == "ready" or (engine in ENGINES and ENGINES[engine].ready_mark(fact))
