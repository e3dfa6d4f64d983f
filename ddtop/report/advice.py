"""What to run at which concurrency, as text: Markdown, JSON, and the arguments to start the servers with."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from typing import Any

from ddtop.bench.worth.advice import Advice, advise
from ddtop.bench.worth.curves import Curve, all_curves
from ddtop.errors import UsageError
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import RestartView
from ddtop.journal.read.select import DEFAULT_METRIC
from ddtop.report.recording import NOT_REAL, Recording, counts_words

SCHEMA = 1
"""Version of the JSON form. Keys are only added; anything else is a new number."""


def advice_of(state: State, baseline: str | None = None) -> tuple[Advice, ...]:
    """The advice for every load of the present plan."""
    return tuple(advise(curves) for curves in all_curves(state, baseline=baseline))


def advice_table(found: Sequence[Advice]) -> list[list[str]]:
    """Header and rows: of each load what to run, and of each configuration its break-even. Empty without a comparison."""
    rows = [
        [
            *(one.curves.load.label, one.words, curve.config, curve.found.words, curve.found.why),
            f"SUSPECT: {', '.join(curve.doubts)}" if curve.doubts else "",
        ]
        for one in found
        for curve in one.curves.curves
        if curve.found.fit
    ]
    for before, row in reversed(list(itertools.pairwise(rows))):  # said once for all configurations of a load
        if before[:2] == row[:2]:
            row[:2] = ["", ""]
    head = ["load", "run", "configuration", "faster than the baseline", "by", "in doubt"]
    return [head, *rows] if rows else []


def advice_markdown(recording: Recording, found: Sequence[Advice]) -> str:
    """For people: per load what to run, why, and what was not measured."""
    state = recording.state
    parts = [f"# What to run: {state.run.name or recording.name} on {state.host.name or '?'}"]
    if state.run.simulated:
        parts.append(f"SIMULATED: {NOT_REAL}.")
    parts.append(_basis(state))
    for one in found:
        parts += [f"## {one.curves.load.label}", f"**{one.words}**"]
        for title, lines in (("Why", one.reasons), ("Not measured", one.not_measured)):
            if lines:
                parts.append(f"{title}:\n" + "\n".join(f"- {line}" for line in lines))
    if not found:
        parts.append("No cells: this recording has no sweep, so nothing is compared.")
    return "\n\n".join(parts) + "\n"


def advice_json(recording: Recording, found: Sequence[Advice]) -> dict[str, Any]:
    """For programs. What is not known is null."""
    state = recording.state
    return {
        "schema": SCHEMA,
        "run": state.run.run_id,
        "name": state.run.name,
        "host": state.host.name,
        "simulated": state.run.simulated,
        "ended": state.run.ended is not None,
        "metric": DEFAULT_METRIC,
        "loads": [
            {
                **one.curves.load._asdict(),
                "baseline": one.curves.baseline,
                "ratios_to": one.curves.reference,
                "ratios_to_suspect": list(one.curves.doubts),
                "advice": one.words,
                "ranges": [
                    {
                        "from": r.first,
                        "to": r.last,
                        "config": r.config,
                        "gain": list(r.gain),
                        "shown": r.shown,
                    }
                    for r in one.ranges
                ],
                "configs": [_curve(c) for c in one.curves.curves],
                "not_measured": list(one.not_measured),
            }
            for one in found
        ],
    }


def advice_arguments(recording: Recording, found: Sequence[Advice], engine: str) -> str:
    """For a shell script: the command line of each range's server, as it was started and recorded. Raises UsageError where
    the recording's servers are of another engine: arguments are not translated."""
    state = recording.state
    engines = sorted({r.engine for r in state.restarts if r.engine})
    if engines and engine not in engines:
        raise UsageError(
            f"advise: the servers of this recording are {' and '.join(engines)}, not {engine}",
            means="arguments of one engine are not those of another",
            do=f"--format {engines[0]}" if engines[0] in ("vllm", "sglang") else "--format md",
        )
    parts = [f"# {state.run.name or recording.name} on {state.host.name or '?'}. {_basis(state)}"]
    if state.run.simulated:
        parts.append(f"# SIMULATED: {NOT_REAL}.")
    for one in found:
        lines = [f"# {one.curves.load.label}: {one.words}"]
        for config in dict.fromkeys(r.config for r in one.ranges):
            ranges = " and ".join(r.words.rpartition(":")[0] for r in one.ranges if r.config == config)
            why = next(
                (line for line in one.reasons if line.startswith(f"{config}:")), f"{config}: the baseline"
            )
            lines += [f"# c {ranges}: {why}", *_command(state, config, one.curves.load.tp)]
        lines += [f"# not measured: {line}" for line in one.not_measured]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _basis(state: State) -> str:
    """What the advice rests on, in a sentence."""
    counts = counts_words(state)
    ended = "" if state.run.ended is not None else " The run has not ended."
    return f"From {DEFAULT_METRIC}: {counts or 'no cells'}.{ended}"


def _curve(curve: Curve) -> dict[str, Any]:
    found = curve.found
    return {
        "config": curve.config,
        "verdict": found.verdict,
        "at": found.at,
        "lo": found.lo,
        "hi": found.hi,
        "why": found.why or None,
        "points": [
            {"concurrency": p.concurrency, "fitted": p.ratio, "low": p.low, "high": p.high} for p in found.fit
        ],
        "suspect": list(curve.doubts),
    }


def _command(state: State, config: str, tp: int) -> list[str]:
    """The recorded command line of the last ready start, else of the last one; a comment where there is none."""
    mine = [r for r in state.restarts if (r.config, r.tp) == (config, tp)]
    best: RestartView | None = next(
        (r for r in reversed(mine) if r.outcome == "ready"), mine[-1] if mine else None
    )
    if best is None:
        return ["# its start is not in the recording"]
    unready = (
        []
        if best.outcome == "ready"
        else [f"# this start did not become ready: {best.verdict or best.outcome}"]
    )
    if best.argv:
        return [*unready, shlex.join(best.argv)]
    known = {k: v for k, v in best.resolved_args.items() if "spec" in k and v not in (None, "", False)}
    words = ", ".join(f"{k}={v}" for k, v in known.items())
    return [
        *unready,
        f"# {best.unit} was started by its own command; the server said: {words or 'no speculation'}",
    ]
