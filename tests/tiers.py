"""Which tier a test belongs to. A new test gets its marks here, from what it uses; nobody lists tests.

| mark | given to a test that | runs in |
| --- | --- | --- |
| none | decides, folds, parses or draws within pytest's own process | `make quick` and all others |
| `process` | starts a program, a real SSH server or a terminal | `make unit`, `make test` |
| `bed` | uses a host of the test bed | `make test` |
| `alone` | measures the machine: times, ratios, CPU | its tier, with no other test beside it |
| `stories` | says so | `make stories` |

A test without `process` that starts a program fails, and its message says what to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STARTS = re.compile(
    r"^\s*(import|from) (subprocess|pty)\b"  # a program
    r"|^from tests\.(terminal|runner\.rig|hosts\.sshd|agent\.(helpers|bedhost)|stories)\b"  # a helper that does
    r"|^from \.(rig|sshd)\b|^from ddtop\.hosts\.local\b|\bcreate_subprocess_|\bspawn_runner\(",
    re.MULTILINE,
)
"""In a test's file or in the text of a fixture it uses: it starts programs."""


def starts_programs(item: pytest.Item) -> bool:
    """Whether the test's file, or a fixture it uses, starts programs."""
    info = getattr(item, "_fixtureinfo", None)
    fixtures = [d.func for found in (info.name2fixturedefs.values() if info else ()) for d in found]
    return _mentions(item.path) or any(_mentions_here(function) for function in fixtures)


_seen: dict[Any, bool] = {}


def _mentions(path: Path) -> bool:
    if path not in _seen:
        _seen[path] = bool(STARTS.search(path.read_text()))
    return _seen[path]


def _mentions_here(function: Any) -> bool:
    if function not in _seen:
        file = inspect.getsourcefile(function) or ""
        ours = Path(file).is_relative_to(Path(__file__).parent)
        _seen[function] = ours and bool(PROGRAM.search(inspect.getsource(function)))
    return _seen[function]


PROGRAM = re.compile(r"\b(subprocess\.|Popen|Terminal\(|Sshd\(|Rig\(|start\(\[|running\(|Cli\()")
"""In the text of a fixture: it starts a program."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test; tests that wait longest come first, those that measure the machine last."""
    for item in items:
        if "bed" in getattr(item, "fixturenames", ()):
            item.add_marker("bed")
        if item.get_closest_marker("bed") or starts_programs(item):
            item.add_marker("process")
    items.sort(key=lambda item: [bool(item.get_closest_marker(mark)) is last for mark, last in ORDER])


ORDER = (("alone", True), ("bed", False), ("process", False))
"""Marks that decide the order: where the second is True, those tests come last, else first."""


# ---- what starts a program says so

_started: list[str] | None = None
"""Programs the running test has started; None: no test runs, or it may."""

LIBRARY_LOOKUP = {"ldconfig", "gcc", "cc", "ld", "objdump"}
"""What `ctypes.util.find_library` runs when asyncssh is first imported: no doing of the test's."""

_popen = subprocess.Popen.__init__


def _noticed(self: Any, args: Any, *more: Any, **named: Any) -> None:
    program = Path(str(args if isinstance(args, (str, bytes, Path)) else args[0])).name
    if _started is not None and program not in LIBRARY_LOOKUP:
        _started.append(str(args)[:200])
    _popen(self, args, *more, **named)


subprocess.Popen.__init__ = _noticed  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test that starts a program and is in the tier of those that start none."""
    global _started
    _started = None if item.get_closest_marker("process") else []
    try:
        yield
        if _started:
            pytest.fail(
                f"this test starts a program ({_started[0]}) but is in `make quick`: put "
                "`pytestmark = pytest.mark.process` into its file, or `@pytest.mark.process` on it",
                pytrace=False,
            )
    finally:
        _started = None


# ---- one at a time where the machine is measured


def _lock(run: str, name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"ddtop-tests-{run}-{name}"


@contextlib.contextmanager
def _turn(run: str, alone: bool) -> Iterator[None]:
    """Among the workers of one run: many at a time, or this one alone. Who waits to be alone is next."""
    with _lock(run, "turn").open("a") as turn, _lock(run, "room").open("a") as room:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test marked `alone` runs while no other worker runs one."""
    if not (run := os.environ.get("PYTEST_XDIST_TESTRUNUID", "")):
        return (yield)
    with _turn(run, item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_testnodedown(node: Any) -> None:
    """The last worker to end takes the locks away."""
    for name in ("turn", "room"):
        _lock(node.workerinput["testrunuid"], name).unlink(missing_ok=True)
