"""The instructions for agents: shipped, printed, and true to the command line."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ddtop.commands.live.codes import Code
from ddtop.commands.live.do import ACTIONS
from ddtop.commands.live.guide import SKILL, guide
from tests.commands.conftest import Cli
from tests.test_docs import GROUP, problem

ROOT = Path(__file__).parents[2]
PAGES = (SKILL, ROOT / "docs" / "agents.md")


def test_it_is_printed_as_it_is(ddtop: Cli) -> None:
    assert ddtop("agents-guide").out == guide() + "\n"


def test_it_has_the_common_form() -> None:
    """Frontmatter with name and description, then instructions."""
    _, head, body = guide().split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert set(fields) == {"name", "description"} and re.fullmatch(r"[a-z-]{1,64}", fields["name"])
    assert 50 < len(fields["description"]) <= 1024 and body.lstrip().startswith("# ")
    assert len(guide().splitlines()) < 200, "short enough to be read whole"


def commands_in(text: str) -> list[list[str]]:
    """Every `ddtop …` of code, wherever in a line it stands."""
    code = re.findall(r"```\w*\n(.*?)```", text, re.S) + re.findall(r"`(ddtop [^`\n]+)`", text)
    found = re.findall(r"\bddtop (?!-)[a-z][^\n|)#;&><]*", "\n".join(code))
    return [one.replace('"', "").split() for one in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_options_and_actions_exist(page: Path) -> None:
    found = commands_in(page.read_text())
    assert len(found) > 10
    assert not [(words, why) for words in found if (why := problem(words))]
    for words in found:
        assert words[1] in GROUP.commands, words
        if words[1] == "do" and len(words) > 3:
            assert words[3] in ACTIONS, words


def test_all_exit_codes_and_outcomes_are_there() -> None:
    for code in Code:
        assert f"| {code.value} |" in guide(), code


def test_the_check_itself_finds_what_is_wrong() -> None:
    assert commands_in("x\n```bash\nout=$(ddtop dance --for a | jq)\n```") == [
        ["ddtop", "dance", "--for", "a"]
    ]


def test_the_wheel_has_it(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed: make .venv/.installed-dev")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("ddtop/commands/live/SKILL.md").decode().rstrip("\n") == guide()
