"""`ddtop bench URL`: one measurement of any endpoint from this machine, without a plan, a host or a tokenizer.

Returns data in the shape that docs/measuring.md fixes; `render.bench_text` makes plain text of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.spec import ENDPOINTS
from ddtop.bench.figures.metrics import Slo
from ddtop.bench.judge.cell import CellJudgement, judge_cell, judgement
from ddtop.bench.search import (
    EXPECTED,
    Point,
    Tried,
    as_tried,
    attained,
    bracket,
    next_point,
    point_load,
    verdict_on,
)
from ddtop.events import Search

SCHEMA = 1
LINK_WORDS = (
    "Network is unreachable",
    "No route to host",
    "Name or service not known",
    "Temporary failure in name",
)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What `ddtop bench` was asked. `requests` 0 = 8 for each stream; `rate` > 0 = open loop; `random_input` > 0 = that
    many tokens of random words as prompt; `ramp` = find the knee up to `concurrency` streams, or up to `rate`, at which
    `share` of the requests meet `slo` (without one: at which the throughput grows no more), and measure it for
    `confirm_s`; `min_window_s` holds unless `requests` are named, or in a ramp; `keep_texts` = judge the
    answers too (one word repeated is garbage; off, because stand-in servers send just that)."""

    url: str
    concurrency: int = 1
    requests: int = 0
    rate: float = 0.0
    arrival: str = "poisson"
    output_tokens: int = 128
    exact_tokens: bool = True
    prompts: tuple[Any, ...] = ()
    random_input: int = 0
    context: int = 0
    slo: Slo | None = None
    ramp: bool = False
    share: float = 0.95
    confirm_s: float = 60.0
    model: str = ""
    endpoint: str = ""
    engine: str = ""
    api_key_env: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    tls_verify: bool = True
    connections: str = "keep-alive"
    nonce: bool = True
    warmup: int | str = "handover"
    min_window_s: float = 10.0
    request_timeout_s: float = 600.0
    time_limit_s: float = 600.0
    keep_texts: bool = False
    progress: Callable[[dict[str, Any]], None] | None = None


def split_url(url: str) -> tuple[str, str]:
    """(base URL, endpoint or "") of what a person types: host:port, a base with /v1, or a whole endpoint."""
    if "://" not in url:
        url = "http://" + url
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for name, tail in ENDPOINTS.items():
        if path.endswith(tail):
            return urlunsplit((parts.scheme, parts.netloc, path[: -len(tail)], "", "")), name
    if path.endswith("/v1"):
        path = path[:-3]
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), ""


def load_spec_of(options: BenchOptions, concurrency: int) -> dict[str, Any]:
    """The load spec of one measurement."""
    base, endpoint = split_url(options.url)
    spec: dict[str, Any] = {
        "id": "bench",
        "url": base,
        "endpoint": options.endpoint or endpoint or "chat",
        "model": options.model,
        "engine": options.engine,
        "api_key_env": options.api_key_env,
        "headers": dict(options.headers),
        "tls_verify": options.tls_verify,
        "concurrency": concurrency,
        "requests": options.requests or 8 * concurrency,
        "output_tokens": options.output_tokens,
        "exact_tokens": options.exact_tokens,
        "connections": options.connections,
        "warmup": options.warmup,
        "min_window_s": 0.0
        if options.requests or options.ramp
        else min(options.min_window_s, options.time_limit_s / 4),  # the limit holds the warm-up too
        "request_timeout_s": options.request_timeout_s,
        "time_limit_s": options.time_limit_s,
        "keep_texts": options.keep_texts,
        "context": options.context,
        # a fresh seed each time: an earlier run of the same prompts must not be answered from the prefix cache
        "nonce": secrets.token_hex(8) if options.nonce else "",
        "gpus": "none",
    }
    if not options.engine:  # whatever engine it is, these counters give its acceptance length, if it has them
        spec["metrics_url"] = "/metrics"
    if options.prompts:
        spec["prompts"] = list(options.prompts)
    if options.random_input:
        spec.update(prompts=["Continue."], context=options.random_input, context_kind="random")
    if options.rate > 0:
        spec.update(mode="open", rate=options.rate, arrival=options.arrival)
    return spec


