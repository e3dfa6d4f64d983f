"""What a server's own answers and sockets prove against it, before any clock: named within 5 s, never `hang-asleep`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ddtop.engines import ENGINES
from ddtop.services.causes import load_causes
from ddtop.services.readings import ListenerReading
from ddtop.sweep.start.answers import next_refusal, reachable
from ddtop.sweep.start.gate import GateReadings, TokenReading, gate
from ddtop.sweep.start.gate_reads import served_otherwise, token_reading
from ddtop.sweep.start.reading_tasks import _look_elsewhere
from ddtop.sweep.start.watchdog import judge
from tests.sweep.test_gate import READY
from tests.sweep.test_watchdog import BASE

SGL = ENGINES["sglang"]
HTML = "<html><body><h1>Welcome</h1></body></html>"
NGINX = "<html>\r\n<head><title>502 Bad Gateway</title></head><body><center><h1>502</h1></center><hr><center>nginx/1.22.1</center></body></html>"


def reply(status: int, body: str, kind: str = "application/json", server: str = "") -> dict[str, Any]:
    return {"status": status, "body": body, "headers": {"Content-Type": kind, "Server": server}}


REPLIES = [
    ("500 of the engine", reply(500, '{"error": "internal"}'), "server-error"),
    (
        "vLLM's dead engine",
        reply(500, '{"error": {"message": "EngineCore encountered an issue"}}'),
        "server-error",
    ),
    ("500 as text", reply(500, "Internal Server Error", "text/plain; charset=utf-8"), "server-error"),
    ("502 of nginx", reply(502, NGINX, "text/html", "nginx/1.22.1"), "proxy-in-front"),
    ("502 without a name", reply(502, "Bad Gateway", "text/plain"), "proxy-in-front"),
    ("504 of a balancer", reply(504, "upstream request timeout", "text/plain", "envoy"), "proxy-in-front"),
    ("nginx's welcome", reply(200, HTML, "text/html", "nginx"), "proxy-in-front"),
    ("HTML and 200", reply(200, HTML, "text/html"), "not-an-inference-server"),
    ("HTML without its type", reply(200, HTML, ""), "not-an-inference-server"),
    ("plain text and 200", reply(200, "pong", "text/plain"), "not-an-inference-server"),
    (
        "python's http.server",
        reply(501, "<html>Unsupported method ('POST')</html>", "text/html", "SimpleHTTP/0.6"),
        "not-an-inference-server",
    ),
    ("no such endpoint", reply(404, '{"detail":"Not Found"}'), "not-an-inference-server"),
    ("wrong method", reply(405, '{"detail":"Method Not Allowed"}'), "not-an-inference-server"),
    (
        "vLLM's other model",
        reply(404, '{"error":{"message":"The model `m` does not exist.","type":"NotFoundError"}}'),
        "wrong-model-name",
    ),
    ("wants a key", reply(401, '{"error":"Unauthorized"}'), "api-key-wanted"),
    ("forbids", reply(403, "Forbidden", "text/plain"), "api-key-wanted"),
    (
        "no chat template",
        reply(400, '{"message":"As of transformers v4.44, default chat template is no longer allowed"}'),
        "request-refused",
    ),
    ("refused", {"error": "refused"}, "connection-refused"),
    ("reset", {"error": "reset", "what": "peer"}, "connection-refused"),
]


@pytest.mark.parametrize(("answer", "cause"), [x[1:] for x in REPLIES], ids=[x[0] for x in REPLIES])
def test_each_answer_is_named_within_five_seconds(answer: dict[str, Any], cause: str) -> None:
    refusals = None
    verdicts = {}
    for at in range(6):  # a trial request each second
        t = token_reading(SGL, answer, "g", float(at))
        assert (
            t.error is not None
            and gate(replace(READY, token=replace(t, generation=None)))["token"].state == "no"
        )
        refusals = next_refusal(
            refusals, at=float(at), status=t.status, error=t.error, kind=t.kind, server=t.server
        )
        r = replace(BASE, phase="answering", token=replace(t, generation=None), refusals=refusals)
        verdicts[at] = judge(r, at + 0.1)
    assert not verdicts[0].alarm and not verdicts[1].alarm, "one or two may be an accident"
    assert verdicts[2].cause == verdicts[4].cause == cause
    found = verdicts[4]
    assert found.evidence and found.text and cause in load_causes().by_slug
    assert found.kind == load_causes().by_slug[cause].kind


@pytest.mark.parametrize("status", (503, 429, 408))
def test_not_now_is_a_sign_of_life(status: int) -> None:
    refusals = None
    for at in range(30):
        refusals = next_refusal(refusals, at=float(at), status=status, error=f"HTTP {status}")
    assert not judge(replace(BASE, phase="answering", refusals=refusals), 30.0).alarm


def test_a_first_request_that_takes_its_time_is_no_refusal() -> None:
    refusals = None
    for at in (0.0, 61.0, 122.0):
        refusals = next_refusal(refusals, at=at, status=None, error="timeout")
    at = replace(BASE, phase="answering", refusals=refusals)
    assert judge(at, 110.0).verdict is None and judge(at, 121.0).verdict == "stalled"


def test_an_error_that_changes_or_passes_is_counted_anew() -> None:
    first = next_refusal(None, at=0.0, status=500, error="a")
    second = next_refusal(first, at=1.0, status=503, error="b")
    third = next_refusal(second, at=2.0, status=500, error="a")
    assert (first.count, second.count, third.count) == (1, 1, 1)
    assert next_refusal(third, at=3.0, status=500, error="a").since == 2.0


OWN = ListenerReading(addr="0.0.0.0", port=30000, pid=9, unit="s.service", owned=True)
PLACES = [
    ("0.0.0.0", True),
    ("::", True),
    ("127.0.0.1", True),
    ("127.0.1.1", True),
    ("::ffff:127.0.0.1", True),
    ("::1", False),
    ("10.78.0.2", False),
    ("192.168.1.4", False),
    ("fe80::1", False),
]


@pytest.mark.parametrize(("addr", "here"), PLACES)
def test_an_address_that_requests_do_not_reach(addr: str, here: bool) -> None:
    item = replace(OWN, addr=addr)
    assert reachable((item,)) is here
    part = gate(replace(READY, listeners=(item,)))["listener"]
    assert part.state == ("ok" if here else "no")
    found = judge(replace(BASE, listeners=(item,)), 9.0)
    assert found.cause == ("" if here else "listens-elsewhere") or (here and not found.alarm)


def test_both_addresses_of_which_one_reaches() -> None:
    assert reachable((replace(OWN, addr="10.0.0.4"), replace(OWN, addr="127.0.0.1")))
    assert reachable((replace(OWN, addr="10.0.0.4", container="0123456789ab"),)), "published by docker"


def test_another_port_is_named_with_both() -> None:
    other = replace(OWN, port=30001)
    found = judge(replace(BASE, elsewhere=(other,)), 9.0)
    assert (found.verdict, found.cause, found.kind) == ("wrong-arguments", "listens-elsewhere", "config")
    assert "30001" in found.text and "30000" in found.text and "port" in found.text
    assert judge(replace(BASE, elsewhere=(other,), listeners=(OWN,)), 9.0).verdict is None, (
        "it came after all"
    )


@pytest.mark.parametrize(
    ("wanted", "models", "wrong"),
    [
        (["--served-model-name", "m"], '{"data": [{"id": "other"}]}', True),
        (["--served-model-name", "m"], '{"data": [{"id": "m"}]}', False),
        (["--served-model-name", "a", "b"], '{"data": [{"id": "b"}]}', False),
        (["--port", "1"], '{"data": [{"id": "x"}]}', False),
        (["--served-model-name", "m"], "<html>", False),
        (["--served-model-name", "m"], None, False),
    ],
)
def test_another_model_name(wanted: list[str], models: str | None, wrong: bool) -> None:
    argv = ["python3", "-m", "sglang.launch_server", *wanted]
    assert bool(served_otherwise(SGL, argv, models)) is wrong


def test_a_mark_that_cannot_be_known_is_proven_by_the_others() -> None:
    """Unknown, never pending: and only a real generation stands for it."""
    blind: GateReadings = replace(READY, mark=None, log_unreadable="its output goes to /var/log/x.log")
    result = gate(blind)
    assert result["mark"].state == "unknown" and "/var/log/x.log" in result["mark"].evidence.text
    assert result.ready
    for missing in ("unit", "listeners", "args", "token"):
        assert not gate(replace(blind, **{missing: None})).ready, missing
    assert not gate(replace(blind, token=TokenReading(at=1.0, tokens=0, status=200))).ready
    assert not gate(replace(READY, mark=None)).ready, "a log that can be read must show it"


def test_the_new_start_that_has_ended_is_not_called_the_old_one() -> None:
    gone = replace(READY, unit=replace(READY.unit, active="failed", main_pid=None))  # type: ignore[type-var]
    assert "old start" not in gate(gone)["listener"].evidence.text
    assert "ended" in gate(gone)["listener"].evidence.text


OTHER = replace(OWN, port=31000)


@pytest.mark.parametrize(
    ("argv", "found", "named"),
    [
        ((), (OTHER,), True),
        ((), (OTHER, replace(OTHER, port=31001)), False),  # two workers: something goes before them
        (("python", "-m", "sglang_router.launch_server", "--dp-size", "2"), (OTHER,), False),
    ],
)
def test_workers_of_a_router_that_is_still_to_come_are_no_server_elsewhere(
    argv: tuple[str, ...], found: tuple[ListenerReading, ...], named: bool
) -> None:
    """The router opens the plan's port once its workers are healthy: the first says that it is ready long before."""

    class Reader:
        async def elsewhere(self, *_: Any) -> tuple[ListenerReading, ...]:
            return found

    class Start:
        log = SimpleNamespace(mark=SimpleNamespace(at=0.0), engine=SimpleNamespace(logs_ready_mark=True))
        listeners, elsewhere, looked_at = (), (), 0.0
        unit = SimpleNamespace(argv=" ".join(argv))
        launch = SimpleNamespace(argv=(), unit="s.service")
        gate_reader = Reader()

        def new_generation(self) -> str:
            return "g"

        def log_is_blind(self) -> None:
            return None

    ctx: Any = SimpleNamespace(mono=lambda: 9.0, wake=lambda: None)
    start: Any = Start()
    asyncio.run(_look_elsewhere(ctx, cast(Any, None), start))
    assert bool(start.elsewhere) is named
