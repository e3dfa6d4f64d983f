"""SGLang: flags, endpoints, readiness, counters. Facts from SGLang 0.4.6.post5 to 0.5.23 (file:line in docs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.engines import base
from ddtop.engines.args import ArgTable, folded_argv, split_command, whole_int
from ddtop.engines.compare import compare
from ddtop.engines.log.grammar import LogFact
from ddtop.engines.metrics_page import metric_sums

LAUNCHERS = ("sglang.launch_server", "launch_server.py", "launch_server", "serve")
TABLE = ArgTable(
    aliases={
        "model": "model_path",
        "tp": "tp_size",
        "tensor_parallel_size": "tp_size",
        "dp": "dp_size",
        "data_parallel_size": "dp_size",
        "pp": "pp_size",
        "pipeline_parallel_size": "pp_size",
        "ep": "ep_size",
        "expert_parallel_size": "ep_size",
        "speculative_draft_model": "speculative_draft_model_path",
        "speculative_dflash_block_size": "speculative_num_draft_tokens",
        "nccl_init_addr": "dist_init_addr",
        "speculative_algo": "speculative_algorithm",
    },
    flags=frozenset(
        {
            "trust_remote_code",
            "enable_metrics",
            "disable_cuda_graph",
            "disable_radix_cache",
            "enable_dp_attention",
            "skip_server_warmup",
            "enable_torch_compile",
            "disable_overlap_schedule",
            "enable_mixed_chunk",
            "log_requests",
        }
    ),
    paths=frozenset({"model_path", "tokenizer_path", "speculative_draft_model_path"}),
)
CHAIN_ONLY = ("speculative_eagle_topk", "speculative_num_steps")
"""DFLASH forces both to 1 and only logs a warning [0.5.23 speculative_hook.py:342,359]."""


class SGLang:
    """SGLang's answers to the `Engine` protocol."""

    name = "sglang"
    health_path = "/health"
    info_path: str | None = "/server_info"
    old_info_path = "/get_server_info"
    metrics_path = "/metrics"
    models_path = "/v1/models"
    version_path: str | None = None
    logs_ready_mark = True
    port_opens_first = False

    def ready_mark(self, fact: LogFact) -> bool:
        """`The server is fired up and ready to roll!`, and nothing else: HTTP answers before the warm-up has ended."""
        return fact.phase == "ready" and fact.event == "fired-up"

    def health_ready(self, before: int | None, now: int | None) -> bool:
        """Never: 0.4.6 answers 200 at once, and the old server answers while it drains."""
        return False

    def is_engine_cmdline(self, argv: Sequence[str]) -> bool:
        """`python -m sglang.launch_server`, a path to sglang/launch_server.py, or `sglang serve`."""
        words = list(argv)[:60]
        for i, word in enumerate(words):
            if word == "sglang.launch_server" or word.endswith(
                ("sglang/launch_server.py", "sglang/launch_server")
            ):
                return True
            if base.base_name(word) == "sglang" and words[i + 1 : i + 2] == ["serve"]:
                return True
        return False

    def resolved_args(
        self, server_info: str | bytes | Mapping[str, Any] | None, argv: Sequence[str]
    ) -> dict[str, Any]:
        """All ServerArgs of `/server_info` (values in effect); without it the command line."""
        info = base.as_json(server_info)
        if isinstance(info, Mapping):
            nested = info.get("server_args")
            args = {**info, **nested} if isinstance(nested, Mapping) else dict(info)
            for key in ("internal_states", "server_args", "startup_time", "frontend"):
                args.pop(key, None)
            if "model_path" in args or "tp_size" in args:
                return args
        return folded_argv(argv, LAUNCHERS, TABLE)

    def compare_args(
        self, wanted_argv: Sequence[str], resolved: Mapping[str, Any], cmdline: Sequence[str] = ()
    ) -> tuple[base.ArgMismatch, ...]:
        """See `Engine.compare_args`. The launch command that 0.5.23 reports over HTTP serves as the command line."""
        launched = resolved.get("launch_command")
        argv = list(cmdline) or (split_command(launched) if isinstance(launched, str | list) else [])
        return compare(
            wanted_argv,
            resolved,
            argv,
            table=TABLE,
            launchers=LAUNCHERS,
            override=_override,
            unwanted=("speculative_algorithm",),
        )

    def one_token_request(self, endpoint: str, model: str, prompt: str = "Hi") -> tuple[str, dict[str, Any]]:
        """`generate` is SGLang's own endpoint; the others are OpenAI's."""
        if endpoint == "generate":
            return "/generate", {"text": prompt, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        return base.openai_request(endpoint, model, prompt)

    def tokens_of_answer(self, body: str | bytes | Mapping[str, Any]) -> int | None:
        """`meta_info.completion_tokens` of `/generate`, else the OpenAI usage."""
        answer = base.as_json(body)
        if isinstance(answer, list) and answer:
            answer = answer[0]
        if isinstance(answer, Mapping) and isinstance(meta := answer.get("meta_info"), Mapping):
            tokens = meta.get("completion_tokens")
            return int(tokens) if isinstance(tokens, int) else None
        return base.openai_tokens(answer) if isinstance(answer, Mapping) else None

    def acceptance_counters(self, metrics_text: str) -> base.AcceptanceCounters | None:
        """Tokens over verify calls, exact (≥ 0.5.16 with --enable-metrics); None on older versions."""
        sums = metric_sums(metrics_text, ("sglang:spec_verify_calls_total", "sglang:generation_tokens_total"))
        steps = sums.get("sglang:spec_verify_calls_total")
        tokens = sums.get("sglang:generation_tokens_total")
        return (
            base.AcceptanceCounters(steps, emitted=tokens)
            if steps is not None and tokens is not None
            else None
        )

    def served_model(self, models_body: str | bytes | Mapping[str, Any]) -> str | None:
        """First entry of `/v1/models`."""
        return base.first_model(models_body)

    def version(self, info: str | bytes | Mapping[str, Any] | None) -> str | None:
        """`version` of `/server_info`."""
        body = base.as_json(info)
        version = body.get("version") if isinstance(body, Mapping) else None
        return version if isinstance(version, str) else None


def _override(name: str, wanted: Any, running: Any, account: Mapping[str, Any]) -> str:
    algorithm = str(account.get("speculative_algorithm") or "").upper()
    if name in CHAIN_ONLY and algorithm == "DFLASH" and whole_int(running) == 1:
        return "DFLASH forces it to 1: cells that differ only here are duplicates"
    return ""
