"""Attempts at cells: which job made one, on which server, and their beginning and interruption in the recording."""

from __future__ import annotations

from ddtop.bench.judge.validity import judge_reasons
from ddtop.events import CellStarted, CellStateSet, Generation
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AttemptView, CellView
from ddtop.sweep.shared.context import SweepContext


def attempt_for(cell: CellView, job: str) -> AttemptView | None:
    """The attempt that `job` made or makes at the cell."""
    return next((a for a in reversed(cell.attempts) if a.job == job), None)


def has_result(cell: CellView, job: str) -> bool:
    """Whether the result of `job` for this cell is recorded."""
    return cell.has_result_of(job)


def cells_with_result(state: State, job: str) -> list[str]:
    """Ids of the cells for which the result of `job` is recorded."""
    return [c.id for c in state.cells.values() if has_result(c, job)]


def measured_by(state: State, job: str) -> Generation | None:
    """The server that `job` measured, by its cells that have begun; None where it has begun none."""
    for cell in state.cells.values():
        for attempt in cell.attempts:
            if attempt.job == job and attempt.generation is not None:
                return attempt.generation
    return None


def generation_of(state: State, job: str, restart_key: str) -> Generation | None:
    """The server that `job` measured: as its other cells have it, else the one last ready for `restart_key`."""
    known = measured_by(state, job)
    if known is not None:
        return known
    keys = {c.id: c.spec.restart_key for c in state.cells.values()}
    for restart in reversed(state.restarts):
        if restart.outcome == "ready" and restart_key in {keys.get(i) for i in restart.cell_ids}:
            return restart.generation
    return None


def version_of(state: State, generation: Generation | None) -> str | None:
    """The engine's version of a start that became ready; None where it is not known."""
    for restart in reversed(state.restarts):
        started = restart.generation
        if started is not None and generation is not None and started.id == generation.id:
            return restart.engine_version
    return None


def tried_before(cell: CellView, number: int, fault: str) -> int:
    """How often the cell was measured before attempt `number` and found INVALID by the fault of the same side."""
    earlier = [a for a in cell.attempts if a.number < number and a.validity == "INVALID"]
    return sum(judge_reasons(a.reasons).fault == fault for a in earlier)


def begin_cell(ctx: SweepContext, cell: CellView, job: str, generation: Generation | None) -> int:
    """Records, once for each job, that the cell is being measured; returns the attempt's number.

    A search that goes on has one attempt for all its jobs.
    """
    old = attempt_for(cell, job)
    generation = generation or generation_of(ctx.state, job, cell.spec.restart_key)
    number = old.number if old else max((a.number for a in cell.attempts), default=0) + 1
    if old is None and cell.spec.search is not None and cell.state == "running" and cell.attempts:
        number -= cell.attempts[-1].measured_at_s is None
    if old is None:
        ctx.emit(CellStarted, cell_id=cell.id, attempt=number, job=job, generation=generation)
    if cell.state != "running":
        ctx.emit(CellStateSet, cell_id=cell.id, state="running", attempt=number)
    return number


def in_flight(state: State) -> str | None:
    """Id of the cell that is being measured now."""
    return next((c.id for c in state.cells.values() if c.state == "running"), None)


def _begun(state: State, job: str) -> list[CellView]:
    """Cells that `job` has begun and not finished, and that no later job has begun."""
    return [
        c
        for c in state.cells.values()
        if c.state == "running" and c.attempts and c.attempts[-1].job == job and not has_result(c, job)
    ]


def interrupt_begun(ctx: SweepContext, job: str, why: str) -> None:
    """Interrupts the cells that the job had begun and not finished."""
    for cell in _begun(ctx.state, job):
        number = cell.attempts[-1].number
        ctx.emit(CellStateSet, cell_id=cell.id, state="interrupted", reason=why, attempt=number)


def return_begun(ctx: SweepContext, job: str) -> None:
    """Plans a cell again that the job began before the order to stop reached it, as if it had not begun."""
    for cell in _begun(ctx.state, job):
        ctx.emit(CellStateSet, cell_id=cell.id, state="planned", reason="the job was stopped before it")
