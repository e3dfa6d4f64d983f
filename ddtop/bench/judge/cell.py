"""A cell's result judged: its metrics, its validity with reasons, and what becomes of the cell. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddtop.agent.loadgen.records import unpack
from ddtop.bench.figures.acceptance import Acceptance, acceptance, counter_deltas, drafted_share, total
from ddtop.bench.figures.energy import CAP_SHARE, CellEnergy, cell_energy
from ddtop.bench.figures.groups import by_group
from ddtop.bench.figures.lengths import asked_and_got, lengths_off
from ddtop.bench.figures.metrics import Slo, burst_metrics, cell_metrics
from ddtop.bench.figures.requests import Request, read_request
from ddtop.bench.figures.stats import percentile
from ddtop.bench.figures.turns import by_turn, early_hits, prefix_cache
from ddtop.bench.judge.accuracy import garbage_share
from ddtop.bench.judge.foreign import foreign_load, whole_run
from ddtop.bench.judge.sanity import Figures, acceptance_problems, found
from ddtop.bench.judge.steadiness import not_settled
from ddtop.bench.judge.stillness import stood_still
from ddtop.bench.judge.validity import Fault, State, judge_reasons

PSI_SHARE = 0.05
CACHED_SHARE = 0.01
SHORT_S = 0.25  # of a shorter window, shares of time say nothing


@dataclass(frozen=True, slots=True)
class CellJudgement:
    """`validity` VALID, SUSPECT or INVALID with `reasons` (slugs of validity.TABLE) and `details` (slug → what was
    found); `state` done, broken-candidate (the server's fault) or rerun (not its fault)."""

    validity: str
    reasons: tuple[str, ...]
    fault: Fault
    state: State
    cause: str
    metrics: dict[str, Any]
    details: dict[str, str] = field(default_factory=dict)


def judge_cell(
    raw: Mapping[str, Any], *, slo: Slo | None = None, spec: Mapping[str, Any] | None = None
) -> CellJudgement:
    """Judge one `cell-<id>.json`. `spec` carries what only the sweep knows (all optional): speculative, draft_tokens,
    gpus (indices in use), gpu_wanted (it is not meant for the CPU), arguments_overridden, wrong_arguments, two_servers, link_lost, server_tok_s, neighbours,
    acceptance_log [(length, weight)], answers_differ. Raises ValueError if the result is damaged."""
    try:
        return _judge(raw, slo, spec)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"a part of it has the wrong form: {error}") from error


def _judge(raw: Mapping[str, Any], slo: Slo | None, spec: Mapping[str, Any] | None) -> CellJudgement:
    known = dict(spec or {})
    result = unpack(dict(raw))
    asked = dict(result.get("spec") or {})
    requests = [read_request(record) for record in result.get("requests") or []]
    open_loop = asked.get("mode") == "open"
    concurrency = 0 if open_loop else int(asked.get("concurrency") or 1)
    handed, window = result.get("handover"), result.get("window") or {}
    burst = [read_request(record) for record in result.get("burst") or []]
    metrics = cell_metrics(
        requests,
        concurrency=concurrency,
        bins=result.get("bins"),
        slo=slo,
        burst=burst,
        window=window if handed else None,
    )
    if handed:
        # a conversation that the burst began goes on after the window's zero
        metrics["burst"] = burst_metrics([one for one in burst if one.start_s <= 0], handed)
    turns, shared = _shared(result)
    if turns > 1:
        metrics["by_turn"] = by_turn(requests, turns)
    if turns > 1 or shared or asked.get("arrival") == "trace":
        records = [*(result.get("burst") or ()), *(result.get("requests") or ())]
        if cache := prefix_cache(whole_run(result), str(asked.get("engine") or ""), records):
            metrics["prefix_cache"] = cache
    if lengths := asked_and_got(result.get("requests") or (), turns):
        metrics["lengths"] = lengths
    accepted = acceptance(result, log=known.get("acceptance_log") or ())
    if accepted is not None:
        accepted = replace(accepted, problems=acceptance_problems(accepted.length, known.get("draft_tokens")))
    energy = cell_energy(result, gpus=known.get("gpus"))
    if metrics["requests_ok"]:
        if accepted is not None:
            metrics["acceptance_length"] = accepted.length
            metrics["acceptance"] = {**accepted.as_metrics(), **drafted_share(accepted, result)}
        records = result.get("requests") or []
        if groups := by_group(records, requests, _one_pass(asked), accepted):
            metrics["by_group"] = groups
        metrics.update(energy.as_metrics(metrics.get("output_tokens"), metrics.get("output_tok_s")))
    metrics["client"] = client_figures(result)
    if result.get("slo"):
        metrics["slo"] = result["slo"]
    details: dict[str, str] = {}
    _outside(result, known, details)
    _requests(result, requests, metrics, details)
    _client(result, metrics, asked, details)
    _server(result, requests, metrics, known, accepted, details)
    _possible(result, metrics, details)
    still = stood_still(requests, result.get("bins"), window.get("wall_s") or 0.0)
    if still is not None:
        details[still[0]] = still[1]
    if metrics["requests_ok"] and (moving := not_settled(result, requests)):
        details["not-settled"] = moving
    _gpu(energy, details, known, bool(metrics["requests_ok"]))
    return judgement(details, metrics)


