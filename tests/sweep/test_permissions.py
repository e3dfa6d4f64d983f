"""A login that may not do what the plan needs is told once, before anything is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.hosts.base import Hello
from ddtop.sweep.setup.permissions import missing_rights
from tests.sweep.test_controller import Rig, make_sweep

ROOT = frozenset({"systemd", "restart", "override", "journal", "ports", "processes", "jobs"})


def hello(can: frozenset[str], state_dir: str | None = "/home/ann/.local/state/ddtop") -> Hello:
    return Hello(
        agent="f" * 64,
        python="3.11",
        uid=1000,
        user="ann",
        boot="b/1",
        can=can,
        unknown=frozenset(),
        hostname="h",
        state_dir=state_dir,
        mono_s=0.0,
        at_s=0.0,
    )


def run_by(**changes: Any) -> Any:
    sweep = make_sweep()
    return replace(sweep, launches={k: replace(x, **changes) for k, x in sweep.launches.items()})


@pytest.mark.parametrize(
    ("sweep", "can", "words"),
    [
        (run_by(), ROOT, []),
        (run_by(), frozenset({"systemd", "processes"}), ["override of s.service", "outlive"]),
        (run_by(), frozenset({"systemd", "user-units", "jobs"}), ["override of s.service"]),
        (run_by(user=True), frozenset({"systemd", "user-units", "jobs"}), []),
        (run_by(user=True), frozenset({"systemd", "jobs"}), ["own manager end"]),
        # Whether a polkit rule allows the restart, or the script may do it, shows when it is tried.
        (run_by(argv=(), env={}), frozenset({"systemd", "jobs"}), []),
        (run_by(kind="command", configure=("/x",)), frozenset({"systemd", "jobs"}), []),
        (run_by(kind="process"), frozenset({"jobs"}), []),
        (run_by(kind="docker"), frozenset({"systemd"}), ["outlive"]),
    ],
)
def test_what_is_certain_to_be_refused(sweep: Any, can: frozenset[str], words: list[str]) -> None:
    found = missing_rights(hello(can), sweep)
    assert len(found) == len(words) and all(w in f.what for w, f in zip(words, found, strict=True)), found
    assert all("root" in f.remedy or "host_dir" in f.remedy for f in found)


def test_nowhere_to_keep_results() -> None:
    (found,) = missing_rights(hello(ROOT, state_dir=None), run_by())
    assert "host_dir" in found.remedy and "disk" in found.what


def test_one_alert_and_nothing_is_touched() -> None:
    rig = Rig()
    may = rig.world.can
    rig.world.can, rig.world.user, rig.world.model = frozenset({"systemd"}), "plain", False
    outcome = rig.run()
    assert outcome.word == "refused" and "plain may not" in outcome.reason and "root" in outcome.reason
    raised = [e for e in rig.events if isinstance(e, ev.AlertRaised)]
    assert [(e.verdict, e.cause, e.answer_by_s) for e in raised] == [("refused", "not-permitted", None)]
    assert rig.world.starts == [] and rig.world.jobs == {} and not rig.world.model
    assert all(c.state == "planned" for c in rig.state.plan_cells), (
        "with other rights all of them can be measured"
    )
    rig.world.can = may
    assert rig.run().word == "done" and rig.state.open_alerts == []
