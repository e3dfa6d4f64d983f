"""What one run teaches: pure, from its state to rows of the history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tomli

from ddtop.journal.state import State
from ddtop.journal.views import AlertView, RestartView

Row = tuple[Any, ...]


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

    def tables(self) -> dict[str, list[Row]]:
        return {
            "phases": self.phases,
            "starts": self.starts,
            "cells": self.cells,
            "broken": self.broken,
            "causes": self.causes,
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
                (host, model, cell.engine, spec.config, spec.tp, *load, cell.seconds, cell.state_at_s)
            )
        if cell.state == "broken":
            what = (cell.reason, cell.cause, cell.signature_id, cell.engine_version, cell.state_at_s)
            out.broken.append((host, cell.id, spec.config, *what))
    for alert in state.alerts.values():
        how = alert.resolved.how if alert.resolved is not None else None
        raised = alert.raised
        out.causes.append(
            (host, raised.alert_id, raised.cause, raised.verdict, how, int(_worked(state, alert)), alert.at_s)
        )
    return out


def _worked(state: State, alert: AlertView) -> bool:
    """True where what resolved the alert led to the next start coming up (or, without a start, was enough)."""
    if alert.resolved is None:
        return False
    after: list[RestartView] = [r for r in state.restarts if r.started_at_s >= alert.resolved.at_s]
    failed = next((r for r in state.restarts if r.attempt_id == alert.raised.attempt_id), None)
    same = [r for r in after if failed is None or (r.config, r.tp) == (failed.config, failed.tp)]
    if failed is None:
        return True
    return bool(same) and same[0].outcome == "ready"
