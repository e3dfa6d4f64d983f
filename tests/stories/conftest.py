"""Prints the measured times at the end of a run."""

from __future__ import annotations

from typing import Any

from tests.stories.harness import FIGURES, TABLES, figures, table


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for title in TABLES:
        terminalreporter.write_line("")
        for line in table(title):
            terminalreporter.write_line(line)
    for title in FIGURES:
        terminalreporter.write_line("")
        for line in figures(title):
            terminalreporter.write_line(line)
