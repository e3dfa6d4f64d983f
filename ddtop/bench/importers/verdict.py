"""Can an imported result be trusted? One record → verdict, cause, severity, and the fields that survive. Pure."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ddtop.bench.importers.common import STATS, Fields
from ddtop.bench.importers.needs import not_read
from ddtop.bench.importers.stating import DOUBTS, IMPOSSIBLE, stated, streams
from ddtop.bench.judge.sanity import NOT_COMPARABLE, Figures, failed_share, found, speculates

RATES = re.compile(r"(_tps|_ms|^rps|^effective_concurrency|^goodput_rps)$")
NO_OUTPUT = re.compile(r"embed|rerank|pooling|classif|score|reward", re.I)
"""Backends and endpoints that answer without tokens, by nature."""
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
    """What a record amounts to; `fields` are those that may be used, `usable` whether it may be compared."""

    verdict: str
    cause: str
    severity: str
    fields: Fields
    why: str
    usable: bool = True


def server_cause(log: str) -> str | None:
    """The first known cause in a server's log, or None."""
    found = [(match.start(), name) for name, pattern in SERVER_CAUSES if (match := pattern.search(log))]
    specific = [one for one in found if one[1] != "python-error"] or found
    return min(specific)[1] if specific else None


def judge_record(fields: Fields, planned: int | None = None) -> Opinion:
    """Judge one record; `planned`: how many requests the plan had, where the file does not say."""
    fields = dict(fields)
    inferred = fields.pop("planned_before", None)
    sent = planned if planned is not None else inferred
    guessed = planned is None and inferred is not None and "requests_planned" not in fields
    planned = fields.get("requests_planned", sent)
    ok, failed = fields.get("requests_ok"), fields.get("requests_failed")
    if planned is not None:
        fields["requests_planned"] = planned
        if failed is None and ok is not None:
            failed = fields["requests_failed"] = max(0, planned - ok - fields.get("requests_incomplete", 0))
    if found(Figures(tokens=ok), "no-tokens"):
        kept = {key: value for key, value in fields.items() if not RATES.search(key) and key != "accept_len"}
        kept.pop("not_numbers", None)
        why = "no request completed: zeros are not a measurement"
        return Opinion("failed", "no-request-completed", "error", kept, why, usable=False)
    fields, doubt = _believable(fields)
    if doubt and doubt.verdict == "failed":
        return doubt
    incomplete = fields.get("requests_incomplete", 0)
    missing = (planned - ok - (failed or 0) - incomplete) if planned is not None and ok is not None else 0
    if failed or missing > 0 or fields.get("cancelled"):
        lost = (failed or 0) + max(0, missing)
        many = failed_share(Figures(ok=ok, failed=lost)) > NOT_COMPARABLE
        severity = "error" if many and not guessed else "warn"
        why = f"{lost} of {lost + (ok or 0)} requests failed or are missing"
        sound = not many and (doubt is None or doubt.usable) and not not_read(fields)
        if doubt is not None:
            why += f"; {doubt.why}"
        return Opinion("partial", "requests-failed-or-missing", severity, fields, why, usable=sound)
    if doubt:
        return doubt
    if fields.get("declared_invalid"):
        why = f"the tool itself calls its result invalid: {fields['declared_invalid']}"
        return Opinion("suspect", "declared-invalid", "warn", fields, why, usable=False)
    if unread := not_read(fields):
        why = f"{' and '.join(unread)} could not be read from it"
        return Opinion("partial", "figures-not-read", "warn", fields, why, usable=False)
    why = "all requests completed" if ok is not None else "its figures agree with one another"
    return Opinion("ok", "complete", "info", fields, why)


