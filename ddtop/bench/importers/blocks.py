"""Results printed as lines of `label: value` by tools that have names of their own for them: dflash.benchmark,
AI-Hypercomputer's inference-benchmark, ollama, MLPerf's LoadGen, vLLM's and SGLang's offline benchmarks. Pure.

Each reader takes {label in lower case: value} and gives a record, or None where the lines are not its tool's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ddtop.bench.importers.common import Fields, put

Pairs = Mapping[str, str]
_LINE = re.compile(r"^\W{0,4}(?P<label>[A-Za-z\d][^:=|]{1,90}?)\s*:\s+(?P<value>\S.*?)\s*$")
_FIRST = re.compile(r"-?[\d,]*\.?\d+(?:[eE][+-]?\d+)?|nan|inf", re.I)
_GO_TIME = re.compile(r"(\d+(?:\.\d+)?)(h|ms|µs|us|ns|m|s)")
_GO_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}


def _pairs(text: str) -> Pairs:
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        if found := _LINE.match(line):
            pairs[re.sub(r"\s+", " ", found["label"].strip().lower())] = found["value"]
    return pairs


def from_block(text: str) -> Fields | None:
    """The record of such a block, or None."""
    pairs = _pairs(text)
    for reads in READERS:
        if (fields := reads(pairs, text)) is not None:
            return fields
    return None


def _put(fields: Fields, pairs: Pairs, names: Mapping[str, tuple[str, float]]) -> None:
    for label, (name, factor) in names.items():
        if label in pairs and (found := _FIRST.search(pairs[label])):
            put(fields, name, found[0], factor)


def _dflash(pairs: Pairs, text: str) -> Fields | None:
    if not {"num prompts", "throughput"} <= set(pairs):
        return None
    fields: Fields = {"tool": "dflash"}
    _put(
        fields,
        pairs,
        {
            "num prompts": ("requests_planned", 1.0),
            "concurrency": ("concurrency", 1.0),
            "latency": ("duration_s", 1.0),
            "output tokens": ("output_tokens", 1.0),
            "throughput": ("output_tps", 1.0),
            "accept length": ("accept_len", 1.0),
            "spec verify ct": ("steps", 1.0),
        },
    )
    if "backend" in pairs:
        fields["backend"] = pairs["backend"]
    return fields


def _dflash_transformers(pairs: Pairs, text: str) -> Fields | None:
    """Two throughputs, of which the drafter's is the result and the baseline's what it is compared with."""
    if not {"baseline throughput", "decoding speedup"} <= set(pairs):
        return None
    fields: Fields = {"tool": "dflash transformers"}
    _put(
        fields,
        pairs,
        {
            "dflash throughput": ("output_tps", 1.0),
            "baseline throughput": ("baseline_tps", 1.0),
            "decoding speedup": ("speedup", 1.0),
            "average acceptance length": ("accept_len", 1.0),
        },
    )
    return fields


def _hypercomputer(pairs: Pairs, text: str) -> Fields | None:
    counts = re.search(r"^Successful/total requests:\s*(\d+)/(\d+)", text, re.M)
    if counts is None:
        return None
    fields: Fields = {"tool": "ai-hypercomputer"}
    put(fields, "requests_ok", counts[1])
    put(fields, "requests_planned", counts[2])
    _put(
        fields,
        pairs,
        {
            "total time": ("duration_s", 1.0),
            "total time (seconds)": ("duration_s", 1.0),
            "output_tokens/min": ("output_tps", 1 / 60),
            "output_tokens/sec": ("output_tps", 1.0),
            "input_tokens/min": ("input_tps", 1 / 60),
            "input_tokens/sec": ("input_tps", 1.0),
            "tokens/min": ("total_tps", 1 / 60),
            "tokens/sec": ("total_tps", 1.0),
            "average milliseconds/request (includes waiting time on server)": ("e2e_mean_ms", 1.0),
            "average input length": ("input_len_mean", 1.0),
            "average output length": ("output_len_mean", 1.0),
        },
    )
    # its requests/min counts the failed ones too, so it is no rate of successes
    return fields


def go_seconds(text: str) -> float | None:
    """A duration as Go prints it ("1m2.5s", "430.1ms") in seconds, or None."""
    parts = _GO_TIME.findall(text)
    if not parts or "".join(a + b for a, b in parts) != text.strip():
        return None
    return sum(float(size) * _GO_UNITS[unit] for size, unit in parts)


def _ollama(pairs: Pairs, text: str) -> Fields | None:
    """`ollama run --verbose`: one request; its rates are over its own phases."""
    if not {"total duration", "eval count"} <= set(pairs):
        return None
    fields: Fields = {"tool": "ollama", "requests_ok": 1}
    put(fields, "duration_s", go_seconds(pairs["total duration"]))
    put(fields, "output_s", go_seconds(pairs.get("eval duration", "")))
    _put(
        fields,
        pairs,
        {
            "eval count": ("output_tokens", 1.0),
            "eval rate": ("output_tps", 1.0),
            "prompt eval count": ("input_tokens", 1.0),
            "prompt eval rate": ("input_tps", 1.0),
        },
    )
    return fields


def _mlperf(pairs: Pairs, text: str) -> Fields | None:
    if "MLPerf Results Summary" not in text and "mlperf_log_summary" not in text:
        return None
    fields: Fields = {"tool": "mlperf"}
    _put(
        fields,
        pairs,
        {
            "samples per second": ("rps", 1.0),
            "completed samples per second": ("rps", 1.0),
            "tokens per second": ("output_tps", 1.0),
            "completed tokens per second": ("output_tps", 1.0),
            "mean latency (ns)": ("e2e_mean_ms", 1e-6),
            "min latency (ns)": ("e2e_min_ms", 1e-6),
            "max latency (ns)": ("e2e_max_ms", 1e-6),
            "50.00 percentile latency (ns)": ("e2e_p50_ms", 1e-6),
            "90.00 percentile latency (ns)": ("e2e_p90_ms", 1e-6),
            "99.00 percentile latency (ns)": ("e2e_p99_ms", 1e-6),
            "mean first token latency (ns)": ("ttft_mean_ms", 1e-6),
            "99.00 percentile first token latency (ns)": ("ttft_p99_ms", 1e-6),
            "50.00 percentile first token latency (ns)": ("ttft_p50_ms", 1e-6),
            "mean time to output token (ns)": ("tpot_mean_ms", 1e-6),
            "99.00 percentile time to output token (ns)": ("tpot_p99_ms", 1e-6),
        },
    )
    for label in ("scenario", "mode"):
        if label in pairs:
            fields[label] = pairs[label]
    if pairs.get("result is", "VALID").upper() != "VALID":
        unmet = [
            name for name, value in pairs.items() if name.endswith("satisfied") and value.upper() == "NO"
        ]
        fields["declared_invalid"] = "; ".join(unmet) or pairs["result is"]
    return fields


_OFFLINE = re.compile(
    r"^Throughput: (?P<rps>[\d.,]+) requests/s, (?P<total>[\d.,]+) (?:total )?tokens/s(?:, (?P<out>[\d.,]+) output tokens/s)?",
    re.M,
)


def _vllm_throughput(pairs: Pairs, text: str) -> Fields | None:
    """`vllm bench throughput` and benchmark_throughput.py."""
    found = _OFFLINE.search(text)
    if found is None:
        return None
    fields: Fields = {"tool": "vllm offline"}
    for name in ("rps", "total", "out"):
        put(fields, {"rps": "rps", "total": "total_tps", "out": "output_tps"}[name], found[name])
    _put(
        fields,
        pairs,
        {"total num prompt tokens": ("input_tokens", 1.0), "total num output tokens": ("output_tokens", 1.0)},
    )
    return fields


def _vllm_latency(pairs: Pairs, text: str) -> Fields | None:
    """`vllm bench latency` and benchmark_latency.py: seconds for one batch."""
    if "avg latency" not in pairs:
        return None
    fields: Fields = {"tool": "vllm latency"}
    _put(fields, pairs, {"avg latency": ("e2e_mean_ms", 1e3)})
    _put(fields, pairs, {f"{p}% percentile latency": (f"e2e_p{p}_ms", 1e3) for p in (50, 90, 99)})
    return fields


def _one_batch(pairs: Pairs, text: str) -> Fields | None:
    """`sglang.bench_one_batch`: Prefill., Decode. median and Total. lines; the decode's median is the result."""
    rates = dict(
        re.findall(
            r"^(Prefill|Decode|Total)\.\s.*?throughput:\s*([\d.,]+) token/s",
            text.replace("median ", ""),
            re.M,
        )
    )
    if "Prefill" not in rates:
        return None
    fields: Fields = {"tool": "sglang one_batch"}
    for label, name in (("Prefill", "input_tps"), ("Decode", "output_tps"), ("Total", "total_tps")):
        put(fields, name, rates.get(label))
    return fields


