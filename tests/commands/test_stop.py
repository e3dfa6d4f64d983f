"""`ddtop stop` waits for a runner that obeys, and for none that has said that it does not."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ddtop import events as ev
from ddtop.commands.stop import await_end, stop
from ddtop.errors import RefusedError
from ddtop.journal.write.writer import JournalWriter
from ddtop.sweep.shared.context import Outcome
from tests.waiting import HANG_S


def at() -> dict[str, float | str]:
    return {"at_s": time.time(), "mono_s": 1.0, "host": "h"}


def answer(outcome: str) -> ev.CommandSeen:
    return ev.CommandSeen(
        **at(), command_id="c1", viewer="me", command="stop", outcome=outcome, reason="it was 11 s old"
    )  # type: ignore[arg-type]


@pytest.fixture
def writer(tmp_path: Path) -> JournalWriter:
    writer = JournalWriter.open(tmp_path / "run.ddtop", host="h")
    writer.append(ev.RunStarted(**at(), run_id="r", name="n", mode="sweep", segment=0))  # type: ignore[arg-type]
    writer.flush()
    return writer


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_runner_that_does_not_obey_is_not_waited_for(
    writer: JournalWriter, tmp_path: Path, when: str
) -> None:
    """It took the command up too late: its run goes on, for hours."""
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            await_end(tmp_path / "run.ddtop", "c1")
        except RefusedError as error:
            caught.append(error)

    if when == "before":
        writer.append(answer("late"))
        writer.flush()
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    if when == "meanwhile":
        time.sleep(0.5)
        writer.append(answer("late"))
        writer.flush()
    waiting.join(HANG_S)
    assert not waiting.is_alive() and "11 s old" in str(caught[0])
    writer.close()


def test_a_runner_that_obeys_is_waited_for(writer: JournalWriter, tmp_path: Path) -> None:
    waiting = threading.Thread(target=await_end, args=(tmp_path / "run.ddtop", "c1"), daemon=True)
    waiting.start()
    writer.append(answer("obeyed"))
    writer.flush()
    waiting.join(1)
    assert waiting.is_alive()
    writer.append(ev.RunEnded(**at(), outcome="stopped", exit_code=130))  # type: ignore[arg-type]
    writer.close()
    waiting.join(HANG_S)
    assert not waiting.is_alive()


@pytest.mark.parametrize("back", [False, True])
def test_a_run_that_ended_and_left_something_can_be_put_back(
    writer: JournalWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """It was stopped while its host was away: what it could not undo is undone by the next `ddtop stop`."""
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path / "home"))
    step = {"plan_id": "r", "title": "", "reason": "", "by": "automatic", "state": "done"}
    detail = '{"unit": "s.service", "kind": "systemd", "active": true}'
    writer.append(ev.StepTaken(**at(), **step, step_id="former:s.service", action="override", detail=detail))  # type: ignore[arg-type]
    if back:
        writer.append(ev.StepTaken(**at(), **step, step_id="restore:s.service", action="restore"))  # type: ignore[arg-type]
    writer.append(ev.RunEnded(**at(), outcome="stopped", exit_code=130))  # type: ignore[arg-type]
    writer.close()
    asked: list[str] = []
    monkeypatch.setattr(
        "ddtop.runner.put_back", lambda options: asked.append(options.host) or Outcome(word="stopped")
    )
    if back:
        with pytest.raises(RefusedError, match="nothing is running"):
            stop(str(tmp_path / "run.ddtop"), leave_running=False)
    else:
        assert stop(str(tmp_path / "run.ddtop"), leave_running=False) == 0
    assert asked == ([] if back else ["h"])