def _one_pass(asked: Mapping[str, Any]) -> int:
    """Requests of one pass through the prompts; of conversations as many as they have turns."""
    return int(asked.get("prompts_n") or 0) * max(1, int(asked.get("turns") or 1))


def judgement(details: dict[str, str], metrics: dict[str, Any]) -> CellJudgement:
    """What `details` (reason → what was found) amount to, for a result with these metrics. Raises KeyError on a reason
    that is not in validity.TABLE."""
    judged = judge_reasons(details)
    return CellJudgement(
        judged.validity, tuple(details), judged.fault, judged.state, judged.cause, metrics, details
    )


def client_figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """The generator's own quality over all of its processes: the worst of each figure."""
    clients = result.get("clients") or []
    if not clients:
        return {}
    kinds = {client["clock"] for client in clients} - {"none"}
    out: dict[str, Any] = {
        "clock": kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "none",
        "utilisation": max(client["utilisation"] for client in clients),
        "processes": len(clients),
        "network_included": bool(result.get("network_included")),
    }
    lags = sorted(lag for client in clients for lag in client["lags_ns"])
    if lags:
        out["lag_ms"] = {
            "p50": percentile(lags, 50) / 1e6,
            "p99": percentile(lags, 99) / 1e6,
            "max": lags[-1] / 1e6,
        }
    waits = [client["wait_share"] for client in clients if client.get("wait_share") is not None]
    if waits:
        out["wait_share"] = max(waits)
    requests = result.get("requests") or []
    chunks = sum(record.get("chunks", 0) for record in requests)
    if chunks:
        out["coalesced_share"] = sum(record.get("shared", 0) for record in requests) / chunks
    memory = [client["max_rss_mib"] for client in clients if client.get("max_rss_mib")]
    if memory:
        out["max_rss_mib"] = sum(memory)
    return out


def _outside(result: Mapping[str, Any], known: Mapping[str, Any], details: dict[str, str]) -> None:
    error = result.get("error")
    if error:
        slug = {"spec": "wrong-spec", "generator": "generator-failed"}.get(
            result.get("error_kind", ""), "no-tokens"
        )
        details[slug] = str(error)
    for key, slug in (
        ("link_lost", "link-lost"),
        ("server_gone", "server-gone"),
        ("wrong_arguments", "wrong-arguments"),
        ("two_servers", "two-servers"),
        ("arguments_overridden", "arguments-overridden"),
        ("answers_differ", "answers-differ"),
    ):
        if known.get(key):
            details[slug] = str(known[key])