_SERVING_2023 = re.compile(r"^Throughput: ([\d.,]+) requests/s\s*$", re.M)


def _vllm_2023(pairs: Pairs, text: str) -> Fields | None:
    """benchmark_serving.py of 2023: requests a second and times, no tokens a second."""
    found = _SERVING_2023.search(text)
    if found is None or "total time" not in pairs:
        return None
    fields: Fields = {"tool": "vllm 2023"}
    put(fields, "rps", found[1])
    _put(fields, pairs, {"total time": ("duration_s", 1.0), "average latency": ("e2e_mean_ms", 1e3)})
    if "rps" in fields and "duration_s" in fields:
        fields["requests_ok"] = round(fields["rps"] * fields["duration_s"])  # its rate is requests over time
    return fields


_LLMPERF_PART = re.compile(r"^(?P<name>\w+)_s\n(?P<stats>(?:[ \t]+\w+ = \S+\n)+)", re.M)


def _llmperf(pairs: Pairs, text: str) -> Fields | None:
    """What LLMPerf's token_benchmark_ray.py prints beside its JSON."""
    if "number of completed requests" not in pairs:
        return None
    fields: Fields = {"tool": "llmperf"}
    _put(
        fields,
        pairs,
        {
            "number of completed requests": ("requests_ok", 1.0),
            "number of errored requests": ("requests_failed", 1.0),
            "overall output throughput": ("output_tps", 1.0),
        },
    )
    names = {"ttft": "ttft", "inter_token_latency": "itl", "end_to_end_latency": "e2e"}
    for part in _LLMPERF_PART.finditer(text):
        for stat, value in re.findall(r"(\w+) = (\S+)", part["stats"]):
            if part["name"] in names and stat in ("mean", "p50", "p90", "p95", "p99", "min", "max"):
                put(fields, f"{names[part['name']]}_{stat}_ms", value, 1e3)
    return fields


