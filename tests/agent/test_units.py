"""systemctl's words, drop-ins and D-Bus bytes: everything that needs no systemd to be right."""

import struct
import subprocess
from pathlib import Path

import pytest

from ddtop.agent.errors import OpError
from ddtop.agent.process.launch import quote, run_words
from ddtop.agent.service.dbus import MEMBER, PATH, SIGNATURE, call, message_length, parse, unit_path
from ddtop.agent.service.override import override_text, parse_mark
from ddtop.agent.service.unit_watch import news
from ddtop.agent.service.units import parse_show, unit_name


def test_show_with_several_lines_in_a_value() -> None:
    text = "Id=x.service\nExecStart={ path=/a ; argv[]=/a b=c ; }\nExecStart={ path=/b ; }\nEnvironment=A=1 B=2\nStatusText=\n"
    props = parse_show(text)
    assert props["Environment"] == "A=1 B=2"
    assert props["StatusText"] == ""
    assert props["ExecStart"].splitlines()[1] == "{ path=/b ; }"


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "a\nb", None, 3, "x" * 300, "$(reboot)"])
def test_no_unit_names(name: object) -> None:
    with pytest.raises(OpError):
        unit_name(name)


@pytest.mark.parametrize(
    ("name", "full"), [("a", "a.service"), ("vllm@1", "vllm@1.service"), ("b.scope", "b.scope")]
)
def test_unit_names(name: str, full: str) -> None:
    assert unit_name(name) == full


ODD_WORDS = [
    "plain",
    "two words",
    'say "hi"',
    "it's",
    "100%",
    "$HOME",
    "${X}",
    "back\\slash",
    "",
    "a;b",
    "*",
    "ünï",
    "-x=1",
]


def test_the_drop_in_begins_with_an_empty_exec_start() -> None:
    text = override_text(
        "r1", 123.0, ["/opt/py/bin/python", *ODD_WORDS], {"A": 'b "c" 5%'}, {"Restart": "no"}
    )
    lines = text.splitlines()
    at = lines.index("ExecStart=")
    assert lines[at + 1].startswith("ExecStart=/opt/py/bin/python ")
    assert 'Environment="A=b \\"c\\" 5%%"' in lines
    assert "Restart=no" in lines
    assert parse_mark(text) == {"run": "r1", "expires_at_s": 123.0}
    assert parse_mark("[Service]\n") is None


@pytest.mark.parametrize(
    ("argv", "env", "extra"),
    [
        (["python"], {}, {}),
        (["/x", "a\nExecStartPre=/bin/evil"], {}, {}),
        ([], {"A": "x\ny"}, {}),
        ([], {"A B": "x"}, {}),
        ([], {}, {"Restart": "no\nExecStart=/evil"}),
        ([], {}, {"restart": "no"}),
    ],
)
def test_what_would_break_out_of_a_drop_in_is_refused(
    argv: list[str], env: dict[str, str], extra: dict[str, str]
) -> None:
    with pytest.raises(OpError) as caught:
        override_text("r", 1.0, argv, env, extra)
    assert caught.value.code == "bad-request"


@pytest.mark.parametrize("word", ODD_WORDS)
def test_quoted_words_are_read_back_by_systemd(word: str, tmp_path: Path) -> None:
    """systemd-analyze's own parser of unit files accepts them."""
    unit = tmp_path / "t.service"
    unit.write_text(f"[Service]\nType=oneshot\nExecStart=/bin/true {quote(word)}\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert "Unbalanced" not in done.stderr
    assert "Failed to" not in done.stderr or "bus" in done.stderr or "cgroup" in done.stderr, done.stderr


def test_systemd_run_is_explicit() -> None:
    words = run_words(
        "sudo",
        "ddtop-job-x.service",
        ["/py", "-I", "z.zip"],
        stop_argv=["/py", "a b", "50%"],
        cwd="/state/x",
        limit_s=100,
        user="bench",
        group="1000",
    )
    assert words[:3] == ["sudo", "-n", "systemd-run"]
    assert {"--uid=bench", "--gid=1000", "--collect", "--unit=ddtop-job-x.service"} <= set(words)
    settings = [words[i + 1] for i, word in enumerate(words) if word == "-p"]
    assert "WorkingDirectory=/state/x" in settings
    assert "LimitNOFILE=65536" in settings
    assert "RuntimeMaxSec=130" in settings
    assert 'ExecStopPost=/py "a b" "50%%"' in settings
    assert words[-4:] == ["--", "/py", "-I", "z.zip"]
    assert "--user" in run_words("user", "u", ["/x"])
    assert "sudo" not in run_words("system", "u", ["/x"])


def test_news_ignores_what_always_moves() -> None:
    old = {"ActiveState": "active", "MemoryCurrent": "1"}
    assert not news(old, {"ActiveState": "active", "MemoryCurrent": "2"})
    assert news(old, {"ActiveState": "failed", "MemoryCurrent": "1"})
    assert news({}, {"ActiveState": "failed"})


# ---------------------------------------------------------------------------------------------------- D-Bus


@pytest.mark.parametrize(
    ("unit", "path"),
    [
        ("sglang-bench.service", "sglang_2dbench_2eservice"),
        ("7up.service", "_37up_2eservice"),
        ("vllm@1.service", "vllm_401_2eservice"),
        ("ü.service", "_c3_bc_2eservice"),
    ],
)
def test_unit_paths(unit: str, path: str) -> None:
    assert unit_path(unit) == "/org/freedesktop/systemd1/unit/" + path


def test_a_call_reads_back_and_knows_its_length() -> None:
    data = call(
        7, "org.freedesktop.systemd1", "/org/x", "org.freedesktop.DBus", "AddMatch", "type='signal'", "two"
    )
    assert message_length(data) == len(data)
    assert len(data) > message_length(data[:16] + b"\0" * 0) - len(data)
    message = parse(data)
    assert message.kind == 1
    assert (message.fields[PATH], message.fields[MEMBER], message.fields[SIGNATURE]) == (
        "/org/x",
        "AddMatch",
        "ss",
    )
    assert struct.unpack("<I", data[8:12])[0] == 7


def test_several_messages_in_one_read() -> None:
    one = call(1, "a.b", "/", "a.b", "M")
    two = call(2, "a.b", "/c", "a.b", "N", "x" * 100)
    both = one + two
    size = message_length(both)
    assert size == len(one)
    assert parse(both[size:]).fields[MEMBER] == "N"
