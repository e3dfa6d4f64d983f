"""The numbers of a log, as fields of the result of `diagnose_log`. A number that is not logged is absent, never 0."""

from __future__ import annotations

import re
from typing import Any

from ddtop.engines.log.line_prefix import iso_time
from ddtop.sources.kernel.log_lines import parse_kernel_line
from ddtop.sources.log.file_lines import ReadLog
from ddtop.sources.log.scan_snapshot import Hit, ScanSnapshot
from ddtop.sources.log.tracebacks import Raised

_MIB = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0, "TiB": 1024.0 * 1024}
_QUOTED = re.compile(r"['\"`](~?/[^'\"`\s]{1,400})['\"`]")
_COMPONENT = re.compile(
    r"flashinfer|deep_?gemm|triton|torch|sgl[_-]kernel|vllm|flash_?attn|cutlass", re.IGNORECASE
)
_ARGS_KEPT = (
    "model_path",
    "model",
    "served_model_name",
    "port",
    "host",
    "tp_size",
    "tensor_parallel_size",
    "dp_size",
    "pp_size",
    "mem_fraction_static",
    "gpu_memory_utilization",
    "context_length",
    "max_model_len",
    "watchdog_timeout",
    "random_seed",
    "max_running_requests",
    "chunked_prefill_size",
    "attention_backend",
    "quantization",
    "kv_cache_dtype",
)


_PORT_FACTS = ("http.uvicorn", "http.starting", "http.listening", "http.listening-early")


def mib(text: str | None) -> float | None:
    """`448.00 MiB` → 448.0; None for nothing."""
    match = re.match(r"([\d.]+) ?([KMGT]iB)", text or "")
    try:
        return float(match[1]) * _MIB[match[2]] if match else None
    except ValueError:
        return None


def _natural(rank: str) -> list[tuple[str, int]]:
    """Sort key under which TP2 comes before TP10."""
    return [(name, int(number)) for name, number in re.findall(r"([A-Za-z]+)(\d{1,9})", rank)]


def _put(into: dict[str, Any], key: str, value: Any) -> None:
    if value is not None and value != "":
        into[key] = (
            int(value)
            if isinstance(value, float) and value.is_integer() and key.endswith(("_s", "_n"))
            else value
        )


def log_fields(
    read: ReadLog, scan: ScanSnapshot, hit: Hit | None, raised: Raised | None, slug: str
) -> dict[str, Any]:
    """All fields that the scan of one log gives, beside verdict, cause and evidence."""
    found: dict[str, Any] = {}
    _numbers(found, scan)
    _bars(found, scan, slug)
    _args(found, scan)
    _hit(found, scan, hit, raised)
    failed_at = hit.number if hit is not None else (raised.line if raised is not None else 0)
    if failed_at and 0 < scan.http_ok_number < failed_at:
        found["http_200_before_failure"] = True
    if raised is not None and read.journal:
        _journal_traceback(found, read, scan, raised)
    if read.invalid_utf8:
        found["bytes_invalid_utf8"] = True
    if read.null_messages:
        found["null_messages"] = read.null_messages
    if read.blob_lines:
        found["_blobs"] = read.blob_lines
    if scan.previous:
        found["previous_runs"] = list(scan.previous)
    if scan.ready:
        _put(found, "ready_line", scan.ready_number or None)
    if slug == "workers-not-answering":
        repeats = scan.waiting
        found["repeats"] = repeats
        _put(found, "silent_since_s", repeats * int(float((hit.groups.get("s") if hit else None) or 60)))
    return found


