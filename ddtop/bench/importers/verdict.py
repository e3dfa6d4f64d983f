"""Can an imported result be trusted? One record → verdict, cause, severity, and the fields that survive. Pure."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ddtop.bench.importers.common import Fields
from ddtop.bench.judge.sanity import NOT_COMPARABLE, Figures, failed_share, found, speculates

PER_CHUNK_TOOLS = ("sglang", "vllm")
RATES = re.compile(r"(_tps|_ms|^rps|^effective_concurrency|^goodput_rps)$")

SERVER_CAUSES = (
    (
        "engine-dead",
        re.compile(r"EngineDeadError|EngineCore encountered an issue|Engine core proc .* died", re.I),
    ),
    ("cuda-oom", re.compile(r"CUDA out of memory|OutOfMemoryError", re.I)),
    ("cuda-error", re.compile(r"CUDA error|CUBLAS_STATUS_\w+|illegal memory access", re.I)),
    ("nccl-error", re.compile(r"NCCL (error|WARN)|ncclInternalError", re.I)),
    ("killed", re.compile(r"SIGQUIT received|Killed process|exitcode: -9", re.I)),
    ("port-in-use", re.compile(r"address already in use", re.I)),
    ("python-error", re.compile(r"^Traceback \(most recent call last\)", re.M)),
)


class Opinion(NamedTuple):
    """What a record amounts to; `fields` are those that may be used."""

    verdict: str
    cause: str
    severity: str
    fields: Fields
    why: str


def server_cause(log: str) -> str | None:
    """The first known cause in a server's log, or None."""
    found = [(match.start(), name) for name, pattern in SERVER_CAUSES if (match := pattern.search(log))]
    specific = [one for one in found if one[1] != "python-error"] or found
    return min(specific)[1] if specific else None


def judge_record(fields: Fields, planned: int | None = None) -> Opinion:
    """Judge one record; `planned`: how many requests the plan had, where the file does not say."""
    fields = dict(fields)
    planned = fields.get("requests_planned", planned)
    ok, failed = fields.get("requests_ok"), fields.get("requests_failed")
    if planned is not None:
        fields["requests_planned"] = planned
        if failed is None and ok is not None:
            failed = fields["requests_failed"] = max(0, planned - ok - fields.get("requests_incomplete", 0))
    tokens = fields.get("output_tokens") if ok is None else ok
    if found(Figures(tokens=tokens), "no-tokens"):
        kept = {key: value for key, value in fields.items() if not RATES.search(key) and key != "accept_len"}
        return Opinion(
            "failed",
            "no-request-completed",
            "error",
            kept,
            "no request completed: zeros are not a measurement",
        )
    fields, doubt = _believable(fields)
    incomplete = fields.get("requests_incomplete", 0)
    missing = (planned - ok - (failed or 0) - incomplete) if planned is not None and ok is not None else 0
    if failed or missing > 0 or fields.get("cancelled"):
        lost = (failed or 0) + max(0, missing)
        severity = "error" if failed_share(Figures(ok=ok, failed=lost)) > NOT_COMPARABLE else "warn"
        why = f"{lost} of {lost + (ok or 0)} requests failed or are missing"
        return Opinion("partial", "requests-failed-or-missing", severity, fields, why)
    if doubt:
        return Opinion("suspect", doubt[0], "warn", fields, doubt[1])
    return Opinion("ok", "complete", "info", fields, "all requests completed")


def _believable(fields: Fields) -> tuple[Fields, tuple[str, str] | None]:
    """Drop what is not a measurement and what counts chunks as tokens; (fields, (cause, why) or None)."""
    if fields.get("accept_len", 1.0) < 1.0:  # no step gives less than one token: -1 and 0 stand for "none"
        fields.pop("accept_len")
    for name in ("ttft", "tpot", "itl"):
        times = [key for key in fields if key.startswith(f"{name}_") and key.endswith("_ms")]
        if times and not any(
            fields[key] for key in times
        ):  # with one token a request there is no gap to time
            for key in times:
                fields.pop(key)
    tps = fields.get("output_tps")
    figures = Figures(
        output_tokens=fields.get("output_tokens"),
        output_tok_s=tps,
        peak_tok_s=fields.get("peak_output_tps"),
        retokenized_tokens=fields.get("retokenized_tokens"),
        itl_ms=_reported_itl_ms(fields),
        streams=_streams_for_gaps(fields),
    )
    doubts = found(figures, "tokens-not-visible", "peak-below-mean", "chunks-as-tokens")
    if "tokens-not-visible" in doubts:
        return fields, ("tokens-not-visible-to-client", doubts["tokens-not-visible"])
    doubt: tuple[str, str] | None = None
    if "peak-below-mean" in doubts:
        fields["peak_reported"] = fields.pop("peak_output_tps")
        doubt = ("chunks-counted-as-tokens", doubts["peak-below-mean"])
    speculative = fields.get("tool") == "vllm" and speculates(fields.get("accept_len", 1.0))
    if doubt or speculative or "chunks-as-tokens" in doubts:
        itl = {key: fields.pop(key) for key in list(fields) if key.startswith("itl_")}
        if itl:
            fields["itl_reported"] = itl.get("itl_p50_ms", itl.get("itl_mean_ms"))
            streams = _streams(fields) or 1
            if tps:
                fields["itl_from_throughput"] = 1e3 * streams / tps
            doubt = doubt or (
                "chunks-counted-as-tokens",
                "ITL times throughput is more than the streams allow",
            )
    return fields, doubt


def _streams(fields: Fields) -> float | None:
    for name in ("concurrency", "effective_concurrency", "max_concurrency"):
        if fields.get(name):
            return float(fields[name])
    if fields.get("rps") and fields.get("e2e_mean_ms"):
        return float(fields["rps"]) * float(fields["e2e_mean_ms"]) / 1e3
    return None


def _reported_itl_ms(fields: Fields) -> float | None:
    """The ITL of a tool that may report the gaps between chunks under this name."""
    itl = fields.get("itl_p50_ms", fields.get("itl_mean_ms"))
    return float(itl) if itl is not None and fields.get("tool") in PER_CHUNK_TOOLS else None


def _streams_for_gaps(fields: Fields) -> float | None:
    """Streams at a time. A bare excerpt does not say how many: one, unless it names requests or a rate."""
    streams = _streams(fields)
    if streams is None and "requests_ok" not in fields and "request_rate" not in fields:
        return 1.0
    return streams


def advice(cause: str) -> str:
    """What to do about a cause."""
    words: dict[str, Any] = {
        "complete": "nothing to do",
        "requests-failed-or-missing": "do not compare it; read the errors and run it again",
        "no-request-completed": "read the server's log: an error there means that the configuration is broken",
        "tokens-not-visible-to-client": "use throughput only: a parser held the text back",
        "chunks-counted-as-tokens": "use throughput and TPOT; per-chunk figures were dropped",
        "last-line-truncated": "keep the complete lines; run the truncated cell again",
        "not-a-result": "give a result file of a tool that ddtop reads (docs/diagnosis.md)",
    }
    return str(words.get(cause, "see the evidence"))
