"""The alert bar at every width, on every screen, and the alert in full."""

from __future__ import annotations

import msgspec
import pytest

from ddtop import events as ev
from ddtop.dashboard.draw.paint import plain, width_of
from ddtop.dashboard.panels.alert import alert_lines
from ddtop.dashboard.panels.moment.failed import card_lines, cited_lines, context_of
from ddtop.dashboard.screens.alert import AlertScreen
from ddtop.dashboard.screens.log import LogScreen
from ddtop.dashboard.screens.steps import StepsScreen
from ddtop.dashboard.widgets.logview import LogView
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle

LONG = {
    "cause_text": "ct200: sglang-bench failed 84 s after its restart, while it loaded the weights of "
    "/dev/shm/Qwen3.6-27B: rank 3 of 8 ended by signal 9 (SIGKILL), by the kernel's out-of-memory killer",
    "advice": "lower --mem-fraction-static, or take the tmpfs copy of the model away: it counts as memory (df -h /dev/shm)",
    "seen_before": "seen twice on this host; last time fixed by re-staging",
    "actions": (
        ev.Action(key="x", label="skip dflash-b16-w4096-topk8", command="skip", args={"config": "b16"}),
        ev.Action(key="r", label="retry anyway", command="retry", args={"config": "b16"}),
        ev.Action(key="w", label="wait longer", command="wait"),
        ev.Action(key="s", label="re-stage and retry dflash-b16-w4096-topk8", command="restage"),
        ev.Action(key="b", label="mark dflash-b16-w4096-topk8 broken", command="mark-broken"),
    ),
}


def raised(**fields: object) -> tuple[State, float]:
    script = story.failed()
    script.add(ev.AlertRaised, **story.alert_fields(script.now) | fields)
    return fold(script.out), script.now + 4


@pytest.mark.parametrize("width", [*range(40, 120, 4), 120, 160, 200, 220])
@pytest.mark.parametrize("most", [3, 5, 6])
@pytest.mark.parametrize("fields", [{}, LONG], ids=["short", "long"])
def test_no_choice_is_cut_at_any_width(width: int, most: int, fields: dict[str, object]) -> None:
    state, now = raised(**fields)
    rows = alert_lines(state, now, width, most)
    shown = [plain(row) for row in rows]
    assert all(width_of(row) == width for row in rows)
    assert len(rows) <= 8
    assert shown[0].startswith(" ! NOT STARTING?")
    actions = fields.get("actions") or story.alert_fields(0.0)["actions"]
    text = "  ".join(row.strip() for row in shown)
    for action in actions:  # type: ignore[attr-defined]
        words = {"skip": "skip", "retry": "retry", "wait": "wait", "restage": "re-stage", "mark-broken": ""}
        assert f"{action.key} {words[action.command]}" in text
    choices = next(n for n, row in enumerate(shown) if "▸" in row)
    assert not any("…" in row for row in shown[choices:]), "a choice is shortened by a rule, never cut"
    assert "a evidence" in text or "a why" in text
    assert "in 56s" in text
    assert "sglang-bench" in text


@pytest.mark.parametrize("width", [80, 120])
def test_the_advised_choice_comes_first_and_is_marked(width: int) -> None:
    state, now = raised(**LONG)
    (first,) = [plain(row) for row in alert_lines(state, now, width, 6) if "▸" in plain(row)]
    assert first.strip().startswith("▸ x skip")


def test_wide_and_tall_there_is_advice_too_and_what_happened_before() -> None:
    state, now = raised(**LONG)
    shown = " ".join(plain(row) for row in alert_lines(state, now, 160, 6))
    assert "lower --mem-fraction-static" in shown
    assert "lower --mem" not in " ".join(plain(row) for row in alert_lines(state, now, 160, 3))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_what_was_decided_takes_the_place_of_the_countdown(width: int) -> None:
    script = story.failed()
    script.add(ev.AlertDecided, alert_id=story.ALERT, what="start b16 again (try 2 of 2)", by="ann@desk")
    shown = "\n".join(plain(r) for r in alert_lines(fold(script.out), script.now + 4, width, 6))
    assert "start b16 again" in shown and " in 5" not in shown
    script.add(ev.AlertRaised, **story.alert_fields(script.now))
    assert " in 5" in "\n".join(plain(r) for r in alert_lines(fold(script.out), script.now + 4, width, 6))


