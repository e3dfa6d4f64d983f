"""The plan's hooks: a command and a webhook, for each alert once and at the end; what fails costs nothing; secrets stay out."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ddtop.events import AlertRaised, Note, Pause
from ddtop.journal.act.now import UNDELIVERED, facts
from ddtop.journal.history.store import History
from tests.runner.rig import Rig
from tests.waiting import HANG_S

SECRET = "T0P-53CR37-path-of-a-webhook"


class Hook:
    """A real HTTP server on loopback that keeps what it was sent."""

    def __init__(self) -> None:
        self.got: list[dict] = []
        self.paths: list[str] = []
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.paths.append(self.path)
                hook.got.append({"agent": self.headers.get("User-Agent"), **json.loads(body)})
                hook.answers.wait(HANG_S)
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_alerts_and_the_end_reach_a_person(rig: Rig, hook: Hook) -> None:
    """A live headless run: one alert that is raised twice, then the end; both ways; nothing secret in the recording."""
    told = rig.home.parent / "told.txt"
    script = rig.home.parent / "tell.sh"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {told}\n')
    script.chmod(0o755)
    words = [
        "{title}",
        "{cause}",
        "{verdict}",
        "{host}",
        "{unit}",
        "{plan}",
        "{alert}",
        "{advice}",
        "{title} {nothing}",
    ]
    plan = rig.plan(
        'a = { env = { SIM_ZERO_TOKENS = "1" } }',
        tail=f'[notify]\ncommand = {json.dumps([str(script), *words[:-1]])}\nwebhook_env = "DDTOP_TEST_HOOK"\n',
    )
    runner = rig.start(plan, env={"DDTOP_TEST_HOOK": hook.url})
    assert runner.wait() == 10
    raised = runner.of(AlertRaised)
    assert len(raised) == 2 and len({a.alert_id for a in raised}) == 1, (
        "said again with what is done, not a second alert"
    )
    assert [m["title"] for m in hook.got] == ["NO TOKENS", "RUN ENDED"]
    first, last = hook.got
    assert first["host"] == "demo" and first["plan"] == "rig" and first["unit"] == "sglang-demo"
    assert first["alert"] == raised[0].alert_id and first["cause"] == raised[0].cause_text and first["advice"]
    assert last["verdict"] == "some-failed"
    assert first["agent"].startswith("python-httpx/")
    assert hook.paths == [f"/{SECRET}"] * 2
    lines = told.read_text().splitlines()
    assert lines.count("NO TOKENS") == 1 and lines.count("RUN ENDED") == 1
    assert raised[0].cause_text in lines and "sglang-demo" in lines
    written = b"".join(p.read_bytes() for p in rig.home.parent.glob("run.ddtop*"))
    written += b"".join(p.read_bytes() for p in rig.home.rglob("*") if p.is_file())
    assert b"DDTOP_TEST_HOOK" in written, "the plan is there"
    assert SECRET.encode() not in written and SECRET not in runner.said()


def test_hooks_that_fail_cost_the_run_nothing(rig: Rig, hook: Hook) -> None:
    """A command that is not there, a webhook that answers 500: the run goes on, tries again, and says in the recording, after
    its end too, what was not delivered; without the URL."""
    hook.status = 500
    plan = rig.plan(
        'a = { env = { SIM_FAIL_FIRST_START = "nccl-watchdog" } }\nb = { env = { SIM_FAIL_FIRST_START = "cuda-oom" } }',
        tail='[notify]\ncommand = ["/nonexistent/notify", "{title}"]\nwebhook_env = "DDTOP_TEST_HOOK"\n',
    )
    runner = rig.start(
        plan,
        env={"DDTOP_TEST_HOOK": hook.url},
        patch={
            "ddtop.sweep.configuration.failed_start.RETRY_PAUSE_S": 0.2,
            "ddtop.sweep.tell.notify.DRAIN_S": 1.5,
        },
    )
    assert runner.wait() == 10
    assert runner.states() == ["done", "failed"]
    assert len(hook.got) > 3 and [m["title"] for m in hook.got] == ["NOT STARTING?"] * len(hook.got)
    assert len({m["id"] for m in hook.got}) == 1, "in order: the second one waits for the first"
    lost = [n.text for n in runner.of(Note) if n.text.startswith(UNDELIVERED)]
    for title in ("NOT STARTING?", "RUN ENDED"):
        missing = "/nonexistent/notify: No such file"
        assert any(title in n and missing in n for n in lost) and any(
            title in n and "HTTP 500" in n for n in lost
        )
    assert len(lost) == 6, lost
    assert len([n for n in runner.of(Note) if n.text.startswith("a notification is late")]) == 1
    state = runner.state()
    assert facts(state, state.at_s, path=runner.recording, live=False)["undelivered"] == lost
    assert SECRET not in runner.said()


def test_a_webhook_that_hangs_delays_nothing_and_loses_nothing(rig: Rig, hook: Hook) -> None:
    """It answers its first message only once the run has ended: every cell is measured meanwhile, and the last one comes too."""
    hook.answers.clear()
    plan = rig.plan(
        'a = { env = { SIM_FAIL_FIRST_START = "nccl-watchdog" } }\nb = {}',
        tail='[notify]\nwebhook_env = "DDTOP_TEST_HOOK"\n',
    )
    runner = rig.start(
        plan,
        env={"DDTOP_TEST_HOOK": hook.url},
        patch={
            "ddtop.sweep.configuration.failed_start.RETRY_PAUSE_S": 0.2,
            "ddtop.sweep.tell.notify_ways.LIMIT_S": HANG_S,
            "ddtop.sweep.tell.notify.DRAIN_S": HANG_S,
        },
    )
    runner.until(lambda state: state.run.ended, "the end")
    assert runner.states() == ["done", "done"] and [m["title"] for m in hook.got] == ["NOT STARTING?"]
    assert runner.process.poll() is None, "it waits for what is not delivered"
    runner.refused(Pause, "the run has ended")
    assert learned(rig), "what the run taught is kept before anything is waited for"
    hook.answers.set()
    assert runner.wait() == 0
    assert [m["title"] for m in hook.got] == ["NOT STARTING?", "RUN ENDED"]
    assert not [n for n in runner.of(Note) if n.text.startswith(UNDELIVERED)]


def learned(rig: Rig) -> bool:
    """Whether the history of the rig's runners knows how long a start of `a` takes."""
    with History(rig.home / "data" / "history.db") as history:
        return history.prior(host="demo", model="Sim-27B", engine="sglang").restart_s("a", 1) is not None


