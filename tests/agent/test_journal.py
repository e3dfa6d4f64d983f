"""journalctl's JSON as it really comes (cases E07, E08), and the commands built for it."""

import json
from pathlib import Path

import pytest

from ddtop.agent.service.journal import Joiner, item_of, journal_argv, text_of

CASES = Path(__file__).parent.parent / "cases"


def entries(case: str, name: str = "input.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in (CASES / case / name).read_text().splitlines()]


def test_byte_arrays_colours_bad_utf8_and_bars() -> None:
    items = [item_of(entry) for entry in entries("E07-json-message-byte-arrays")]
    texts = [item["text"] for item in items]
    assert texts[0].startswith("Started llm-server.service")
    assert "Load weight begin" in texts[1]
    assert "4/4" in texts[2]
    assert "0/4" not in texts[2], "of a bar only what was on screen last"
    assert "\x1b[1;36m" in texts[3]
    assert "\ufffd" in texts[4]
    assert texts[5].startswith("   leading")
    assert all(item["invocation"] == "bf273023b3d7421faa4bcb8866b2dddd" for item in items), (
        "systemd's lines too"
    )
    assert all(isinstance(item["pid"], int) and isinstance(item["priority"], int) for item in items)
    assert items[0]["mono_us"] == 1291838385
    assert items[0]["at_s"] == pytest.approx(1796020784.78176)
    assert len({item["cursor"] for item in items}) == len(items)


def test_null_messages_are_said_to_be_cut() -> None:
    items = [item_of(entry) for entry in entries("E08-json-null-over-4096")]
    assert [item.get("cut", False) for item in items] == [True, True, True]
    assert {item["text"] for item in items} == {""}


def test_split_lines_are_joined_under_the_last_cursor() -> None:
    joiner = Joiner()
    rows = entries("E08-json-null-over-4096", "input.all.jsonl")
    items = [item for item in map(joiner.add, rows) if item is not None]
    assert len(items) == len(rows) - 1
    assert items[0]["text"].startswith("server_args=ServerArgs(")
    assert items[1]["text"].startswith("AAAA")
    assert items[1]["text"].endswith("AEND")
    assert items[1]["cursor"] == rows[2]["__CURSOR"], "so a reconnect in between reads the line anew"


def test_two_processes_split_lines_do_not_mix() -> None:
    joiner = Joiner()

    def part(pid: str, text: str, more: bool) -> dict[str, object] | None:
        entry = {"_PID": pid, "MESSAGE": text, "__CURSOR": pid + text}
        return joiner.add({**entry, "_LINE_BREAK": "line-max"} if more else entry)

    assert part("1", "a", True) is None
    assert part("2", "x", True) is None
    one, two = part("1", "b", False), part("2", "y", False)
    assert one is not None
    assert two is not None
    assert (one["text"], two["text"]) == ("ab", "xy")


def test_the_entry_of_the_cursor_itself_is_not_given_again() -> None:
    joiner = Joiner("c1")
    rows = [{"__CURSOR": f"c{i}", "MESSAGE": str(i)} for i in (1, 2, 3)]
    assert [item["text"] for item in map(joiner.add, rows) if item] == ["2", "3"]
    assert Joiner("c0").add(rows[0]) is not None, "another unit's entry: nothing of ours is dropped"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        ([104, 105], "hi"),
        ([49, 48, 37, 13, 53, 48, 37, 13], "50%"),
        ("  0%\r 50%\r100%", "100%"),
        ("\r\r", ""),
        (["one", "two"], "one\ntwo"),
        (7, ""),
    ],
)
def test_text_of(message: object, text: str) -> None:
    assert text_of(message) == text


def test_commands() -> None:
    follow = journal_argv([], unit="x.service", follow=True, lines=5)
    assert follow[:2] == ["journalctl", "-q"]
    assert "-a" in follow, "without it fields over 4096 bytes are null"
    assert follow[follow.index("-n") + 1] == "5"
    assert "-b" in follow
    after = journal_argv(["sudo", "-n"], unit="x.service", follow=True, cursor="s=1;i=2")
    assert after[:3] == ["sudo", "-n", "journalctl"]
    assert "--cursor=s=1;i=2" in after
    assert after[after.index("journalctl") :].count("-n") == 1
    assert after[after.index("-n", 2) + 1] == "all", "a limit would drop what came while we were away"
    one = journal_argv([], unit="x.service", invocation="ab12")
    assert one[-3:] == ["_SYSTEMD_INVOCATION_ID=ab12", "+", "INVOCATION_ID=ab12"]
    assert "--unit=x.service" not in one
    assert "--user-unit=x.service" in journal_argv([], unit="x.service", user=True)
    assert "_TRANSPORT=kernel" in journal_argv([], kernel=True)
