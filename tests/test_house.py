"""The rooms are as docs/architecture.md says: its map is the code's, its tables and walks name what exists, and the
imports run one way."""

from __future__ import annotations

import re

import pytest

from ddtop.events import CauseKind, CellState, GatePartName
from tests.house import PACKAGE, PAGE, ROOT, circles, folders, graph, subject, with_map

MOST_FILES = 14
"""In one folder, `__init__.py` among them."""
TEXT = PAGE.read_text()


def section(title: str) -> str:
    """The text under a heading of the page, to the next heading of the same rank."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)
    return str(found)


def test_the_map_is_the_codes() -> None:
    assert with_map(TEXT) == TEXT, "run: python -m tests.house"


@pytest.mark.parametrize("folder", folders(), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_every_room_says_its_subject_and_is_small(folder) -> None:
    assert subject(folder), f"{folder}/__init__.py has no docstring: the map has no line for it"
    files = [p.name for p in folder.glob("*.py")]
    assert len(files) <= MOST_FILES, f"{len(files)} files: give a subject of them a room of its own"


def test_every_folder_with_code_is_a_package() -> None:
    lost = {p.parent for p in PACKAGE.rglob("*.py")} - {*folders(), PACKAGE}
    assert not lost, f"without __init__.py: {lost}"


def test_no_module_imports_itself_round_a_corner() -> None:
    """Not even for type checking: what two files share stands in a third one."""
    assert circles(graph(types=True)) == []


def test_the_check_itself_finds_a_circle() -> None:
    edges = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert circles(edges) == [["a", "b", "c"]]


def fact_rows() -> list[tuple[str, str, str]]:
    """(fact, deciding file and names, tests) of the table of owners."""
    cells = [
        line.strip("|").split("|") for line in section("One owner for each fact").splitlines() if "|" in line
    ]
    return [(a.strip(), b, c) for a, b, c in cells[2:]]


@pytest.mark.parametrize(("fact", "owner", "tests"), fact_rows(), ids=[r[0] for r in fact_rows()])
def test_every_fact_has_an_owner_and_a_test(fact: str, owner: str, tests: str) -> None:
    """Names after a file are defined in it; a fact that two files share (an order here, its use there) names both."""
    path = code = ""
    for named in re.findall(r"`([^`]+)`", owner):
        if named.endswith(".py"):
            path, code = named, (PACKAGE / named).read_text()
        else:
            last = named.rpartition(".")[2]
            found = re.search(rf"\b(?:def|class) {last}\b|^ *{last}\b.*=", code, re.M)
            assert found, f"{path} defines no {named}"
    assert path, "no file is named"
    held = re.findall(r"`([^`]+)`", tests)
    assert held, "no test is named"
    for test in held:
        assert (ROOT / "tests" / test).is_file(), test


def test_no_fact_is_decided_twice() -> None:
    owners = [re.findall(r"`([^`]+)`", owner) for _, owner, _ in fact_rows()]
    assert len({tuple(o) for o in owners}) == len(owners)


def test_the_walks_name_files_that_exist() -> None:
    named = re.findall(r"[\w/]+\.(?:py|toml)\b", section("Four walks"))
    assert len(named) > 40
    missing = [n for n in named if not (PACKAGE / n).is_file()]
    assert not missing


def test_the_walks_name_functions_that_exist() -> None:
    """A name in backticks on a line of a walk is in the file that the line begins with."""
    seen = 0
    for line in section("Four walks").splitlines():
        file = re.search(r"[\w/]+\.py", line)
        for name in re.findall(r"`([\w.]+)`", line) if file and not line.startswith("|") else ():
            seen += 1
            assert name.rpartition(".")[2] in (PACKAGE / file[0]).read_text(), line
    assert seen > 5


def test_the_glossary_has_the_words_of_the_events() -> None:
    """Each outcome, kind of cause and part of the gate stands there as it is recorded."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    for words in (CellState, CauseKind, GatePartName):
        for word in words.__args__:
            assert f"`{word}`" in text, word
