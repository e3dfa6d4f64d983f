"""The kind of a file by its form. Only the first 64 KiB are read: a 50 MB log takes milliseconds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ddtop.bench.importers.load_tools import is_result_text
from ddtop.hosts.ssh.error_texts import speaks_of_ssh
from ddtop.hosts.ssh.probe_frame import read_frame
from ddtop.inspect.inputs import is_ssh_config, text_of
from ddtop.inspect.listing import TREE_DRAWING, is_checksums, parse_listing
from ddtop.inspect.model import DOWNLOAD_BAR
from ddtop.services.unit.container_table import read_table
from ddtop.sources.gpu.diagnosis import diagnose_gpu

LOOK = 65_536
"""Bytes looked at."""

_SHOW = re.compile(
    r"^(?:ActiveState|LoadState|SubState|InvocationID|MainPID|ExecMainStatus|Result|NRestarts)=", re.M
)
_UNIT_WORDS = re.compile(
    r"systemd\[\d{1,9}\]: |Main PID: \d|Loaded: loaded \(/|^[●○×] \S{1,200}\.service|start-limit-hit|Start request repeated"
    r"|Job for \S{1,200}\.service failed|code=(?:exited|killed), status=\d|^\$ (?:sudo )?systemctl \w"
    r"|^(?:Starting|Started|Stopping|Stopped|Failed to start) \S{1,200}\.service|\.service(?: - .{1,200})? was skipped"
    r"|^(?:tcp\s+)?LISTEN\s+\d|ActiveState=\w+ SubState=|\.service: (?:failed|active|activating|inactive|deactivating)\s",
    re.M,
)
_SSE = re.compile(
    r"\A(?:HTTP/\d|:?\s{0,2}(?:ping|keep-?alive)?\s{0,4}(?:data|event|id|retry):|(?:data|event): ?[\{\[])",
    re.I,
)
_CHUNK = re.compile(r"^data: ?(?:\{.{0,400}?\"(?:choices|text|content|token)\"|\[DONE\])", re.M)
_RESULT_KEYS = {
    "request_throughput",
    "output_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "mean_tpot_ms",
    "benchmarks",
    "time_to_first_token",
    "output_token_throughput",
    "load_summary",
    "successes",
    "model_id",
    "tokenizer_id",
    "request_count",
    "benchmark_duration",
    "results",
    "records",
    "input_config",
    "pp_throughput",
    "tg_throughput",
    "aggregated_metrics",
    "avg_ts",
    "tokens_per_second",
    "avg_latency",
    "Succeed requests",
    "results_num_completed_requests",
    "tput_per_gpu",
    "request_latency",
    "eval_count",
    "num_prompts_attempted",
    "streaming_metrics",
    "speed_tg",
    "root_group",
    "status_codes",
}
_BY_ENDING = {
    ".sse": "sse",
    ".http": "sse",
    ".show": "unit",
    ".startcmd": "unit",
    ".journal": "unit",
    ".lst": "model",
    ".config": "ssh",
}


def guess_kind(files: Mapping[str, bytes]) -> str | None:
    """log, gpu, sse, unit, model, results or ssh; None when there is nothing to go by (empty, or binary)."""
    for name in files:
        base = PurePosixPath(name).name
        kind = _BY_ENDING.get(PurePosixPath(base).suffix)
        if kind or base in {"ssh_config", "query.txt"}:
            return kind or "ssh"
        if base.endswith((".safetensors", ".gguf")) or "/snapshots/" in name or "/blobs/" in name:
            return "model"
    if b"nvidia-smi" in files.get("cmd.txt", b""):
        return "gpu"
    if any(read_frame(text_of(d[:LOOK])) for n, d in files.items() if n.endswith(".stdout")):
        return "ssh"
    inputs = {n: d for n, d in files.items() if PurePosixPath(n).name.startswith("input")} or dict(files)
    for name in sorted(inputs, key=lambda n: (n.endswith((".txt", ".err")), n)):
        kind = guess_text(inputs[name])
        if kind:
            return kind
    return None


def guess_text(data: bytes) -> str | None:
    """The kind of one file by its first bytes."""
    head = data[:LOOK]
    text = text_of(head).lstrip("\r\n\t ")
    if not text.strip():
        return None
    if sum(c in "\x00\ufffd" for c in text[:2000]) > len(text[:2000]) // 4:
        return None
    if _SSE.match(text) or (text[0] == ":" and re.search(r"^(?:data|event): ?\S", text, re.M)):
        return "sse"
    if re.search(r"^< HTTP/[\d.]{1,4} \d{3}|^curl: \(\d+\) ", text, re.M):
        return "sse"  # what `curl -v` printed around a response
    if len(_CHUNK.findall(text)) > 1 and re.search(r"^\S{0,80}[$#%>] ?curl |^curl ", text, re.M):
        return "sse"  # a terminal: the command, and the stream
    if len(_SHOW.findall(text)) >= 2 or read_table(text[:20_000]) is not None:
        return "unit"
    if text[0] in "{[":
        kind = _json_kind(text)
        if kind:
            return kind
    elif (
        first := next((line for line in text.splitlines()[1:20] if line.startswith("{")), "")
    ) and _json_kind(first) == "results":
        return "results"  # a script wrote a line of its own before the tool's
    rows = [line for line in text.splitlines()[:200] if line.strip()]
    if sum(1 for line in rows if _VLLM_RECORD.match(line)) * 2 > len(rows):
        return "log"  # what its records quote of the driver is no output of nvidia-smi
    if _is_gpu(head) or re.match(r"\S{0,40}:? ?(?:\w{1,12} \d{1,4}: )?nvidia-smi: ", text):
        return "gpu"
    if is_result_text(text):
        return "results"
    if is_ssh_config(text):
        return "ssh"
    rows = [line for line in text.splitlines()[:200] if line.strip() and not line.startswith("#")]
    listed = rows and len(parse_listing("\n".join(rows))) * 2 > len(rows)
    if listed and _OF_MODELS.search(text) and not _UNIT_WORDS.search(text):
        return "model"
    if rows and sum(1 for row in rows if DOWNLOAD_BAR.match(row)) * 2 > len(rows):
        return "model"
    if _MODEL_NAMES.search(text) and sum(1 for row in rows if TREE_DRAWING.match(row)) * 2 > len(rows):
        return "model"  # what `tree` prints, of which a unit's processes have no such name
    if _MODEL_NAMES.search(text) and is_checksums(rows):
        return "model"
    if re.search(r"^uptime(?:_s)?\s?[=:]", text, re.M) and "shm" in text:
        return "model"
    if read_frame(text) is not None:
        return "ssh"
    rows = [line for line in text.splitlines()[:200] if line.strip()]
    if sum(1 for line in rows if _DATED.match(line)) * 2 > len(rows) and not _SYSTEMD_SAID.search(
        text[:4000]
    ):
        return "log"  # dated records of some program: what they say of ssh or a unit is not the client's
    if sum(1 for line in rows if _KERNEL.match(line)) * 2 > len(rows):
        return "log"
    program = re.search(r"server_args|Traceback|\busage: \S|\S: error: \S", text)  # the server's own words
    if _UNIT_WORDS.search(text[:4000]) and not program:
        return "unit"
    engine = re.search(
        r"server_args|sglang|vllm|llama|uvicorn|INFO[ :]|Traceback|\[[\d\- :]{19}(?: \w{2}\d+)*\] ",
        text,
        re.I,
    )
    document = text.split("\n", 1)[0].strip() in ("{", "[", "[{")  # what its texts quote was said elsewhere
    if speaks_of_ssh(text[:20_000]) and not engine and not document:
        return "ssh"
    if _UNIT_WORDS.search(text) and not engine and not program:
        return "unit"
    return "log"


_MODEL_NAMES = re.compile(
    r"\b(?:config\.json|tokenizer\w*\.json|blobs|snapshots)\s*$|\.(?:safetensors|gguf)\b", re.M
)
_OF_MODELS = re.compile(
    r"model|safetensors|\.gguf|tokenizer|config\.json|blobs|snapshots|sha256[-:]|\.bin\b|\.pth?\b|incomplete|/shm|weights|\bhub\b",
    re.I,
)
"""In a listing: a word of a model's files or folders. Other listings are no models without weights."""
_SYSTEMD_SAID = re.compile(r"systemd(?:-\w+)?\[\d+\]: |\.service: ")
_VLLM_RECORD = re.compile(r"(?:\(\w+ pid=\d+\) )?(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d ")
_DATED = re.compile(r"\S{0,3}\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d")
_KERNEL = re.compile(r"\[ *\d+\.\d{6}\] |\S.{0,60} kernel: ")
_ALSO = (
    ("log", re.compile(r"server_args|Traceback|\bINFO\b|\bERROR\b|level=\w+|\d\d:\d\d:\d\d")),
    ("unit", _UNIT_WORDS),
    ("results", re.compile(r"throughput|tok(?:ens)?/s\b|req(?:uests)?/s\b|TTFT|\blatency\b", re.I)),
    (
        "ssh",
        re.compile(
            r"^(?:ssh|scp|kex_exchange|Permission denied|Connection (?:closed|reset))|: Permission denied",
            re.M,
        ),
    ),
    ("gpu", re.compile(r"nvidia-smi|NVIDIA-SMI|\bGPU \d+:|NVRM|MiB /|, \[?N/A")),
    ("sse", re.compile(r"^data: |^< HTTP/|\"choices\"", re.M)),
    ("model", re.compile(r"\.(?:safetensors|gguf)\b|config\.json")),
)


