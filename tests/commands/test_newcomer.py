"""What people do wrong on the command line, and what they read then."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import asyncssh
import pytest

from ddtop.bench.judge.validity import TABLE
from ddtop.bench.render import bench_text
from ddtop.commands.measure.endpoint import in_words
from ddtop.config import describe, load_settings
from ddtop.errors import UsageError
from ddtop.hosts.inventory import check_name
from ddtop.hosts.ssh.diagnosis import classify_ssh_error
from ddtop.hosts.ssh.resolve import resolve_target
from tests.terminal import Terminal

from .conftest import Cli


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ho st", "not a host name"),
        ("a\nb", "not a host name"),
        ("\x1b[31mred", "not a host name"),
        ("", "not a host name"),
        ("-oProxyCommand=x", "not a host name"),
        ("user@", "lacks the host"),
        ("@h", "lacks the user"),
        ("host:99999", "`99999` is not a port"),
        ("host:", "`` is not a port"),
        ("host:ssh", "`ssh` is not a port"),
        ("[::1]:0", "`0` is not a port"),
    ],
)
def test_a_name_that_cannot_be_a_host_is_not_looked_up(name: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_name(name)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "ct200",
        "root@ct200",
        "a.b.c:22",
        "u@10.0.0.1:2222",
        "::1",
        "fe80::1",
        "[::1]:22",
        "u@[::1]:22",
        "bücher",
        "a_b",
        "ssh://u@h:22",
        "ssh://h/",
    ],
)
def test_names_of_hosts(name: str) -> None:
    check_name(name)


def test_a_host_name_with_a_blank_is_wrong_usage(ddtop: Cli) -> None:
    done = ddtop("connect", "ho st", "--once")
    assert done.rc == 2
    assert "is not a host name" in done.err


def test_a_report_says_which_run_it_is_and_that_the_demo_is_no_measurement(
    ddtop: Cli, recording: Path
) -> None:
    first, *rest = ddtop("report", recording).out.splitlines()
    assert first.startswith("demo on demo · ")
    assert " cells done" in first
    assert " · SIMULATED: the GPUs" in first
    assert any(line.startswith("- In doubt: SIMULATED") for line in rest)


def test_a_baseline_that_is_none_is_named(ddtop: Cli, recording: Path) -> None:
    done = ddtop("report", recording, "--baseline", "autoo")
    assert done.rc == 2
    assert "no configuration `autoo`" in done.err
    assert "auto, " in done.err


def test_a_folder_is_no_recording(ddtop: Cli, tmp_path: Path) -> None:
    for words in (("report", tmp_path), ("replay", tmp_path), ("export", tmp_path, "--format", "vllm")):
        done = ddtop(*words)
        assert done.rc == 2
        assert "is a folder" in done.err


def test_columns_of_words_stand_at_the_left(ddtop: Cli, recording: Path) -> None:
    lines = ddtop("report", recording, "--md").out.splitlines()
    results = lines[lines.index("## tp1 · output\\_tok\\_s") :]
    rule = next(line for line in results if line.startswith("| ---"))
    assert re.fullmatch(r"\| -+ \|( -+: \|)+", rule)
    alerts = lines[lines.index("## Alerts") :]
    assert re.fullmatch(r"\|( -+ \|)+", next(line for line in alerts if line.startswith("| ---")))


def test_a_full_disk_behind_the_output_is_a_sentence(ddtop: Cli, recording: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            ddtop.argv("report", recording, "--csv"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ddtop.environ(),
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "ddtop: cannot write the output: No space left on device\n"


def test_the_demo_has_the_theme_of_the_person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ddtop.commands import demo

    taken: list[object] = []
    monkeypatch.setenv("DDTOP_HOME", str(tmp_path))
    monkeypatch.setenv("DDTOP_THEME", "mono")
    monkeypatch.setenv("DDTOP_DEMO_DIR", "")  # the demo sets it for its children: undone with the test
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(
        'bell = false\n[keys]\npause = "f5"\n[hosts.demo]\nport = 1\n'
    )
    monkeypatch.setattr(demo, "need_terminal", lambda instead: None)
    monkeypatch.setattr(demo, "_run", lambda world, record, settings: taken.append(settings) or 0)
    assert demo.run_demo(record=None, keep=False) == 0
    (settings,) = taken
    assert (settings.theme, settings.bell, dict(settings.keys), dict(settings.hosts)) == (
        "mono",
        False,
        {"pause": "f5"},
        {},
    )  # type: ignore[attr-defined]


def test_settings_are_shown_as_they_are_written(tmp_path: Path) -> None:
    import tomli

    path = tmp_path / "config.toml"
    path.write_text(
        'bell = false\ntheme = "mine"\n[keys]\npause = "f5"\n[hosts."a b"]\nuser = "ro\\"ot"\nport = 22\n'
    )
    shown = describe(load_settings(path, {}))
    read = tomli.loads(shown)
    assert read["bell"] is False
    assert read["hosts"]["a b"] == {"user": 'ro"ot', "port": 22}
    with pytest.raises(UsageError, match="true or false"):
        path.write_text('bell = "yes"')
        load_settings(path, {})
    with pytest.raises(UsageError, match="unknown key `runs_dir`"):
        path.write_text('runs_dir = "/x"')
        load_settings(path, {})


# ------------------------------------------------------------------------------------------------ bench


def bench(failures: dict[str, int], **more: object) -> str:
    result = {
        "url": "http://h",
        "validity": "INVALID",
        "reasons": ["no-tokens"],
        "details": {"no-tokens": "3"},
        "rate": 0,
        "concurrency": 1,
        "requests": 1,
        "output_tokens": 1,
        "metrics": {"requests_ok": 0, "failures": failures, "requests_s": 2.0},
        **more,
    }
    return bench_text(result)


def test_where_nobody_listens_nobody_is_sent_to_a_log() -> None:
    assert "no connection was made: is the server up" in bench({"refused": 3})
    assert TABLE["no-tokens"].advice in bench({"refused": 1, "empty": 2})
    assert TABLE["no-tokens"].advice in bench({"empty": 3})


def test_the_text_of_a_measurement_counts_and_names_once() -> None:
    text = bench({"empty": 1})
    assert "1 stream, 1 request, 1 token each" in text
    names = [row[:16].strip() for row in text.splitlines() if not row.startswith(" ")]
    assert len(names) == len(set(names))


def test_no_reason_asks_for_what_the_command_line_cannot_give() -> None:
    assert all("pid" not in rule.advice for rule in TABLE.values())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[Errno 111] Connection refused", "nothing listens there"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "write http:// instead"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "not trusted here"),
        ("odd", "OSError: odd"),
    ],
)
def test_why_an_endpoint_could_not_be_asked(text: str, says: str) -> None:
    assert says in in_words(OSError(text))


# -------------------------------------------------------------------------------------------------- ssh


def test_what_closes_before_a_login_is_not_a_cut_command() -> None:
    target = resolve_target("u@127.0.0.1:2222", config_paths=[])
    before = classify_ssh_error(asyncssh.ConnectionLost("Connection lost"), target, hop=target)
    assert before.cause == "closed-before-login"
    assert "127.0.0.1:2222" in before.what
    assert "not sshd" in before.means
    assert before.retry
    assert (
        classify_ssh_error(asyncssh.ConnectionLost("Connection lost"), target).cause == "connection-dropped"
    )


def test_something_else_than_sshd_is_told_as_that(ddtop: Cli, tmp_path: Path) -> None:
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener.accept()[0] as peer:
            peer.sendall(b"HTTP/1.1 400 Bad\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    done = ddtop("connect", f"u@127.0.0.1:{listener.getsockname()[1]}", "--once", "--ssh-config", "/dev/null")
    listener.close()
    thread.join(5)
    assert done.rc == 11
    assert "closed the connection before the login" in done.err or "does not speak SSH" in done.err


@pytest.mark.parametrize("words", [("replay",), ("demo",), ("connect", "local")])
@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_place_its_cursor_is_refused_before_anything_begins(
    ddtop: Cli, recording: Path, words: tuple[str, ...], term: str
) -> None:
    more = (str(recording),) if words == ("replay",) else ()
    argv = ["env", f"TERM={term}", *ddtop.argv(*words, *more)]
    terminal = Terminal(argv, env=ddtop.environ())
    try:
        assert terminal.wait_end(20) == 2
        shown = terminal.raw.decode("utf-8", "replace")
        assert f"TERM is {term}" in shown
        assert "record" in shown or "report" in shown
        assert "\x1b[?1049h" not in shown
    finally:
        terminal.close()
    assert [path.name for path in recording.parent.glob("*.ddtop")] == [recording.name]


def test_what_only_the_text_says_of_a_key_is_not_said_to_be_looked_up(ddtop: Cli, tmp_path: Path) -> None:
    text = tmp_path / "said.txt"
    text.write_text("HostKeyNotVerifiable code=9: Host key is not trusted for host 127.0.0.1\n")
    done = ddtop("inspect", "ssh", text)
    assert "host-key-unknown" in done.out
    assert "was looked into" not in done.out