def test_no_alert_no_bar() -> None:
    assert alert_lines(fold(story.running().out), 0, 80) == []


# --------------------------------------------------------------------------------------------- evidence


def test_lines_are_cited_by_their_cursor_else_by_their_text() -> None:
    script = story.failed()
    state = fold(script.out)
    lines = list(state.logs[story.UNIT].lines)
    (alert,) = state.open_alerts
    (at,) = cited_lines(alert, lines)
    assert "DistBackendError" in lines[at].line.text
    text = lines[at].line.text
    without = ev.Evidence(source="log", text=f"  {text} ")
    gone = ev.Evidence(source="log", text="a line that fell out of the window", cursor="c1")
    fields = story.alert_fields(script.now) | {"evidence": (gone, without)}
    script.add(ev.AlertRaised, **fields)
    (alert,) = fold(script.out).open_alerts
    assert cited_lines(alert, lines) == [at]


def test_context_stays_within_its_start_and_its_room() -> None:
    state = fold(story.failed().out)
    lines = list(state.logs[story.UNIT].lines)
    (at,) = cited_lines(state.open_alerts[0], lines)
    first, last = context_of(lines, at, 100)
    assert {entry.line.invocation for entry in lines[first:last]} == {"inv-b16"}
    assert first <= at < last
    for room in range(1, 12):
        first, last = context_of(lines, at, room)
        assert last - first <= room
        assert first <= at < last


def test_the_alert_in_full_leaves_nothing_out() -> None:
    state, now = raised(**LONG, kind="host", fault_seen_s=1.4)
    shown = "\n".join(plain(row) for row in card_lines(state, state.open_alerts[0], now, 100))
    for words in (
        "out-of-memory killer",
        "df -h /dev/shm",
        "last time fixed by re-staging",
        "1.4 s after the first sign",
        "one retry in 56s",
        "▸ 11:27:52 torch.distributed.DistBackendError",
        "✗ load",
    ):
        assert words in " ".join(shown.split()) or words in shown
    assert "▸ x skip" in shown and "leaves out its 5 open cells" in shown
    cited = next(row for row in shown.splitlines() if row.startswith("▸ 11:27"))
    for row in (*shown.partition("log of")[0].splitlines(), cited):
        assert "…" not in row, "cause, advice, choices and cited lines are whole"


def test_the_cited_line_stands_below_the_whole_cause() -> None:
    state, now = raised(**LONG)
    shown = [plain(row).rstrip() for row in card_lines(state, state.open_alerts[0], now, 40)]
    cited = next(n for n, row in enumerate(shown) if row.startswith("▸"))
    assert cited > 1, "this cause takes more than one line"
    cause = state.open_alerts[0].raised.cause_text
    assert cause is not None and " ".join(shown[:cited]) == cause


def test_evidence_that_is_no_log_line_is_shown_whole() -> None:
    proof = ev.Evidence(source="proc", text="boot_id 7f3 where it was 1c2")
    state, now = raised(evidence=(proof,))
    shown = [plain(row) for row in card_lines(state, state.open_alerts[0], now, 100)]
    assert "proc boot_id 7f3 where it was 1c2" in shown


# ------------------------------------------------------------------------------------------------- keys


def two_questions() -> story.Script:
    script = story.failed()
    fields = story.alert_fields(script.now) | {
        "alert_id": "a2",
        "title": "FOREIGN PROCESS",
        "verdict": "foreign",
        "attempt_id": None,
        "cause_text": "ct200: pid 812 (python) of anna is on GPU 0",
        "evidence": (),
        "actions": (ev.Action(key="r", label="go on now", command="resume"),),
    }
    script.add(ev.AlertRaised, **fields)
    return script


@pytest.mark.parametrize("key", ["v", "P", "H", "h", "l", "enter"])
async def test_the_question_is_on_every_screen(open_app: Open, key: str) -> None:
    session, now = session_of(two_questions())
    async with open_app(session, now=now, size=(100, 30)) as (app, pilot):
        await pilot.press(key)
        await settle(pilot)
        shown = screen_text(app)
        assert "! NOT STARTING?" in shown
        assert "r retry b16" in shown
        assert "+1 more" in shown
        await pilot.press("r")
        await settle(pilot)
        assert isinstance(app.screen, StepsScreen)