def could_be(text: str, taken: str) -> tuple[str, ...]:
    """The other kinds of which a text has signs, when it was taken for `taken`."""
    return tuple(kind for kind, rule in _ALSO if kind != taken and rule.search(text))


def _is_gpu(head: bytes) -> bool:
    try:
        diagnose_gpu({"input": head})
    except ValueError:
        return False
    return True


def _json_kind(text: str) -> str | None:
    first = text.splitlines()[0] if text.startswith("{") else text
    for candidate in (text, first):
        try:
            value: Any = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return _value_kind(value)
    keys = set(re.findall(r'"([A-Za-z_]{2,60})"\s*:', text[:20_000]))
    if "MESSAGE" in keys or "__CURSOR" in keys:
        return "unit" if _only_systemd(text) else "log"
    return "results" if len(keys & _RESULT_KEYS) >= 1 and "choices" not in keys else None


_ERROR_KEYS = {
    "error",
    "object",
    "code",
    "message",
    "type",
    "param",
    "detail",
    "error_type",
    "status",
    "statusCode",
} | {"path", "timestamp", "request_id", "errors"}


def _value_kind(value: Any) -> str | None:
    if isinstance(value, list):
        value = value[0] if value else {}
    if not isinstance(value, dict):
        return None
    keys = set(value) | set(value["metrics"] if isinstance(value.get("metrics"), dict) else ())
    if keys & {"MESSAGE", "__CURSOR", "_SYSTEMD_UNIT"}:
        return "unit" if value.get("SYSLOG_IDENTIFIER") == "systemd" or "JOB_RESULT" in keys else "log"
    if keys & {"choices", "timings"} or ({"model", "created_at"} <= keys and keys & {"message", "response"}):
        return "sse"  # the last: ollama's own stream
    if keys <= _ERROR_KEYS and (keys & {"error", "detail"} or value.get("object") == "error"):
        return "sse"  # the body of a response that is an error
    if keys & {"level", "levelname", "severity", "lvl"} and keys & {"message", "msg", "event", "fields"}:
        return "log"  # structured logging
    if keys & _RESULT_KEYS or any(isinstance(k, str) and ("ttft" in k or "throughput" in k) for k in keys):
        return "results"
    return None


def _only_systemd(text: str) -> bool:
    names = re.findall(r'"SYSLOG_IDENTIFIER"\s*:\s*"([^"]{1,80})"', text)
    return bool(names) and all(name == "systemd" for name in names)
