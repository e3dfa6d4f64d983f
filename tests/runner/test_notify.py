"""The plan's hooks: a command and a webhook, for each alert once and at the end; what fails costs nothing; secrets stay out."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ddtop.events import AlertRaised, Note, RunEnded
from ddtop.sweep.tell import notify
from ddtop.sweep.tell.notify import Notifier
from tests.runner.rig import Rig

SECRET = "T0P-53CR37-path-of-a-webhook"


class Hook:
    """A real HTTP server on loopback that keeps what it was sent."""

    def __init__(self) -> None:
        self.got: list[dict] = []
        self.paths: list[str] = []
        self.status, self.delay_s = 200, 0.0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.paths.append(self.path)
                hook.got.append({"agent": self.headers.get("User-Agent"), **json.loads(body)})
                time.sleep(hook.delay_s)
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
    """A command that is not there, a webhook that answers 500: the run goes on and says so once, without the URL."""
    hook.status = 500
    plan = rig.plan(
        'a = { env = { SIM_FAIL_FIRST_START = "nccl-watchdog" } }\nb = { env = { SIM_FAIL_FIRST_START = "cuda-oom" } }',
        tail='[notify]\ncommand = ["/nonexistent/notify", "{title}"]\nwebhook_env = "DDTOP_TEST_HOOK"\n',
    )
    runner = rig.start(
        plan,
        env={"DDTOP_TEST_HOOK": hook.url},
        patch={"ddtop.sweep.configuration.failed_start.RETRY_PAUSE_S": 0.2},
    )
    assert runner.wait() == 10
    assert runner.states() == ["done", "failed"]
    assert len(hook.got) == 3
    said = [n.text for n in runner.of(Note) if "could not be sent" in n.text]
    assert len(said) == 2, said
    assert any("/nonexistent/notify: No such file" in n for n in said) and any("HTTP 500" in n for n in said)
    assert SECRET not in runner.said()


# ---- the notifier by itself


def alert(ident: str, cause: str = "it failed") -> AlertRaised:
    return AlertRaised(
        at_s=1.0,
        mono_s=1.0,
        host="ct200",
        alert_id=ident,
        title="NOT STARTING?",
        verdict="failed",
        cause="x",
        cause_text=cause,
        kind="bug",
        advice="look",
    )


async def sent(notifier: Notifier, seconds: float = 0.2) -> list[str]:
    """Runs it as the runner does: beside the sweep, cancelled, then drained."""
    failures: list[str] = []
    notifier.failed = failures.append
    task = asyncio.create_task(notifier.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await notifier.drain()
    return failures


async def test_a_message_under_way_at_the_end_is_sent_once(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", hook.url)
    hook.delay_s = 0.5
    notifier = Notifier((), "HOOK")
    notifier.see(alert("1"))
    notifier.see(alert("1"))
    notifier.see(alert("2"))
    notifier.see(RunEnded(at_s=2.0, mono_s=2.0, host="ct200", outcome="done", exit_code=0))
    assert await sent(notifier) == []
    assert [m["alert"] for m in hook.got] == ["1", "2", ""]


@pytest.mark.parametrize("url", ["http://", "nonsense", "ftp://x/y", "http://[::1", "http://127.0.0.1:1/x"])
async def test_any_url_is_survived_and_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", url)
    notifier = Notifier((), "HOOK")
    notifier.see(alert("1"))
    notifier.see(alert("2"))
    (failure,) = await sent(notifier)
    assert failure.startswith("the webhook could not be reached") and url not in failure


async def test_commands_that_hang_or_get_strange_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "LIMIT_S", 0.3)
    hanging = Notifier(("sleep", "60"), None)
    hanging.see(alert("1"))
    assert await sent(hanging) == ["sleep took longer than 0 s"]
    strange = Notifier(("true", "{cause}"), None)
    strange.see(alert("1", "a NUL \0 in it"))
    assert await sent(strange) == ["true: embedded null byte"]
    out = tmp_path / "out"
    shell = Notifier(("sh", "-c", f'printf %s "$1" > {out}', "sh", "{cause}"), None)
    shell.see(alert("1", '$(id) `id` "; {title} {host}'))
    assert await sent(shell) == []
    assert out.read_text() == '$(id) `id` "; {title} {host}', "one argument, nothing filled in twice"


async def test_the_end_waits_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "DRAIN_S", 0.3)
    notifier = Notifier(("sleep", "60"), None)
    for n in range(5):
        notifier.see(alert(str(n)))
    began = time.monotonic()
    await sent(notifier)
    assert time.monotonic() - began < 30
