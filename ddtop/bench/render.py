"""Plain text of a measurement, for terminals and logs. Pure; no colour, no library. What is not known is a dash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtop.bench.figures.stats import shown_percentile
from ddtop.bench.judge.validity import TABLE
from ddtop.words import many

LATENCIES = (
    ("TTFT", "ttft_ms"),
    ("second chunk", "ttsc_ms"),
    ("ITL per token", "itl_ms"),
    ("gap of chunks", "icl_ms"),
    ("TPOT", "tpot_ms"),
    ("E2E", "e2e_ms"),
    ("connect", "connect_ms"),
    ("start lag", "start_lag_ms"),
)
COLUMNS = ("mean", "p50", "p90", "p99", "max")


def figure(value: Any, unit: str = "") -> str:
    """A number with three or four significant digits; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    size = abs(value)
    if isinstance(value, int) or size >= 1000:
        text = f"{value:,.0f}"
    elif size >= 100:
        text = f"{value:.1f}"
    elif size >= 1:
        text = f"{value:.2f}"
    else:
        text = f"{value:.3f}"
    return f"{text} {unit}".rstrip()


NO_CONNECTION = "no connection was made: is the server up, on this port, and is it http or https?"
"""Advice where every request was refused: no server was reached, so there is no log to read."""


def acceptance_words(metrics: Mapping[str, Any]) -> str:
    """The unit of an acceptance length: its source, and the share of the tokens that it is about where that is not all."""
    told = metrics.get("acceptance") or {}
    words = f"tokens a step ({told.get('source', 'unknown source')})"
    if "drafted_share" in told:
        words += (
            f", in the steps that drafted: {told['drafted_share']:.0%} of the tokens;"
            f" {figure(told['overall_length'])} over all steps"
        )
    return words


def percentile_text(stats: Mapping[str, float], name: str) -> str:
    """A column of a distribution: a percentile that the samples do not certify is shown as its bound."""
    shown = shown_percentile(stats, name)
    return "–" if shown is None else shown[0] + figure(shown[1])


def burst_words(burst: Mapping[str, Any]) -> str:
    """The requests before a window's zero, and how it was found."""
    ends = {
        "settled": "then the load had settled",
        "requests": "not settled by then",
        "time": "not settled within a quarter of the time limit",
    }
    ttft = burst.get("ttft_ms") or {}
    times = f", TTFT p50 {figure(ttft['p50'])}, max {figure(ttft['max'])} ms" if ttft else ""
    return f"{many(burst['requests'], 'request')} in {burst['seconds']:.1f} s{times}; {ends.get(burst['by'], 'cut')}"


def cache_words(cache: Mapping[str, Any]) -> str:
    """What the prefix cache gave, by the server's counters and by its responses."""
    parts = []
    if "rate" in cache:
        parts.append(f"{cache['rate']:.1%} of {cache['prompt_tokens']:,} prompt tokens ({cache['source']})")
    if "responses_rate" in cache:
        parts.append(f"{cache['responses_rate']:.1%} by its responses")
    return "; ".join(parts)


