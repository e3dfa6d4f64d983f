"""Every key that acts, pressed on a running app: which command goes out, or what is shown."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from textual.events import Key
from textual.widgets import Input

from ddtop import events as ev
from ddtop.dashboard import key_queue
from ddtop.dashboard.app import DashboardApp
from ddtop.dashboard.screens.base import DdScreen
from ddtop.dashboard.screens.cell import CellScreen
from ddtop.dashboard.screens.history import HistoryScreen
from ddtop.dashboard.screens.hosts import HostsScreen
from ddtop.dashboard.screens.log import LogScreen
from ddtop.dashboard.screens.plan import PlanScreen
from ddtop.dashboard.screens.results import ResultsScreen
from ddtop.dashboard.screens.steps import StepsScreen
from tests.dashboard import story
from tests.dashboard.conftest import Open, quiet_of, screen_text, session_of, settle


async def test_r_shows_the_alerts_action_as_a_step_and_enter_sends_it(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("r")
        await settle(pilot)
        assert "retry b16" in screen_text(app)
        assert session.commands() == []
        await pilot.press("enter")
        await settle(pilot)
        (command,) = session.commands()
        assert isinstance(command, ev.Retry)
        assert (command.config, command.alert_id, command.viewer) == ("b16", story.ALERT, "test")


async def test_escape_leaves_the_step_undone(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("r", "escape")
        await settle(pilot)
        assert session.commands() == []
        assert not isinstance(app.screen, StepsScreen)


async def test_r_on_resume_asks_for_steps_and_enter_approves_those_left_in(open_app: Open) -> None:
    script = story.failed()
    script.add(ev.AlertResolved, alert_id=story.ALERT, how="superseded by the reboot", by="sweep")
    fields = story.alert_fields(script.now)
    fields |= {
        "alert_id": "a2",
        "title": "REBOOTED",
        "verdict": "rebooted",
        "actions": (ev.Action(key="r", label="resume at b16", command="resume"),),
    }
    script.add(ev.AlertRaised, **fields)
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "r resume at b16" in screen_text(app)
        await pilot.press("r")
        await settle(pilot)
        (asked,) = session.commands()
        assert isinstance(asked, ev.Resume)
        assert asked.alert_id == "a2"
        assert "The runner is looking at the host" in screen_text(app)
        script.out.clear()
        story.proposed(script)
        session.put(*script.out)
        await settle(pilot, 0.15)
        shown = screen_text(app)
        assert "re-stage Qwen3.6-27B" in shown
        assert "because" in shown
        assert "policy decides in" in shown
        await pilot.press("down", "space")
        await settle(pilot)
        assert "left out" in screen_text(app)
        assert "do 2 of 3" in screen_text(app)
        await pilot.press("enter")
        await settle(pilot)
        approved = session.commands()[-1]
        assert isinstance(approved, ev.Approve)
        assert (approved.plan_id, approved.leave_out) == ("plan-1", ("s2",))


@pytest.mark.parametrize(
    ("keys", "kind", "fields"),
    [
        (["space"], ev.Pause, {}),
        (["x"], ev.Skip, {"cell_id": story.cell_id("b15", 2)}),
        (["up", "up", "t"], ev.Retry, {"cell_id": story.cell_id("b8", 2)}),
        (["b"], ev.MarkBroken, {"cell_id": story.cell_id("b15", 2), "broken": True}),
        (["up", "up", "b"], ev.MarkBroken, {"cell_id": story.cell_id("b8", 2), "broken": False}),
        (["left", "left", "left", "x"], ev.Skip, {"config": "b15", "cell_id": None}),
        (["j", "k", "down", "right", "x"], ev.Skip, {"cell_id": story.cell_id("b16", 3)}),
        (["s", "enter"], ev.Restage, {}),
        (["S", "enter"], ev.StopRun, {"leave_running": False}),
        (["S", "k"], ev.StopRun, {"leave_running": True}),
        (["R", "enter"], ev.RestartService, {"unit": story.UNIT}),
    ],
)
async def test_a_key_sends_its_command(
    open_app: Open, keys: list[str], kind: type[ev.Command], fields: dict[str, object]
) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (_, pilot):
        await pilot.press(*keys)
        await settle(pilot)
        (command,) = session.commands()
        assert type(command) is kind
        assert {name: getattr(command, name) for name in fields} == fields


@pytest.mark.parametrize("keys", [["S", "escape"], ["R", "n"], ["s", "escape"]])
async def test_destructive_keys_ask_first_and_name_what_they_touch(open_app: Open, keys: list[str]) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press(keys[0])
        await settle(pilot)
        shown = screen_text(app)
        assert story.HOST in shown
        assert "sglang-bench" in shown
        await pilot.press(keys[1])
        await settle(pilot)
        assert session.commands() == []


async def test_the_question_before_a_restart_shows_the_exact_command(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("R")
        await settle(pilot)
        assert "systemctl restart sglang-bench.service" in screen_text(app)


async def test_space_goes_on_where_the_sweep_is_paused(open_app: Open) -> None:
    script = story.running()
    script.add(ev.SweepPaused, by="me")
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "PAUSED" in screen_text(app)
        await pilot.press("space")
        await settle(pilot)
        assert isinstance(session.commands()[0], ev.GoOn)


async def test_r_goes_on_too_without_a_box_that_waits_for_steps(open_app: Open) -> None:
    script = story.running()
    script.add(ev.SweepPaused, by="me")
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("r")
        await settle(pilot)
        assert isinstance(session.commands()[0], ev.GoOn)
        assert len(app.screen_stack) == 1


async def test_an_alerts_own_key_comes_before_the_cursor(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (_, pilot):
        await pilot.press("x")
        await settle(pilot)
        (command,) = session.commands()
        assert isinstance(command, ev.Skip)
        assert (command.config, command.alert_id) == ("b16", story.ALERT)


async def test_a_key_that_only_the_alert_names_works(open_app: Open) -> None:
    script = story.running()
    fields = story.alert_fields(script.now)
    fields["actions"] = (
        ev.Action(key="r", label="retry b15", command="retry", args={"config": "b15"}),
        ev.Action(key="d", label="stop the foreign process", command="approve", args={"plan_id": "p"}),
    )
    script.add(ev.AlertRaised, **fields)
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "d stop the foreign process" in screen_text(app)
        await pilot.press("d")
        await settle(pilot)
        (command,) = session.commands()
        assert isinstance(command, ev.Approve)


@pytest.mark.parametrize(
    ("outcome", "reason", "said"),
    [
        ("obeyed", "", "✓ pause after the running cell"),
        ("refused", "the run has ended", "Refused: pause after the running cell: the run has ended"),
        ("late", "", "Too late"),
    ],
)
async def test_the_answer_to_a_command_is_a_toast(
    open_app: Open, outcome: str, reason: str, said: str
) -> None:
    session, now = session_of(story.running())
    session.answer = lambda command: (
        ev.CommandSeen(
            at_s=now,
            mono_s=1,
            host=story.HOST,
            command_id=command.id,
            viewer="test",
            command="pause",
            outcome=outcome,
            reason=reason,  # type: ignore[arg-type]
        )
        if isinstance(command, ev.Pause)
        else None
    )
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("space")
        await settle(pilot, 0.2)
        messages = [note.message for note in app._notifications]
        assert any(message.startswith(said) for message in messages), messages
        assert app.pending.sent == {}


async def test_a_slice_of_one_key_is_said_to_be_none(open_app: Open) -> None:
    """`.` must not send people to `c` where `c` answers that there is nothing to slice."""
    script = story.Script()
    loads = story.cells()[:1]
    script.add(ev.RunStarted, run_id="r", name="r", mode="sweep", segment=0)
    script.add(ev.CellsPlanned, cells=loads, baseline="auto")
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        for key in ("c", "full_stop"):
            await pilot.press(key)
            await settle(pilot, 0.2)
        messages = [note.message for note in app._notifications]
        assert len(messages) == 2 and len(set(messages)) == 1 and "one key only" in messages[0], messages


async def test_u_undoes_what_was_just_sent_and_says_so_where_nothing_was(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("u")
        await settle(pilot)
        assert session.commands() == []
        assert any("nothing to undo" in note.message for note in app._notifications)
        await pilot.press("x", "u")  # before the runner's reply is here
        await settle(pilot)
        skipped, undone = session.commands()
        assert isinstance(skipped, ev.Skip) and isinstance(undone, ev.Undo)


async def test_a_command_nobody_answers_is_said(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("space")
        await settle(pilot)
        assert app.pending.overdue(now + 12) == []
        (said,) = app.pending.overdue(now + 14)
        assert said.outcome == "unanswered"
        assert "pause" in said.text


async def test_a_command_without_a_runner_is_refused_in_words(open_app: Open) -> None:
    session, now = session_of(story.running())
    session.live = False
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("space")
        await settle(pilot)
        (note,) = app._notifications
        assert "the runner of this run is gone" in note.message
        assert "ddtop connect ct200 starts a runner" in note.message
        assert session.commands() == []


async def test_without_a_runner_one_can_be_started(open_app: Open) -> None:
    session, now = session_of(story.running())
    session.live = False
    started = []

    async def start(which: object) -> str:
        started.append(which)
        return "a runner took it up"

    async with open_app(session, now=now, start_runner=start) as (app, pilot):
        await pilot.press("space", "t", "u")
        await settle(pilot)
        assert len(app.screen_stack) == 1, "only r starts one"
        assert all("r starts a runner" in note.message for note in app._notifications)
        await pilot.press("r")
        await settle(pilot)
        assert "Start a runner?" in screen_text(app)
        await pilot.press("enter")
        await settle(pilot)
        assert started == [session]
        assert any("took it up" in note.message for note in app._notifications)


def never_connected() -> story.Script:
    script = story.Script()
    script.add(ev.RunStarted, run_id="r1", name="nosuchhost", mode="monitor", segment=0)
    script.add(ev.HostConnecting, attempt=1, target="nosuchhost")
    why = "nosuchhost: the name does not resolve\n  means: DNS does not know it\n  do:    correct the name"
    script.add(ev.RunEnded, outcome="host-lost", exit_code=11, reason=why)
    return script


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_connection_that_failed_is_said_and_r_tries_again(
    open_app: Open, size: tuple[int, int]
) -> None:
    session, now = session_of(never_connected())
    session.live = False
    started = []

    async def start(which: object) -> str:
        started.append(which)
        return "started a runner for nosuchhost"

    async with open_app(session, now=now, size=size, start_runner=start) as (app, pilot):
        shown = " ".join(screen_text(app).split())
        for words in (
            "Could not connect",
            "the name does not",
            "DNS does not know it",
            "correct the name",
            "r Connect again",
        ):
            assert words in shown
        assert "◌ connecting" not in shown
        await pilot.press("r")
        await settle(pilot)
        assert started == [session]
        assert len(app.screen_stack) == 1, "no box about steps that will not come"


async def test_r_is_not_offered_where_nothing_is_left_to_run(open_app: Open) -> None:
    script = story.finished()
    session, now = session_of(script)
    session.live = False
    async with open_app(session, now=now) as (app, pilot):
        assert "r Resume" not in screen_text(app)
        await pilot.press("r")
        await settle(pilot)
        assert len(app.screen_stack) == 1


async def test_an_open_dashboard_says_that_somebody_is_there(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await settle(pilot)
        signs = [c for c in session.sent if isinstance(c, ev.Attend)]
        assert signs and not any(sign.leaving for sign in signs)
        await app.goodbye()
        assert session.sent[-1].leaving  # type: ignore[attr-defined]


async def test_q_leaves_and_says_how_to_come_back_and_to_stop(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0
    assert app.words is not None
    assert "goes on without this dashboard" in app.words
    assert "ddtop connect ct200" in app.words
    assert "ddtop stop ct200-20261118-1" in app.words


async def test_steps_that_are_being_done_are_shown_as_such_and_cannot_be_left_out(open_app: Open) -> None:
    script = story.running()
    story.proposed(script)
    script.add(
        ev.StepTaken,
        plan_id="plan-1",
        step_id="s1",
        action="stage",
        title="re-stage",
        reason="",
        by="policy",
        state="started",
    )
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "▶ step 1 of 3: re-stage Qwen3.6-27B" in screen_text(app)
        await pilot.press("r", "space")
        await settle(pilot)
        shown = screen_text(app)
        assert "Steps running" in shown
        assert "▶ running 1." in shown
        assert "· waiting 2." in shown
        assert "left out" not in shown
        await pilot.press("enter")
        await settle(pilot)
        assert session.commands() == []


async def test_reconnecting_at_once_needs_no_steps(open_app: Open) -> None:
    script = story.running()
    fields = story.alert_fields(script.now) | {
        "verdict": "lost-host",
        "title": "HOST LOST",
        "actions": (ev.Action(key="r", label="reconnect now", command="resume"),),
    }
    script.add(ev.AlertRaised, **fields)
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("r")
        await settle(pilot)
        assert isinstance(session.commands()[0], ev.Resume)
        assert len(app.screen_stack) == 1


async def test_a_refused_resume_closes_the_waiting_box(open_app: Open) -> None:
    script = story.running()
    script.add(ev.SweepPaused, by="sweep")
    session, now = session_of(script)
    session.answer = lambda command: (
        ev.CommandSeen(
            at_s=now,
            mono_s=1,
            host=story.HOST,
            command_id=command.id,
            viewer="test",
            command="resume",
            outcome="refused",
            reason="nothing waits to be resumed",
        )
        if isinstance(command, ev.Resume)
        else None
    )
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("r")
        await settle(pilot, 0.2)
        assert len(app.screen_stack) == 1
        assert any("nothing waits to be resumed" in note.message for note in app._notifications)


async def test_keys_can_be_moved_by_their_ids(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, keymap={"pause": "f5"}) as (_, pilot):
        await pilot.press("space")
        await settle(pilot)
        assert session.commands() == []
        await pilot.press("f5")
        await settle(pilot)
        assert isinstance(session.commands()[0], ev.Pause)


def test_every_binding_has_an_id_and_no_two_share_one() -> None:
    from ddtop.dashboard import keys

    for group in (keys.APP + keys.REPLAY + [keys.BACK], keys.MOVE, keys.LOG, keys.PLOT):
        ids = [binding.id for binding in group]
        assert all(ids)
        assert len(set(ids)) == len(ids)
    known = {
        binding.id for binding in (*keys.APP, *keys.REPLAY, *keys.MOVE, *keys.LOG, *keys.PLOT, keys.BACK)
    }
    named = {identity for _, identities in keys.GROUPS for identity in identities}
    assert named <= known
    assert dataclasses.is_dataclass(keys.BACK)


def in_one_go(app: DashboardApp, *keys: str) -> None:
    """Put keys into the terminal's queue at once: the app sees none of them before the last is there."""
    assert app._driver is not None
    for key in keys:
        event = Key(key, key if len(key) == 1 else None)
        event.set_sender(app)
        app._driver.send_message(event)


