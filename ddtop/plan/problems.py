"""What is wrong with a plan: every fault at once, each with its place, what was found and what is allowed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ddtop.errors import PlanError
from ddtop.plan.key_lines import locate
from ddtop.words import many

Key = str | int
Path = tuple[Key, ...]
SHOWN = 20
"""Faults printed in full; more are counted."""


class Problem(NamedTuple):
    """One fault or warning."""

    path: Path
    what: str
    """In words: what was found."""
    allowed: str = ""
    """What may stand there, or what to do."""
    line: int | None = None

    @property
    def key(self) -> str:
        """Key path as written in TOML: `matrix.tp[1]`, `configs."b{budget}".args[0]`."""
        return key_path(self.path)

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        head = f"{self.key}: " if self.path else ""
        tail = f"; {self.allowed}" if self.allowed else ""
        return f"{where}{head}{self.what}{tail}"


class InvalidPlanError(PlanError):
    """A plan that cannot be run, with all its faults in `problems`."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [f"  {problem}" for problem in problems[:SHOWN]]
        if len(problems) > SHOWN:
            lines.append(f"  … and {len(problems) - SHOWN} more")
        super().__init__(
            "\n".join([f"{name}: {many(len(problems), 'error')}", *lines]),
            do=f"put each right, then: ddtop plan check {name}",
        )


class Problems:
    """Collects the faults and warnings of one plan, and what its text refers to on this machine."""

    def __init__(
        self,
        text: str,
        given: Mapping[str, str] | None = None,
        given_datasets: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`given`: `prompts_file` or `dataset` as written → its text, which then is not read from the disk;
        `given_datasets`: `dataset` → what it was (datasets/store.py: About)."""
        self._text = text
        self.given: Mapping[str, str] = given or {}
        self.files: dict[str, str] = {}
        """`prompts_file` or `dataset` as written → its text."""
        self.given_datasets: Mapping[str, Mapping[str, Any]] = given_datasets or {}
        self.datasets: dict[str, dict[str, Any]] = {}
        """`dataset` as written → what it is."""
        self.env: dict[str, str] = {}
        """Variables that `{env.NAME}` stood for."""
        self.faults: list[Problem] = []
        self.warnings: list[Problem] = []

    def fault(self, path: Path, what: str, allowed: str = "") -> None:
        self._add(self.faults, path, what, allowed)

    def warn(self, path: Path, what: str, allowed: str = "") -> None:
        self._add(self.warnings, path, what, allowed)

    def _add(self, to: list[Problem], path: Path, what: str, allowed: str) -> None:
        problem = Problem(path, what, allowed, locate(self._text, path))
        if problem not in to:
            to.append(problem)


def key_path(path: Path) -> str:
    """`("matrix", "tp", 1)` → `matrix.tp[1]`."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
            continue
        bare = part.replace("-", "").replace("_", "")
        word = part if bare.isascii() and bare.isalnum() else json.dumps(part, ensure_ascii=False)
        out += f".{word}" if out else word
    return out


def shown(value: Any) -> str:
    """A value of the plan as written there, at most 60 characters."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, if one is near."""
    pool = sorted(set(known))
    lower = {k.lower().replace("-", "_"): k for k in pool}
    exact = lower.get(word.lower().replace("-", "_"))
    if exact is not None:
        return exact
    close = difflib.get_close_matches(word, pool, 1, 0.6)
    return close[0] if close else None


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean …? known: a, b, c` for a word that is not known."""
    pool = list(known)
    near = nearest(word, pool)
    meant = f"did you mean `{near}`? " if near else ""
    return f"{meant}allowed: {', '.join(pool) if pool else 'none'}"
