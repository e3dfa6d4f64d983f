"""`python -m tests.commands.record_demo`: the demo's sweep once more, kept as the recording that tests read.

One event a line, as JSON (tests/data/demo-run/events.jsonl): a sweep of six cells with one start that failed.
Make it anew when the demo's plan changes; an event that gains a field needs no new recording.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from ddtop.events import decode_event, encode
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.write.writer import JournalWriter

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "tests" / "data" / "demo-run" / "events.jsonl"


def write_recording(path: Path) -> None:
    """The kept run as a recording at `path`."""
    with JournalWriter.open(path) as writer:
        writer.extend(decode_event(line) for line in EVENTS.read_text().splitlines())


def main() -> None:
    """Runs the demo (about a minute) and keeps its events, without the names of this machine."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        recording = Path(folder) / "demo.ddtop"
        env = {**os.environ, "DDTOP_HOME": f"{folder}/home", "TMPDIR": folder}
        subprocess.run(
            [sys.executable, "-m", "ddtop.cli", "demo", "--record", str(recording)], env=env, check=True
        )
        with JournalReader(recording) as reader:
            lines = [encode(event).decode() for _, event in reader.since()]
    private = {str(ROOT): "/srv/ddtop", folder: "/var/tmp", f'"{platform.node()}"': '"workstation"'}
    private |= {platform.release(): "6.1.0-28-amd64"}
    for old, new in private.items():
        lines = [line.replace(old, new) for line in lines]
    EVENTS.parent.mkdir(parents=True, exist_ok=True)
    EVENTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
