"""Measuring one cell: flush, warm-up, counters, the timed window, counters; its result is one JSON object."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from typing import Any, Callable
from urllib.parse import urlsplit

from .engine_calls import METRICS_PATH, AskError, ask, flush_cache, read_counters
from .fitting import build
from .machine import pressure
from .machine.gpu import GpuSampler
from .records import served, slim, token_bins
from .request_builder import RequestBuilder
from .spec import SCHEMA, LoadSpec, SpecError, load_spec
from .warm_up import Tell, open_only, small_spec, warm_up
from .window.shards import process_count, run_shards
from .window.slo import slo_result


def run_cell(data: dict[str, Any], report: Tell | None = None) -> dict[str, Any]:
    """Measure one cell: flush, warm up, counters, the window, counters. Returns its result (see docs/measuring.md);
    what went wrong outside the requests is in "error"."""
    tell: Tell = report or (lambda _: None)
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "cell": str(data.get("id", "cell")),
        "started_at_s": time.time(),
    }
    try:
        spec = load_spec(data)
        result["spec"] = public_spec(data)
        _measure(spec, result, tell)
    except SpecError as error:
        result["error"] = "the load spec is wrong: %s" % error
        result["error_kind"] = "spec"
    except OSError as error:
        result["error"] = "%s: %s" % (data.get("url", "?"), error)
        result["error_kind"] = "host"
    result["ended_at_s"] = time.time()
    return result


def public_spec(data: dict[str, Any]) -> dict[str, Any]:
    """The spec as it may be written down: prompts by hash and number, header values left out."""
    out = {key: value for key, value in data.items() if key not in ("prompts", "headers")}
    prompts = data.get("prompts") or []
    out["prompts_n"] = len(prompts)
    out["prompts_sha256"] = hashlib.sha256(json.dumps(prompts, sort_keys=True).encode()).hexdigest()
    if data.get("headers"):
        out["header_names"] = sorted(data["headers"])
    return out


def base_url(spec: LoadSpec) -> str:
    """Where the engine's own endpoints are: the URL without a trailing /v1."""
    parts = urlsplit(spec.url)
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        path = path[:-3]
    return "%s://%s%s" % (parts.scheme, parts.netloc, path)


def _measure(spec: LoadSpec, result: dict[str, Any], tell: Tell) -> None:
    key = os.environ.get(spec.api_key_env, "") if spec.api_key_env else ""
    if spec.api_key_env and not key:
        raise SpecError("api_key_env: the environment has no %s here" % spec.api_key_env)
    headers = dict(spec.headers)
    if key:
        headers["Authorization"] = "Bearer %s" % key
    base = base_url(spec)
    if not spec.model and spec.kind != "generate":
        spec.model = find_model(base, headers, spec.tls_verify)
    result["model"] = spec.model
    builder = build(spec, (base, headers, key), result, tell)
    raise_file_limit()
    if spec.warmup:  # with a hand-over one request, to learn what the server refuses
        tell({"phase": "warming up"})
        result["warmup"], builder = warm_up(spec, builder, tell)
    result["usage_asked"] = builder.usage
    if spec.flush_cache:
        result["flush"] = flush_cache(spec.engine, base, headers, spec.tls_verify)
    path = METRICS_PATH.get(spec.engine, "") if spec.metrics_url == "auto" else spec.metrics_url
    counters: dict[str, Any] = {}
    if path:
        first = "start" if spec.warmup == "handover" else "before"
        counters[first] = read_counters(base, path, headers, spec.tls_verify)
    _window(spec, builder, result, tell, (base, path, headers), counters)
    if counters:
        result["counters"] = counters
    if spec.again and spec.keep_texts and not result["window"]["stopped"] and not result.get("error"):
        tell({"phase": "asking again"})
        result["texts_again"] = _ask_again(spec, builder, result["window"]["wall_s"], tell)


