"""vLLM: flags, endpoints, readiness, counters. Facts from vLLM 0.33.0 and public issues for older ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.engines import base
from ddtop.engines.args import ArgTable, folded_argv
from ddtop.engines.compare import compare
from ddtop.engines.log.grammar import LogFact
from ddtop.engines.metrics_page import metric_sums

LAUNCHERS = ("serve", "vllm.entrypoints.openai.api_server", "api_server.py")
TABLE = ArgTable(
    aliases={
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
        "q": "quantization",
        "sc": "speculative_config",
        "O": "compilation_config",
        "cc": "compilation_config",
        "model_tag": "model",
    },
    flags=frozenset(
        {
            "trust_remote_code",
            "enforce_eager",
            "enable_prefix_caching",
            "enable_chunked_prefill",
            "disable_log_requests",
            "enable_expert_parallel",
            "disable_log_stats",
            "enable_auto_tool_choice",
        }
    ),
    positional="model",
    paths=frozenset({"model", "tokenizer"}),
)


class VLLM:
    """vLLM's answers to the `Engine` protocol."""

    name = "vllm"
    health_path = "/health"
    info_path: str | None = "/server_info?config_format=json"
    metrics_path = "/metrics"
    models_path = "/v1/models"
    version_path: str | None = "/version"
    logs_ready_mark = True
    port_opens_first = True

    def ready_mark(self, fact: LogFact) -> bool:
        """`Application startup complete.`: the engine is up before the app is built. The port may still be another's."""
        return fact.phase == "http" and fact.event == "startup-complete"

    def health_ready(self, before: int | None, now: int | None) -> bool:
        """Refused before, 200 now: vLLM does not listen before the engine is up."""
        return before is None and now == 200

    def is_engine_cmdline(self, argv: Sequence[str]) -> bool:
        """`vllm serve`, `python -m vllm.entrypoints.openai.api_server`, `python -m vllm.entrypoints.cli.main serve`."""
        words = list(argv)[:60]
        for i, word in enumerate(words):
            if word == "vllm.entrypoints.openai.api_server" or word.endswith(
                "vllm/entrypoints/openai/api_server.py"
            ):
                return True
            if words[i + 1 : i + 2] == ["serve"] and (
                base.base_name(word) == "vllm" or word == "vllm.entrypoints.cli.main"
            ):
                return True
        return False

    def resolved_args(
        self, server_info: str | bytes | Mapping[str, Any] | None, argv: Sequence[str]
    ) -> dict[str, Any]:
        """The command line over what `/server_info` reports, which vLLM does only in development mode."""
        info = base.as_json(server_info)
        args: dict[str, Any] = {}
        config = info.get("vllm_config", info) if isinstance(info, Mapping) else None
        if isinstance(config, Mapping):
            known = {"model_config", "parallel_config", "cache_config", "scheduler_config"}
            for section, values in config.items():
                if section in known and isinstance(values, Mapping):
                    for key, value in values.items():
                        if not isinstance(value, Mapping):
                            args.setdefault(str(key), value)
        told = folded_argv(argv, LAUNCHERS, TABLE)
        return {**told, **{k: v for k, v in args.items() if k not in told}} if told else args

    def compare_args(
        self, wanted_argv: Sequence[str], resolved: Mapping[str, Any], cmdline: Sequence[str] = ()
    ) -> tuple[base.ArgMismatch, ...]:
        """See `Engine.compare_args`."""
        return compare(
            wanted_argv,
            resolved,
            cmdline,
            table=TABLE,
            launchers=LAUNCHERS,
            override=lambda *_: "",
            unwanted=("speculative_config",),
        )

    def one_token_request(self, endpoint: str, model: str, prompt: str = "Hi") -> tuple[str, dict[str, Any]]:
        """vLLM has no `generate`: it is asked by `completions` then."""
        return base.openai_request("completions" if endpoint == "generate" else endpoint, model, prompt)

    def tokens_of_answer(self, body: str | bytes | Mapping[str, Any]) -> int | None:
        """The OpenAI usage."""
        return base.openai_tokens(body)

    def acceptance_counters(self, metrics_text: str) -> base.AcceptanceCounters | None:
        """Accepted tokens over drafts (counters of all engines and processes together)."""
        prefix = "vllm:spec_decode_num_"
        names = [
            f"{prefix}{what}{end}"
            for what in ("drafts", "draft_tokens", "accepted_tokens")
            for end in ("_total", "")
        ]
        sums = metric_sums(metrics_text, names)

        def total(what: str) -> float | None:
            return sums.get(f"{prefix}{what}_total", sums.get(f"{prefix}{what}"))

        steps = total("drafts")
        if steps is None:
            return None
        return base.AcceptanceCounters(
            steps, accepted=total("accepted_tokens"), drafted=total("draft_tokens")
        )

    def served_model(self, models_body: str | bytes | Mapping[str, Any]) -> str | None:
        """First entry of `/v1/models`."""
        return base.first_model(models_body)

    def version(self, info: str | bytes | Mapping[str, Any] | None) -> str | None:
        """`version` of `/version`."""
        body = base.as_json(info)
        version = body.get("version") if isinstance(body, Mapping) else None
        return version if isinstance(version, str) else None
