"""What may be asked of a run: targets, words, what is looked at first; and what a run does now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddtop import events as ev
from ddtop.journal.act.actions import Actions, Ask, choices
from ddtop.journal.act.now import UNDELIVERED, doing, facts
from ddtop.journal.act.pending import viewer_name
from ddtop.journal.act.seat import Seat
from ddtop.journal.act.targets import APPLIES, NotNow, cell_target, target_of
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from tests.dashboard import story

NOW = story.T0 + 100_000.0


def state_of(script: story.Script) -> State:
    return fold(script.out)


def actions(state: State, now_s: float = NOW) -> Actions:
    return Actions(state, "anna@laptop-cli", now_s)


def asked(ask: Ask | NotNow) -> Ask:
    assert isinstance(ask, Ask), ask
    return ask


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("b16", {"config": "b16"}),
        ("b16-tp1-0", {"cell_id": "b16-tp1-0"}),
        ("b16 fib@256 tp1 c8", {"cell_id": "b16-tp1-4"}),
        ("b16 code@512", {"cell_id": "b16-tp1-2"}),
        ("c8 b16", {"cell_id": "b16-tp1-4"}),
        ("zzz", None),
        ("fib@256", None),
        ("b16 fib@256", None),
        ("", None),
    ],
)
def test_what_a_target_names(text: str, args: dict[str, str] | None) -> None:
    found = target_of(state_of(story.failed()), text)
    if args is None:
        assert isinstance(found, NotNow) and found.unknown
    else:
        assert not isinstance(found, NotNow) and found.args == args


def test_rounds_of_a_cell_are_one_target() -> None:
    specs = tuple(
        ev.CellSpec(
            id=f"id-{start}",
            config="a",
            tp=1,
            workload="fib",
            output_tokens=8,
            concurrency=1,
            context=0,
            restart_key=f"k+{start}" if start else "k",
            start=start,
        )
        for start in range(3)
    )
    state = fold([ev.CellsPlanned(at_s=1.0, mono_s=1.0, cells=specs)])
    found = target_of(state, "a fib@8")
    assert not isinstance(found, NotNow) and found.args == {"cell_id": "id-0"}


def test_what_is_looked_at_first() -> None:
    """What stops or starts a server, or writes to the host; what is undone by a key is not."""
    state = state_of(story.failed())
    a = actions(state)
    target = target_of(state, "b16")
    assert not isinstance(target, NotNow)
    looked = [a.stop(), a.restart_service(), a.restage(), a.resume()]
    assert all(asked(one).confirmed_first(state) for one in looked)
    for one in looked:
        lines = dict(asked(one).facts)
        assert lines["host"] == story.HOST and lines["unit"] == story.UNIT and lines["command"]
    broken = target_of(state, "b8")
    assert not isinstance(broken, NotNow)
    at_once = [a.skip(target), a.retry(broken), a.undo(sent=True), a.pause()]
    assert not any(asked(one).confirmed_first(state) for one in at_once)


def test_reconnecting_touches_nothing() -> None:
    script = story.failed()
    fields = story.alert_fields(script.now) | {
        "alert_id": "lost",
        "verdict": "lost-host",
        "actions": (ev.Action(key="r", label="reconnect now", command="resume"),),
    }
    script.add(ev.AlertRaised, **fields)
    state = state_of(script)
    ask = asked(actions(state).resume())
    assert ask.command.alert_id == "lost" and not ask.confirmed_first(state)  # type: ignore[attr-defined]


def test_proposed_steps_are_approved_less_those_left_out() -> None:
    script = story.failed()
    story.proposed(script)
    state = state_of(script)
    assert state.proposed is not None
    now = (state.proposed.answer_by_s or 0) - 1
    first = state.proposed.steps[0].id
    ask = asked(actions(state, now).resume((first,)))
    assert isinstance(ask.command, ev.Approve) and ask.command.leave_out == (first,)
    assert ask.label == f"do {len(state.proposed.steps) - 1} of {len(state.proposed.steps)} proposed steps"
    unknown = actions(state, now).resume(("nope",))
    assert isinstance(unknown, NotNow) and unknown.unknown
    late = actions(state, now + 2).resume((first,))
    assert isinstance(late, NotNow), "they wait no more"


def test_answers_are_the_alerts_choices() -> None:
    state = state_of(story.failed())
    a = actions(state)
    assert a.alert is not None
    offered = a.offered(a.alert, "retry")
    assert offered is not None and offered == a.offered(a.alert, "r")
    command = asked(a.answer(a.alert, offered)).command
    assert isinstance(command, ev.Retry) and command.alert_id == story.ALERT
    unknown = a.answer(a.alert, ev.Action(key="z", label="z", command="of-a-newer-version"))
    assert isinstance(unknown, NotNow)


WORDS = [
    ("running", story.running, True, "measuring"),
    ("a start under way", story.loading, True, "starting"),
    ("the runner was killed", story.running, False, "no-runner"),
    ("ended", story.finished, False, "ended"),
]


@pytest.mark.parametrize(("what", "script", "live", "word"), WORDS, ids=[w[0] for w in WORDS])
def test_the_word_for_what_a_run_does(what: str, script: Any, live: bool, word: str) -> None:
    state = state_of(script())
    assert doing(state, state.at_s, live=live) == word
    found = facts(state, state.at_s, path=Path("x.ddtop"), live=live)
    assert found["doing"] == word and found["cells"]["total"] == len(state.plan_cells)
    assert None not in found.values(), "what is not known is absent"


def test_a_question_says_its_choices_and_its_default() -> None:
    script = story.failed()
    state = state_of(script)
    by = state.alerts[story.ALERT].raised.answer_by_s
    assert by is not None
    asking = facts(state, by - 1, path=Path("x"), live=True)
    assert asking["doing"] == "asking" and asking["asks"] and asking["advised"] == story.ALERT
    (alert,) = asking["alerts"]
    assert alert["answer_by_s"] == by and alert["default"] and alert["choices"][0]["advised"]
    assert not facts(state, by + 1, path=Path("x"), live=True)["asks"], "the policy decides now"
    script.add(ev.AlertDecided, alert_id=story.ALERT, what="retry b16", by="bob")
    decided = facts(state_of(script), by - 1, path=Path("x"), live=True)
    assert not decided["asks"] and decided["alerts"][0]["decided_by"] == "bob"


def test_what_was_not_delivered_is_said() -> None:
    script = story.running()
    script.add(ev.Note, level="warn", text=f"{UNDELIVERED}: NOT STARTING?")
    found = facts(state_of(script), NOW, path=Path("x"), live=True)
    assert found["undelivered"] == [f"{UNDELIVERED}: NOT STARTING?"]


def test_a_sender_has_a_name_also_where_its_login_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert viewer_name("cli").startswith(f"{os.getuid()}@") and viewer_name("cli") == viewer_name("cli")
    assert viewer_name() != viewer_name(), "two dashboards are two senders"


def test_a_resumed_simulated_run_stays_simulated() -> None:
    """A runner that resumes the demo's recording does not know of the stand-ins; what they gave stays SIMULATED."""
    script = story.running()
    script.add(ev.RunStarted, run_id="ct200-20261118-1", name="ct200-qwen", mode="sweep", segment=1)
    state = fold(script.out)
    assert state.run.simulated
    assert facts(state, state.at_s, path=Path("r.ddtop"), live=True)["simulated"] is True


