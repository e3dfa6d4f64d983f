"""Reaching a person: a real command, a real webhook with each way to fail, and nothing that delays the sweep."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ddtop.events import Action, AlertRaised, Event, RunEnded, RunStarted
from ddtop.journal.act.now import UNDELIVERED
from ddtop.plan.read.plan import NOTIFY_NAMES
from ddtop.sweep.tell import notify_ways
from ddtop.sweep.tell.notify import Notifier
from ddtop.sweep.tell.notify_queue import Message, Patience, Queue, Sent, next_pause
from tests.waiting import HANG_S

SECRET = "T0P-53CR37"
STARTED = RunStarted(at_s=0.0, mono_s=0.0, host="ct200", run_id="r1", name="p", mode="sweep", segment=0)
ENDED = RunEnded(at_s=2.0, mono_s=2.0, host="ct200", outcome="some-failed", exit_code=10, reason="")
QUICK = Patience(pauses_s=(0.01,), ending_pause_s=0.01)


def alert(ident: str = "a1") -> AlertRaised:
    return AlertRaised(
        at_s=1.0,
        mono_s=1.0,
        host="ct200",
        alert_id=ident,
        title="NOT STARTING?",
        verdict="failed",
        cause="cuda-oom",
        cause_text="CUDA out of memory",
        kind="config",
        advice="lower --mem-fraction-static",
        unit="sglang-bench.service",
        actions=(
            Action(key="r", label="skip b16", command="skip"),
            Action(key="t", label="retry anyway", command="retry"),
        ),
        policy="b16 is failed",
    )


class Receiver:
    """A real HTTP server on loopback. `ways`: how it answers the next requests, the last one from then on."""

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.ways: list[str] = ["200"]
        self.got: list[dict[str, str]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []
        self.over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with contextlib.suppress(OSError):
                    receiver.answer(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_port}/{SECRET}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        way = self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.paths.append(request.path)
        self.got.append(json.loads(body or "{}"))
        self.keys.append(request.headers.get("Idempotency-Key"))
        if way == "hang":
            self.over.wait(60)
            return
        if way == "garbage":
            request.wfile.write(b"\0not http at all\r\n\r\n")
            return
        if "held" in way:
            self.over.wait(HANG_S)
        request.send_response(int(way.split()[0]))
        if "location" in way:
            request.send_header("Location", self.url + "/elsewhere")
        if "later" in way:
            request.send_header("Retry-After", "0")
        if "endless" in way:
            request.end_headers()
            while not self.over.is_set():
                request.wfile.write(b"x" * 65536)
            return
        request.send_header("Content-Length", "0")
        request.end_headers()

    def titles(self) -> list[str]:
        return [message["title"] for message in self.got]

    def end(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setenv("MY_HOOK", made.url)
    yield made
    made.end()


class Run:
    """The notifier beside a sweep, as the runner has it."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier
        self.said: list[tuple[str, str]] = []
        notifier.said = lambda level, what: self.said.append((level, what))
        notifier.see(STARTED)
        self.task = asyncio.create_task(notifier.run())

    def see(self, *events: Event) -> None:
        for event in events:
            self.notifier.see(event)

    async def until(self, found: Callable[[], Any]) -> None:
        async with asyncio.timeout(HANG_S):
            while not found():
                await asyncio.sleep(0.01)

    async def end(self) -> list[str]:
        """Ends it as the runner does; what was said, in order."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.notifier.drain()
        texts = [text for _, text in self.said]
        assert not [text for text in texts if SECRET in text or "127.0.0.1" in text], (
            "the URL may be the secret"
        )
        return texts


def webhook(patience: Patience = QUICK) -> Run:
    return Run(Notifier((), "MY_HOOK", "ct200-qwen", patience=patience))


async def test_a_webhook_gets_each_alert_once_and_the_end(receiver: Receiver) -> None:
    run = webhook()
    run.see(alert(), alert(), ENDED)
    assert await run.end() == []
    assert receiver.titles() == ["NOT STARTING?", "RUN ENDED"]
    first, last = receiver.got
    ident = first.pop("id")
    assert first == {
        "title": "NOT STARTING?",
        "cause": "CUDA out of memory",
        "verdict": "failed",
        "host": "ct200",
        "alert": "a1",
        "advice": "lower --mem-fraction-static",
        "unit": "sglang-bench.service",
        "plan": "ct200-qwen",
        "run": "r1",
        "at": "1970-01-01T00:00:01Z",
        "choices": "r: skip b16; t: retry anyway",
        "default": "b16 is failed",
    }
    assert last["verdict"] == last["cause"] == "some-failed"
    assert receiver.keys == [ident, last["id"]] and ident != last["id"]


async def test_what_failed_is_sent_again_in_order_with_the_same_id(receiver: Receiver) -> None:
    receiver.ways = ["500", "503 later", "garbage", "429", "200"]
    run = webhook()
    run.see(alert("a1"), alert("a2"))
    await run.until(lambda: len(receiver.got) == 6)
    assert [m["alert"] for m in receiver.got] == ["a1"] * 5 + ["a2"]
    assert len(set(receiver.keys)) == 2
    (late, again) = await run.end()
    assert (
        late == "a notification is late: the webhook returned HTTP 500; it is tried again for 1h00m at most"
    )
    assert again == "the webhook gets notifications again"
    assert [level for level, _ in run.said] == ["warn", "info"]


async def test_a_receiver_that_is_down_gets_them_once_it_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("MY_HOOK", f"http://127.0.0.1:{port}/{SECRET}")
    run = webhook()
    run.see(alert("a1"), alert("a2"))
    await run.until(lambda: run.said)
    up = Receiver(port=port)
    try:
        await run.until(lambda: len(up.got) == 2)
        assert [m["alert"] for m in up.got] == ["a1", "a2"]
    finally:
        up.end()
    assert (await run.end())[0].startswith("a notification is late: the webhook could not be reached")


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("302 location", "the webhook answered HTTP 302: redirects are not followed; give its final URL"),
        ("307 location", "the webhook answered HTTP 307: redirects are not followed; give its final URL"),
        ("404", "the webhook returned HTTP 404"),
    ],
)
async def test_what_another_try_cannot_help_is_said_at_once(receiver: Receiver, way: str, why: str) -> None:
    receiver.ways = [way, "200"]
    run = webhook()
    run.see(alert("a1"), alert("a2"))
    await run.until(lambda: len(receiver.got) == 2)
    said = await run.end()
    assert said[0] == f"{UNDELIVERED}: NOT STARTING? (alert a1): {why}"
    assert receiver.paths == [f"/{SECRET}"] * 2, "a redirect was not followed"
    assert [m["alert"] for m in receiver.got] == ["a1", "a2"]


async def test_a_bad_certificate_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    receiver = Receiver(tls)
    monkeypatch.setenv("MY_HOOK", receiver.url)
    try:
        run = webhook()
        run.see(alert())
        await run.until(lambda: run.said)
        assert await run.end() == [
            f"{UNDELIVERED}: NOT STARTING? (alert a1): the webhook's certificate is not valid"
        ]
    finally:
        receiver.end()
    assert receiver.got == [], "nothing was sent to a server that is not proven"


async def test_a_webhook_that_hangs_is_left_and_tried_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify_ways, "LIMIT_S", 0.3)
    receiver.ways = ["hang", "200 endless"]
    run = webhook()
    run.see(alert())
    await run.until(lambda: len(receiver.got) == 2)
    said = await run.end()
    assert said[0].startswith("a notification is late: the webhook gave no answer in 0.3 s")
    assert said[1:] == ["the webhook gets notifications again"], "an endless body is not read"


async def test_the_end_of_a_run_waits_for_its_last_message_but_not_for_ever(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tries fail as the run ends; the third one delivers. One that hangs is given up, and that is said."""
    receiver.ways = ["500", "500", "200"]
    run = webhook(Patience(ending_pause_s=0.01))
    run.see(ENDED)
    assert await run.end() == ["the webhook gets notifications again"]
    assert receiver.titles() == ["RUN ENDED"] * 3
    monkeypatch.setattr("ddtop.sweep.tell.notify.DRAIN_S", 0.3)
    receiver.ways = ["hang"]
    run = webhook()
    run.see(alert(), ENDED)
    why = "the webhook gave no answer in 0.3 s; the run has ended"
    assert await run.end() == [
        f"{UNDELIVERED}: NOT STARTING? (alert a1): {why}",
        f"{UNDELIVERED}: RUN ENDED: {why}",
    ]


