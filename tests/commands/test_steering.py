"""A run watched and steered by the command line alone: real processes, a live runner, no terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddtop import events as ev
from ddtop.cli import main
from ddtop.commands.live.codes import Code
from ddtop.commands.live.do import ACTIONS, split
from ddtop.commands.live.wait import Watch
from ddtop.errors import UsageError
from ddtop.journal.write.writer import JournalWriter
from tests.commands.conftest import Cli, Done
from tests.dashboard import story
from tests.runner.rig import Rig
from tests.waiting import HANG_S

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="hosts are Linux machines")

CONFIGS = """
a = {}
b = { args = ["--speculative-algorithm", "DFLASH"] }
c = { env = { SIM_FAIL_FIRST_START = "cuda-oom" } }
d = { args = ["--random-seed", "3"] }
"""


class Here(Cli):
    """`ddtop` within this process: a command of these costs no start of Python. Set up as a process is by DDTOP_HOME."""

    def __call__(self, *words: object, stdin: str = "", seconds: float = HANG_S) -> Done:
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(list(map(str, words)))
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def ddtop(own_places: Path) -> Here:
    return Here(own_places)


def answer(cli: Cli, *words: object) -> tuple[int, dict[str, Any]]:
    """(exit code, JSON) of a command."""
    done = cli(*words, "--json")
    assert done.out, done.err
    values = json.loads(done.out)
    assert values["schema"] == 1
    return done.rc, values


def detached(cli: Cli, rig: Rig, plan: str) -> dict[str, Any]:
    path = rig.home.parent / "plan.toml"
    path.write_text(plan)
    words = ("--plan", path, "--record", rig.recording, "--ssh-config", rig.world.ssh_config)
    code, run = answer(cli, "connect", "demo", *words, "--detach", "--ask")
    assert code == 0
    return run


def test_a_run_from_its_begin_to_its_end(ddtop: Cli, rig: Rig) -> None:
    """Everything a key does, each with its exit code; an alert answered; then nobody is there."""
    run = detached(ddtop, rig, rig.plan(CONFIGS, tokens="[8, 12]", requests=8, step_s=0.02))["run"]
    try:
        steer(ddtop, rig, run)
    finally:
        found = json.loads(ddtop("status", rig.recording, "--json").out)
        if found["live"]:
            os.kill(found["pid"], signal.SIGKILL)


def steer(ddtop: Cli, rig: Rig, run: str) -> None:
    limit = ("--timeout", HANG_S)

    # ---- pause: before the first cell, or after it; what is refused says why
    code, paused = answer(ddtop, "do", "pause")
    assert code == 0 and (paused["run"], paused["action"], paused["outcome"]) == (run, "pause", "done")
    code, twice = answer(ddtop, "do", run, "pause")
    assert (code, twice["outcome"]) == (Code.REFUSED, "refused") and "paused already" in twice["reason"]
    code, one = answer(ddtop, "status", run[:5])
    assert (one["run"], one["host"], one["live"], one["cells"]["total"]) == (run, "demo", True, 8)
    assert one["path"] == str(rig.recording) and one["paused"]["by"].endswith("-cli")
    _, every = answer(ddtop, "status")
    assert [r["run"] for r in every["runs"]] == [run]
    assert ddtop("status", "demo").out.startswith("rig on demo")

    # ---- cells, by name; undo takes back what another process of the same person did
    assert ddtop("do", run, "skip", "b").rc == 0
    assert states(ddtop, run, "skipped") == ["b", "b"]
    assert ddtop("do", run, "undo").rc == 0
    assert states(ddtop, run, "skipped") == []
    assert ddtop("do", run, "skip", "b").rc == 0
    assert ddtop("do", run, "mark-broken", "d", "fib@8").rc == 0
    assert states(ddtop, run, "broken") == ["d"]
    assert ddtop("do", "unmark", "d fib@8").rc == 0
    assert ddtop("do", run, "skip", "d").rc == 0
    for target in ("zzz", "fib@8"):  # none, and several
        code, said = answer(ddtop, "do", run, "retry", target)
        assert (code, said["outcome"]) == (Code.UNKNOWN_TARGET, "unknown-target")
    assert ddtop("do", run, "retry").rc == Code.UNKNOWN_TARGET
    assert ddtop("do", "dance").rc == 2

    # ---- what stops a server says host, unit and command first
    done = ddtop("do", run, "restart")
    assert (
        done.rc == Code.REFUSED and "sglang-demo" in done.err and "demo" in done.err and "--yes" in done.err
    )
    code, said = answer(ddtop, "do", run, "stop")
    assert (code, said["outcome"], said["command"]) == (Code.REFUSED, "needs-yes", f"ddtop stop {run}")
    assert ddtop("do", run, "restart", "other.service", "--yes").rc == Code.UNKNOWN_TARGET
    assert ddtop("do", run, "wait-longer").rc == Code.REFUSED
    assert ddtop("do", run, "answer").rc == Code.REFUSED

    # ---- nothing happens in time
    assert ddtop("wait", run, "--for", "alert", "--timeout", "0.3").rc == Code.TIMED_OUT

    # ---- on; the alert of c asks, and is answered
    assert ddtop("do", run, "go-on").rc == 0
    code, ready = answer(ddtop, "wait", "--for", "ready", "--since", 0, *limit)
    assert code == 0 and (ready["happened"], ready["what"]["config"]) == ("ready", "a")
    code, cell = answer(ddtop, "wait", run, "--for", "alert,cell", "--since", ready["seq"], *limit)
    assert code == 0 and (cell["happened"], cell["what"]["state"]) == ("cell", "done")
    assert cell["what"]["output_tok_s"] > 0 and cell["seq"] > ready["seq"]
    code, alert = answer(ddtop, "wait", run, "--for", "alert", *limit)
    assert code == 0 and alert["happened"] == "alert" and alert["what"]["asks"]
    assert {c["command"] for c in alert["what"]["choices"]} == {"skip", "retry", "mark-broken"}
    assert alert["what"]["answer_by_s"] > 0 and alert["what"]["default"]
    code, again = answer(ddtop, "wait", run, "--for", "alert")
    assert code == 0 and again["already"], "an open question counts"
    _, one = answer(ddtop, "status", run)
    assert one["doing"] == "asking" and one["asks"] and one["advised"] == alert["what"]["alert"]
    shown = ddtop("status", run).out
    assert f"ddtop do {run} answer r" in shown and "without an answer" in shown
    assert ddtop("do", run, "answer", "q").rc == Code.UNKNOWN_TARGET
    assert ddtop("do", run, "answer", "r", "--alert", "zzz").rc == Code.UNKNOWN_TARGET
    code, said = answer(ddtop, "do", run, "answer", "r")
    assert (code, said["outcome"], said["what"]) == (0, "done", "retry anyway")

    # ---- the log is followed to the end, and the end is waited for
    with ddtop.begin("log", run, "--follow", "--start", "all", "-n", "5") as following:
        code, end = answer(ddtop, "wait", run, "--for", "end", *limit)
        assert code == 0 and end["what"] == {"outcome": "done", "exit_code": 0}
        out, err = following.communicate(timeout=HANG_S)
    assert following.returncode == 0 and "the run has ended" in err and out
    assert states(ddtop, rig.recording, "done") == ["a", "a", "c", "c"]

    # ---- nobody is there
    assert ddtop("do", rig.recording, "pause").rc == Code.NOBODY
    assert ddtop("do", "pause").rc == Code.NOBODY and ddtop("wait", "--for", "end").rc == Code.NOBODY
    code, over = answer(ddtop, "wait", rig.recording, "--for", "alert")
    assert (code, over["outcome"], over["ended"]["outcome"]) == (Code.ENDED, "ended", "done")
    code, end = answer(ddtop, "wait", rig.recording, "--for", "end")
    assert code == 0 and end["already"]
    assert ddtop("status").out.startswith("no run is live")


def states(ddtop: Cli, run: object, state: str) -> list[str]:
    """Configurations of the cells in a state."""
    return [c["config"] for c in json.loads(ddtop("cells", run, "--json", "--state", state).out)["cells"]]


def test_a_runner_that_dies_while_it_is_waited_for(ddtop: Cli, rig: Rig) -> None:
    run = detached(ddtop, rig, rig.plan(tokens="[64]", requests=50, step_s=0.02))
    with ddtop.begin("wait", run["run"], "--for", "alert", "--json") as waiting:
        assert answer(ddtop, "wait", run["run"], "--for", "ready", "--timeout", HANG_S)[0] == 0
        os.kill(run["pid"], signal.SIGKILL)
        out, _ = waiting.communicate(timeout=HANG_S)
    assert waiting.returncode == Code.NOBODY and json.loads(out)["outcome"] == "nobody"
    _, one = answer(ddtop, "status", rig.recording)
    assert one["doing"] == "no-runner" and not one["live"] and "pid" not in one
    code, said = answer(ddtop, "do", rig.recording, "pause")
    assert (code, said["outcome"]) == (Code.NOBODY, "nobody")
    assert "ddtop connect demo --detach" in ddtop("do", rig.recording, "pause").err
    assert ddtop("stop", rig.recording, "--ssh-config", rig.world.ssh_config).rc == 0


def test_a_closed_pipe_and_a_missing_recording_are_quiet(ddtop: Cli, recording: Path, tmp_path: Path) -> None:
    argv = " ".join(ddtop.argv("log", recording, "-n", "0", "--start", "all"))
    piped = subprocess.run(
        ["bash", "-c", f"{argv} | head -n 1"],
        capture_output=True,
        text=True,
        env=ddtop.environ(),
        check=False,
    )
    assert len(piped.stdout.splitlines()) == 1 and piped.stderr == ""
    for words in (("status",), ("cells",), ("log",), ("wait", "--for", "end")):
        gone = ddtop(words[0], tmp_path / "gone", *words[1:])
        assert gone.rc == 2 and "there is no recording" in gone.err
    assert ddtop("log", recording, "--filter", "[").rc == 2
    assert ddtop("log", recording, "--start", "first").rc == 2
    assert ddtop("cells", recording, "--state", "lost").rc == 2
    assert ddtop("wait", recording, "--for", "rain").rc == 2
    over = ddtop("wait", recording)
    assert over.rc == 0 and over.out.startswith("end: "), "without --for: alert,end"


def test_log_of_a_kept_run(ddtop: Cli, recording: Path) -> None:
    every = ddtop("log", recording, "-n", "0", "--start", "all").out.splitlines()
    this = ddtop("log", recording, "-n", "0").out.splitlines()
    previous = ddtop("log", recording, "-n", "0", "--start", "previous").out.splitlines()
    assert 0 < len(this) < len(every) and 0 < len(previous) < len(every) and this != previous
    assert ddtop("log", recording, "-n", "3").out.splitlines() == this[-3:]
    some = ddtop("log", recording, "--filter", "fired up|ready", "-n", "0", "--json").out.splitlines()
    assert some and all("text" in json.loads(line) for line in some)
    errors = ddtop("log", recording, "--errors", "--start", "all", "-n", "0", "--json").out.splitlines()
    assert errors and {json.loads(line)["level"] for line in errors} == {"error"}


def test_the_end_of_a_run_that_was_resumed_is_none(ddtop: Cli, tmp_path: Path) -> None:
    path = tmp_path / "run.ddtop"
    fields: dict[str, Any] = {"at_s": 1.0, "mono_s": 1.0, "host": "h"}
    started: dict[str, Any] = {**fields, "run_id": "r", "name": "n", "mode": "sweep"}
    with JournalWriter.open(path, host="h") as writer:
        writer.append(ev.RunStarted(**started, segment=0))
        writer.append(ev.RunEnded(**fields, outcome="stopped", exit_code=130))
        writer.append(ev.RunStarted(**started, segment=1))
        writer.flush()
        assert ddtop("wait", path, "--for", "end", "--since", 0, "--timeout", 0).rc == Code.TIMED_OUT
        writer.append(ev.RunEnded(**fields, outcome="done", exit_code=0))
        writer.flush()
        code, end = answer(ddtop, "wait", path, "--for", "end", "--since", 0)
        assert code == 0 and end["what"] == {"outcome": "done", "exit_code": 0} and end["seq"] == 4


def test_what_counts_as_the_next_one() -> None:
    """An alert that is said again is no second one, unless it asks anew or was resolved meanwhile."""
    fields: dict[str, Any] = {"at_s": 1.0, "mono_s": 1.0, "host": "h"}

    def alert(by: float | None) -> ev.AlertRaised:
        script = story.failed()
        raised = next(e for e in script.out if isinstance(e, ev.AlertRaised))
        return msgspec.structs.replace(raised, answer_by_s=by)

    steps = ev.StepsPlanned(
        **fields,
        plan_id="p",
        why="w",
        answer_by_s=9.0,
        steps=(ev.Step(id="s", action="stage", title="t", reason="r"),),
    )
    resolved = ev.AlertResolved(**fields, alert_id=story.ALERT, how="x", by="y")
    watch = Watch(("alert", "end"))
    seen = [watch.take(e) for e in (alert(None), alert(None), alert(5.0), alert(5.0), alert(7.0), resolved)]
    assert seen == ["alert", None, "alert", None, "alert", None]
    assert watch.take(alert(7.0)) == "alert" and watch.take(steps) == "alert"
    assert watch.take(msgspec.structs.replace(steps, answer_by_s=None)) is None, (
        "the policy does them at once"
    )
    assert Watch(("steps",)).take(steps) == "steps" and Watch(("steps",)).take(alert(5.0)) is None
    ended = ev.CellStateSet(**fields, cell_id="c", state="interrupted")
    assert Watch(("cell",)).take(ended) is None, "it will be run again"


def test_two_live_runs_are_named(ddtop: Cli, tmp_path: Path) -> None:
    """Locks alone make them live; each is found by its path, wherever it lies."""
    writers = []
    for host in ("h1", "h2"):
        writer = JournalWriter.open(tmp_path / f"{host}.ddtop", host=host)
        fields: dict[str, Any] = {"at_s": 1.0, "mono_s": 1.0, "host": host}
        writer.append(ev.RunStarted(**fields, run_id=f"{host}-id", name="n", mode="monitor", segment=0))
        writer.flush()
        writers.append(writer)
    try:
        said = ddtop("do", "pause")
        assert said.rc == 2 and "h1.ddtop" in said.err and "h2.ddtop" in said.err
        assert {r["run"] for r in json.loads(ddtop("status", "--json").out)["runs"]} == {"h1-id", "h2-id"}
        assert json.loads(ddtop("status", "h2-", "--json").out)["host"] == "h2"
        assert ddtop("status", "n").rc == 2, "the plan's name fits both"
        listed = json.loads(ddtop("runs", "--json").out)
        assert {(r["run"], r["state"]) for r in listed} == {("h1-id", "running"), ("h2-id", "running")}
    finally:
        for writer in writers:
            writer.close()


def test_every_action_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    assert not [name for name in ACTIONS if f"`{name}`" not in page]
    for code in Code:
        assert f"| {code.value} |" in page, code


def test_a_run_that_follows_its_action_is_told_where_it_stands() -> None:
    with pytest.raises(UsageError) as caught:
        split(["pause", "demo.ddtop"])
    assert "takes no target" in str(caught.value)
    assert caught.value.do is not None and caught.value.do.endswith("ddtop do demo.ddtop pause")