def _requests(
    result: Mapping[str, Any], requests: list[Request], metrics: Mapping[str, Any], details: dict[str, str]
) -> None:
    ok = metrics["requests_ok"]
    if not requests and not details:
        details["generator-failed"] = "the result holds no request"
    share, why = garbage_share(result.get("texts") or {})
    came = ok or any(r.tokens or r.chunks for r in requests)
    words = ", ".join(f"{n} {name}" for name, n in metrics["failures"].items())
    figures = Figures(
        tokens=float(bool(came)) if requests else None,
        failures=words or "every request was cut by the time limit before its first token",
        ok=ok,
        failed=metrics["requests_failed"] if came else 0,
        garbage_share=share,
        garbage_why=why,
    )
    for slug, text in found(figures, "no-tokens", "most-failed", "some-failed").items():
        details.setdefault(slug, text)
    stopped = (result.get("window") or {}).get("stopped")
    if metrics["requests_unfinished"] and stopped == "time-limit":
        details["time-limit"] = f"{metrics['requests_unfinished']} requests were under way at the end"
        if not ok:
            details.setdefault("few-samples", "no request ended within the time limit")
    details.update(found(figures, "few-samples"))
    good = [request for request in requests if request.ok]
    if good and any(request.tokens is None for request in good):
        details["no-usage"] = f"{sum(r.tokens is None for r in good)} of {ok} answers carry no token count"
    if any(not request.streamed for request in good):
        details["not-streamed"] = f"{sum(not r.streamed for r in good)} of {ok} answers came as one document"
    bad = sum(
        record.get("bad_events", 0) for record in result.get("requests") or [] if record["class"] == "ok"
    )
    if bad:
        details["bad-events"] = f"{bad} events"
    details.update(found(figures, "garbage-output"))


