"""The checklist of what a reviewer asks of published numbers: one table of rules, each met or not, with the reason. Pure.

A rule looks at what the recording holds and at nothing else. What is not recorded is not met: it cannot be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ddtop.bench.figures.stats import CERTIFIED
from ddtop.report.bundle.provenance_rules import commands, engines, gpu_settings, images, models, topology
from ddtop.report.bundle.seen import Seen, names, some
from ddtop.words import many

Met = Literal["met", "not met", "n/a"]
Answer = tuple[Met, str]

P90_SAMPLES, P99_SAMPLES = CERTIFIED["p90"], CERTIFIED["p99"]
"""Samples from which a percentile has a bound at 99% confidence (MLPerf's early stopping)."""
WINDOW_S = 10.0
STARTS = 3
NOTHING: Answer = ("not met", "no result counts")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist."""

    id: str
    asked: str
    met: Met
    why: str


def _real(seen: Seen) -> Answer:
    if seen.simulated:
        return "not met", "SIMULATED: the GPUs and the engine are not real"
    return "met", "no part of the run says that it is simulated"


def _complete(seen: Seen) -> Answer:
    if not seen.ended:
        return "not met", "the run has not ended"
    if seen.left:
        return "not met", f"{many(seen.left, 'cell')} of the plan without a result ({seen.ended})"
    return "met", seen.ended


def _steady(seen: Seen) -> Answer:
    cells = seen.loads
    if not cells:
        return NOTHING
    moving = seen.reasons.get("not-settled", [])
    if moving:
        return "not met", f"not settled: {names(moving)}"
    apart = [c.spec.label for c in cells if "burst" not in c.metrics]
    if apart:
        return (
            "not met",
            f'the load was not handed over to the window (bench.warmup = "handover"): {some(apart, len(cells))}',
        )
    return "met", f"all {many(len(cells), 'window')} began after the load had settled; the burst is apart"


def _tails(seen: Seen) -> Answer:
    cells = seen.loads
    if not cells:
        return NOTHING
    samples = {c.spec.label: int((c.metrics.get("ttft_ms") or {}).get("n") or 0) for c in cells}
    few = {label: n for label, n in samples.items() if n < P99_SAMPLES}
    if not few:
        return "met", f"{P99_SAMPLES} samples of TTFT or more in each cell: p90 and p99 are certified"
    none = [label for label, n in few.items() if n < P90_SAMPLES]
    what = f"; p90 neither (< {P90_SAMPLES}): {some(none, len(cells))}" if none else ""
    least = min(few.values())
    return (
        "not met",
        f"p99 is not certified (< {P99_SAMPLES} samples, least {least}): {some(few, len(cells))}{what}",
    )


def _starts(seen: Seen) -> Answer:
    fields = seen.fields
    if not fields:
        return NOTHING
    few = [name for name, cell in fields if cell.starts < STARTS]
    if few:
        least = min(cell.starts for _, cell in fields)
        return (
            "not met",
            f"fewer than {STARTS} starts of the server (least {least}; [matrix] starts): {some(few, len(fields))}",
        )
    bare = [name for name, cell in fields if cell.low is None or cell.basis != "starts"]
    if bare:
        return "not met", f"no interval by the spread between starts: {names(bare)}"
    return "met", f"{STARTS} starts or more of each, 95% intervals by the spread between starts"


def _drift(seen: Seen) -> Answer:
    drifted = seen.reasons.get("drift-in-start", [])
    if drifted:
        return "not met", f"the server drifted within a start: {names(drifted)}"
    done = [c for c in seen.sentinels if c.state == "done"]
    if not done:
        return (
            "not met",
            "no load was measured again at the end of its start ([matrix] starts gives each start a sentinel)",
        )
    ended = {c.spec.restart_key for c in done if c.validity != "INVALID"}
    open_ended = [
        f"{c.spec.config} start {c.spec.start + 1}" for c in seen.loads if c.spec.restart_key not in ended
    ]
    if open_ended:
        return "not met", f"no load was measured again at the end of these starts: {names(open_ended)}"
    return "met", f"{many(len(done), 'sentinel')}: the first load of a start agrees with itself at its end"


def _window(seen: Seen) -> Answer:
    cells = seen.loads
    if not cells:
        return NOTHING
    short = [c.spec.label for c in cells if float(c.metrics.get("wall_s") or 0.0) < WINDOW_S]
    if short:
        return "not met", f"windows shorter than {WINDOW_S:g} s: {some(short, len(cells))}"
    return "met", f"every window lasts {WINDOW_S:g} s or longer"


def _aa(seen: Seen) -> Answer:
    found = [view.aa for view in seen.matrices if view.aa is not None]
    if not found:
        return "not met", "the baseline was not measured against itself ([matrix] aa = true)"
    floor = max(abs((one.ratio or 1.0) - 1.0) for one in found)
    return "met", f"the baseline differs from itself by {100 * floor:.1f}%: no smaller difference is claimed"


def _open_loop(seen: Seen) -> Answer:
    rates = [c.spec.label for c in seen.cells if c.spec.rate is not None]
    rates += [c.spec.label for c in seen.cells if c.spec.search is not None and c.spec.search.by == "rate"]
    if not rates:
        return (
            "not met",
            "closed loop only: a fixed number of streams hides the queue that arrivals at a rate make",
        )
    return "met", f"measured at rates too: {names(rates)}"


def _prompts(seen: Seen) -> Answer:
    hashes: dict[str, set[str]] = {}
    for cell in seen.cells:
        digest = seen.specs.get(cell.id, {}).get("prompts_sha256")
        if digest is None:
            return "not met", f"no hash of the prompts is recorded: {cell.spec.label}"
        hashes.setdefault(cell.spec.workload, set()).add(str(digest))
    if not hashes:
        return NOTHING
    mixed = [name for name, found in hashes.items() if len(found) > 1]
    if mixed:
        return "not met", f"not the same prompts for all configurations: {names(mixed)}"
    licences = {w.name: w.license for w in seen.plan.workloads} if seen.plan is not None else {}
    bare = [name for name in hashes if not licences.get(name)]
    shown = ", ".join(f"{name} {next(iter(found))[:12]}" for name, found in hashes.items())
    if bare:
        return "not met", f"SHA-256 {shown}; no licence named (license in [[workload]]): {names(bare)}"
    return "met", f"SHA-256 {shown}; " + ", ".join(f"{name}: {licences[name]}" for name in hashes)


UNCOUNTED = ("no-usage", "tokens-not-visible", "chunks-as-tokens")


def _tokens(seen: Seen) -> Answer:
    if not seen.cells:
        return NOTHING
    bad = [label for reason in UNCOUNTED for label in seen.reasons.get(reason, ())]
    bad += [c.spec.label for c in seen.loads if c.metrics.get("output_tokens") is None]
    if bad:
        return "not met", f"tokens are not the server's own count: {names(bad)}"
    return "met", "all tokens are counted by the server; chunks are never taken for tokens"


def _valid(seen: Seen) -> Answer:
    if not seen.cells:
        return NOTHING
    doubted = [f"{reason} ({len(labels)})" for reason, labels in seen.reasons.items()]
    if doubted:
        count = sum(c.validity != "VALID" for c in seen.cells)
        return "not met", f"{many(count, 'result')} of {len(seen.cells)} SUSPECT: {names(doubted)}"
    return "met", f"all {many(len(seen.cells), 'result')} VALID"


def _client(seen: Seen) -> Answer:
    told = seen.selftest
    if told is None:
        return (
            "not met",
            "no selftest of the load generator on this host is attached ([record] selftest = true)",
        )
    itl, ttft = told.get("itl_error_us") or {}, told.get("ttft_error_ms") or {}
    load = told.get("load") or {}
    figures = f"ITL error p50 {itl.get('p50', 0):.1f} µs, TTFT error p50 {ttft.get('p50', 0):.2f} ms at {load.get('streams', '?')} streams"
    streams = max((c.spec.concurrency for c in seen.cells), default=0)
    if not told.get("fit"):
        return "not met", f"not fit for that load: {'; '.join(told.get('problems') or ['no figures'])}"
    if isinstance(load.get("streams"), int) and load["streams"] < min(streams, 1024):
        return "not met", f"{figures}; the run has up to {streams}"
    return "met", figures


def _lossless(seen: Seen) -> Answer:
    others = [c for c in seen.loads if c.spec.config != seen.baseline and not c.spec.aa]
    if seen.baseline is None:
        return "n/a", "no baseline: nothing is compared"
    if not others:
        return "n/a", "one configuration only: nothing is compared"
    differ = seen.reasons.get("answers-differ", [])
    if differ:
        return "not met", f"answers differ from the baseline's: {names(differ)}"
    blind = [c.spec.label for c in others if not (c.metrics.get("accuracy") or {}).get("compared")]
    if blind:
        return (
            "not met",
            f"answers not compared with the baseline's (that needs temperature 0): {names(blind)}",
        )
    return (
        "met",
        f"answers of {many(len(others), 'cell')} compared with the baseline's: no more differences than it has with itself",
    )


def _energy(seen: Seen) -> Answer:
    if not seen.loads:
        return NOTHING
    sources: dict[str, list[str]] = {}
    for cell in seen.loads:
        source = cell.metrics.get("energy_source") or "not measured"
        sources.setdefault(str(source), []).append(cell.spec.label)
    shown = "; ".join(f"{source}: {some(labels, len(seen.loads))}" for source, labels in sources.items())
    if set(sources) == {"energy counter"}:
        return "met", "the devices' own energy counters over each window"
    return "not met", f"not by the devices' counters: {shown}"


def _compared(seen: Seen) -> Answer:
    if seen.baseline is None:
        return "not met", "no baseline is named"
    fields = seen.fields
    if not fields:
        return NOTHING
    mixed = [name for name, cell in fields if cell.mixed_versions]
    if mixed:
        return "not met", f"another version of the engine than the baseline's: {names(mixed)}"
    alone = [
        name
        for name, cell in fields
        if not name.startswith(f"{seen.baseline} ") and (cell.against is None or cell.against.ratio is None)
    ]
    if alone:
        return "not met", f"no result of the baseline {seen.baseline} under the same load: {names(alone)}"
    return (
        "met",
        f"each with the baseline {seen.baseline} at the same TP, workload and load, with the same version of the engine",
    )


def _acceptance(seen: Seen) -> Answer:
    faked = seen.reasons.get("acceptance-simulated", [])
    if faked:
        return "not met", f"the server simulated its acceptance: {names(faked)}"
    unknown = [f"{r.config} tp{r.tp}" for r in seen.starts if r.acceptance_simulated is None]
    if unknown or not seen.starts:
        why = "not known whether the server simulates its acceptance (its environment could not be read)"
        return "not met", f"{why}: {names(unknown) or 'no start is recorded'}"
    return "met", "no server simulated its acceptance"


RULES: tuple[tuple[str, str, Callable[[Seen], Answer]], ...] = (
    ("real", "Were real GPUs and engines measured?", _real),
    ("complete", "Is the whole plan measured, and the run ended?", _complete),
    ("steady-state", "Do windows begin in a steady state, the first burst apart?", _steady),
    ("certified-tails", "Are there samples enough for the tails?", _tails),
    ("starts", "Is the server started several times, with an interval by that spread?", _starts),
    ("drift", "Is drift within a start looked for?", _drift),
    ("window", "Does each window last long enough?", _window),
    ("aa-floor", "Is it known what difference this machine cannot tell from nothing?", _aa),
    ("open-loop", "Is there a load at rates, not only at fixed concurrency?", _open_loop),
    ("prompts", "Are prompts fixed, with hash and licence?", _prompts),
    ("token-counts", "Are tokens counted by the server?", _tokens),
    ("validity", "Is every result free of doubts?", _valid),
    ("client-error", "Is the load generator's own error on this host known?", _client),
    ("lossless", "Are outputs compared with the baseline's?", _lossless),
    ("acceptance", "Is the acceptance of drafts real?", _acceptance),
    ("command", "Are the exact command and environment recorded?", commands),
    ("engine", "Is the engine's version and git revision recorded?", engines),
    ("image", "Is the container image's digest recorded?", images),
    ("gpus", "Are GPUs, driver, CUDA, clocks, power limits and ECC recorded?", gpu_settings),
    ("topology", "Are NUMA and GPU topology recorded?", topology),
    ("model", "Are the model's revision and hash recorded?", models),
    ("energy", "Is energy from the devices' counters?", _energy),
    ("comparison", "Is it said what was compared with what?", _compared),
)
"""id, what a reviewer asks, and the rule that answers. The whole checklist, in its order."""


def checklist(seen: Seen) -> list[Check]:
    """Every rule's answer."""
    return [Check(ident, asked, *rule(seen)) for ident, asked, rule in RULES]


def checklist_json(checks: list[Check]) -> dict[str, Any]:
    """For programs."""
    rows: list[Mapping[str, str]] = [
        {"id": c.id, "asked": c.asked, "met": c.met, "why": c.why} for c in checks
    ]
    met = sum(c.met == "met" for c in checks)
    return {"schema": 1, "met": met, "of": sum(c.met != "n/a" for c in checks), "checks": rows}