def run_bench(options: BenchOptions) -> dict[str, Any]:
    """Measure; returns {schema, url, validity, reasons, details, metrics, client, …}; with `ramp` also {steps, knee}.
    Never raises for what the endpoint does; a wrong option is in `reasons` as wrong-spec."""
    if not options.ramp:
        return _one(options)
    search = search_of(options)
    steps: list[Tried] = []
    results: list[dict[str, Any]] = []
    seed = secrets.token_hex(8) if options.nonce else ""
    while (point := next_point(steps, search)) is not None:
        result = _one(options, point, point_load(search, point, steps, seed))
        verdict = verdict_on(result["validity"], result["reasons"], result["metrics"], point, steps, search)
        slo = attained(result["metrics"], verdict or "failed")
        results.append({**result, "verdict": verdict or "failed", "within": slo})
        if verdict is None:  # spoiled: nothing that follows could be believed
            break
        steps.append(as_tried(point, verdict, result["metrics"], slo))
    known = bracket(steps, search)
    at_knee = [r for s, r in zip(steps, results, strict=False) if s.load == known.low]
    best = at_knee[-1] if at_knee else results[-1]  # the last one is the confirmation
    return {
        **{key: value for key, value in best.items() if key not in ("verdict", "within", "confirm")},
        "knee": (int(known.low) if search.by == "concurrency" else known.low) if known.low else None,
        "knee_above": known.high is None and known.low is not None,
        "search": {"by": search.by, "objective": search.limits, "confirmed": known.confirmed},
        "steps": [_step_json(r) for r in results],
    }


def search_of(options: BenchOptions) -> Search:
    """The search that `--ramp` is."""
    limits = options.slo.limits if options.slo is not None else {}
    most = options.rate if options.rate > 0 else float(options.concurrency)
    return Search(
        by="rate" if options.rate > 0 else "concurrency",
        slo=limits,
        share=options.share,
        start=min(1.0, most),
        most=most,
        point_s=min(60.0, options.time_limit_s),
        confirm_s=min(options.confirm_s, options.time_limit_s / 2),
    )


def _step_json(result: Mapping[str, Any]) -> dict[str, Any]:
    metrics = result["metrics"]
    slo = result["within"]
    return {
        "concurrency": result["concurrency"] if not result.get("rate") else None,
        "rate": result.get("rate"),
        "confirm": result["confirm"],
        "verdict": result["verdict"],
        "attained": slo.get("attained"),
        "n": slo.get("n"),
        "output_tok_s": metrics.get("output_tok_s"),
        "goodput_share": metrics.get("goodput_share"),
        "validity": result["validity"],
    }


def _one(
    options: BenchOptions, point: Point | None = None, load: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One measurement; `point` and `load`: of a search."""
    spec = load_spec_of(options, options.concurrency) | dict(load or {})
    if options.slo is None and spec.get("mode") == "closed":  # without limits a load is measured whole
        spec["requests"] = options.requests or 8 * spec["concurrency"]
    tell, words = options.progress, f"{point.load:g}" if point is not None else str(options.concurrency)
    raw = run_cell(spec, None if tell is None else lambda more: tell({"load": words, **more}))
    lost = link_lost(raw)
    judged = judge_cell(raw, slo=options.slo, spec={"link_lost": lost} if lost else None)
    if point is not None and not point.confirm:
        judged = judgement({k: v for k, v in judged.details.items() if k not in EXPECTED}, judged.metrics)
    out = bench_json(options, spec, raw, judged)
    return out if point is None else {**out, "confirm": point.confirm}


def link_lost(raw: Mapping[str, Any]) -> str:
    """Why the link (not the server) failed most requests, or "". Only where the load left this machine."""
    if not raw.get("network_included"):
        return ""
    records = raw.get("requests") or []
    if not records and any(word in str(raw.get("error", "")) for word in LINK_WORDS):
        return str(raw["error"])
    bad = [r["why"] for r in records if any(word in r.get("why", "") for word in LINK_WORDS)]
    return f"{len(bad)} of {len(records)} requests: {bad[0]}" if bad and len(bad) * 2 >= len(records) else ""


def bench_json(
    options: BenchOptions, spec: Mapping[str, Any], raw: Mapping[str, Any], judged: CellJudgement
) -> dict[str, Any]:
    """The `--json` object of one measurement."""
    metrics = dict(judged.metrics)
    client = metrics.pop("client", {})
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "url": options.url,
        "model": raw.get("model"),
        "endpoint": spec["endpoint"],
        "concurrency": spec["concurrency"],
        "requests": spec["requests"],
        "output_tokens": spec["output_tokens"],
        "rate": spec.get("rate"),
        "validity": judged.validity,
        "reasons": list(judged.reasons),
        "details": judged.details,
        "metrics": metrics,
        "client": client,
        "started_at_s": raw.get("started_at_s"),
    }
    given_up = (raw.get("warmup") or {}).get("given_up")
    if given_up:
        out["given_up"] = given_up
    if raw.get("error"):
        out["error"] = raw["error"]
    return {key: value for key, value in out.items() if value is not None}


def exit_code(result: Mapping[str, Any]) -> int:
    """0 VALID, 10 SUSPECT or INVALID."""
    return 0 if result["validity"] == "VALID" else 10
