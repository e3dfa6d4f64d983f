"""Results as tables whose first row names the columns: llama-batched-bench, llama-benchy, SGLang's send_one,
InferenceX's summary. A row is a record. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ddtop.bench.importers.common import Fields, number, put

Columns = Mapping[str, tuple[str, float]]
_BATCHED: Columns = {
    "pp": ("prompt_tokens", 1.0),
    "tg": ("output_len", 1.0),
    "b": ("concurrency", 1.0),
    "s_pp t/s": ("input_tps", 1.0),
    "s_tg t/s": ("output_tps", 1.0),
    "s t/s": ("total_tps", 1.0),
    "t s": ("duration_s", 1.0),
    "t_tg s": ("output_s", 1.0),
}
_SEND_ONE: Columns = {
    "latency (s)": ("duration_s", 1.0),
    "tokens": ("output_tokens", 1.0),
    "acc length": ("accept_len", 1.0),
    "speed (token/s)": ("output_tps", 1.0),
}
_ONE_BATCH: Columns = {
    "batch size": ("concurrency", 1.0),
    "input len": ("prompt_tokens", 1.0),
    "latency (s)": ("e2e_mean_ms", 1e3),
    "input throughput (tok/s)": ("input_tps", 1.0),
    "output throughput (tok/s)": ("output_tps", 1.0),
    "acc length": ("accept_len", 1.0),
}  # its ITL is made of the throughput, not measured
_INFERENCEX: Columns = {
    "conc": ("max_concurrency", 1.0),
    "tp": ("gpus", 1.0),
    "ttft (ms)": ("ttft_mean_ms", 1.0),
    "tpot (ms)": ("tpot_mean_ms", 1.0),
    "e2el (s)": ("e2e_mean_ms", 1e3),
    "tput per gpu": ("total_tps_per_gpu", 1.0),
    "output tput per gpu": ("output_tps_per_gpu", 1.0),
    "input tput per gpu": ("input_tps_per_gpu", 1.0),
}
_TABLES: tuple[tuple[str, frozenset[str], Columns], ...] = (
    ("llama-batched-bench", frozenset({"pp", "tg", "b", "s_tg t/s"}), _BATCHED),
    ("sglang send_one", frozenset({"latency (s)", "tokens", "speed (token/s)"}), _SEND_ONE),
    ("sglang one_batch_server", frozenset({"batch size", "output throughput (tok/s)"}), _ONE_BATCH),
    ("inferencex", frozenset({"conc", "tput per gpu"}), _INFERENCEX),
)
_BENCHY_TEST = re.compile(
    r"(?P<kind>pp|tg|ctx_pp|ctx_tg)\s?(?P<size>\d+)(?: @ d(?P<depth>\d+))?(?: \(c(?P<streams>\d+)\))?"
)


def from_rows(rows: list[list[str]]) -> list[Fields]:
    """The records of the first such table among `rows` (cells of each line); [] where there is none."""
    for place, row in enumerate(rows):
        head = [cell.lower() for cell in row]
        if "test" in head and "ttfr (ms)" in head:
            return _benchy(head, rows[place + 1 :])
        for tool, needed, columns in _TABLES:
            if needed <= set(head):
                found = [_record(tool, head, cells, columns) for cells in rows[place + 1 :]]
                return [one for one in found if one is not None]
    return []


def _record(tool: str, head: list[str], cells: list[str], columns: Columns) -> Fields | None:
    if len(cells) != len(head):
        return None
    fields: Fields = {"tool": tool}
    for label, cell in zip(head, cells, strict=True):
        if label in columns:
            put(fields, columns[label][0], cell, columns[label][1])
    if len(fields) == 1:
        return None
    if tool == "sglang send_one":
        fields["requests_ok"] = 1
    if tool == "llama-batched-bench" and {"output_len", "concurrency"} <= set(fields):
        fields["output_tokens"] = fields["output_len"] * fields["concurrency"]
    return per_gpu(fields)


def per_gpu(fields: Fields) -> Fields:
    """Rates of the whole server from those per GPU, where the number of GPUs is stated."""
    for name in ("total_tps", "output_tps", "input_tps"):
        if f"{name}_per_gpu" in fields and fields.get("gpus"):
            fields[name] = fields[f"{name}_per_gpu"] * fields["gpus"]
        elif f"{name}_per_gpu" in fields:
            fields[name] = fields[f"{name}_per_gpu"]
    return fields


def _benchy(head: list[str], rows: list[list[str]]) -> list[Fields]:
    """llama-benchy's table: a test a row, `t/s (total)` or `t/s`, `ttfr (ms)` and `e2e_ttft (ms)` as `12.3 ± 0.4`."""
    records = []
    for cells in rows:
        if len(cells) != len(head):
            continue
        row = {label: cell.partition("±")[0].strip() for label, cell in zip(head, cells, strict=True)}
        test = _BENCHY_TEST.match(row["test"])
        rate = next((row[label] for label in ("t/s (total)", "t/s") if label in row), "")
        if test is None or number(rate) is None:
            continue
        prompt = test["kind"].endswith("pp")
        fields: Fields = {"tool": "llama-benchy", "concurrency": int(test["streams"] or 1)}
        put(fields, "prompt_tokens" if prompt else "output_tokens", test["size"])
        put(fields, "context", test["depth"])
        put(fields, "input_tps" if prompt else "output_tps", rate)
        put(fields, "ttft_mean_ms", row.get("e2e_ttft (ms)"))
        if row.get("model"):
            fields["model"] = row["model"]
        records.append(fields)
    return records


# ---- the same as JSON


def is_batched_bench(data: dict[str, Any]) -> bool:
    """A line of llama-batched-bench `--output-format jsonl`."""
    return "speed_tg" in data and "pl" in data


def from_batched_bench(data: dict[str, Any]) -> Fields:
    """One batch: `pl` streams at a time."""
    fields: Fields = {"tool": "llama-batched-bench"}
    for name, key in {
        "prompt_tokens": "pp",
        "output_len": "tg",
        "concurrency": "pl",
        "input_tps": "speed_pp",
        "output_tps": "speed_tg",
        "total_tps": "speed",
        "duration_s": "t",
        "output_s": "t_tg",
    }.items():
        put(fields, name, data.get(key))
    if {"output_len", "concurrency"} <= set(fields):
        fields["output_tokens"] = fields["output_len"] * fields["concurrency"]
    return fields


def is_inferencex(data: dict[str, Any]) -> bool:
    """A row of InferenceX (InferenceMAX): rates per GPU, times in seconds."""
    return "tput_per_gpu" in data and "conc" in data


def from_inferencex(data: dict[str, Any]) -> Fields:
    """Its TP is the number of GPUs that its own script divides by."""
    fields: Fields = {"tool": "inferencex"}
    for name, key in {
        "max_concurrency": "conc",
        "gpus": "tp",
        "prompt_tokens": "isl",
        "output_len": "osl",
        "total_tps_per_gpu": "tput_per_gpu",
        "output_tps_per_gpu": "output_tput_per_gpu",
        "input_tps_per_gpu": "input_tput_per_gpu",
    }.items():
        put(fields, name, data.get(key))
    for name, key in {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}.items():
        for stat, word in (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p99", "p99")):
            put(fields, f"{name}_{stat}_ms", data.get(f"{word}_{key}"), 1e3)
    if isinstance(data.get("model"), str):
        fields["model"] = data["model"]
    return per_gpu(fields)