def _numbers(found: dict[str, Any], scan: ScanSnapshot) -> None:
    facts = scan.facts

    def value(key: str, name: str) -> Any:
        fact = facts.get(key)
        return fact.values.get(name) if fact else None

    if scan.ranks:
        began = scan.began.get("init-begin", ())
        waiting = bool(began) and "init-end" not in scan.began and scan.phase == "init"
        ranks = [r for r in scan.ranks if not r.startswith("gpu")]
        found["ranks_seen"] = len(began) if waiting else sorted(ranks, key=_natural)
        found["ranks"] = sorted(ranks, key=_natural)
    _put(found, "max_total_num_tokens", value("sched.ready", "tok"))
    _put(found, "context_len", value("sched.ready", "ctx"))
    _put(found, "kv_tokens", value("kv.allocated", "tok"))
    load_end = facts.get("load.end")
    if load_end is not None:
        if load_end.engine == "vllm":
            _put(found, "model_mem_gib", load_end.values.get("gb"))
            if (s := load_end.values.get("s")) is not None:
                found["model_load_s"] = s
        else:
            _put(found, "weights_gb", load_end.values.get("gb"))
            if (s := load_end.values.get("s")) is not None:
                found["weights_s"] = s
    _put(found, "draft_weights_gb", value("load.end-draft", "gb"))
    if (s := value("load.weights", "s")) is not None:
        found["weights_s"] = s
    sched = facts.get("sched.ready")
    if sched is not None and sched.engine == "vllm":
        if (s := sched.values.get("s")) is not None:
            found["engine_init_s"] = s
        if (s := sched.values.get("compile_s")) is not None:
            found["compile_s"] = s
    if (s := value("compile.end", "s")) is not None:
        found["compile_s"] = s
    if (s := value("capture.end", "s")) is not None:
        found["capture_s"] = s
    _put(found, "graph_addresses", value("capture.addresses", "addresses"))
    _put(found, "nccl_version", value("init.nccl", "version"))
    _put(found, "kernel", value("jit.kernel", "kernel"))
    if (high := value("jit.begin", "min_high")) is not None:
        found["silence_limit_s"] = int(high) * 60
    jit = facts.get("jit.kernel") or facts.get("jit.begin")
    if jit is not None and jit.rank:
        found["rank"] = jit.rank
    if scan.first_glued is not None:
        _put(found, "glued_record_time", iso_time(scan.first_glued.time))
    gap = scan.init_gap_s
    if gap is not None:
        found["gap_before_nccl_line_s"] = int(gap) if float(gap).is_integer() else gap


def _bars(found: dict[str, Any], scan: ScanSnapshot, slug: str) -> None:
    bars = list(scan.bars.values())
    loads = [b for b in bars if b.phase == "load" and b.of]
    if loads:
        found["shards_done"], found["shards_total"] = loads[-1].n, loads[-1].of
    last = bars[-1] if bars else None
    if last is not None:
        found["progress_pct"] = last.pct
        if last.of is not None:
            found["done"], found["total"] = last.n, last.of
        found["segments"] = last.segments
        if last.eta_s is not None and last.pct < 100:
            found["eta_s"] = last.eta_s


def _args(found: dict[str, Any], scan: ScanSnapshot) -> None:
    args = scan.server_args
    ports = [scan.facts[key].values.get("port") for key in _PORT_FACTS if key in scan.facts]
    if not args:
        _put(found, "port", next((port for port in ports if port), None))
        return
    for key in _ARGS_KEPT:
        if key in args and args[key] is not None:
            found.setdefault(key, args[key])
    speculative = {k: v for k, v in args.items() if k.startswith("speculative_") and v is not None}
    algorithm = (
        args.get("speculative_algorithm") or args.get("speculative_config") or args.get("speculative_model")
    )
    found["speculative"] = bool(algorithm)
    if algorithm:
        found["speculative_args"] = speculative
    found["args_whole"] = scan.args_whole