def turn_rows(metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """(turn, requests, prompt tokens, cached, TTFT p50, TTFT p90, TPOT p50) of each turn of a conversation, as text."""
    return [
        (
            f"turn {turn}",
            f"{one['n']:,}",
            figure(round(prompt["mean"]) if (prompt := one.get("prompt_tokens")) else None),
            f"{one['cached_share']:.0%}" if "cached_share" in one else "–",
            percentile_text(one.get("ttft_ms") or {}, "p50"),
            percentile_text(one.get("ttft_ms") or {}, "p90"),
            percentile_text(one.get("tpot_ms") or {}, "p50"),
        )
        for turn, one in (metrics.get("by_turn") or {}).items()
    ]


def length_words(metrics: Mapping[str, Any]) -> list[str]:
    """Lengths that differ from request to request, asked against got, one a line."""
    return [
        f"{name}: asked mean {figure(round(one['asked']['mean']))}, p50 {figure(round(one['asked']['p50']))}, "
        f"max {figure(round(one['asked']['max']))}; got mean {figure(round(one['got']['mean']))}, "
        f"p50 {figure(round(one['got']['p50']))}, max {figure(round(one['got']['max']))}"
        for name, one in (metrics.get("lengths") or {}).items()
        if one.get("got")
    ]


TURN_COLUMNS = ("n", "prompt", "cached", "TTFT p50", "TTFT p90", "TPOT p50")


def bench_text(result: Mapping[str, Any]) -> str:
    """The report of `ddtop bench`."""
    metrics, client = result["metrics"], result.get("client") or {}
    lines = [f"{result['validity']}  {result['url']}  {result.get('model') or ''}".rstrip()]
    for reason in result["reasons"]:
        rule = TABLE[reason]
        advice = (
            NO_CONNECTION
            if reason == "no-tokens" and set(metrics.get("failures", {})) == {"refused"}
            else rule.advice
        )
        lines.append(
            f"  {rule.verdict.lower()}: {rule.meaning} ({result['details'].get(reason, '')}); {advice}"
        )
    how = f"{result['rate']:g} requests/s" if result.get("rate") else many(result["concurrency"], "stream")
    # a short window goes on with more requests than were asked for
    sent = sum(metrics.get(f"requests_{name}", 0) for name in ("ok", "failed", "unfinished"))
    asked, tokens = many(max(result["requests"], sent), "request"), many(result["output_tokens"], "token")
    lines.append(f"{how}, {asked}, {tokens} each")
    failures = "".join(f", {n} {name}" for name, n in metrics.get("failures", {}).items())
    cut = metrics.get("requests_unfinished")
    lines.append(
        f"requests        {metrics.get('requests_ok', 0)} ok{failures}{f', {cut} cut by the limit' if cut else ''}"
    )
    rows = (
        ("output", metrics.get("output_tok_s"), "tok/s"),
        ("steady state", metrics.get("steady_tok_s"), "tok/s"),
        ("peak over 1 s", metrics.get("peak_tok_s"), "tok/s"),
        ("decode a stream", (metrics.get("decode_tok_s") or {}).get("p50"), "tok/s (p50)"),
        ("request rate", metrics.get("requests_s"), "/s"),
        ("goodput", metrics.get("goodput_s"), "/s"),
        ("tokens a chunk", metrics.get("tokens_per_chunk"), ""),
        ("acceptance", metrics.get("acceptance_length"), acceptance_words(metrics)),
        ("in flight", metrics.get("in_flight_mean"), "(mean)"),
    )
    lines += [f"{name:<16}{figure(value, unit)}" for name, value, unit in rows if value is not None]
    table = [(name, metrics[key]) for name, key in LATENCIES if metrics.get(key)]
    if table:
        lines.append(f"{'ms':<16}" + "".join(f"{column:>10}" for column in COLUMNS) + f"{'n':>9}")
        lines += [
            f"{name:<16}"
            + "".join(f"{percentile_text(stats, column):>10}" for column in COLUMNS)
            + f"{stats['n']:>9,.0f}"
            for name, stats in table
        ]
    if turns := turn_rows(metrics):
        lines.append(" " * 16 + "".join(f"{name:>10}" for name in TURN_COLUMNS))
        lines += [f"{row[0]:<16}" + "".join(f"{text:>10}" for text in row[1:]) for row in turns]
    lines += [f"{'tokens':<16}{words}" for words in length_words(metrics)]
    if words := cache_words(metrics.get("prefix_cache") or {}):
        lines.append(f"prefix cache    {words}")
    if (metrics.get("burst") or {}).get("requests"):
        lines.append(f"burst           {burst_words(metrics['burst'])}")
    if client:
        lag = (client.get("lag_ms") or {}).get("p99")
        where = ", network included" if client.get("network_included") else ""
        lines.append(
            f"client          clock {client['clock']}, {client['utilisation']:.1%} busy, lag p99 {figure(lag, 'ms')}, "
            f"{client.get('coalesced_share', 0):.1%} of the chunks shared a read{where}"
        )
    if "steps" in result:
        lines += _search_lines(result)
    if result.get("given_up"):
        lines.append(f"the server rejected {', '.join(result['given_up'])}: measured without")
    if result.get("error"):
        lines.append(f"error           {result['error']}")
    return "\n".join(lines)


def _search_lines(result: Mapping[str, Any]) -> list[str]:
    """The loads that a search tried, one a line, and the knee."""
    out: list[str] = []
    rate = result["search"]["by"] == "rate"
    unit = "requests/s" if rate else "streams"
    for step in result["steps"]:
        load = figure(step["rate"]) if rate else step["concurrency"]
        share = f", {step['attained']} of {step['n']} within the limits" if step["n"] else ""
        word = f"confirmed: {step['verdict']}" if step["confirm"] else step["verdict"]
        one = "stream " if load == 1 and not rate else unit
        out.append(f"  {load:>5} {one}  {word:<16} {figure(step['output_tok_s'], 'tok/s')}{share}")
    if result["knee"] is None and all(s["verdict"] == "undecided" for s in result["steps"]):
        return [*out, "knee            not known: no load was decided; give more time (--time-limit)"]
    if result["knee"] is None:
        return [*out, f"knee            none: no load held {result['search']['objective']}"]
    unit = "stream" if result["knee"] == 1 and not rate else unit
    above = " or above: the highest load allowed held too" if result["knee_above"] else ""
    return [*out, f"knee            {result['knee']:g} {unit}{above} ({result['search']['objective']})"]


def selftest_text(result: Mapping[str, Any]) -> str:
    """The report of `ddtop selftest`."""
    load = result["load"]
    ttft, itl = result["ttft_error_ms"], result["itl_error_us"]
    lines = [
        "FIT" if result["fit"] else "NOT FIT",
        f"load            {load['streams']} streams, a chunk of {load['tokens_per_chunk']} each {load['dt_ms']:g} ms = "
        f"{load['chunks_s']:,.0f} chunks/s{', aligned' if load['aligned'] else ''}; server: {load['server']}",
        f"TTFT error      p50 {figure(ttft.get('p50'))} ms, p99 {figure(ttft.get('p99'))} ms",
        f"ITL error       p50 {figure(itl.get('p50'))} µs, p99 {figure(itl.get('p99'))} µs",
        f"client          clock {result['clock']}, utilisation {figure(result['utilisation'])}, "
        f"{figure(result['cpu_us_per_chunk'])} µs a chunk, {figure(result['max_rss_mib'])} MiB",
        f"delivered       {result['delivered_share']:.1%} of the load"
        if result.get("delivered_share")
        else "delivered       –",
    ]
    lines += [f"  {problem}" for problem in result["problems"]]
    return "\n".join(lines)
