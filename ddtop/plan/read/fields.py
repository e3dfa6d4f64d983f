"""Reading one table of a plan: each accessor checks, notes what is wrong, and gives back something usable.

After a fault the reading goes on with the default, so that one look finds all faults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ddtop.plan.problems import Path, Problems, shown, suggest

_ABSENT = object()


class Fields:
    """A table of the plan, with the faults found in it."""

    def __init__(self, problems: Problems, data: Any, path: Path) -> None:
        self.problems = problems
        self.path = path
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}
        self._known: dict[str, None] = {}
        if not isinstance(data, dict):
            problems.fault(path, f"found {shown(data)}", "allowed: a table")

    def _take(self, key: str) -> Any:
        self._known[key] = None
        return self.data.get(key, _ABSENT)

    def has(self, key: str) -> bool:
        return key in self.data

    def fault(self, key: str, value: Any, allowed: str) -> None:
        self.problems.fault((*self.path, key), f"found {shown(value)}", f"allowed: {allowed}")

    def missing(self, key: str, allowed: str) -> None:
        self.problems.fault((*self.path, key), "is missing", allowed)

    def text(self, key: str, *, required: str = "", empty: bool = False) -> str | None:
        """A string. `required`: what to say where it is missing."""
        value = self._take(key)
        if value is _ABSENT:
            if required:
                self.missing(key, required)
            return None
        if not isinstance(value, str) or (not empty and not value.strip()):
            self.fault(key, value, "a string" if empty else "a string that is not empty")
            return None
        if "\0" in value:
            self.fault(key, value, "a string without NUL characters")
            return None
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str | None, required: str = "") -> str | None:
        """One of a few words."""
        value = self._take(key)
        if value is _ABSENT:
            if required:
                self.missing(key, required)
            return default
        if not isinstance(value, str) or value not in allowed:
            self.problems.fault((*self.path, key), f"found {shown(value)}", suggest(str(value), allowed))
            return default
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key)
        if value is _ABSENT:
            return default
        if not isinstance(value, bool):
            self.fault(key, value, "true or false")
            return default
        return value

    def number(self, key: str, default: float, low: float, high: float, unit: str = "") -> float:
        """A number within bounds."""
        value = self._take(key)
        if value is _ABSENT:
            return default
        bad = isinstance(value, bool) or not isinstance(value, int | float)
        if bad or not math.isfinite(value) or not low <= value <= high:
            after = unit if unit == "%" else f" {unit}" if unit else ""
            self.fault(key, value, f"a number from {low:g} to {high:g}{after}")
            return default
        return float(value)

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self._take(key)
        if value is _ABSENT:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.fault(key, value, f"a whole number from {low} to {high}")
            return default
        return value

    def numbers(self, key: str, low: float, high: float, unit: str = "") -> tuple[float, ...]:
        """A list of numbers within bounds, or one alone; empty where absent."""
        value = self._take(key)
        if value is _ABSENT:
            return ()
        items = value if isinstance(value, list) else [value]
        good = [
            not isinstance(i, bool) and isinstance(i, int | float) and low <= i <= high
            for i in items  # NaN is in no bounds
        ]
        if not items or not all(good):
            self.fault(key, value, f"numbers from {low:g} to {high:g}{f' {unit}' if unit else ''}")
            return ()
        return tuple(float(item) for item in items)

    def wholes(self, key: str, default: tuple[int, ...], low: int, high: int) -> tuple[int, ...]:
        """A list of whole numbers within bounds, or one alone; none twice, not empty."""
        value = self._take(key)
        if value is _ABSENT:
            return default
        words = f"whole numbers from {low} to {high}"
        items = value if isinstance(value, list) else [value]
        if not items:
            self.problems.fault((*self.path, key), "is an empty list", f"allowed: {words}, at least one")
            return default
        out: list[int] = []
        for index, item in enumerate(items):
            where = (*self.path, key, index) if isinstance(value, list) else (*self.path, key)
            if isinstance(item, bool) or not isinstance(item, int) or not low <= item <= high:
                self.problems.fault(where, f"found {shown(item)}", f"allowed: {words}")
            elif item in out:
                self.problems.fault(
                    where, f"{item} is listed twice", "list each once; to repeat cells: repeats = N"
                )
            else:
                out.append(item)
        return tuple(out) or default

    def texts(self, key: str, *, one: bool = False) -> tuple[str, ...] | None:
        """A list of strings; with `one`, a string alone counts as one. None where absent or wrong."""
        value = self._take(key)
        if value is _ABSENT:
            return None
        items = [value] if one and isinstance(value, str) else value
        if not isinstance(items, list):
            hint = ""
            if isinstance(value, str):
                hint = ": one string for each argument, there is no shell"
            self.fault(key, value, f"a list of strings{hint}")
            return None
        out: list[str] = []
        for index, item in enumerate(items):
            if isinstance(item, str) and "\0" not in item:
                out.append(item)
            else:
                self.problems.fault(
                    (*self.path, key, index),
                    f"found {shown(item)}",
                    'allowed: a string (numbers in quotes: "8")',
                )
        return tuple(out)

    def named(self, key: str) -> dict[str, str]:
        """A table of strings; numbers are taken as they are written."""
        value = self._take(key)
        if value is _ABSENT:
            return {}
        if not isinstance(value, dict):
            self.fault(key, value, 'a table of strings, such as { NAME = "1" }')
            return {}
        out: dict[str, str] = {}
        for name, item in value.items():
            if isinstance(item, bool) or not isinstance(item, str | int | float):
                self.problems.fault((*self.path, key, name), f"found {shown(item)}", "allowed: a string")
            else:
                out[name] = str(item)
        return out

    def anything(self, key: str) -> Any:
        """Whatever stands there; None where nothing does."""
        value = self._take(key)
        return None if value is _ABSENT else value

    def any_table(self, key: str) -> dict[str, Any]:
        """A table of anything that JSON can say."""
        value = self._take(key)
        if value is _ABSENT:
            return {}
        if not isinstance(value, dict):
            self.fault(key, value, "a table")
            return {}
        return value

    def table(self, key: str) -> Fields | None:
        """A table inside this one; None where absent."""
        value = self._take(key)
        if value is _ABSENT:
            return None
        return Fields(self.problems, value, (*self.path, key))

    def tables(self, key: str, example: str) -> list[Fields]:
        """A list of tables."""
        value = self._take(key)
        if value is _ABSENT:
            return []
        if not isinstance(value, list):
            self.fault(key, value, f"a list of tables: {example}")
            return []
        return [Fields(self.problems, item, (*self.path, key, i)) for i, item in enumerate(value)]

    def done_with(self, *keys: str) -> None:
        """Keys of which all is said that is to be said."""
        self._known |= dict.fromkeys(keys)

    def done(self) -> None:
        """Every key that no accessor asked for is a fault, named with the nearest known one."""
        for key in self.data:
            if key not in self._known:
                self.problems.fault((*self.path, key), "is not a key ddtop knows", suggest(key, self._known))