def _evalscope_2024(pairs: Pairs, text: str) -> Fields | None:
    """EvalScope's summary before it became a table."""
    if not {"succeed requests", "time taken for tests"} <= set(pairs):
        return None
    fields: Fields = {"tool": "evalscope"}
    _put(
        fields,
        pairs,
        {
            "time taken for tests": ("duration_s", 1.0),
            "number of concurrency": ("max_concurrency", 1.0),
            "total requests": ("requests_planned", 1.0),
            "succeed requests": ("requests_ok", 1.0),
            "failed requests": ("requests_failed", 1.0),
            "average qps": ("rps", 1.0),
            "average latency": ("e2e_mean_ms", 1e3),
            "throughput(average output tokens per second)": ("output_tps", 1.0),
            "average time to first token": ("ttft_mean_ms", 1e3),
            "average output tokens per request": ("output_len_mean", 1.0),
            "average input tokens per request": ("input_len_mean", 1.0),
        },
    )
    return fields


_THREE = re.compile(r"([\d.]+)s?, ([\d.]+)s?, ([\d.]+)s?")


def _lmdeploy(pairs: Pairs, text: str) -> Fields | None:
    """LMDeploy's profile_throughput.py and profile_restful_api.py."""
    if "token throughput (completion token)" not in pairs:
        return None
    fields: Fields = {"tool": "lmdeploy"}
    _put(
        fields,
        pairs,
        {
            "concurrency": ("max_concurrency", 1.0),
            "elapsed_time": ("duration_s", 1.0),
            "number of failed requests": ("requests_failed", 1.0),
            "number of prompt tokens": ("input_tokens", 1.0),
            "number of completion tokens": ("output_tokens", 1.0),
            "token throughput (completion token)": ("output_tps", 1.0),
            "token throughput (prompt + completion token)": ("total_tps", 1.0),
            "rps (request per second)": ("rps", 1.0),
        },
    )
    first = next(
        (value for label, value in pairs.items() if label.startswith("first") and "min, max, ave" in label),
        "",
    )
    if times := _THREE.search(first):
        for stat, value in zip(("min", "max", "mean"), times.groups(), strict=True):
            put(fields, f"ttft_{stat}_ms", value, 1e3)
    return fields


_ANY = (
    (re.compile(r"(?:completed|successful|succeeded) requests"), "requests_ok", 1.0),
    (re.compile(r"(?:failed|errored) requests"), "requests_failed", 1.0),
    (re.compile(r"(?:total )?(?:input|prompt) tokens"), "input_tokens", 1.0),
    (re.compile(r"(?:total )?(?:output|generated|completion) tokens"), "output_tokens", 1.0),
    (re.compile(r"(?:benchmark|test|total|run) (?:duration|time)(?: \(s\))?"), "duration_s", 1.0),
    (re.compile(r"request throughput(?: \(req/s\))?"), "rps", 1.0),
    (re.compile(r"output (?:token )?throughput(?: \(tok(?:ens)?/s\))?"), "output_tps", 1.0),
    (re.compile(r"total (?:token )?throughput(?: \(tok(?:ens)?/s\))?"), "total_tps", 1.0),
)


def from_any_block(text: str) -> Fields | None:
    """A block of a tool that has no reader: the labels that all tools have, where a rate and the requests are among them.
    Its times stand under headings of its own and are not read."""
    fields: Fields = {"tool": "unknown"}
    for label, value in _pairs(text).items():
        for pattern, name, factor in _ANY:
            if pattern.fullmatch(label) and name not in fields and (found := _FIRST.search(value)):
                put(fields, name, found[0], factor)
                whole = re.match(r"\d+\s*/\s*(\d+)", value)
                if name == "requests_ok" and whole:
                    put(fields, "requests_planned", whole[1])
    rates = {"output_tps", "total_tps", "rps"} & set(fields)
    return fields if "requests_ok" in fields and "output_tokens" in fields and rates else None


READERS: tuple[Callable[[Pairs, str], Fields | None], ...] = (
    _mlperf,
    _hypercomputer,
    _dflash,
    _dflash_transformers,
    _ollama,
    _vllm_throughput,
    _vllm_2023,
    _vllm_latency,
    _llmperf,
    _evalscope_2024,
    _lmdeploy,
    _one_batch,
)