def test_a_run_that_only_delivers_its_end_is_waited_for_and_may_be_ended_at_once(
    rig: Rig, hook: Hook
) -> None:
    """Another runner for the host begins once the recording is let go; a second signal then loses nothing."""
    hook.answers.clear()
    plan = rig.plan("a = {}", tail='[notify]\nwebhook_env = "DDTOP_TEST_HOOK"\n')
    patient = {"ddtop.sweep.tell.notify_ways.LIMIT_S": HANG_S, "ddtop.sweep.tell.notify.DRAIN_S": HANG_S}
    runner = rig.start(plan, env={"DDTOP_TEST_HOOK": hook.url}, patch=patient)
    runner.until(lambda state: state.run.ended, "the end")
    other = rig.start(
        rig.plan("a = {}", name="other"),
        recording=rig.recording.with_name("other.ddtop"),
        patch={"ddtop.journal.read.runs.LETS_GO_S": HANG_S},
    )
    os.kill(runner.process.pid, signal.SIGTERM)  # the first one: it is ending already
    runner.refused(Pause, "the run has ended")
    os.kill(runner.process.pid, signal.SIGTERM)
    assert runner.wait() == -signal.SIGTERM
    assert learned(rig)
    assert other.wait() == 0, other.said()
    assert other.states() == ["done"]
