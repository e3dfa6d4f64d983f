"""`python -m tests.commands.record_demo [FILE]`: the demo's sweep once more, kept as a recording; by default for the pictures.

One event a line, as JSON, in tests/data/demo-run. `pictures.jsonl` is today's demo, which the pictures of the README show: make
it anew when the demo's plan changes. `events.jsonl` is what tests read, a demo of six cells with one start that failed, by an
older ddtop: they assert on its figures, and that old recordings still read.
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
PICTURES = EVENTS.with_name("pictures.jsonl")


def write_recording(path: Path, kept: Path = EVENTS) -> None:
    """The kept run as a recording at `path`."""
    with JournalWriter.open(path) as writer:
        writer.extend(decode_event(line) for line in kept.read_text().splitlines())


def main(target: Path) -> None:
    """Runs the demo (about two minutes) and keeps its events, without the names of this machine."""
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
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
