"""Which figures a tool's form states, and so which must have been read before its result counts as whole. Pure."""

from __future__ import annotations

from ddtop.bench.importers.common import Fields

REQUESTS, DURATION, RATE, TIMES = "the number of requests", "the duration", "a rate", "times"
ALL = (REQUESTS, DURATION, RATE)
NEEDS: dict[str, tuple[str, ...]] = {
    "llama-bench": (RATE,),
    "llama-batched-bench": (RATE,),
    "llama-benchy": (RATE,),
    "sglang one_batch_server": (RATE,),
    "sglang one_batch": (RATE,),
    "sglang send_one": (RATE,),
    "dflash transformers": (RATE,),
    "inferencex": (RATE,),
    "genai-perf": (RATE, TIMES),
    "aiperf": (REQUESTS, RATE),
    "aiperf records": (REQUESTS,),
    "genai-bench": (REQUESTS, RATE),
    "guidellm": (REQUESTS, RATE),
    "inference-perf": (REQUESTS, RATE),
    "llmperf": (REQUESTS, RATE),
    "lmdeploy": (DURATION, RATE),
    "mlperf": (RATE,),
    "trtllm-bench": (DURATION, RATE),
    "vllm latency": (TIMES,),
    "vllm offline": (RATE,),
    "vllm multi-turn": (REQUESTS, TIMES),
}
"""Tool → what its form always states; a tool that is not here states ALL."""
_FIELDS = {
    REQUESTS: ("requests_ok", "requests_planned", "requests_seen"),
    DURATION: ("duration_s",),
    RATE: ("output_tps", "total_tps", "input_tps", "rps"),
    TIMES: ("e2e_mean_ms", "ttft_mean_ms", "e2e_p50_ms", "ttft_p50_ms"),
}
WHOLE_RUN = frozenset(
    {
        "sglang",
        "vllm",
        "sglang offline",
        "vllm throughput",
        "aiperf",
        "evalscope",
        "trtllm-bench",
        "dflash",
        "ai-hypercomputer",
        "lmdeploy",
        "command",
    }
)
"""Tools whose duration spans every request and whose rates are over it. (Others leave warm-up, cool-down or the
prefill out of one and not out of the other.)"""


def not_read(fields: Fields) -> tuple[str, ...]:
    """What the form of this record's tool states and was not found in it."""
    wanted = NEEDS.get(str(fields.get("tool")), ALL)
    return tuple(what for what in wanted if not any(name in fields for name in _FIELDS[what]))