async def test_a_message_under_way_at_the_end_is_sent_once(receiver: Receiver) -> None:
    receiver.ways = ["200 held"]
    run = webhook()
    run.see(alert())
    await run.until(lambda: receiver.got)
    ending = asyncio.create_task(run.end())
    await asyncio.sleep(0.05)
    receiver.over.set()
    assert await ending == []
    assert receiver.titles() == ["NOT STARTING?"]


async def test_too_many_messages_drop_the_oldest_and_say_so(receiver: Receiver) -> None:
    receiver.ways = ["500"]
    run = webhook(Patience(pauses_s=(3600.0,), most=3))
    run.see(alert("a0"))
    await run.until(lambda: run.said)
    run.see(*(alert(f"a{n}") for n in range(1, 5)))
    given_up = [text for _, text in run.said if text.startswith(UNDELIVERED)]
    assert [text.split("(alert ")[1][:2] for text in given_up] == ["a0", "a1"]
    receiver.ways = ["200"]
    await run.end()
    assert [m["alert"] for m in receiver.got][1:] == ["a2", "a3", "a4"]


@pytest.mark.parametrize(
    ("sent", "tries", "age_s", "ending", "pause"),
    [
        (Sent("x"), 1, 0.0, False, 1.0),
        (Sent("x"), 3, 0.0, False, 4.0),
        (Sent("x"), 50, 0.0, False, 60.0),
        (Sent("x"), 1, 3599.5, False, None),
        (Sent("x"), 1, 9999.0, True, 1.0),
        (Sent("x", again=False), 1, 0.0, False, None),
        (Sent("x", most=3), 2, 0.0, False, 2.0),
        (Sent("x", most=3), 3, 0.0, False, None),
        (Sent("x", pause_s=20.0), 1, 0.0, False, 20.0),
        (Sent("x", pause_s=99999.0), 1, 0.0, False, 60.0),
    ],
)
def test_pauses_grow_and_end(sent: Sent, tries: int, age_s: float, ending: bool, pause: float | None) -> None:
    assert next_pause(sent, tries, age_s, Patience(), ending=ending) == pause


