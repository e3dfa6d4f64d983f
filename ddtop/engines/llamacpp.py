"""llama.cpp's server: flags, endpoints, readiness, counters. Facts from tools/server/README.md (00dc8057)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtop.engines import base
from ddtop.engines.args import ArgTable, folded_argv, text_of
from ddtop.engines.compare import compare
from ddtop.engines.log.grammar import LogFact
from ddtop.engines.metrics_page import metric_sums

LAUNCHERS = ("llama-server", "llama_cpp.server", "server.py", "llama-server.exe")
TABLE = ArgTable(
    aliases={
        "m": "model",
        "c": "ctx_size",
        "ngl": "gpu_layers",
        "n_gpu_layers": "gpu_layers",
        "md": "model_draft",
        "spec_draft_model": "model_draft",
        "draft_model": "model_draft",
        "np": "parallel",
        "t": "threads",
        "b": "batch_size",
        "ub": "ubatch_size",
        "fa": "flash_attn",
        "a": "alias",
        "draft": "draft_max",
        "draft_n": "draft_max",
        "spec_draft_n_max": "draft_max",
        "hf": "hf_repo",
        "hfr": "hf_repo",
        "ctk": "cache_type_k",
        "ctv": "cache_type_v",
        "ts": "tensor_split",
        "sm": "split_mode",
        "mg": "main_gpu",
        "ngld": "gpu_layers_draft",
        "ctx": "ctx_size",
        "spec_type": "spec",
    },
    flags=frozenset(
        {"metrics", "slots", "props", "mlock", "jinja", "cont_batching", "embeddings", "reuse_port"}
    ),
    paths=frozenset({"model", "model_draft"}),
)


class LlamaCpp:
    """The llama.cpp server's answers to the `Engine` protocol."""

    name = "llamacpp"
    health_path = "/health"
    info_path: str | None = "/props"
    metrics_path = "/metrics"
    models_path = "/v1/models"
    version_path: str | None = None
    logs_ready_mark = False
    port_opens_first = True

    def ready_mark(self, fact: LogFact) -> bool:
        """`model loaded`, where the version logs it. `/health` decides: a wrapper may log nothing."""
        return fact.phase == "ready"

    def health_ready(self, before: int | None, now: int | None) -> bool:
        """503 while the model loads (the port is open at once), 200 afterwards."""
        return now == 200 and before != 200

    def is_engine_cmdline(self, argv: Sequence[str]) -> bool:
        """`llama-server`, `python -m llama_cpp.server`, or a Python wrapper `server.py` given a .gguf model."""
        words = list(argv)[:60]
        names = {base.base_name(w) for w in words[:4]}
        if names & {"llama-server", "llama-server.exe"} or "llama_cpp.server" in words:
            return True
        return "server.py" in names and any(w.endswith(".gguf") for w in words)

    def resolved_args(
        self, server_info: str | bytes | Mapping[str, Any] | None, argv: Sequence[str]
    ) -> dict[str, Any]:
        """The command line, with the model path and the slots that `/props` reports."""
        args = folded_argv(argv, LAUNCHERS, TABLE)
        info = base.as_json(server_info)
        if isinstance(info, Mapping):
            if text_of(info.get("model_path")):
                args["model"] = info["model_path"]
            if isinstance(info.get("total_slots"), int):
                args["parallel"] = info["total_slots"]
        return args

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
            unwanted=("model_draft", "spec"),
        )

    def one_token_request(self, endpoint: str, model: str, prompt: str = "Hi") -> tuple[str, dict[str, Any]]:
        """`generate` is llama.cpp's own `/completion`."""
        if endpoint == "generate":
            return "/completion", {"prompt": prompt, "n_predict": 1, "temperature": 0, "stream": False}
        return base.openai_request(endpoint, model, prompt)

    def tokens_of_answer(self, body: str | bytes | Mapping[str, Any]) -> int | None:
        """`timings.predicted_n` or `tokens_predicted`, else the OpenAI usage."""
        answer = base.as_json(body)
        if not isinstance(answer, Mapping) or answer.get("error"):
            return None
        timings = answer.get("timings")
        for told in (
            answer.get("tokens_predicted"),
            timings.get("predicted_n") if isinstance(timings, Mapping) else None,
        ):
            if isinstance(told, int):
                return told
        return base.openai_tokens(answer)

    def acceptance_counters(self, metrics_text: str) -> base.AcceptanceCounters | None:
        """Accepted tokens over drafts (needs --metrics)."""
        prefix = "llamacpp:spec_decode_num_"
        sums = metric_sums(
            metrics_text, [f"{prefix}{w}_total" for w in ("drafts", "draft_tokens", "accepted_tokens")]
        )
        steps = sums.get(f"{prefix}drafts_total")
        if steps is None:
            return None
        return base.AcceptanceCounters(
            steps,
            accepted=sums.get(f"{prefix}accepted_tokens_total"),
            drafted=sums.get(f"{prefix}draft_tokens_total"),
        )

    def served_model(self, models_body: str | bytes | Mapping[str, Any]) -> str | None:
        """First entry of `/v1/models`."""
        return base.first_model(models_body)

    def version(self, info: str | bytes | Mapping[str, Any] | None) -> str | None:
        """`build_info` of `/props`."""
        body = base.as_json(info)
        version = body.get("build_info") if isinstance(body, Mapping) else None
        return version if isinstance(version, str) else None
