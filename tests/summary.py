"""What a test run says at its end: skips that CI may not have, and the times that the stories measured.

Both are taken from the reports of the tests, which reach the controller of a run on several workers too.
"""

from __future__ import annotations

import os

import pytest

MAY_SKIP = (
    "no old python",  # Python 3.6 and 3.7, to be told that they are too old
    "this machine has an NVIDIA driver",
    "no NVIDIA driver on this machine",
    "may not mount here",
    "this file system has no immutable files",
)
"""What a machine of CI need not have. Any other skip there is a hole in what CI shows, and fails the run."""

_skipped: list[str] = []
_measured: dict[str, dict[str, list[float]]] = {}


def may_skip(reason: str) -> bool:
    """Whether a test may be skipped in CI for `reason`, as pytest reports it (`Skipped: …`)."""
    return any(words in reason for words in MAY_SKIP)


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
    if not may_skip(reason):
        _skipped.append(f"{report.nodeid}: {reason}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Notes files that were skipped as a whole."""
    _note_skip(report)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes skips that CI may not have, and measured figures."""
    _note_skip(report)
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "measured":
                title, kind, figure = value  # type: ignore[misc]
                _measured.setdefault(title, {}).setdefault(kind, []).append(figure)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With CI=true a skip that is not on the list is a failure. (A worker's own exit status counts for nothing.)"""
    if _skipped and os.environ.get("CI") == "true" and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the measured figures, and which skips made the run fail."""
    for title, kinds in _measured.items():
        terminalreporter.write_line("")
        for line in table(title, kinds):
            terminalreporter.write_line(line)
    if _skipped and os.environ.get("CI") == "true":
        terminalreporter.section("skipped in CI, which it may not be (tests/summary.py: MAY_SKIP)")
        for line in _skipped:
            terminalreporter.line(line)


def table(title: str, kinds: dict[str, list[float]]) -> list[str]:
    """Number, least, median and greatest of each kind of figure."""
    lines = [title, f"{'kind':50s} {'n':>4s} {'min':>8s} {'p50':>8s} {'max':>8s}"]
    for kind, values in kinds.items():
        values = sorted(values)
        lines.append(
            f"{kind:50s} {len(values):4d} {values[0]:8.3f} {values[len(values) // 2]:8.3f} {values[-1]:8.3f}"
        )
    return lines