def test_a_run_that_is_over_offers_nothing_to_skip_or_to_stage() -> None:
    """It asked to start a runner, which then found nothing to do."""
    script = story.finished()
    over = state_of(script)
    assert over.run.ended is not None
    done = next(c for c in over.plan_cells if c.state == "done")
    left = actions(over)
    for target in (target_of(over, done.id), target_of(over, done.spec.config)):
        assert not isinstance(target, NotNow)
        assert isinstance(left.skip(target), NotNow)
        assert isinstance(left.retry(target), NotNow)
    assert isinstance(left.restage(), NotNow)


STALLED = {
    "verdict": "stalled",
    "actions": (
        ev.Action(key="r", label="retry b16", command="retry", args={"config": "b16"}),
        ev.Action(key="w", label="wait longer", command="wait"),
        ev.Action(key="x", label="skip b16", command="skip", args={"config": "b16"}),
        ev.Action(key="?", label="from a later version", command="no-such-command"),
    ),
}
REPLAY, OVER, GONE = Seat(replay=True, held=False), Seat(held=False), Seat(held=False, starts=True)


def stalled(*, decided: bool = False) -> State:
    script = story.failed()
    script.add(ev.AlertRaised, **story.alert_fields(script.now) | STALLED)
    if decided:
        script.add(ev.AlertDecided, alert_id=story.ALERT, what="skip b16", by="ann")
        for cell in story.cells():
            if cell.config == "b16":
                script.add(ev.CellStateSet, cell_id=cell.id, state="skipped", reason="asked", by="ann")
    return state_of(script)