def _hit(found: dict[str, Any], scan: ScanSnapshot, hit: Hit | None, raised: Raised | None) -> None:
    if raised is not None and raised.name:
        found["exception"] = raised.name
        found["root_exception"] = raised.name
    if raised is not None and raised.rank:
        found["failing_rank"] = raised.rank
    if hit is None:
        return
    groups = hit.groups
    if hit.rank:
        found.setdefault("failing_rank", hit.rank)
    if hit.signature == "oom-foreign":
        _put(found, "holder_pid", int(groups["pid"]))
        held = mib(groups.get("mem"))
        _put(found, "held_gib", held / 1024 if held is not None else None)
    if "oom" in hit.signature:
        _put(found, "gpu", int(groups["gpu"]) if groups.get("gpu", "").isdecimal() else None)
        _put(found, "tried_mib", mib(groups.get("want")))
        capacity = mib(groups.get("capacity"))
        _put(found, "capacity_gib", capacity / 1024 if capacity is not None else None)
    if hit.signature == "vllm-free-mem":
        for key in ("free", "total", "wanted"):
            found[f"{key}_gib"] = float(groups[key])
        found["fraction"] = float(groups["fraction"])
        found["held_gib"] = round(found["total_gib"] - found["free_gib"], 4)
        _put(found, "device", groups.get("device"))
    if hit.slug == "port-in-use":
        owner = next((h for h in scan.markers if h.signature == "port-used-by"), None)
        port = groups.get("port") or groups.get("port2") or (owner.groups.get("port") if owner else None)
        _put(found, "port", int(port) if port else None)
        pid = owner.groups.get("pid") if owner else None
        _put(found, "holder_pid", int(pid) if pid else None)
    if hit.signature in ("gloo-rank", "gloo-barrier"):
        ranks = {
            int(h.groups["r"])
            for h in scan.hits
            if h.signature == "gloo-rank" and h.groups.get("r", "").isdecimal()
        }
        if ranks:
            found["ranks_ok"] = sorted(ranks)
        blamed = {
            int(h.groups["r"])
            for h in scan.hits
            if h.signature == "gloo-barrier" and h.groups.get("r", "").isdecimal()
        }
        if blamed:
            found["ranks_blamed"] = sorted(blamed)
    if hit.slug == "permission-denied":
        _put(found, "path", groups.get("path"))
    if hit.slug in (
        "model-weights-missing",
        "model-path-missing",
        "tokenizer-missing",
        "model-config-damaged",
    ):
        path = next((groups[k] for k in ("path", "path2", "path3", "path4") if groups.get(k)), None)
        path = path or _quoted_path(scan, hit)
        _put(found, "path", path)
        _put(found, "missing_file", groups.get("file"))
    if hit.slug == "jit-build-failed":
        tool = groups.get("tool") or next(
            (t for t in ("ninja", "nvcc", "ptxas") if t in hit.text.lower()), None
        )
        _put(found, "build_tool", tool)
        component = _COMPONENT.search(hit.text) or next(
            (c for f in (raised.files if raised else ()) if (c := _COMPONENT.search(f))), None
        )
        _put(found, "component", component[0].lower() if component else None)
    for key in ("fit", "want"):
        if hit.signature == "vllm-kv-short" and groups.get(key, "").isdecimal():
            found["max_len_that_fits" if key == "fit" else "max_len_wanted"] = int(groups[key])
    if hit.engine == "kernel" and (kernel := parse_kernel_line(hit.text)) is not None:
        _put(found, "xid", kernel.code)
        _put(found, "bus", kernel.bus)
        _put(found, "kernel_meaning", kernel.meaning)
        if kernel.what == "oom-kill":
            _put(found, "killed_pid", kernel.pid)
            _put(found, "killed_comm", kernel.comm)
    if groups.get("rc", "").lstrip("-").isdecimal():
        found["child_exit_code"] = int(groups["rc"])
    if hit.signature == "spec-topk-overridden":
        _put(found, "overridden", groups.get("f"))


def _quoted_path(scan: ScanSnapshot, hit: Hit) -> str | None:
    """The folder that a message about a missing model quotes; a name of the hub is none."""
    texts = [hit.text, *(h.text for h in scan.hits if h.signature == hit.signature)]
    return next((m[1] for t in texts if (m := _QUOTED.search(t))), None)


def _journal_traceback(found: dict[str, Any], read: ReadLog, scan: ScanSnapshot, raised: Raised) -> None:
    """How many journal entries the failing process's tracebacks span, and how many of others lie between."""
    mine = [r for r in scan.raised if r.pid == raised.pid]
    if not mine or raised.pid is None:
        return
    first = mine[0].line
    last = max(r.last_line for r in mine)
    pids = [(number, pid) for number, pid in read.pids if first <= number <= last]
    own = [number for number, pid in pids if pid == raised.pid]
    found["traceback_entries"] = len(own)
    found["foreign_entries"] = sum(1 for number, pid in pids if pid != raised.pid)
