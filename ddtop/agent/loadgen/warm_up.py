"""Warm-up requests before a cell's window, and the fields of the request that a server refuses: they are left out."""

from __future__ import annotations

from typing import Any, Callable, Dict

from .request_builder import RequestBuilder
from .spec import LoadSpec
from .window.shards import run_shards

Tell = Callable[[Dict[str, Any]], None]


def small_spec(spec: LoadSpec, **changes: Any) -> LoadSpec:
    fields = dict(vars(spec))
    fields.update(
        mode="closed",
        connections="keep-alive",
        processes=1,
        keep_texts=False,
        gpus="none",
        slo={},
        share=0.0,
        warmup=0,
        min_window_s=0.0,
        think_ms=0.0,
    )
    fields.update(changes)
    return LoadSpec(**fields)


def open_only(tell: Callable[[dict[str, Any]], None] | None) -> Callable[[dict[str, Any]], None] | None:
    """Progress of requests beside the window: what is open and what arrived, for whoever watches the server. How many
    are done is the window's alone."""
    if tell is None:
        return None
    return lambda one: tell({"in_flight": one["in_flight"], "chunks": one["chunks"]})


def warm_up(
    spec: LoadSpec,
    builder: RequestBuilder,
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[dict[str, Any], RequestBuilder]:
    """Warm-up requests, apart from the result. A server that refuses a field of the request (400, 422) is asked without
    it: stream_options, ignore_eos, max_tokens. What was given up is said."""
    given_up: list[str] = []
    usage = builder.usage
    count = 1 if spec.warmup == "handover" else spec.warmup
    while True:
        streams = min(spec.concurrency, count)
        small = small_spec(spec, requests=count, concurrency=streams, usage=usage, turns=1)
        if spec.nonce:
            small.nonce = spec.nonce + "/warm-up"
        out = run_shards(
            small,
            builder.like(small, usage),
            list(range(count)),
            on_progress=open_only(tell),
        )
        refused = [one for one in out["requests"] if one["class"] in ("http 400", "http 422")]
        step = _give_up(refused[0].get("why", ""), usage, spec) if refused else ""
        if not step:
            break
        given_up.append(step)
        if step == "continuous_usage_stats":
            usage = "final"
        elif step == "stream_options":
            usage = "none"
        elif step == "ignore_eos":
            spec.exact_tokens = False
        else:
            spec.max_tokens_key = "max_completion_tokens"
    classes: dict[str, int] = {}
    for one in out["requests"]:
        classes[one["class"]] = classes.get(one["class"], 0) + 1
    about: dict[str, Any] = {"requests": len(out["requests"]), "classes": classes}
    if given_up:
        about["given_up"] = given_up
    why = [one["why"] for one in out["requests"] if "why" in one]
    if why:
        about["why"] = why[0]
    if out["error"]:
        about["error"] = out["error"]
    return about, builder.like(spec, usage)


def _give_up(why: str, usage: str, spec: LoadSpec) -> str:
    """Which field of the request a refusal names, or "" if none that can be left out."""
    if "stream_options" in why or "continuous_usage" in why:
        return {"each": "continuous_usage_stats", "final": "stream_options"}.get(usage, "")
    if "ignore_eos" in why and spec.exact_tokens:
        return "ignore_eos"
    if "max_completion_tokens" in why and spec.max_tokens_key == "max_tokens":
        return "max_tokens"
    return ""