@pytest.mark.parametrize(
    ("keys", "copied"),
    [
        ("vy", "config\ttp\tworkload"),
        ("ly", "torch.distributed.DistBackendError"),
        ("vly", "torch.distributed.DistBackendError"),
        ("Py", "40 cells"),
        ("Hy", "NOT STARTING?"),
        ("hy", "ct200"),
    ],
)
async def test_a_key_waits_for_the_screen_that_the_key_before_it_opens(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, keys: str, copied: str
) -> None:
    gate = asyncio.Event()

    async def held(_screen: DdScreen) -> None:
        await gate.wait()

    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, _):
        for kind in (HistoryScreen, HostsScreen, LogScreen, PlanScreen, ResultsScreen):
            monkeypatch.setattr(kind, "on_mount", held, raising=False)
        in_one_go(app, *keys)
        for _ in range(200):
            await asyncio.sleep(0)
        assert app.clipboard == ""
        gate.set()
        await quiet_of(app)()
        assert copied in app.clipboard.splitlines()[0], [n.message for n in app._notifications]


async def test_a_key_goes_to_the_list_that_the_key_before_it_opens(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now) as (app, _):
        in_one_go(app, "P", "home", "down", "enter")
        await quiet_of(app)()
        assert isinstance(app.screen, CellScreen)
        assert app.screen.cell_id == app.here.state.plan_cells[1].id


async def test_a_word_typed_right_after_the_filters_key_goes_into_the_filter(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, _):
        in_one_go(app, "slash", *"xtb")
        await quiet_of(app)()
        assert app.screen.query_one(Input).value == "xtb"
        assert session.commands() == []


async def test_a_question_is_answered_by_the_key_after_the_one_that_asks(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, _):
        in_one_go(app, "S", "escape", "R", "enter")
        await quiet_of(app)()
        (command,) = session.commands()
        assert isinstance(command, ev.RestartService)


async def test_a_screen_that_never_opens_does_not_lock_the_keyboard(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_queue, "HOLD_S", 0.05)
    monkeypatch.setattr(PlanScreen, "_open", lambda _screen: None)
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, _):
        in_one_go(app, "P", "q")
        await quiet_of(app)()
    assert app.words is not None