def test_a_log_without_invocations_is_cut_at_the_start_too() -> None:
    script = story.Script()
    story.begin(script)
    for config in ("auto", "b16"):
        story.restart(script, config, "inv", ready=False)
    bare = [
        msgspec.structs.replace(e, lines=tuple(msgspec.structs.replace(x, invocation=None) for x in e.lines))
        if isinstance(e, ev.LogRead)
        else e
        for e in script.out
    ]
    state = fold(bare)
    lines = list(state.logs[story.UNIT].lines)
    first, _ = context_of(lines, len(lines) - 1, 100, state.restarts[-1].seq)
    assert lines[first].line.text == "[ddtop] configuration b16"


async def test_a_shows_the_alert_and_again_the_next_one(open_app: Open) -> None:
    session, now = session_of(two_questions())
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("a")
        await settle(pilot)
        assert isinstance(app.screen, AlertScreen)
        shown = screen_text(app)
        assert "1 of 2" in shown
        assert "▸ 11:27:52 torch.distributed.DistBackendError" in shown
        await pilot.press("a")
        await settle(pilot)
        assert "pid 812 (python) of anna" in screen_text(app)
        assert "2 of 2" in screen_text(app)
        await pilot.press("right")
        await settle(pilot)
        assert "1 of 2" in screen_text(app)
        await pilot.press("left", "escape")
        await settle(pilot)
        assert not isinstance(app.screen, AlertScreen)
        assert "! FOREIGN PROCESS" in screen_text(app), "the bar stays with the alert that was turned to"
        await pilot.press("r")
        await settle(pilot)
        assert isinstance(session.commands()[0], ev.Resume)
        assert session.commands()[0].alert_id == "a2"


async def test_enter_in_the_alert_does_what_is_advised(open_app: Open) -> None:
    script = story.failed()
    skip = ev.Action(key="x", label="skip b16", command="skip", args={"config": "b16"})
    retry = ev.Action(key="r", label="retry anyway", command="retry", args={"config": "b16"})
    script.add(
        ev.AlertRaised, **story.alert_fields(script.now) | {"actions": (skip, retry), "kind": "config"}
    )
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        assert "▸ x skip b16   r retry anyway" in screen_text(app)
        await pilot.press("a", "enter")
        await settle(pilot)
        (sent,) = session.commands()
        assert isinstance(sent, ev.Skip)
        assert sent.config == "b16"
        await pilot.press("escape", "r")
        await settle(pilot)
        assert isinstance(app.screen, StepsScreen), "r is a retry here too"
        assert "retry anyway" in screen_text(app)


async def test_without_an_alert_there_is_no_key_for_it(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now) as (app, pilot):
        assert "a Alert" not in screen_text(app)
        await pilot.press("a")
        await settle(pilot)
        assert not isinstance(app.screen, AlertScreen)


async def test_the_log_opens_at_the_evidence_though_it_has_no_cursor(open_app: Open) -> None:
    script = story.failed()
    line = "Init torch distributed begin."
    proof = (ev.Evidence(source="rule", text="quiet for 30 s"), ev.Evidence(source="log", text=line))
    script.add(ev.AlertRaised, **story.alert_fields(script.now) | {"evidence": proof})
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("l")
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)
        view = app.screen.query_one(LogView)
        assert view.hit is not None
        entry = view.buffer[view.index.rows[view.hit]]
        assert entry.line.text == line
        kept = view.buffer.entries
        starts = [one.start for one in kept if one.line.text == line]
        assert len(starts) > 1 and entry.start == max(starts), "the last of several"


async def test_a_key_that_the_bar_names_is_not_named_again_below(open_app: Open) -> None:
    session, now = session_of(story.failed())
    async with open_app(session, now=now, size=(200, 50)) as (app, _):
        bottom = screen_text(app).splitlines()[-1]
        assert " x Skip" not in bottom and " r Retry" not in bottom
        assert "b Mark broken" in bottom and "s Re-stage" in bottom
