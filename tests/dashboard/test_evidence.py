"""One cause, one evidence, one advice: in the alert bar, in the record of what happened, and without a dashboard; and
enter on a line of the evidence opens the log there."""

from __future__ import annotations

import msgspec
import pytest

from ddtop import events as ev
from ddtop.dashboard.screens.history import HistoryScreen
from ddtop.dashboard.screens.log import LogScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.logpane import LogPane
from ddtop.journal.fold.apply import fold
from ddtop.sweep.tell.event_lines import event_line
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle

SEEN = "seen twice on this host (last with sglang 0.5.9); last time fixed by re-staging the model"


def told_alert() -> tuple[story.Script, ev.AlertRaised]:
    """The failed start, with an alert that rests on two log lines and was seen before."""
    script = story.failed()
    fields = story.alert_fields(script.now)
    first = fields["evidence"][0]  # type: ignore[index]
    read = next(
        e
        for e in reversed(script.out)
        if isinstance(e, ev.LogRead) and first.cursor in {x.cursor for x in e.lines}
    )
    other = read.lines[1]
    fields["evidence"] = (
        ev.Evidence(source="systemctl", text="failed/failed, Result=exit-code, exited/1"),
        first,
        ev.Evidence(source="log", text=other.text, cursor=other.cursor),
    )
    script.add(ev.AlertRaised, **fields, seen_before=SEEN)
    alert = script.out[-1]
    assert isinstance(alert, ev.AlertRaised)
    return script, alert


def flat(text: str) -> str:
    """Text without line ends and borders, so that wrapped sentences are found."""
    return " ".join(word for word in text.split() if word not in "│┃║")


@pytest.mark.parametrize("number", [1, 2])
async def test_enter_on_a_line_of_the_evidence_opens_the_log_there(open_app: Open, number: int) -> None:
    script, alert = told_alert()
    session, now = session_of(script)
    async with open_app(session, now=now) as (app, pilot):
        await pilot.press("H")
        await settle(pilot)
        assert isinstance(app.screen, HistoryScreen)
        panel = app.screen.query_one(ListPanel)
        keys = [item.key for item in panel.items if item.key and item.key.startswith("evidence ")]
        assert keys == [f"evidence {alert.alert_id} 1", f"evidence {alert.alert_id} 2"], (
            "what has a place in a log"
        )
        for _ in range(40):
            if panel.key == keys[number - 1]:
                break
            await pilot.press("j")
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)
        view = app.screen.query_one(LogPane).view
        assert view.hit is not None and alert.evidence[number].text in view.text_in_sight()


async def test_the_same_words_everywhere(open_app: Open) -> None:
    script, alert = told_alert()
    session, now = session_of(script)
    headless = event_line(alert, fold(script.out)) or ""
    async with open_app(session, now=now, size=(200, 60)) as (app, pilot):
        await settle(pilot)
        bar = flat(screen_text(app))
        await pilot.press("H")
        await settle(pilot)
        record = flat(screen_text(app))
    for words in (alert.cause_text, alert.advice, SEEN):
        assert flat(words) in flat(headless)
        assert flat(words) in bar, words
        assert flat(words) in record, words
    for proof in alert.evidence:
        assert flat(proof.text) in flat(headless) and flat(proof.text) in record
    assert msgspec.json.encode(alert)
