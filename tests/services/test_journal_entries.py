"""Journal JSON: text, bytes, null; whole, pretty, sequences; split lines."""

from __future__ import annotations

import json

from ddtop.services.journald.entries import (
    entry_from,
    join_split_lines,
    looks_like_journal_json,
    parse_entry,
    parse_journal_json,
)


def line(message: object, **more: object) -> str:
    return json.dumps(
        {
            "__CURSOR": "s=1",
            "__REALTIME_TIMESTAMP": "1796020784781760",
            "__MONOTONIC_TIMESTAMP": "1291838385",
            "_PID": "277",
            "_SYSTEMD_UNIT": "u.service",
            "PRIORITY": "6",
            "MESSAGE": message,
            **more,
        }
    )


def test_the_three_kinds_of_message() -> None:
    found = parse_journal_json(
        "\n".join([line("text"), line(list(b"bar\rend")), line(list(b"\xe2\x96(x)")), line(None)]).encode()
    )
    assert [(e.text, e.message_type, e.invalid_utf8) for e in found] == [
        ("text", "str", False),
        ("bar\rend", "bytes", False),
        ("�(x)", "bytes", True),
        (None, "null", False),
    ]
    first = found[0]
    assert (first.realtime_s, first.monotonic_s, first.pid, first.unit, first.priority) == (
        1796020784.78176,
        1291.838385,
        277,
        "u.service",
        6,
    )


def test_systemds_own_lines_are_told_by_unit() -> None:
    entry = parse_entry(
        line(
            "Started u.service",
            UNIT="u.service",
            _SYSTEMD_UNIT="init.scope",
            INVOCATION_ID="abc",
            _SYSTEMD_INVOCATION_ID="x",
        )
    )
    assert entry is not None and entry.from_systemd and (entry.unit, entry.invocation) == ("u.service", "abc")
    assert not parse_entry(line("x")).from_systemd  # type: ignore[union-attr]


def test_pretty_lists_and_sequences() -> None:
    objects = [json.loads(line(f"m{i}")) for i in range(3)]
    pretty = "\n".join(json.dumps(o, indent="\t") for o in objects)
    sequence = "".join("\x1e" + json.dumps(o) + "\n" for o in objects)
    listed = "[\n" + ",\n".join(json.dumps(o) for o in objects) + "\n]\n"
    for form in (pretty, sequence, listed):
        assert looks_like_journal_json(form.encode())
        assert [e.text for e in parse_journal_json(form.encode())] == ["m0", "m1", "m2"]


def test_a_cut_or_foreign_line_is_left_out() -> None:
    data = "\n".join([line("a"), line("b")[:-20], "-- No entries --", line("c"), "{}x", "[1]"])
    assert [e.text for e in parse_journal_json(data.encode())] == ["a", "c"]
    assert parse_entry("nonsense") is None and parse_entry(b"\xff{") is None


def test_split_lines_are_joined_per_process() -> None:
    entries = parse_journal_json(
        "\n".join(
            [
                line("A" * 10, _LINE_BREAK="line-max"),
                line("other", _PID="9"),
                line("B"),
                line("C", _LINE_BREAK="line-max"),
                line(None),
            ]
        ).encode()
    )
    assert [e.text for e in join_split_lines(entries)] == ["A" * 10 + "B", "other", None]


def test_odd_values_are_no_error() -> None:
    for message in (5, 1.5, True, {"a": 1}, ["a", "b"], [[65], [66]], [300], [-1], []):
        entry = entry_from(
            {"MESSAGE": message, "_PID": ["7", "8"], "PRIORITY": {}, "__REALTIME_TIMESTAMP": "x"}
        )
        assert entry.pid == 7 and entry.priority is None and entry.realtime_s is None
    assert entry_from({"MESSAGE": ["a", "b"]}).text == "a\nb"