def _client(
    result: Mapping[str, Any], metrics: Mapping[str, Any], asked: Mapping[str, Any], details: dict[str, str]
) -> None:
    client = metrics["client"]
    if not client or not metrics["requests_ok"]:
        return  # what failed was not distorted by us
    long_enough = max(one.get("wall_s", SHORT_S) for one in result["clients"]) >= SHORT_S
    # chunks of one step come in a burst: then the pace is that of the steps
    itl = max((metrics.get(name) or {}).get("p50", 0.0) for name in ("icl_ms", "itl_ms"))
    lag = client.get("lag_ms", {})
    if client["utilisation"] > 0.8 and long_enough:
        details["client-bound"] = f"utilisation {client['utilisation']:.2f}"
    elif client["clock"] not in ("kernel", "none") and itl and lag.get("p50", 0.0) > 0.05 * itl:
        # With kernel stamps a late read moves no time; without them its lag is in every gap.
        details["client-bound"] = f"reads lag {lag['p50']:.2f} ms, chunks come every {itl:.2f} ms"
    turns = _shared(result)[0]
    wanted = min(int(asked.get("concurrency") or 1), -(-len(result["requests"]) // turns))
    mean = metrics.get("in_flight_mean")
    if mean is not None and not asked.get("rate") and not asked.get("think_ms") and mean < 0.95 * wanted:
        details["under-delivery"] = f"{mean:.1f} of {wanted} streams were under way"
    late = metrics.get("start_lag_ms")
    timed = asked.get("rate") or asked.get("think_ms")
    if late and timed and late.get("p90", late["max"]) > max(5.0, 50.0 / (asked.get("rate") or 10.0)):
        details["under-delivery"] = f"requests started {late.get('p90', late['max']):.1f} ms after their time"
    paused = max((one.get("suspended_ns", 0) for one in result["clients"]), default=0)
    if paused > 50_000_000:
        details["host-paused"] = f"suspended for {paused / 1e9:.2f} s"
    elif lag.get("max", 0.0) > 1000:
        details["host-paused"] = f"a read came {lag['max'] / 1e3:.1f} s after its data"
    moved = max((one.get("clock_moved_ns", 0) for one in result["clients"]), default=0)
    if moved > 1_000_000:
        details["clock-moved"] = f"by {moved / 1e6:.1f} ms"
    if client.get("wait_share", 0.0) > 0.01 and long_enough:
        details["generator-waited"] = f"{client['wait_share']:.1%} of the time"


def _shared(result: Mapping[str, Any]) -> tuple[int, int]:
    """(turns of a conversation, tokens of a prefix that all prompts share): what the cache may find by design."""
    spec = result.get("spec") or {}
    return max(1, int(result.get("turns") or spec.get("turns") or 1)), int(
        spec.get("shared_prefix_tokens") or 0
    )


def _server(
    result: Mapping[str, Any],
    requests: list[Request],
    metrics: dict[str, Any],
    known: Mapping[str, Any],
    accepted: Acceptance | None,
    details: dict[str, str],
) -> None:
    pressure = result.get("pressure") or {}
    if pressure.get("server_wait_share", 0.0) > 0.01:
        details["server-waited"] = f"{pressure['server_wait_share']:.1%} of the time"
    # PSI counts every task of the machine, so it speaks only where the server's own threads cannot be asked
    long_enough = (result.get("window") or {}).get("wall_s", 0.0) >= SHORT_S and metrics["requests_ok"]
    unasked = long_enough and "server_wait_share" not in pressure and not result.get("network_included")
    if unasked and pressure.get("psi_cpu_some_share", 0.0) > PSI_SHARE:
        details["cpu-pressure"] = f"{pressure['psi_cpu_some_share']:.1%} of the time"
    if pressure.get("steal_share", 0.0) > 0.01:
        details["cpu-stolen"] = f"{pressure['steal_share']:.1%} of all CPU time"
    flush = result.get("flush")
    # where an engine knows no flush, the nonce before each prompt does its work, and `cache-hits` watches it
    defeated = flush and flush.get("asked") is False and (result.get("spec") or {}).get("nonce")
    turns, shared = _shared(result)
    by_design = turns > 1 or bool(shared) or (result.get("spec") or {}).get("arrival") == "trace"
    early = early_hits(requests, turns, shared) if turns > 1 or shared else ""
    if by_design:  # hits are a result; what the cell did not cause is none
        defeated = defeated or bool(flush and (result.get("spec") or {}).get("nonce") and not early)
        if early:
            details["cache-hits"] = early
    if flush and not flush.get("ok") and not defeated and not _nothing_cached(result, metrics):
        details["cache-not-flushed"] = str(flush.get("text", ""))
    each = metrics.get("cached_tokens", 0) / max(1, metrics["requests_ok"])
    if not by_design and metrics.get("cached_share", 0.0) > CACHED_SHARE and each > 16:
        details["cache-hits"] = f"{metrics['cached_share']:.1%} of the prompt tokens"
    context = result.get("context")
    if context and not context.get("ok"):
        details["context-off"] = (
            f"asked {context.get('asked')}, got {context.get('tokens', 'an unknown number')}"
        )
    if off := lengths_off(metrics.get("lengths") or {}):
        details["context-off"] = off
    deltas = counter_deltas(result.get("counters"))
    lost = total(
        deltas,
        "sglang:num_retracted_requests_total",
        "sglang:num_retractions_total",
        "vllm:num_preemptions_total",
    )
    if lost:
        metrics["retractions"] = lost
        details["retractions"] = f"{lost:.0f}"
    counted = total(
        counter_deltas(whole_run(result)),
        "sglang:generation_tokens_total",
        "vllm:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
    )
    if counted:
        metrics["server_output_tokens"] = counted
    others = foreign_load(result)
    if others:
        details["foreign-load"] = others
    if known.get("server_tok_s"):
        metrics["server_tok_s"] = known["server_tok_s"]
    # The server counts the tokens of failed and cut requests too.
    all_ok = not metrics["requests_failed"] and not metrics["requests_unfinished"]
    figures = Figures(
        ok=metrics["requests_ok"],
        output_tokens=_tokens_of_all(result, metrics),
        output_tok_s=metrics.get("output_tok_s"),
        server_tokens=counted if all_ok and not others else None,
        server_tok_s=known.get("server_tok_s"),
        acceptance_length=accepted.length if accepted is not None else None,
        acceptance_source=accepted.source if accepted is not None else "",
        draft_tokens=known.get("draft_tokens"),
        speculative=known.get("speculative", True),
        neighbours=tuple(one for one in known.get("neighbours") or () if one),
    )
    details.update(
        found(
            figures,
            "server-disagrees",
            "acceptance-out-of-bounds",
            "speculation-inactive",
            "far-off-neighbours",
        )
    )


def _tokens_of_all(result: Mapping[str, Any], metrics: Mapping[str, Any]) -> float | None:
    """Output tokens that the server's counters are compared with: those of the burst too, where its load was handed over;
    None unless every request of both ended well."""
    if not result.get("handover"):
        tokens: float | None = metrics.get("output_tokens")
        return tokens
    records = [*(result.get("burst") or ()), *(result.get("requests") or ())]
    if any(one["class"] != "ok" or one.get("tokens") is None for one in records):
        return None
    return float(sum(one["tokens"] for one in records))


def _nothing_cached(result: Mapping[str, Any], metrics: Mapping[str, Any]) -> bool:
    """Whether the server itself says that its prefix cache answered next to nothing of the window: then it does not
    matter that it could not be flushed."""
    deltas = counter_deltas(result.get("counters"))
    hits = total(
        deltas,
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:cached_tokens_total",
    )
    asked = total(
        deltas,
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:prompt_tokens_total",
        "sglang:prompt_tokens_total",
    )
    if hits is not None and asked:
        return hits <= CACHED_SHARE * asked
    return "cached_share" in metrics and metrics["cached_share"] <= CACHED_SHARE


def _possible(result: Mapping[str, Any], metrics: Mapping[str, Any], details: dict[str, str]) -> None:
    """Times and rates that cannot be. Rates are over the span of the requests; no time is longer than the generator's
    own clock says, which may know better."""
    window = result.get("window") or {}
    # a handed-over window closes while its last requests are under way
    known = (window["drained_s"],) if "drained_s" in window else (metrics.get("wall_s"), window.get("wall_s"))
    spans = [span for span in known if span]
    tokens = metrics.get("output_tokens")
    times = {
        name: {stat: value for stat, value in found_ms.items() if stat not in ("n", "sd")}
        for name in ("ttft", "tpot", "itl", "e2e", "icl")
        if (found_ms := metrics.get(f"{name}_ms"))
    }
    figures = Figures(
        ok=window.get("ended", metrics["requests_ok"]),  # what the rate counts
        failed=metrics["requests_failed"],
        # the rate counts those that the time limit cut too
        output_tokens=None if tokens is None else tokens + metrics.get("output_tokens_unfinished", 0),
        output_tok_s=metrics.get("output_tok_s"),
        total_tok_s=metrics.get("total_tok_s"),
        requests_s=metrics.get("requests_s"),
        duration_s=metrics.get("wall_s"),
        whole_run=True,
        times_ms=times,
    )
    span = min(spans) if spans else None
    details.update(found(replace(figures, duration_s=span), "impossible-times"))
    details.update(found(figures, "figures-disagree", "empty-answers"))


def _gpu(energy: CellEnergy, details: dict[str, str], known: Mapping[str, Any], answered: bool) -> None:
    if energy.idle and answered and known.get("gpu_wanted"):
        details["gpu-not-used"] = energy.idle
    if energy.missing and not details.keys() & {"wrong-spec", "generator-failed"}:
        details["telemetry-missing"] = energy.missing
    if energy.thermal_share > CAP_SHARE:
        details["thermal-cap"] = f"{energy.thermal_share:.0%} of the samples"
    if energy.power_cap_share > CAP_SHARE:
        details["power-cap"] = f"{energy.power_cap_share:.0%} of the samples"
