"""A report for a terminal: which run, the conclusion, and the results in its width."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from ddtop.errors import plain
from ddtop.report.conclusion import conclude
from ddtop.report.recording import NOT_REAL, Recording, outcome_words
from ddtop.report.side_by_side import compared_table
from ddtop.report.text import aligned, render_table, split, wrapped

COLOURS = (
    (re.compile(r"([★☆] \S+)"), "1;32"),
    (re.compile(r"(SUSPECT|SIMULATED)"), "33"),
    (re.compile(r"(✗ \w+|INVALID)"), "31"),
)
"""What stands out where there is colour. Every one of them is a word or a glyph too."""


def report_text(
    recordings: Sequence[Recording],
    baseline: str | None = None,
    width: int | None = None,
    *,
    colour: bool = False,
) -> str:
    """The report of each recording, and of several their comparison. Control characters of hosts are left out."""
    parts = [_recording(one, baseline, width) for one in recordings]
    if len(recordings) > 1 and (rows := compared_table(recordings)):
        blocks = ["\n".join(aligned(block)) for block in split(rows, width)]
        parts.append("\n\n".join(["# Side by side: output_tok_s, and the ratio to the first", *blocks]))
    text = plain("\n\n".join(parts))
    return _coloured(text) if colour else re.sub(r"^# ", "", text, flags=re.M)


def _recording(recording: Recording, baseline: str | None, width: int | None) -> str:
    state = recording.state
    found = conclude(state, baseline)
    sentences = "\n".join(wrapped(f"- {line}", width) for line in found.sentences)
    table = render_table(state, baseline=found.baseline, width=width)
    return "\n\n".join([wrapped(f"# {_headline(recording)}", width), sentences, table])


def _headline(recording: Recording) -> str:
    """Which run this is: plan, host, time and how it ended; says SIMULATED where the figures are no measurements."""
    state = recording.state
    run = state.run
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at_s)) if run.started_at_s else ""
    name = f"{run.name or recording.name} on {state.host.name or '?'}"
    line = " · ".join(part for part in (name, began, outcome_words(state)) if part)
    return f"{line} · SIMULATED: {NOT_REAL}" if run.simulated else line


def _coloured(text: str) -> str:
    text = re.sub(r"^# (.*)$", "\x1b[1m\\1\x1b[0m", text, flags=re.M)
    for pattern, code in COLOURS:
        text = pattern.sub(f"\x1b[{code}m\\1\x1b[0m", text)
    return text
