"""What goes to a terminal carries no control sequence of a host."""

from __future__ import annotations

import io

from ddtop.commands.probe_text import probe_text
from ddtop.errors import HostError, plain
from ddtop.events import Note
from ddtop.journal.fold.state import State
from ddtop.sweep.tell.console import make_printer

EVIL = "\x1b[2J\x1b]0;title\x07 words\x9b31m\r"


def clean(text: str) -> bool:
    return (
        not any(ord(c) < 32 and c not in "\n\t" for c in text) and "\x9b" not in text and "\x7f" not in text
    )


def test_errors_progress_and_probes_are_plain() -> None:
    assert plain("a\tb\n ü ·") == "a\tb\n ü ·"
    said = str(HostError(f"it said {EVIL}", means=EVIL, do="x", host="box"))
    assert clean(said) and "words" in said
    out = io.StringIO()
    make_printer(out)(Note(at_s=1.0, mono_s=1.0, host="h", level="warn", text=EVIL), State())
    assert clean(out.getvalue()) and "words" in out.getvalue()
    server = {"engine": EVIL, "pid": 1, "port": 2, "model": EVIL, "unit": EVIL}
    shown = probe_text("h", "t", {"kernel": EVIL, "servers": [server], "uptime_s": 3.0}, 1.0)
    assert clean(shown) and "words" in shown