def _ask_again(spec: LoadSpec, asked: RequestBuilder, wall_s: float, tell: Tell) -> dict[str, Any]:
    """The responses to the window's first requests, asked once more in batches of another size than before. It may take
    as long as the window (of which one request is a part); what is not whole by then is left out."""
    count = min(-(-spec.again // asked.turns), spec.conversations)
    small = small_spec(
        spec,
        requests=count * asked.turns,
        concurrency=min(count, other_batch(spec.concurrency if spec.mode == "closed" else 1)),
        usage=asked.usage,
        time_limit_s=min(spec.time_limit_s, max(30.0, wall_s)),
    )
    small.keep_texts = True
    out = run_shards(small, asked.like(small), list(range(count)), on_progress=open_only(tell))
    whole = {str(one["i"]) for one in out["requests"] if one["class"] == "ok"}
    return {index: texts for index, texts in out["texts"].items() if index in whole}


def other_batch(streams: int) -> int:
    """How many requests at once make a batch of another size, without more of them than the load itself had: a larger
    one changes the server for the cells that follow (llama.cpp on an H200: four streams gave half after eight)."""
    return streams // 2 if streams > 1 else 2


def with_groups(records: list[dict[str, Any]], builder: RequestBuilder) -> list[dict[str, Any]]:
    """Each record with the group of its prompt, where the prompts name any."""
    if any(isinstance(prompt, dict) and prompt.get("group") for prompt in builder.spec.prompts):
        for record in records:
            prompt = builder.prompt(record["i"])
            if isinstance(prompt, dict) and prompt.get("group"):
                record["group"] = str(prompt["group"])
    return records


def _window(
    spec: LoadSpec,
    builder: RequestBuilder,
    result: dict[str, Any],
    tell: Tell,
    engine: tuple[str, str, dict[str, str]],
    counters: dict[str, Any],
) -> None:
    sampler = GpuSampler(spec.gpus, spec.gpu_ms)
    pids = pressure.descendants(spec.server_pids)
    marks: dict[str, Any] = {}

    asking: list[threading.Thread] = []
    at_zero: list[dict[str, Any]] = []

    def counted() -> dict[str, Any]:
        return read_counters(engine[0], engine[1], engine[2], spec.tls_verify)

    def at_start() -> None:
        marks["energy0"], marks["energy0_ns"] = sampler.energy_mj(), time.monotonic_ns()
        marks["before"] = pressure.snapshot(pids)
        if "start" in counters:  # the load runs already, and a busy server may take its time
            asking.append(threading.Thread(target=lambda: at_zero.append(counted()), daemon=True))
            asking[0].start()

    def at_close() -> None:
        marks["energy1"], marks["energy1_ns"] = sampler.energy_mj(), time.monotonic_ns()
        marks["after"] = pressure.snapshot(pids)

    def at_end() -> None:
        if engine[1]:
            counters["after"] = beside(counted, sampler)

    processes = process_count(spec, os.cpu_count() or 1)
    sampler.start()
    try:
        tell({"phase": "running"})
        out = run_shards(
            spec,
            builder,
            list(range(spec.conversations)),
            processes=processes,
            on_progress=lambda one: tell(dict(one)),
            on_start=at_start,
            on_close=at_close,
            on_end=at_end,
            extra={sampler.fd: sampler.readable} if sampler.fd >= 0 else {},
        )
    finally:
        sampler.stop()
    for thread in asking:
        thread.join(1.0)
    if at_zero or "start" in counters:  # a window that never began has the counters of the start
        counters["before"] = at_zero[0] if at_zero else counters["start"]
    zero = out["zero_ns"]
    wall_s = (out["close_ns"] - zero) / 1e9
    result["window"] = {"zero_mono_ns": zero, "wall_s": wall_s, "stopped": out["stopped"]}
    result["requests"] = with_groups(out["requests"], builder)
    result["bins"] = token_bins([*out["burst"], *out["requests"]])
    if out["handover"]:
        result["window"]["drained_s"] = (out["end_ns"] - zero) / 1e9
        result["window"].update(served([*out["burst"], *out["requests"]], out["close_ns"] - zero))
        result["handover"] = out["handover"]
        result["burst"] = [slim(record) for record in out["burst"]]
    if spec.keep_texts:
        result["texts"] = out["texts"]
    result["clients"] = out["clients"]
    if spec.slo:
        result["slo"] = slo_result(spec, *out["slo"])
    result["network_included"] = not spec.loopback
    if out["error"]:
        result["error"], result["error_kind"] = out["error"], "generator"
    if "before" in marks and "after" in marks:
        result["pressure"] = pressure.difference(marks["before"], marks["after"], wall_s)
    gpu: dict[str, Any] = {"gpus": sampler.static}
    if sampler.error:
        gpu["error"] = sampler.error
    if marks.get("energy0") and marks.get("energy1"):
        gpu["energy"] = {
            "mj": {name: marks["energy1"][name] - start for name, start in marks["energy0"].items()},
            "span_s": (marks["energy1_ns"] - marks["energy0_ns"]) / 1e9,
        }
    result["gpu"] = gpu
    result["gpu_samples"] = [{**sample, "t": sample["t"] - zero} for sample in sampler.samples]


def beside(ask: Callable[[], dict[str, Any]], sampler: GpuSampler) -> dict[str, Any]:
    """What `ask` returns, while the sampler is read on: its readings are stamped as they are read, and a server that
    hangs keeps us waiting for seconds."""
    got: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: got.append(ask()), daemon=True)
    asking.start()
    while asking.is_alive():
        sampler.readable()
        asking.join(0.05)
    return got[0] if got else {"error": "the question for the counters failed"}


def find_model(base: str, headers: dict[str, str], verify: bool) -> str:
    """The name of the first model that /v1/models lists; "" where there is none (many servers need none)."""
    try:
        status, body = ask(base + "/v1/models", headers=headers, verify=verify)
        answer = json.loads(body.decode("utf-8", "replace"))
        if status == 200 and answer["data"]:
            return str(answer["data"][0]["id"])
    except (AskError, ValueError, LookupError, TypeError):
        pass
    return ""


def raise_file_limit() -> None:
    """One file descriptor for each stream: take what the hard limit allows."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        want = 65536 if hard == resource.RLIM_INFINITY else hard
        if soft < want:
            resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
    except (ImportError, OSError, ValueError):
        pass