@pytest.mark.parametrize(
    ("state", "seat", "offered"),
    [
        (stalled(), Seat(), ["retry", "wait", "skip"]),
        (stalled(), REPLAY, []),
        (stalled(), OVER, []),
        (stalled(), GONE, []),
        (stalled(decided=True), Seat(), ["retry"]),
    ],
)
def test_an_alert_offers_what_can_be_carried_out(state: State, seat: Seat, offered: list[str]) -> None:
    (alert,) = state.open_alerts
    assert [action.command for action in choices(state, alert, seat)] == offered


@pytest.mark.parametrize("seat", [REPLAY, OVER, GONE])
@pytest.mark.parametrize("make", [story.running, story.finished])
def test_where_no_runner_is_every_action_says_why(seat: Seat, make: Any) -> None:
    state = state_of(make())
    target = target_of(state, "b15")
    assert not isinstance(target, NotNow)
    a = Actions(state, "anna@laptop-cli", NOW, seat)
    asks = [
        a.skip(target),
        a.retry(target),
        a.mark_broken(target, broken=True),
        a.undo(sent=True),
        a.restage(),
    ]
    asks += [a.restart_service(), a.pause(), a.go_on(), a.stop(), a.wait_longer(), a.resume()]
    for ask in asks:
        assert isinstance(ask, NotNow) and ask.nobody and not ask.unknown
        assert ask.why.startswith("Nothing can be ") and ask.why.endswith(".")
        word = "replay" if seat.replay else "has ended" if state.run.ended is not None else "is gone"
        assert word in ask.why
        assert ("r starts a runner" in ask.why) == (seat is GONE and state.run.ended is None)


def test_what_a_key_changes_is_what_the_runner_changes() -> None:
    """One table for both: what is refused there is not offered here."""
    state = state_of(story.failed())
    a = actions(state)
    for cell in state.plan_cells:
        target = cell_target(cell.spec)
        assert isinstance(a.retry(target), Ask) == (cell.state in APPLIES["retry"])
        assert isinstance(a.skip(target), Ask) == (cell.state in APPLIES["skip"])
        assert isinstance(a.mark_broken(target, broken=False), Ask) == (cell.state == "broken")
        assert cell.spec.load_name in target.label.split(), "the other loads of it are not meant"
    done = next(c for c in state.plan_cells if c.state == "done")
    again = msgspec.structs.replace(done.spec, start=2, repeat=1)
    assert cell_target(again).label == f"{done.spec.label} #1", "one repeat, in all rounds"
    why = a.skip(cell_target(done.spec))
    assert (
        isinstance(why, NotNow)
        and why.why == f"There is nothing to skip: {cell_target(done.spec).label} is done."
    )


def test_only_what_this_sender_changed_in_this_segment_is_undone() -> None:
    script = story.running()

    def seen(command: str, outcome: str = "obeyed", viewer: str = "anna@laptop-cli") -> bool:
        script.add(
            ev.CommandSeen, command_id=f"c{len(script.out)}", viewer=viewer, command=command, outcome=outcome
        )
        return isinstance(actions(state_of(script)).undo(), Ask)

    assert not seen("pause")
    assert not seen("skip", "refused")
    assert not seen("skip", viewer="bob@desk-1")
    assert seen("skip")
    assert not seen("undo")
    assert seen("retry")
    script.wait(5)
    script.add(ev.RunStarted, run_id="r", name="n", mode="sweep", segment=1)
    assert not isinstance(actions(state_of(script)).undo(), Ask), "the runner that knew it is gone"


def test_a_sweep_is_paused_before_its_cells_are_planned_too() -> None:
    """A script that pauses right after `connect --detach` is heard; a host that is only watched has nothing to pause."""
    events = story.failed().out
    begun = next(n for n in range(len(events)) if fold(events[: n + 1]).run.started_at_s is not None)
    early = fold(events[: begun + 1])
    assert early.run.mode == "sweep" and not early.plan_cells
    assert isinstance(actions(early).pause(), Ask)
    watched = fold(
        [
            msgspec.structs.replace(e, mode="monitor")
            for e in events[: begun + 1]
            if isinstance(e, ev.RunStarted)
        ]
    )
    assert isinstance(actions(watched).pause(), NotNow)
