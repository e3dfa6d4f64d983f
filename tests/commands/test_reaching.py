"""What can be wrong on the way to a host gets a sentence with what to do, and exit code 11."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.sshd import Sshd, free_port, make_key, running

from .conftest import Cli


def test_no_such_host(ddtop: Cli, tmp_path: Path) -> None:
    (tmp_path / "ssh_config").write_text("")
    done = ddtop("connect", "no-such-host.invalid", "--once", "--ssh-config", tmp_path / "ssh_config")
    assert done.rc == 11
    assert "no-such-host.invalid" in done.err and "do:" in done.err


def test_nobody_listens(ddtop: Cli, tmp_path: Path) -> None:
    (tmp_path / "ssh_config").write_text(f"Host box\n HostName 127.0.0.1\n Port {free_port()}\n")
    done = ddtop("connect", "box", "--once", "--ssh-config", tmp_path / "ssh_config")
    assert done.rc == 11 and "nothing listens" in done.err
    recorded = ddtop("connect", "box", "--record", tmp_path / "x.ddtop", "--ssh-config", tmp_path / "nope")
    assert recorded.rc == 2 and "there is no such file" in recorded.err


def test_a_real_sshd(ddtop: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "sshd") as server:
        server_config = server.config()
        done = ddtop("connect", "box", "--once", "--ssh-config", server_config)
        assert done.rc == 0 and "box (root@127.0.0.1" in done.out, done
        unknown_key(ddtop, server)
        changed_key(ddtop, server, tmp_path)
        wrong_key(ddtop, server, tmp_path)


def unknown_key(ddtop: Cli, server: Sshd) -> None:
    done = ddtop("connect", "box", "--once", "--ssh-config", server.config(known=""))
    assert done.rc == 11 and "SHA256:" in done.err and "ssh " in done.err, done.err
    assert "not in known_hosts" in done.err and "ssh-keygen -R" not in done.err, done.err


def changed_key(ddtop: Cli, server: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other_key")
    line = server.known_hosts_line(key=other)
    done = ddtop("connect", "box", "--once", "--ssh-config", server.config(known=line))
    assert done.rc == 11 and "ssh-keygen" in done.err, done.err


def wrong_key(ddtop: Cli, server: Sshd, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger")
    config = server.config()
    config.write_text(config.read_text().replace(str(server.user_key), str(stranger)))
    done = ddtop("connect", "box", "--once", "--ssh-config", config)
    assert done.rc == 11 and str(stranger) in done.err, done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["connect"], "Missing argument"),
        (["connect", "a", "a", "--once"], "given twice"),
        (["connect", "a", "b", "--record", "x"], "takes one host"),
        (["connect", "a", "b", "--plan", "x"], "takes one host"),
        (["connect", "local", "--json"], "needs --once, --record or --detach"),
        (["connect", "local"], "needs a terminal"),
        (["connect", "local", "--plan", "/no/plan.toml", "--record", "/no"], "cannot be read"),
        (["connect", "", "--once"], "is not a host name"),
        (["demo"], "needs a terminal"),
        (["replay", "nothing"], "no recording `nothing`"),
        (["replay"], "replay: no recording is named, and there are none here yet"),
        (["report"], "report: no recording is named"),
        (["advise"], "ddtop demo --record demo.ddtop"),
        (["plot"], "plot: no recording is named"),
        (["stop"], "stop: no run is named"),
        (["no-such-command"], "No such command"),
        (["connect", "local", "--no-such-option"], "No such option"),
    ],
)
def test_wrong_words_are_exit_code_2(ddtop: Cli, words: list[str], says: str) -> None:
    done = ddtop(*words)
    assert done.rc == 2, done
    assert says in done.err
