"""`python -m tests.commands.record_cast`: the demo on a real pty, its screen kept as `assets/demo.cast` (asciicast v2).

At the alert `s` and `enter` are pressed, at the end `v`, `v` (results, plots) and `q`. Names of this machine are replaced.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyte
from pyte.screens import Char

from tests.dashboard.test_pty import Terminal

CAST = Path(__file__).parents[2] / "assets" / "demo.cast"
COLUMNS, LINES = 120, 40
TICK_S = 0.25
FRAME_S = 1.0
"""Seconds between looks for a key's turn, and between frames that are kept."""
LONGEST_S = 240.0

CLOSES = b"\x1b[?1049l"
"""The alternate screen ends: the dashboard was left."""

PROGRAM = """
import getpass, socket
getpass.getuser, socket.gethostname = (lambda: "you"), (lambda: "laptop")
from ddtop.cli import main
main()
"""
"""The program itself, on a machine that goes by another name."""

SCRIPT = (
    ("NOT STARTING?", 6.0, b"s"),
    ("do it", 3.0, b"\r"),
    ("Finished:", 4.0, b"v"),
    ("tok/s", 3.0, b"v"),
    ("tok/s", 4.0, b"q"),
)
"""What must be on the screen, the seconds that it is left there to be read, then the key."""


def play(terminal: Terminal) -> Iterator[tuple[float, bytes]]:
    """What the demo writes, with the seconds since it began, while the keys of `SCRIPT` are pressed."""
    begin = time.monotonic()
    left = list(SCRIPT)
    seen_s: float | None = None
    while terminal.process.poll() is None:
        now_s = time.monotonic() - begin
        if now_s > LONGEST_S:
            raise SystemExit(f"the demo had not ended after {LONGEST_S:.0f} s; waited for {left[:1]}")
        before = len(terminal.raw)
        terminal.read_for(TICK_S)
        if len(terminal.raw) > before:
            yield time.monotonic() - begin, terminal.raw[before:]
        if not left:
            continue
        words, wait_s, key = left[0]
        if seen_s is None and words in "\n".join(terminal.screen.display):
            seen_s = now_s
        if seen_s is not None and now_s - seen_s >= wait_s:
            os.write(terminal.master, key)
            left.pop(0)
            seen_s = None
    if left:
        raise SystemExit(f"the demo ended before {left[0][0]!r} was on the screen")


def sgr(cell: Char) -> str:
    """The control sequence of a cell's colours and face."""
    parts = ["0"] + [code for on, code in ((cell.bold, "1"), (cell.italics, "3"), (cell.reverse, "7")) if on]
    parts += ["4"] if cell.underscore else []
    for colour, layer in ((cell.fg, 38), (cell.bg, 48)):
        if re.fullmatch("[0-9a-f]{6}", colour):
            parts.append(f"{layer};2;{';'.join(str(int(colour[n : n + 2], 16)) for n in (0, 2, 4))}")
    return f"\x1b[{';'.join(parts)}m"


def changes(before: list[list[Char]], after: list[list[Char]]) -> str:
    """What turns one screen into the other: of each row the stretch that differs."""
    out = []
    for y, (old, new) in enumerate(zip(before, after, strict=True)):
        differ = [x for x in range(COLUMNS) if old[x] != new[x]]
        if not differ:
            continue
        out.append(f"\x1b[{y + 1};{differ[0] + 1}H")
        face = ""
        for cell in new[differ[0] : differ[-1] + 1]:
            if cell.data and sgr(cell) != face:
                face = sgr(cell)
                out.append(face)
            out.append(cell.data)
    return "".join(out)


def frames(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """The pieces as what they change on the screen, a frame each `FRAME_S`: Textual paints whole panes, which is large."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    shown: list[list[Char]] = [[screen.default_char] * COLUMNS for _ in range(LINES)]
    due_s = 0.0
    yield 0.0, "\x1b[?25l\x1b[2J"
    for at_s, raw in pieces:
        if CLOSES in raw:
            break
        stream.feed(raw)
        if at_s < due_s:
            continue
        due_s = at_s + FRAME_S
        now = [[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(LINES)]
        if written := changes(shown, now):
            yield at_s, written
        shown = now
    yield at_s, "\x1b[0m\x1b[?25h\r\n"


def main(path: Path) -> None:
    """Run the demo (about two minutes) and write the cast."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        env = {
            **os.environ,
            "DDTOP_HOME": f"{folder}/home",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        terminal = Terminal([sys.executable, "-c", PROGRAM, "demo"], COLUMNS, LINES, env)
        try:
            pieces = list(play(terminal))
        finally:
            terminal.close()
    write(path, pieces)


def write(path: Path, pieces: Sequence[tuple[float, bytes]]) -> None:
    """The cast, one event a line."""
    head = {"version": 2, "width": COLUMNS, "height": LINES, "title": "ddtop demo (SIMULATED)"}
    rows = [json.dumps(head)]
    rows += [json.dumps([round(at_s, 2), "o", text], ensure_ascii=False) for at_s, text in frames(pieces)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB, {len(rows) - 1} frames, {pieces[-1][0]:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else CAST)
