"""A cause that an earlier run met on this host says so in its alert: how often, with what, and what helped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.journal.fold.apply import fold
from ddtop.journal.history.store import CauseSeen, History
from ddtop.journal.read.eta import sweep_eta
from ddtop.sweep.setup.history import learn_from, recall, recall_causes
from ddtop.sweep.shared.context import SweepContext
from tests.sweep import test_controller
from tests.sweep.test_controller import Rig, make_sweep


def one_run(run_id: str, fault: str, limit: int | None = 1) -> list[ev.AlertRaised]:
    """A run whose configuration b fails at its first start(s); its alerts. What it taught is kept."""
    rig = Rig()
    rig.world.faults = {"--context-length 8192": fault}
    if limit is not None:
        rig.world.limits = {"--context-length 8192": limit}
    rig.run()
    state = rig.state
    state.run.run_id = run_id
    learn_from(state)
    return [e for e in rig.events if isinstance(e, ev.AlertRaised)]


@pytest.fixture(autouse=True)
def recalling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every run begins as the runner begins it: by recalling."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def make(**fields: Any) -> SweepContext:
        ctx = SweepContext(**fields)
        recall_causes(ctx)
        return ctx

    monkeypatch.setattr(test_controller, "SweepContext", make)


def test_the_second_run_knows_what_helped_in_the_first() -> None:
    (first,) = one_run("one", "hang")
    assert first.cause == "hang-asleep" and first.seen_before is None
    (second,) = one_run("two", "hang")
    assert (
        second.seen_before
        == "seen once on this host (with sglang 0.5.16); last time fixed by starting it again"
    )
    (third,) = one_run("three", "hang")
    assert third.seen_before == (
        "seen twice on this host (last with sglang 0.5.16); last time fixed by starting it again"
    )


def test_a_remedy_that_never_helped_is_not_reported() -> None:
    one_run("one", "crash", None)
    alerts = one_run("two", "crash", None)
    assert {a.cause for a in alerts} == {"oom-loading-weights"}
    assert {a.seen_before for a in alerts} == {"seen once on this host (with sglang 0.5.16)"}


def test_another_cause_was_not_seen() -> None:
    one_run("one", "hang")
    assert all(a.seen_before is None for a in one_run("two", "crash", None))


def test_a_name_for_whatever_has_no_rule_is_no_cause_met_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two exceptions that no rule knows are two causes with one name."""
    seen = {name: CauseSeen(5, None) for name in ("unhandled-exception", "port-in-use")}
    monkeypatch.setattr(History, "causes_seen", lambda self, host: seen)
    ctx = SimpleNamespace(host_name="gpu-1", seen_before={})
    recall_causes(ctx)  # type: ignore[arg-type]
    assert set(ctx.seen_before) == {"port-in-use"}


def test_an_older_history_file_takes_the_new_columns(tmp_path: Path) -> None:
    """The file of a version before causes had engine and driver is migrated, and its causes stay."""
    import sqlite3

    from ddtop.journal.history import store as module

    path = tmp_path / "history.db"
    db = sqlite3.connect(path, isolation_level=None)
    module._first(db)
    db.execute("INSERT INTO causes VALUES ('r', 'h', 'a', 'c', 'failed', 'retry', 1, 1.0)")
    db.execute(f"PRAGMA application_id = {module.HISTORY.application_id}")
    db.execute("PRAGMA user_version = 1")
    db.close()
    with History(path) as history:
        assert history.cause_seen("h", "c") == CauseSeen(1, "retry")


def test_the_second_run_says_how_long_the_first_one_took() -> None:
    """For the time left before this run has measured anything."""
    one_run("one", "hang")
    sweep = replace(make_sweep(), model=None)  # as the first run's recording has no plan's text
    planned = ev.CellsPlanned(at_s=0.0, mono_s=0.0, host="fake", cells=sweep.cells, baseline="a")
    events: list[ev.Event] = []
    ctx = SweepContext(
        run_id="two",
        host_name="fake",
        sink=events.append,
        state=fold([planned]),
        sweep=sweep,
        mono=lambda: 1.0,
        wall=lambda: 1e9,
    )
    recall(ctx, sweep)
    learned = ctx.state.learned
    assert learned is not None and {"a0", "b0"} <= set(learned.cells)
    assert all(seconds > 0 for seconds in learned.cells.values())
    assert set(learned.starts) == {cell.restart_key for cell in sweep.cells}
    assert sweep_eta(ctx.state, 1e9).total_s is not None