async def test_the_url_is_in_no_log(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.ways = ["500", "200"]
    run = webhook()
    run.see(alert())
    await run.until(lambda: len(receiver.got) == 2)
    await run.end()
    assert SECRET not in caplog.text and str(receiver.server.server_port) not in caplog.text


@pytest.mark.parametrize("url", ["http://", "nonsense", "ftp://place/y", "http://[::1"])
async def test_any_url_is_survived_and_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_HOOK", url)
    run = webhook()
    run.see(alert())
    await run.until(lambda: run.said)
    (said,) = await run.end()
    assert said.startswith(f"{UNDELIVERED}: NOT STARTING? (alert a1): the webhook could not be reached")
    assert not [part for part in ("http", "nonsense", "place", "[::1") if part in said]


async def test_a_variable_that_is_not_set_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_HOOK", raising=False)
    assert "MY_HOOK" in Notifier((), "MY_HOOK").problem and UNDELIVERED in Notifier((), "MY_HOOK").problem
    assert Notifier((), None).problem == ""
    nothing = Run(Notifier((), None))
    nothing.see(alert())
    assert await nothing.end() == []


# ---- a command


def command(*argv: object) -> Run:
    return Run(Notifier(tuple(map(str, argv)), None, "p", patience=QUICK))


@pytest.mark.process
async def test_a_command_gets_its_words_and_no_shell(tmp_path: Path) -> None:
    script = "import sys, json; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"
    words = tuple("{" + name + "}" for name in NOTIFY_NAMES)
    run = command(sys.executable, "-c", script, tmp_path / "got", *words, "{x} $(id)")
    run.see(alert())
    assert await run.end() == []
    got = json.loads((tmp_path / "got").read_text())
    assert got[-1] == "{x} $(id)"
    named = dict(zip(NOTIFY_NAMES, got, strict=False))
    assert len(named.pop("id")) == 16
    assert named == {
        "title": "NOT STARTING?",
        "cause": "CUDA out of memory",
        "advice": "lower --mem-fraction-static",
        "host": "ct200",
        "unit": "sglang-bench.service",
        "plan": "p",
        "verdict": "failed",
        "alert": "a1",
        "run": "r1",
        "at": "1970-01-01T00:00:01Z",
        "choices": "r: skip b16; t: retry anyway",
        "default": "b16 is failed",
    }


@pytest.mark.process
async def test_a_command_that_fails_is_tried_three_times(tmp_path: Path) -> None:
    run = command("sh", "-c", f"echo x >> {tmp_path}/tries; exit 3")
    run.see(alert())
    await run.until(lambda: len(run.said) == 2)
    assert (await run.end())[1] == (
        f"{UNDELIVERED}: NOT STARTING? (alert a1): sh ended with exit code 3 after 3 tries"
    )
    assert (tmp_path / "tries").read_text() == "x\n" * 3


@pytest.mark.process
async def test_a_command_that_is_missing_or_gets_strange_words_is_said_once() -> None:
    run = command("/no/such/program")
    run.see(alert())
    await run.until(lambda: run.said)
    assert await run.end() == [
        f"{UNDELIVERED}: NOT STARTING? (alert a1): /no/such/program: No such file or directory"
    ]
    strange = command("true", "{cause}\0")
    strange.see(alert())
    await strange.until(lambda: strange.said)
    assert (await strange.end())[0].endswith("true: embedded null byte")


@pytest.mark.process
async def test_a_command_that_hangs_ends_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify_ways, "LIMIT_S", 0.5)
    run = command("sh", "-c", f"trap '' TERM; sleep 600 & echo $! >> {tmp_path}/pids; wait")
    run.see(alert())
    await run.until(lambda: len(run.said) == 2)
    assert "sh took longer than 0.5 s after 3 tries" in (await run.end())[1]
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert pids
    await run.until(lambda: not [pid for pid in pids if _alive(pid)])


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")


