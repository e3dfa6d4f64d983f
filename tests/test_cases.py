"""Every case of a folder of real inputs, through the functions behind `ddtop inspect`.

DDTOP_CASES names another folder of the same form (default: tests/cases). Each case is a folder with input
files and an
`expect.toml`; every key of it is compared, not only the verdict. At the end a table gives right/total per
group.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ddtop.inspect import GROUP_KINDS, inspect_files, read_folder

CASES = Path(os.environ.get("DDTOP_CASES") or Path(__file__).parent / "cases")
ABOUT = {"id", "group", "origin", "kind", "notes", "check"}
HEAD = ("verdict", "cause")


def case_folders() -> list[Path]:
    return sorted(p.parent for p in CASES.glob("*/expect.toml"))


def decimals(raw: str, key: str) -> int | None:
    """Digits after the point as written in the file, so that a rounded number is compared as rounded."""
    found = re.search(rf"^{re.escape(key)}\s*=\s*-?\d+\.(\d+)", raw, re.M)
    return len(found[1]) if found else None


def same(want: Any, got: Any, digits: int | None = None) -> bool:
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        if isinstance(want, int) and isinstance(got, int):
            return want == got
        if not (math.isfinite(want) and math.isfinite(got)):
            return want == got
        slack = max(1e-3 * abs(want), 0.5 * 10.0**-digits if digits is not None else 0.0, 1e-9)
        return abs(want - got) <= slack * (1 + 1e-9)
    if isinstance(want, dict) and isinstance(got, dict):
        return not wrong_keys(want, got, "")
    if isinstance(want, list) and isinstance(got, (list, tuple)):
        return len(want) == len(got) and all(same(w, g) for w, g in zip(want, got, strict=True))
    return bool(want == got)


def told_otherwise(key: str, want: Any, got: dict[str, Any], kind: str) -> bool | None:
    """Two values that no program can read off the input; what can be held of them is. None: compare as usual.

    `order` (E07) names the entries in words of its author: "bar with CR (bytes)"; the types in brackets and
    their
    order are compared. `lengths_with_all` (E08) are the real lengths of texts that were shortened in the
    case (its
    kind says so): the number of texts and the length of the unshortened first one are compared.
    """
    if key == "order" and "message_types" in got:
        types = [re.search(r"\((str|bytes)\)$", label) for label in want]
        return len(want) == len(got["message_types"]) and all(
            found is None or found[1] == kind_of
            for found, kind_of in zip(types, got["message_types"], strict=True)
        )
    if key == "lengths_with_all" and "shortened" in kind:
        return len(got.get(key, ())) == len(want) and got[key][0] == want[0]
    return None


def wrong_keys(expect: dict[str, Any], got: dict[str, Any], raw: str) -> dict[str, str]:
    """Key → what is wrong with it. "absent" must be missing or None: a 0 there is a failure."""
    wrong: dict[str, str] = {}
    for key, want in expect.items():
        if key in ABOUT and raw:
            continue
        known = told_otherwise(key, want, got, str(expect.get("kind")))
        if known is not None:
            if not known:
                wrong[key] = f"does not fit {want!r}: {got.get(key)!r}"
            continue
        if key == "absent" and isinstance(want, list):
            wrong.update(
                {f"absent.{name}": f"is {got[name]!r}" for name in want if got.get(name) is not None}
            )
        elif want == "absent":
            if got.get(key) is not None:
                wrong[key] = f"is {got[key]!r}, must be absent"
        elif key not in got:
            wrong[key] = f"is missing, must be {want!r}"
        elif not same(want, got[key], decimals(raw, key)):
            wrong[key] = f"is {got[key]!r}, must be {want!r}"
    return wrong


Counts = dict[str, list[int]]


class Tally:
    """right/total per group; prints itself in pytest's terminal summary."""

    def __init__(self) -> None:
        self.rows: defaultdict[str, Counts] = defaultdict(
            lambda: {"cases": [0, 0], "verdict": [0, 0], "cause": [0, 0], "fields": [0, 0]}
        )

    def add(self, group: str, expect: dict[str, Any], wrong: dict[str, str]) -> None:
        row = self.rows[group]
        fields = [k for k in expect if k not in ABOUT and k not in HEAD]
        bad = {k.split(".")[0] for k in wrong}
        for name, right, total in (
            ("cases", not wrong, 1),
            ("verdict", "verdict" not in wrong, 1),
            ("cause", "cause" not in wrong, 1),
            ("fields", sum(k not in bad for k in fields), len(fields)),
        ):
            row[name][0] += int(right)
            row[name][1] += total

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.rows:
            return
        terminalreporter.section(f"cases of {CASES}")
        terminalreporter.write_line(f"{'group':<8}{'cases':>10}{'verdict':>10}{'cause':>10}{'fields':>12}")
        total: Counts = {"cases": [0, 0], "verdict": [0, 0], "cause": [0, 0], "fields": [0, 0]}
        for group, row in sorted(self.rows.items()):
            for name, (right, of) in row.items():
                total[name][0] += right
                total[name][1] += of
            terminalreporter.write_line(self._line(group, row))
        terminalreporter.write_line(self._line("all", total))

    @staticmethod
    def _line(label: str, row: Counts) -> str:
        cells = [f"{right}/{of}".rjust(12 if name == "fields" else 10) for name, (right, of) in row.items()]
        return f"{label:<8}" + "".join(cells)


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    counts = Tally()
    pytestconfig.pluginmanager.register(counts, "ddtop-case-tally")
    return counts


@pytest.mark.parametrize("folder", case_folders(), ids=lambda folder: folder.name)
def test_case(folder: Path, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = (folder / "expect.toml").read_text(encoding="utf-8")
    expect = tomllib.loads(raw)
    group = str(expect.get("group") or folder.name[0])
    if "local user root" in str(expect.get("kind")):
        monkeypatch.setenv("LOGNAME", "root")  # what the case says of the person asking
    got: dict[str, Any] = {}
    try:
        got = inspect_files(GROUP_KINDS[group], read_folder(folder))
    finally:
        wrong = wrong_keys(expect, got, raw)
        tally.add(group, expect, wrong)
    assert not wrong, "\n".join(f"{key} {what}" for key, what in wrong.items())
    assert got["schema"] == 1
    assert got["advice"].strip(), "a verdict without advice"
    assert got["evidence"], "a verdict without evidence"


def test_there_are_cases_to_judge() -> None:
    assert case_folders(), f"no cases in {CASES}"


def test_a_wrong_answer_is_seen() -> None:
    """The comparison itself: 0 is not absent, a rounded number is itself, True is not 1."""
    assert wrong_keys({"a": "absent"}, {"a": 0}, "")
    assert not wrong_keys({"a": "absent"}, {}, "")
    assert wrong_keys({"gpu": [{"absent": ["util_gpu_pct"]}]}, {"gpu": [{"util_gpu_pct": 0}]}, "")
    assert wrong_keys({"n": 1}, {"n": True}, "") and wrong_keys({"n": [1, 2]}, {"n": [1]}, "")
    assert not wrong_keys({"r": 2.631}, {"r": 2.6306}, "r = 2.631") and wrong_keys(
        {"r": 2.631}, {"r": 2.64}, ""
    )
