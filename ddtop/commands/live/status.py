"""`status` and `cells`: what a run does now, what it asks, and its cells."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from ddtop.commands.live.read import as_json, read_now, which
from ddtop.dashboard.panels.timeline.typed import parse_time
from ddtop.errors import DdtopError, UsageError, plain
from ddtop.events import CellState
from ddtop.journal.act.now import SCHEMA, cell_facts, facts
from ddtop.journal.locks import live_recordings
from ddtop.journal.read.eta import Eta
from ddtop.journal.read.select import Counts
from ddtop.journal.results.matrix import bests
from ddtop.report.conclusion.best import best_json, best_lines
from ddtop.report.conclusion.changes import change_text
from ddtop.words import duration, many


def status(run: str | None, *, json_out: bool, since: str | None = None) -> str:
    """Text or JSON of one run; without `run`, of all that are live here, and of the last that ended. `since`: what changed
    after that moment instead, as text. Raises UsageError on a moment that cannot be read."""
    if since is not None:
        if json_out:
            raise UsageError(
                "status: --since is for people", do="leave out --json, or ddtop wait --since SEQ --json"
            )
        return plain(_changes(which(run), since))
    if run is not None:
        one = _facts(which(run))
        return as_json(one) if json_out else plain(status_text(one))
    found = [_facts(path) for path in live_recordings()]
    last = _last_ended({f["path"] for f in found})
    if json_out:
        return as_json({"schema": SCHEMA, "runs": found, **({"last": last} if last else {})})
    texts = [status_text(one) for one in found] or ["no run is live on this machine"]
    if last:
        texts.append(("last: " if not found else "last ended: ") + status_text(last))
    return plain("\n\n".join(texts))


def _facts(path: Path) -> dict[str, Any]:
    now = read_now(path)
    found = bests(now.state)
    best = (
        {"best": best_json(found), "best_words": best_lines(found, now.state.run.baseline)} if found else {}
    )
    return {**facts(now.state, time.time(), path=path, live=now.live), **best}


def _changes(path: Path, since: str) -> str:
    """What changed in a run since `since`: a span before now (or before its end), or a time of day."""
    now = read_now(path)
    at_s = time.time() if now.live else now.state.at_s
    back = since if since[:1] in "+-" or ":" in since else f"-{since}"
    since_s = parse_time(back, at_s, now.state.run.started_at_s)
    if since_s is None:
        raise UsageError(
            f"status --since: `{since}` is no time",
            do="give a span such as 90m or 8h, or a time such as 22:15",
        )
    return change_text(now.state, since_s, at_s, live=now.live)


def _last_ended(but: set[str]) -> dict[str, Any] | None:
    """The newest recording here that is not live."""
    from ddtop.journal.read.runs import list_runs

    for run in list_runs(elsewhere=True):
        if not run.live and run.problem is None and str(run.path) not in but:
            try:
                return _facts(run.path)
            except DdtopError:
                continue
    return None


def clock(at_s: float, now_s: float) -> str:
    """A time of day; with the date where it is another day."""
    there, here = time.localtime(at_s), time.localtime(now_s)
    return time.strftime("%H:%M" if there[:3] == here[:3] else "%Y-%m-%d %H:%M", there)


def status_text(one: dict[str, Any]) -> str:
    """What people read."""
    now_s, word = one["at_s"], one["doing"]
    name = f"{one.get('name') or 'watching'} on {one.get('host', '?')}"
    lines = [f"{name} · run {one.get('run', '?')}{' · SIMULATED' if one.get('simulated') else ''}"]
    word_at = "at" if word == "ended" else "since"
    since = f", {word_at} {clock(one['since_s'], now_s)}" if "since_s" in one else ""
    lines.append(f"  {word.replace('-', ' ')}: {_doing(one)}{since}")
    if (allocation := one.get("allocation")) and word != "ended":
        lines.append(f"  Slurm: {allocation['words']}")
    if cells := one.get("cells"):
        named = {key: value for key, value in cells.items() if key != "remaining"}
        tally = Counts(**named, planned=cells.get("remaining", 0))
        lines.append(f"  {tally.of_total(ended='ended' in one)}")
    if eta := one.get("eta"):
        # The words of the dashboard's header: two screens never say different things about the same run.
        left = Eta(
            eta.get("left_s"),
            0,
            eta["starts"],
            at_most="at_most" in eta,
            low_s=eta.get("low_s", 0.0),
            high_s=eta.get("high_s"),
        )
        by_s = left.ends_by(now_s)
        by = (
            f", by {clock(by_s, now_s)}"
            if by_s is not None
            else ": no similar cell or start was measured yet"
        )
        lines.append(f"  ETA: {left.words}{by} ({many(left.restarts, 'start')} left)")
    lines += [
        f"  {'best: ' if not n else '      '}{text}" for n, text in enumerate(one.get("best_words", ()))
    ]
    if paused := one.get("paused"):
        lines.append(f"  paused by {paused['by']}" + (f": {paused['reason']}" if "reason" in paused else ""))
    for alert in one.get("alerts", ()):
        lines += _alert_lines(alert, one, now_s)
    lines += _steps_lines(one, now_s)
    lines += [
        f"  {'! ' if 'undelivered' in one and w['text'] in one['undelivered'] else ''}warning: {w['text']}"
        for w in one.get("warnings", ())[-3:]
    ]
    lines.append(f"  recording: {one['path']}")
    return "\n".join(lines)


def _doing(one: dict[str, Any]) -> str:
    """The line of what it does."""
    match one["doing"]:
        case "ended":
            ended = one["ended"]
            left = f"; left behind: {'; '.join(ended['left_behind'])}" if ended.get("left_behind") else ""
            return str(ended["outcome"]) + (f" ({ended['reason']})" if "reason" in ended else "") + left
        case "no-runner":
            return f"its runner is gone; ddtop connect {one.get('host', 'HOST')} --detach resumes it"
        case "staging":
            stage = one["staging"]
            total = stage.get("bytes_total")
            share = f" {100 * stage.get('bytes_done', 0) / total:.0f}%" if total else ""
            return f"{stage['target']}{share}"
        case "starting":
            return _start_words(one["start"])
        case "measuring":
            return _cell_words(one["cell"])
        case "connecting" if one.get("allocation", {}).get("state") == "PENDING":
            return "the job is queued"
        case "host-lost" | "connecting":
            return str(one.get("link", {}).get("error", "the host does not answer yet"))
        case "asking":
            return "an answer is awaited, see below"
    return str(one.get("config", one.get("host", "?")))


def _start_words(start: dict[str, Any]) -> str:
    usual = f" (usually {duration(start['usual_s'])})" if "usual_s" in start else ""
    phase = start.get("phase", "launching")
    pct = f" {start['phase_pct']:.0f}%" if "phase_pct" in start else ""
    return (
        f"{start['unit']} for {start['config']}, {phase}{pct}, {duration(start['elapsed_s'])} so far{usual}"
    )


def _cell_words(cell: dict[str, Any]) -> str:
    done = (
        f", {cell['requests_done']} of {cell['requests_total']} requests"
        if "requests_done" in cell and "requests_total" in cell
        else ""
    )
    speed = f", {cell['tok_s_now']:.1f} tok/s now" if "tok_s_now" in cell else ""
    return f"{cell['label']}{done}{speed}"


def _alert_lines(alert: dict[str, Any], one: dict[str, Any], now_s: float) -> list[str]:
    lines = [f"  ! {alert['title']}  {alert.get('cause_text', alert.get('cause', ''))}"]
    if "advice" in alert:
        lines.append(f"      advice: {alert['advice']}")
    if "decided" in alert:
        return [*lines, f"      decided: {alert['decided']} ({alert['decided_by']})"]
    run = one.get("run", "RUN")
    lines += [f"      {c['key']}  {c['label']}: ddtop do {run} answer {c['key']}" for c in alert["choices"]]
    if "answer_by_s" in alert:
        left = duration(alert["answer_by_s"] - now_s)
        lines.append(f"      without an answer: {alert.get('default', 'the policy decides')}, in {left}")
    return lines


def _steps_lines(one: dict[str, Any], now_s: float) -> list[str]:
    plan = one.get("steps")
    if not plan:
        return []
    head = "steps wait for approval" if plan["asks"] else "steps under way"
    lines = [f"  {head}: {plan.get('why', '')}"]
    for step in plan["steps"]:
        state = f" [{step['state']}]" if "state" in step else ""
        lines.append(f"      {step['id']}{state}  {step['title']}: {step['reason']}")
    if plan["asks"]:
        left = duration(plan["answer_by_s"] - now_s)
        lines.append(f"      do them: ddtop do {one.get('run', 'RUN')} resume --yes [--leave-out STEP]")
        lines.append(f"      without an answer: {plan['default']}, in {left}")
    return lines


def cells(run: str | None, states: Sequence[str], *, json_out: bool) -> str:
    """Text or JSON of the cells of a run, in running order."""
    known_states = get_args(CellState)
    wanted = [part for word in states for part in word.split(",")]
    if wrong := [w for w in wanted if w not in known_states]:
        raise UsageError(
            f"cells --state: `{wrong[0]}` is none", do=f"name one or more of {', '.join(known_states)}"
        )
    now = read_now(which(run))
    at_s = time.time()
    chosen = [c for c in now.state.plan_cells if not wanted or c.state in wanted]
    marks = {one_id: one for one in bests(now.state) if one.verdict != "alone" for one_id in one.field.ids}
    rows = [
        {
            **cell_facts(c, at_s),
            **({"best": "sure" if marks[c.id].sure else "not sure"} if c.id in marks else {}),
        }
        for c in chosen
    ]
    if json_out:
        return as_json({"schema": SCHEMA, "run": now.state.run.run_id, "cells": rows})
    if not rows:
        return "no such cells" if now.state.plan_cells else "this run has no cells: no plan was given"
    width = max(len(row["label"]) for row in rows)
    told = list({id(marks[row["id"]]): marks[row["id"]] for row in rows if row["id"] in marks}.values())
    notes = ["", *best_lines(told, now.state.run.baseline)] if told else []
    return plain("\n".join([*(_cell_line(row, width) for row in rows), *notes]))


def _cell_line(row: dict[str, Any], width: int) -> str:
    speed = f"{row['output_tok_s']:>9,.1f} tok/s" if "output_tok_s" in row else " " * 9 + "   n/a"
    speed += {"sure": " ★", "not sure": " ☆"}.get(row.get("best", ""), "  ")
    doubts = f" [{', '.join(row['reasons'])}]" if "reasons" in row else ""
    why = f"  {row['reason']}" if "reason" in row and row["state"] != "done" else ""
    return (
        f"{row['id'][:12]}  {row['label']:{width}}  {row['state']:11} {speed} {row.get('validity', '')}{doubts}{why}"
    ).rstrip()
