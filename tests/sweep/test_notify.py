"""Reaching a person: a real command, a real webhook, and hooks that fail without harm."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ddtop.events import AlertRaised, RunEnded
from ddtop.plan.read.plan import NOTIFY_NAMES
from ddtop.sweep.tell.notify import Notifier

ALERT = AlertRaised(
    at_s=1.0,
    mono_s=1.0,
    host="ct200",
    alert_id="a1",
    title="NOT STARTING?",
    verdict="failed",
    cause="cuda-oom",
    cause_text="CUDA out of memory",
    kind="config",
    advice="lower --mem-fraction-static",
    unit="sglang-bench.service",
)
ENDED = RunEnded(at_s=2.0, mono_s=2.0, host="ct200", outcome="some-failed", exit_code=10, reason="")


class Hook(BaseHTTPRequestHandler):
    """Keeps what was posted."""

    got: list[dict[str, str]]
    status = 200

    def do_POST(self) -> None:
        type(self).got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(type(self).status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hook]]:
    kind = type("Kept", (Hook,), {"got": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("MY_HOOK", f"http://127.0.0.1:{server.server_port}/secret")
    yield kind
    server.shutdown()
    server.server_close()


async def test_a_webhook_gets_each_alert_once_and_the_end(webhook: type[Hook]) -> None:
    notifier = Notifier((), "MY_HOOK", "ct200-qwen")
    for event in (ALERT, ALERT, ENDED):
        notifier.see(event)
    await notifier.drain()
    assert [message["title"] for message in webhook.got] == ["NOT STARTING?", "RUN ENDED"]
    assert webhook.got[0] == {
        "title": "NOT STARTING?",
        "cause": "CUDA out of memory",
        "verdict": "failed",
        "host": "ct200",
        "alert": "a1",
        "advice": "lower --mem-fraction-static",
        "unit": "sglang-bench.service",
        "plan": "ct200-qwen",
    }
    assert webhook.got[1]["verdict"] == webhook.got[1]["cause"] == "some-failed"
    assert notifier.failure == ""


@pytest.mark.process
async def test_a_command_gets_its_words_and_no_shell(tmp_path: Path) -> None:
    script = "import sys, json; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"
    words = tuple("{" + name + "}" for name in NOTIFY_NAMES)
    notifier = Notifier((sys.executable, "-c", script, str(tmp_path / "got"), *words, "{x} $(id)"), None, "p")
    notifier.see(ALERT)
    await notifier.drain()
    got = json.loads((tmp_path / "got").read_text())
    assert got[-1] == "{x} $(id)"
    assert dict(zip(NOTIFY_NAMES, got, strict=False)) == {
        "title": "NOT STARTING?",
        "cause": "CUDA out of memory",
        "advice": "lower --mem-fraction-static",
        "host": "ct200",
        "unit": "sglang-bench.service",
        "plan": "p",
        "verdict": "failed",
        "alert": "a1",
    }


@pytest.mark.process
async def test_hooks_that_fail_cost_nothing(webhook: type[Hook], monkeypatch: pytest.MonkeyPatch) -> None:
    webhook.status = 500
    notifier = Notifier(("/no/such/program",), "MY_HOOK")
    notifier.see(ALERT)
    await notifier.drain()
    assert "HTTP 500" in notifier.failure
    monkeypatch.setenv("MY_HOOK", "http://127.0.0.1:1/")
    notifier = Notifier((), "MY_HOOK")
    notifier.see(ALERT)
    await notifier.drain()
    assert "could not be reached" in notifier.failure
    assert "127.0.0.1:1" not in notifier.failure, "the URL may be the secret"
    monkeypatch.setenv("MY_HOOK", "http://[::1")
    notifier = Notifier((), "MY_HOOK")
    notifier.see(ALERT)
    await notifier.drain()
    assert notifier.failure


async def test_nothing_asked_nothing_kept() -> None:
    notifier = Notifier((), None)
    notifier.see(ALERT)
    await notifier.drain()
    assert notifier.failure == ""
