"""The docs are true to the code: commands and options they name exist, links lead somewhere, examples are in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import tomli
import typer.main
from textual.binding import Binding

from ddtop.cli import app
from ddtop.config import load_settings
from ddtop.dashboard import keys
from ddtop.events import Verdict
from ddtop.services.causes import load_causes
from ddtop.sweep.shared.limits import FLOOR_S, TABLE_S

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "ddtop" / "commands" / "live" / "SKILL.md",
]
GROUP: Any = typer.main.get_command(app)


def named_commands(text: str) -> list[str]:
    """Every `ddtop …` in inline code and in code blocks."""
    found = re.findall(r"`(ddtop [^`\n]+)`", text)
    for block in re.findall(r"```(?:console|bash|sh)?\n(.*?)```", text, re.S):
        joined = re.sub(r"\n {4,}", " ", block)
        found += [m[1] for m in re.finditer(r"(?:^|[|$] |^\s+)(ddtop [^\n|#<>]+)", joined, re.M)]
    return [re.sub(r"\s+#.*", "", one).strip() for one in found]


def problem(words: list[str]) -> str:
    """What is wrong with the words of a command as the docs write it; empty if nothing is."""
    command: Any = GROUP
    at = 1
    while hasattr(command, "commands"):
        if at >= len(words) or words[at].startswith("-"):
            break
        name = words[at]
        if not re.fullmatch(r"[a-z][a-z-]*", name):
            return ""  # `ddtop COMMAND --help`
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[name]
        at += 1
    options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
    asked = [w.strip("[]").partition("=")[0] for w in words[at:] if re.match(r"\[?--?[a-z]", w)]
    wrong = [w for w in asked if w not in options]
    return f"no option {', '.join(wrong)}" if wrong else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_options_exist(page: Path) -> None:
    wrong = []
    for text in named_commands(page.read_text()):
        try:
            words = shlex.split(text.replace("'", "’"))
        except ValueError:
            words = text.split()
        if why := problem(words):
            wrong.append(f"{text}: {why}")
    assert not wrong, "\n".join(wrong)


def test_the_check_itself_finds_what_is_wrong() -> None:
    assert problem(["ddtop", "dance"]) == "no command dance"
    assert problem(["ddtop", "report", "FILE", "[--pdf", "OUT]"]) == "no option --pdf"
    assert problem(["ddtop", "plan", "check", "PLAN"]) == ""
    assert named_commands(
        "x `ddtop runs`\n```console\n$ ddtop paths  # where\n$ cat x | ddtop inspect log -\n```\n"
    ) == [
        "ddtop runs",
        "ddtop paths",
        "ddtop inspect log -",
    ]


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    for name, command in GROUP.commands.items():
        assert re.search(rf"\bddtop {name}\b|^## .*\b{name}\b", text, re.M), name
        for one in command.params:
            for option in one.opts:
                if option.startswith("--"):
                    assert option in text, f"{name} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?:|mailto:|#", target):
            continue
        if not (page.parent / target.partition("#")[0]).exists():
            missing.append(target)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_toml_examples_are_toml(page: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.S):
        tomli.loads(block)


def test_the_settings_example_is_accepted(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "configuration.md").read_text(), re.S)
    path = tmp_path / "config.toml"
    path.write_text(block)
    settings = load_settings(path, env={})
    assert settings.host("ct200").python == "/opt/py/bin/python3"


def test_limits_and_verdicts_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "readiness.md").read_text()
    for phase, seconds in TABLE_S.items():
        row = rf"\| {phase} \| {FLOOR_S[phase]:.0f} \| {seconds:.0f} \|"
        assert re.search(row, text), (phase, FLOOR_S[phase], seconds)
    for verdict in set(Verdict.__args__) - {"measuring-failed", "interrupted", "unknown"}:
        assert f"`{verdict}`" in text, verdict


SUFFIXES = r"(?:py|toml|md|sh|c|json|svg)"
MADE = {
    "ddtop/services/podman.py",
    "tests/services/test_podman.py",
    "tests/cases/X99-short-name/",
}
"""Files that the examples of CONTRIBUTING.md and diagnosis.md make."""


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_files_they_name_exist(page: Path) -> None:
    """Paths in the repository; those of hosts and users begin with `/`, `~`, `$` or `…`."""
    text = page.read_text()
    named = set(re.findall(r"`((?:ddtop|tests|docs|benchmarks|plans|themes|assets)/[\w./*-]*)`", text))
    named |= set(re.findall(rf"`([a-z_]+/[\w/.-]+\.{SUFFIXES})`", text))
    missing = [
        one
        for one in sorted(named - MADE)
        if not any(list(root.glob(one.rstrip("/"))) for root in (ROOT, ROOT / "ddtop", ROOT / "tests"))
    ]
    assert not missing


def test_the_alert_that_they_show_has_the_words_of_the_program() -> None:
    """Cause and advice as the table of causes has them today; `…` cuts a text short."""
    damaged = load_causes().by_slug["model-weights-damaged"]
    readme = (ROOT / "README.md").read_text()
    assert f"{damaged.means} ({damaged.kind})" in readme
    assert damaged.advice in readme
    shown = load_causes().by_slug["nccl-collective-timeout"]
    (line,) = re.findall(
        r"nccl-collective-timeout\] \S+ \S+ (.*?)…", (ROOT / "docs" / "unattended.md").read_text()
    )
    assert shown.means.startswith(line.strip())


def test_they_use_the_fields_words() -> None:
    """Words that design and glossary replaced; diagnosis.md is made from the tables of causes."""
    odd = r"\b(?:former|moot|strangers?|somebody|whoever|told|twins?|rivals?)\b"
    for page in PAGES:
        if page.name != "diagnosis.md":
            rest = page.read_text().partition("<!-- map")
            text = rest[0] + rest[2].partition("<!-- end of map -->")[2]
            assert not re.findall(odd, text, re.I), page.name
            assert not re.findall(r"\d %(?!`)", text), (
                f"{page.name}: a percentage has no space in running text"
            )


def test_every_key_that_can_be_changed_is_documented() -> None:
    text = (ROOT / "docs" / "dashboard.md").read_text()
    found = {
        one.id
        for value in vars(keys).values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, Binding) and one.id
    }
    spelt = {f"number-{n}" for n in range(2, 9)}
    assert len(found) > 40
    assert not {name for name in found - spelt if f"`{name}`" not in text}
