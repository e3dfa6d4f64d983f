"""A measured cell of a recording as a row of InferenceX."""

from __future__ import annotations

from typing import Any

from ddtop.bench.inferencex import ServerFacts, to_inferencex
from ddtop.events import CellMeasured, CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import RestartView
from ddtop.journal.read.select import starts_of
from ddtop.journal.results.per_gpu import gpus_unknown


def inferencex_row(state: State, spec: CellSpec, event: CellMeasured) -> dict[str, Any]:
    """The row of one result, with ddtop's judgement of it."""
    row = to_inferencex(event.raw, event.metrics, server_facts(state, spec, event))
    return {**row, "ddtop_validity": event.validity, "ddtop_reasons": list(event.reasons)}


def server_facts(state: State, spec: CellSpec, event: CellMeasured) -> ServerFacts:
    """What is recorded of the server that a result is of: by its generation, else of the cell's last ready start."""
    restart = _start_of(state, spec, event)
    found = restart.provenance if restart is not None else None
    facts = found.facts if found is not None else {}
    image, model = facts.get("image") or {}, facts.get("model") or {}
    gpus = found.gpus if found is not None else None
    views = [state.gpus[i] for i in gpus or () if i in state.gpus] or list(state.gpus.values())
    return ServerFacts(
        engine=event.engine or (restart.engine if restart is not None else ""),
        version=event.engine_version,
        tp=spec.tp,
        args=restart.resolved_args if restart is not None else {},
        argv=restart.argv if restart is not None else (),
        model_path=str(model.get("path") or ""),
        gpu_name=next((v.reading.name for v in views if v.reading.name), None),
        gpus=len(gpus) if gpus else None,
        gpus_unknown="" if gpus else gpus_unknown(state, spec.config, spec.tp),
        image=image.get("digest") or image.get("image"),
    )


def _start_of(state: State, spec: CellSpec, event: CellMeasured) -> RestartView | None:
    ready = [r for r in starts_of(state, spec) if r.generation is not None]
    mine = [r for r in ready if event.generation is not None and r.generation == event.generation]
    found = mine or ready
    return found[-1] if found else None