@pytest.mark.process
async def test_a_command_that_floods_or_leaves_a_child_is_done_when_it_ends(tmp_path: Path) -> None:
    flood = "import sys; [sys.stdout.write('x' * 65536) for _ in range(500)]; sys.stderr.write('y' * 10**6)"
    run = command(sys.executable, "-c", flood)
    run.see(alert())
    assert await run.end() == []
    pids = tmp_path / "pid"
    run = command("sh", "-c", f"sleep 600 & echo $! > {pids}")
    run.see(alert())
    await run.until(pids.exists)
    assert await run.end() == []
    os.kill(int(pids.read_text()), signal.SIGKILL)


@pytest.mark.process
async def test_a_command_that_hangs_does_not_delay_the_webhook(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddtop.sweep.tell.notify.DRAIN_S", 0.2)
    run = Run(Notifier(("sleep", "600"), "MY_HOOK", patience=QUICK))
    run.see(alert())
    await run.until(lambda: receiver.got)
    assert await run.end() == [
        f"{UNDELIVERED}: NOT STARTING? (alert a1): the command gave no answer in 0.2 s; the run has ended"
    ]


async def test_a_message_that_is_dropped_takes_its_tries_along() -> None:
    tried: list[str] = []
    said: list[str] = []

    async def send(words: dict[str, str]) -> Sent:
        tried.append(words["title"])
        return Sent("it fails", most=3)

    queue = Queue(
        "the command", send, Patience(pauses_s=(0.0,), most=1), lambda level, what: said.append(what)
    )
    queue.put(Message({"title": "old"}, queue.now()))
    await queue._try(ending=False)
    await queue._try(ending=False)
    queue.put(Message({"title": "new"}, queue.now()))  # while `old` waits for its third try
    await queue.drain(HANG_S)
    assert tried == ["old", "old", "new", "new", "new"]
    assert said[1:] == [
        f"{UNDELIVERED}: old: 1 message wait already after 2 tries",
        f"{UNDELIVERED}: new: it fails after 3 tries",
    ]
