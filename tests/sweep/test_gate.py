"""The five-part gate: each way in which it must refuse, and the one in which it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddtop.services.readings import ListenerReading, UnitReading
from ddtop.sweep.start.gate import ORDER, ArgsReading, GateReadings, MarkReading, TokenReading, gate

OLD, NEW = "a" * 32, "b" * 32
UNIT = UnitReading(
    unit="s.service", at=1.0, active="active", sub="running", main_pid=9, generation=NEW, need_reload=False
)
MINE = ListenerReading(addr="0.0.0.0", port=30000, pid=9, unit="s.service", owned=True)
FOREIGN = ListenerReading(addr="127.0.0.1", port=30000, pid=77, comm="nc", owned=False)
READY = GateReadings(
    before=OLD,
    unit=UNIT,
    listeners=(MINE,),
    mark=MarkReading(generation=NEW, text="The server is fired up and ready to roll!", at=2.0),
    args=ArgsReading(at=3.0, source="server_info", generation=NEW, compared=5),
    token=TokenReading(at=4.0, tokens=3, generation=NEW, status=200),
)


def test_ready_needs_all_five() -> None:
    assert gate(READY).ready
    assert [p.part for p in gate(READY).parts] == list(ORDER)
    for blank in ("unit", "listeners", "mark", "args", "token"):
        assert not gate(replace(READY, **{blank: None})).ready, blank


def test_one_token_is_one_token() -> None:
    one = replace(READY, token=TokenReading(at=4.0, tokens=1, generation=NEW, status=200))
    assert [gate(r).parts[-1].evidence.text for r in (one, READY)] == ["1 token", "3 tokens"]


CASES = [
    ("old generation", {"unit": replace(UNIT, generation=OLD)}, "generation", "pending"),
    ("deactivating", {"unit": replace(UNIT, active="deactivating")}, "generation", "pending"),
    (
        "auto-restart",
        {"unit": replace(UNIT, active="activating", sub="auto-restart", main_pid=None)},
        "generation",
        "pending",
    ),
    ("unreadable", {"unit": replace(UNIT, active=None)}, "generation", "unknown"),
    ("the listener of the old start", {"unit": replace(UNIT, generation=OLD)}, "listener", "pending"),
    (
        "the same while it is stopped",
        {"unit": replace(UNIT, generation=OLD, active="deactivating")},
        "listener",
        "pending",
    ),
    ("no listener", {"listeners": ()}, "listener", "pending"),
    ("foreign owner", {"listeners": (FOREIGN,)}, "listener", "no"),
    ("two servers", {"listeners": (MINE, FOREIGN)}, "listener", "no"),
    ("two of ours on one address", {"listeners": (MINE, replace(MINE, pid=10))}, "listener", "no"),
    ("same pid twice on one address", {"listeners": (MINE, MINE)}, "listener", "no"),
    ("IPv4 and IPv6 of one process", {"listeners": (MINE, replace(MINE, addr="::"))}, "listener", "ok"),
    ("owner unseen", {"listeners": (replace(MINE, owned=None),)}, "listener", "unknown"),
    (
        "log not to be read",
        {"mark": None, "log_unreadable": "this login may not read it: use root"},
        "mark",
        "unknown",
    ),
    ("mark of the old start", {"mark": MarkReading(generation=OLD, text="ready", at=1.0)}, "mark", "pending"),
    ("need reload", {"unit": replace(UNIT, need_reload=True)}, "arguments", "no"),
    (
        "wrong argument",
        {"args": ArgsReading(at=1.0, source="server_info", generation=NEW, wrong=("tp is 1",), compared=1)},
        "arguments",
        "no",
    ),
    (
        "another server answered",
        {"args": ArgsReading(at=1.0, source="server_info", generation=NEW, tied=False)},
        "arguments",
        "no",
    ),
    (
        "arguments unreadable",
        {"args": ArgsReading(at=1.0, source="cmdline", unknown=("cmdline",))},
        "arguments",
        "unknown",
    ),
    (
        "arguments of the old start",
        {"args": ArgsReading(at=1.0, source="server_info", generation=OLD)},
        "arguments",
        "pending",
    ),
    ("0 tokens", {"token": TokenReading(at=1.0, tokens=0, generation=NEW, status=200)}, "token", "no"),
    (
        "request failed",
        {"token": TokenReading(at=1.0, tokens=None, generation=NEW, error="HTTP 500")},
        "token",
        "no",
    ),
    (
        "no usage",
        {"token": TokenReading(at=1.0, tokens=None, generation=NEW, status=200)},
        "token",
        "unknown",
    ),
    ("token of the old start", {"token": TokenReading(at=1.0, tokens=5, generation=OLD)}, "token", "pending"),
]


@pytest.mark.parametrize(("change", "part", "state"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_each_refusal(change: dict, part: str, state: str) -> None:
    result = gate(replace(READY, **change))
    assert result[part].state == state  # type: ignore[index]
    assert result.ready is (state == "ok" or (part, state) == ("mark", "unknown"))
    assert result[part].evidence.text  # type: ignore[index]


LOG_NOWHERE: dict = {"mark": None, "log_unreadable": "its output goes to /dev/null"}


@pytest.mark.parametrize(
    ("what", "change", "part"),
    [
        ("a first token that compiles for a minute, no log", {**LOG_NOWHERE, "token": None}, None),
        ("the link was cut before it was asked, no log", {**LOG_NOWHERE, "args": None, "token": None}, None),
        ("it still loads, no log", {**LOG_NOWHERE, "listeners": (), "args": None, "token": None}, None),
        ("no log alone", LOG_NOWHERE, None),
        (
            "whose the port is cannot be seen",
            {"listeners": (replace(MINE, owned=None),), "args": None, "token": None},
            "listener",
        ),
        (
            "the same without a log",
            {**LOG_NOWHERE, "listeners": (replace(MINE, owned=None),), "token": None},
            "listener",
        ),
        (
            "the arguments cannot be read",
            {"args": ArgsReading(at=1.0, source="x", unknown=("x",))},
            "arguments",
        ),
        (
            "no count of tokens",
            {"token": TokenReading(at=1.0, tokens=None, generation=NEW, status=200)},
            "token",
        ),
    ],
)
def test_what_can_never_be_proven_and_what_may_still_come(what: str, change: dict, part: str | None) -> None:
    found = gate(replace(READY, **change)).unproven
    assert (found.part if found is not None else None) == part, what


def test_a_listener_is_not_doubted_where_the_unit_cannot_be_read() -> None:
    assert gate(replace(READY, unit=replace(UNIT, active=None)))["listener"].state == "ok"
    assert gate(replace(READY, unit=None))["listener"].state == "ok"


def test_a_running_right_server_is_accepted_without_restart() -> None:
    same = replace(READY, before=NEW)
    assert not gate(same).ready
    assert gate(replace(same, same_generation_ok=True)).ready


def test_overridden_arguments_are_reported_but_no_refusal() -> None:
    over = replace(
        READY,
        args=ArgsReading(at=1.0, source="server_info", generation=NEW, compared=2, overridden=("topk is 1",)),
    )
    assert gate(over).ready
    assert "topk is 1" in gate(over)["arguments"].evidence.text
