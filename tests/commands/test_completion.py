"""What the shell offers after a tab, asked as bash asks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ddtop.commands.completion import host_names
from tests.waiting import HANG_S

from .conftest import Cli


def offered(ddtop: Cli, home: Path, line: str) -> list[str]:
    words = line.split(" ")
    env = {
        **ddtop.environ(),
        "HOME": str(home),
        "_DDTOP_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "import sys; sys.argv[0] = 'ddtop'; from ddtop.cli import app; app(prog_name='ddtop')"
    done = subprocess.run(
        [ddtop.argv()[0], "-c", code], env=env, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout.split()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    ssh = tmp_path / "user" / ".ssh"
    (ssh / "conf.d").mkdir(parents=True)
    (ssh / "config").write_text("Include conf.d/*\nHost ct200 ct-jump *.lab\n  User root\n")
    (ssh / "conf.d" / "more").write_text("Host ct300\nInclude ../config\n")
    return tmp_path / "user"


def test_hosts_commands_and_words(ddtop: Cli, home: Path) -> None:
    assert offered(ddtop, home, "ddtop connect ct") == ["ct-jump", "ct200", "ct300"]
    assert offered(ddtop, home, "ddtop connect lo") == ["local"]
    assert offered(ddtop, home, "ddtop rep") == ["replay", "report"]
    assert offered(ddtop, home, "ddtop export x --format v") == ["vllm"]
    config = ddtop.home / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[hosts.ct400]\nport = 22\n")
    assert "ct400" in offered(ddtop, home, "ddtop plan new --from ct")


def test_recordings(ddtop: Cli, home: Path) -> None:
    assert offered(ddtop, home, "ddtop stop d") == []
    runs = ddtop.home / "data" / "runs"
    runs.mkdir(parents=True)
    (runs / "demo-1.ddtop").touch()
    assert offered(ddtop, home, "ddtop stop d") == ["demo-1.ddtop"]


@pytest.mark.parametrize("text", ["", "Host", "Host *", "\x00", 'Host "', "Match host x\n User y"])
def test_odd_configurations(text: str) -> None:
    assert all(isinstance(name, str) for name in host_names(text))
    assert "x" not in host_names(text)
