"""What one run teaches: pure, from its state to rows of the history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tomli

from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, RestartView
from ddtop.journal.read.select import DEFAULT_METRIC, Column, tps
from ddtop.journal.results.matrix import fields_of, starts_in
from ddtop.stats.spread import Spread, Starts, combined, pooled

Row = tuple[Any, ...]

REMEDIES = {
    "retry": "starting it again",
    "restage": "re-staging the model",
    "restart-service": "restarting the service",
    "wait": "waiting longer",
    "skip": "skipping it",
    "mark-broken": "marking it broken",
}
"""Commands of people, as they follow "fixed by"."""
POLICY_REMEDIES = (
    ("re-stage", "re-staging the model"),
    ("start ", "starting it again"),
    ("restart the server", "restarting the server"),
    ("measure it again", "measuring it again"),
    ("wait until a probe", "waiting until the host was clean"),
    ("wait up to", "waiting until the port was free"),
    ("wait", "waiting"),
    ("reconnect", "connecting again"),
)
"""Beginnings of the policy's words (sweep/policy.py), in order."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """Rows for the history, each in the column order of its table, less the run's id."""

    run_id: str
    host: str
    at_s: float
    phases: list[Row] = field(default_factory=list)
    starts: list[Row] = field(default_factory=list)
    cells: list[Row] = field(default_factory=list)
    broken: list[Row] = field(default_factory=list)
    causes: list[Row] = field(default_factory=list)
    spreads: list[Row] = field(default_factory=list)

    def tables(self) -> dict[str, list[Row]]:
        return {
            "phases": self.phases,
            "starts": self.starts,
            "cells": self.cells,
            "broken": self.broken,
            "causes": self.causes,
            "spreads": self.spreads,
        }


def model_name(plan_toml: str | None) -> str:
    """Name of the model in a plan's text; empty where there is none."""
    try:
        model = tomli.loads(plan_toml or "").get("model", {})
    except tomli.TOMLDecodeError:
        return ""
    if not isinstance(model, dict):
        return ""
    return str(model.get("name") or model.get("path") or "")


def lessons(state: State) -> Lessons:
    """What `state` teaches. Only starts that came up teach durations; an INVALID cell teaches none."""
    host, model = state.host.name, model_name(state.run.plan_toml)
    out = Lessons(state.run.run_id, host, state.run.started_at_s or 0.0)
    for restart in state.restarts:
        if restart.outcome != "ready":
            continue
        key = (host, model, restart.tp, restart.engine, restart.config)
        seconds = restart.seconds if restart.seconds is not None else restart.ready_s
        if seconds is not None:
            out.starts.append((*key, seconds, restart.started_at_s))
        out.phases.extend(
            (*key, phase.phase, phase.elapsed_s, phase.longest_quiet_s, phase.first_at_s)
            for phase in restart.phases.values()
            if phase.state == "done"
        )
    for cell in state.cells.values():
        spec = cell.spec
        if cell.state == "done" and cell.seconds is not None and cell.validity != "INVALID":
            load = (spec.workload, spec.output_tokens, spec.concurrency, spec.context)
            out.cells.append(
                (
                    host,
                    model,
                    cell.engine,
                    spec.config,
                    spec.tp,
                    *load,
                    cell.seconds,
                    cell.state_at_s,
                    spec.load_name,
                )
            )
        if cell.state == "broken":
            what = (cell.reason, cell.cause, cell.signature_id, cell.engine_version, cell.state_at_s)
            out.broken.append((host, cell.id, spec.config, *what))
    spread = spread_between_starts(state)
    if spread.basis == "starts":
        engine = next((c.engine for c in state.plan_cells if c.engine), "")
        out.spreads.append((host, model, engine, spread.sd, spread.freedom, out.at_s))
    for alert in state.alerts.values():
        raised = alert.raised
        how = remedy(state, alert) if alert.resolved is not None else None
        seen = (
            host,
            raised.alert_id,
            raised.cause,
            raised.verdict,
            how,
            int(_worked(state, alert)),
            alert.at_s,
        )
        out.causes.append((*seen, *_versions(state, alert)))
    return out


def spread_between_starts(state: State) -> Spread:
    """Of tok/s, over all loads. Its degrees of freedom are those of one load: loads share their starts."""
    found: list[Spread] = []
    for tp in tps(state):
        fields, _, columns = fields_of(state, tp)
        loads: dict[Column, list[Starts]] = {column: [] for column in columns}
        for (_, column), cells in fields.items():
            loads[column].append(starts_in(cells, DEFAULT_METRIC))
        mine = [pooled(results) for results in loads.values()]
        whole = combined(mine)
        most = max((s.freedom for s in mine if s.basis == "starts"), default=0)
        found.append(Spread(whole.basis, whole.sd, most))
    return combined(found)


def remedy(state: State, alert: AlertView) -> str | None:
    """What was done about an alert between its begin and its end, as it follows "fixed by". A person's command goes
    before the policy's words; None for an alert that is open."""
    if alert.resolved is None:
        return None
    for command in reversed(state.commands):
        if (
            command.outcome == "obeyed"
            and command.command in REMEDIES
            and alert.at_s <= command.at_s <= alert.resolved.at_s
        ):
            return REMEDIES[command.command]
    policy = alert.raised.policy or ""
    for begin, words in POLICY_REMEDIES:
        if policy.startswith(begin):
            return words
    return alert.resolved.how


def _versions(state: State, alert: AlertView) -> tuple[str | None, str | None, str | None]:
    """(engine, its version, driver) when the alert was raised, as far as the run knew them: of its cell, else of the
    server of its attempt, else of the last one that was ready."""
    cells = [state.cells[i] for i in alert.raised.cell_ids if i in state.cells]
    known = [r for r in state.restarts if r.engine_version]
    mine = [r for r in known if r.attempt_id == alert.raised.attempt_id] or known[-1:]
    engine = next((c.engine for c in cells if c.engine_version), None) or (mine[0].engine if mine else None)
    version = next((c.engine_version for c in cells if c.engine_version), None)
    version = version or (mine[0].engine_version if mine else None)
    driver = next((c.driver for c in (*cells, *state.cells.values()) if c.driver), None)
    return engine or None, version, driver


def _worked(state: State, alert: AlertView) -> bool:
    """True where what ended the alert led to the next start coming up (or, without a start, was enough). An alert of
    a start ends when the next one is ready, or at the moment when a person or the policy starts it."""
    if alert.resolved is None or "marked" in alert.resolved.how:
        return False  # its cells were given up
    failed = next((r for r in state.restarts if r.attempt_id == alert.raised.attempt_id), None)
    if failed is None:
        return True
    same: list[RestartView] = [
        r
        for r in state.restarts
        if r.started_at_s >= alert.at_s and (r.config, r.tp) == (failed.config, failed.tp)
    ]
    while_open = [r for r in same if r.started_at_s < alert.resolved.at_s]
    return any(r.outcome == "ready" for r in while_open or same[:1])