def _believable(fields: Fields) -> tuple[Fields, Opinion | None]:
    """Drop what is not a measurement and what counts chunks as tokens; (fields, the doubt or None)."""
    if fields.get("accept_len", 1.0) < 1.0:  # no step gives less than one token: -1 and 0 stand for "none"
        fields.pop("accept_len")
    for name in ("ttft", "tpot", "itl"):
        times = [key for key in fields if key.startswith(f"{name}_") and key.endswith("_ms")]
        if times and not any(
            fields[key] for key in times
        ):  # with one token a request there is no gap to time
            for key in times:
                fields.pop(key)
    if NO_OUTPUT.search(str(fields.get("backend", ""))):
        figures = stated({key: value for key, value in fields.items() if not key.startswith("output_")})
    else:
        figures = stated(fields)
        if nothing := found(figures, "no-tokens"):
            return fields, _without_tokens(fields, nothing["no-tokens"])
    for rule, words in found(figures, *IMPOSSIBLE).items():
        return fields, Opinion("suspect", DOUBTS[rule], "warn", fields, words, usable=False)
    return _chunks(fields, figures)


def _without_tokens(fields: Fields, words: str) -> Opinion:
    """Successes without a token. Gaps between chunks show that something came, so the client did not count it; without
    them nothing came."""
    kept = {
        key: value for key, value in fields.items() if key not in ("output_tps", "total_tps", "accept_len")
    }
    kept = {key: value for key, value in kept.items() if not key.startswith("tpot_")}
    if any(fields.get(f"itl_{stat}_ms", 0) > 0 for stat in STATS) or fields.get("retokenized_tokens"):
        why = f"{words}, though chunks came: the client could not count them; TTFT and the gaps hold"
        return Opinion("suspect", DOUBTS["tokens-not-visible"], "warn", kept, why, usable=False)
    kept = {key: value for key, value in kept.items() if not RATES.search(key)}
    return Opinion("failed", "no-tokens", "error", kept, f"{words}: 0 tok/s is not a result", usable=False)


def _chunks(fields: Fields, figures: Figures) -> tuple[Fields, Opinion | None]:
    tps = figures.output_tok_s
    doubts = found(figures, "tokens-not-visible", "peak-below-mean", "chunks-as-tokens")

    def doubt(rule: str) -> Opinion:
        return Opinion("suspect", DOUBTS[rule], "warn", fields, doubts[rule])

    if "tokens-not-visible" in doubts:
        return fields, doubt("tokens-not-visible")
    if "peak-below-mean" in doubts:
        fields["peak_reported"] = fields.pop("peak_output_tps")
    speculative = fields.get("tool") == "vllm" and speculates(fields.get("accept_len", 1.0))
    if not (speculative or doubts):
        return fields, None
    itl = {key: fields.pop(key) for key in list(fields) if key.startswith("itl_")}
    if itl:
        fields["itl_reported"] = itl.get("itl_p50_ms", itl.get("itl_mean_ms"))
        if tps:
            fields["itl_from_throughput"] = 1e3 * (streams(fields) or 1) / tps
        doubts.setdefault("chunks-as-tokens", "ITL times throughput is more than the streams allow")
    return fields, doubt(next(iter(doubts))) if doubts else None


def advice(cause: str, *, tokens_counted: bool = True) -> str:
    """What to do about a cause; `tokens_counted` False: the client counted none."""
    if cause == "tokens-not-visible-to-client" and not tokens_counted:
        return "use TTFT and the gaps only; let the server count (`include_usage`), or use a tool that reads its answers"
    words: dict[str, Any] = {
        "complete": "nothing to do",
        "requests-failed-or-missing": "do not compare it; read the errors and run it again",
        "no-request-completed": "read the server's log: an error there means that the configuration is broken",
        "no-tokens": "read one answer with `ddtop inspect sse`: it is empty, or in a form that the tool cannot count",
        "empty-answers": "read some answers: empty ones are no successes",
        "impossible-times": "do not use it: a clock or the tool is wrong; measure again",
        "figures-disagree": "do not use it: the file was changed, joined from several runs, or the tool is wrong",
        "acceptance-out-of-bounds": "do not use the acceptance length; check how many draft tokens were set",
        "figures-not-read": "give the tool's whole output, or its JSON file",
        "declared-invalid": "read why the tool calls it invalid; run it again",
        "tokens-not-visible-to-client": "use throughput only: a parser held the text back",
        "chunks-counted-as-tokens": "use throughput and TPOT; per-chunk figures were dropped",
        "last-line-truncated": "keep the complete lines; run the truncated cell again",
        "not-a-result": "give a result file of a tool that ddtop reads (docs/diagnosis.md)",
    }
    return str(words.get(cause, "see the evidence"))
