"""A cell's result as a row of InferenceX (formerly InferenceMAX): the keys that its `process_result.py` writes for one node. Pure.

Times are in seconds, rates per GPU; `…_intvty` is 1 ÷ TPOT. Rates are divided by the GPUs that the server's processes held; where
that is not known, the row has no rate per GPU. Its `std_intvty` is left out: 1 ÷ a spread of times is no spread of rates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_STATS = {"mean": "mean", "p50": "median", "sd": "std", "p90": "p90", "p99": "p99"}
_TIMES = {"ttft_ms": "ttft", "tpot_ms": "tpot", "itl_ms": "itl", "e2e_ms": "e2el"}
_CHIP = re.compile(
    r"\b(GB300|GB200|B300|B200|H200|H100|H20|GH200|A100|A800|H800|L40S|L40|L4|MI3\d\dX)\b", re.I
)
_NOISE = re.compile(r"(?i)\b(NVIDIA|Tesla|GeForce|\d+\s?GB|HBM\d\w?|PCIe|SXM\d?|NVL|Edition|SIMULATED)\b")
_PRECISIONS = (
    ("fp4", r"nvfp4|mxfp4|modelopt_fp4|petit_nvfp4|fp4"),
    ("int4", r"w4a16|int4|awq|gptq|w4afp8|marlin"),
    ("fp8", r"fp8|w8a8_fp8|mxfp8"),
    ("int8", r"w8a8_int8|int8|w8a8"),
)
_GGUF = re.compile(r"\b(i?q\d_[0-9a-z_]+|bf16|f16)\b", re.I)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is recorded of the server that a cell measured."""

    engine: str
    version: str | None = None
    tp: int = 1
    args: Mapping[str, Any] = field(default_factory=dict)
    """The arguments in effect, as the server reports them."""
    argv: tuple[str, ...] = ()
    model_path: str = ""
    gpu_name: str | None = None
    gpus: int | None = None
    """GPUs that its processes held; None: not known."""
    gpus_unknown: str = ""
    image: str | None = None


def hardware(name: str | None) -> str | None:
    """A GPU's name as the public rows write it.

    >>> hardware("NVIDIA H200"), hardware("NVIDIA H100 80GB HBM3"), hardware("NVIDIA RTX PRO 6000 Blackwell Server Edition")
    ('h200', 'h100', 'rtx-pro-6000-blackwell-server')
    """
    if not name:
        return None
    chip = _CHIP.search(name)
    return chip[1].lower() if chip else "-".join(_NOISE.sub(" ", name).lower().split())


def precision(facts: ServerFacts) -> str | None:
    """Precision of the weights: by the quantization in effect, else the model's name, else the dtype; None: not known."""
    words = [str(facts.args.get("quantization") or ""), facts.model_path]
    for word in words:
        for name, pattern in _PRECISIONS:
            if word and re.search(rf"(?i)(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", word):
                return name
        if word.endswith(".gguf") and (found := _GGUF.search(word)):
            return found[1].lower()
    dtype = str(facts.args.get("dtype") or "").removeprefix("torch.")
    return {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}.get(
        dtype
    )


def spec_decoding(facts: ServerFacts) -> str:
    """The algorithm of speculative decoding in lower case; `none` without one."""
    args = facts.args
    config = args.get("speculative_config")
    if isinstance(config, str) and (
        method := re.search(r"""["']?method["']?\s*[:=]\s*["']?([\w-]+)""", config)
    ):
        config = {"method": method[1]}
    method_of = config.get("method") if isinstance(config, Mapping) else None
    name = args.get("speculative_algorithm") or method_of or args.get("spec_type")
    drafts = ("--model-draft", "-md", "--hf-repo-draft", "-hfd")
    if not name and any(word.partition("=")[0] in drafts for word in facts.argv):
        name = "draft"
    word = str(name or "none").lower()
    return "mtp" if word in ("nextn", "deepseek_mtp", "mtp") else word


def _truth(value: Any) -> bool:
    return value is True or str(value).lower() == "true"


def to_inferencex(raw: Mapping[str, Any], metrics: Mapping[str, Any], facts: ServerFacts) -> dict[str, Any]:
    """One row; what is not known is absent, but for `image`, which the public rows always have."""
    spec = dict(raw.get("spec") or {})
    model = str(raw.get("model") or facts.model_path)
    experts = facts.args.get("ep_size") or facts.args.get("expert_parallel_size")
    ep = (
        experts
        if isinstance(experts, int)
        else facts.tp
        if _truth(facts.args.get("enable_expert_parallel"))
        else 1
    )
    row: dict[str, Any] = {
        "hw": hardware(facts.gpu_name),
        "conc": spec.get("concurrency") if spec.get("mode", "closed") == "closed" else None,
        "image": facts.image,
        "model": model,
        "infmax_model_prefix": model.rstrip("/").rpartition("/")[2].lower(),
        "framework": facts.engine,
        "precision": precision(facts),
        "spec_decoding": spec_decoding(facts),
        "disagg": False,
        "is_multinode": False,
        "isl": _mean_input(metrics),
        "osl": spec.get("output_tokens"),
        "tp": facts.tp,
        "ep": ep,
        "dp_attention": str(_truth(facts.args.get("enable_dp_attention"))).lower(),
        "ddtop_gpus": facts.gpus,
        "ddtop_engine_version": facts.version,
    }
    if facts.gpus:
        rates = (("tput", "total_tok_s"), ("output_tput", "output_tok_s"), ("input_tput", "input_tok_s"))
        for name, key in rates:
            if metrics.get(key) is not None:
                row[f"{name}_per_gpu"] = metrics[key] / facts.gpus
        if metrics.get("power_mean_w") is not None:
            row["avg_power_w"] = metrics["power_mean_w"] / facts.gpus
    else:
        row["ddtop_gpus_unknown"] = facts.gpus_unknown or "not recorded"
    _times(row, metrics)
    energy, tokens = metrics.get("energy_j"), metrics.get("output_tokens")
    if energy and tokens:
        row["joules_per_output_token"] = energy / tokens
        if metrics.get("input_tokens"):
            row["joules_per_total_token"] = energy / (tokens + metrics["input_tokens"])
    return {key: value for key, value in row.items() if value is not None or key == "image"}


def _mean_input(metrics: Mapping[str, Any]) -> int | None:
    requests = metrics.get("requests_ok")
    tokens = metrics.get("input_tokens")
    return round(tokens / requests) if requests and tokens is not None else None


def _times(row: dict[str, Any], metrics: Mapping[str, Any]) -> None:
    for key, name in _TIMES.items():
        stats = metrics.get(key) or {}
        for stat, word in _STATS.items():
            value = stats.get(stat)
            if value is None:
                continue
            row[f"{word}_{name}"] = value / 1e3
            if name == "tpot" and stat != "sd" and value:
                row[f"{word}_intvty"] = 1e3 / value
