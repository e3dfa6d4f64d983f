"""A real terminal: the dashboard as a process on a pty, its screen read back by a terminal emulator."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pyte
import pytest

from ddtop import events as ev
from ddtop.journal.write.writer import JournalWriter
from tests.dashboard import story
from tests.waiting import HANG_S

PROGRAM = """
import sys
from pathlib import Path
from ddtop.dashboard.run import run_dashboard
from ddtop.journal.read.session import LiveSession
sys.exit(run_dashboard([LiveSession(Path(sys.argv[1]), "pty")], fault_log=Path(sys.argv[2])))
"""


class Terminal:
    """A program on a pty and what its screen shows."""

    def __init__(self, argv: list[str], columns: int, lines: int, env: dict[str, str]) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
            close_fds=True,
            preexec_fn=lambda: signal.signal(
                signal.SIGHUP, signal.SIG_DFL
            ),  # nohup may have started the tests
        )
        os.close(slave)
        self.raw = b""

    def read_for(self, seconds: float, until: bytes | None = None) -> float | None:
        """Take what comes; seconds until the raw bytes held `until`, or None."""
        begin = time.monotonic()
        mark = len(self.raw)
        while (left := begin + seconds - time.monotonic()) > 0:
            ready, _, _ = select.select([self.master], [], [], left)
            if not ready:
                break
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.raw += data
            # pyte does not know the private sequences with an intermediate byte that Textual asks with.
            self.stream.feed(data)
            if until is not None and until in self.raw[mark:]:
                return time.monotonic() - begin
        return None

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[tuple[Terminal, JournalWriter, story.Script]]:
    script = story.running()
    shift = time.time() - script.now
    script = story.Script()
    with JournalWriter.open(tmp_path / "run.ddtop") as writer:
        full = story.running()
        writer.extend(
            [
                type(e)(**{**{f: getattr(e, f) for f in e.__struct_fields__}, "at_s": e.at_s + shift})
                for e in full.out
            ]
        )
        env = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "XDG_CONFIG_HOME": str(tmp_path),
        }
        env.pop("NO_COLOR", None)
        argv = [sys.executable, "-c", PROGRAM, str(writer.path), str(tmp_path / "faults.log")]
        opened = Terminal(argv, 120, 40, env)
        try:
            yield opened, writer, script
        finally:
            opened.close()
    assert not (tmp_path / "faults.log").exists(), (tmp_path / "faults.log").read_text()


def test_an_alert_is_on_the_terminal_within_a_second_of_being_in_the_journal(
    terminal: tuple[Terminal, JournalWriter, story.Script],
) -> None:
    screen, writer, _ = terminal
    assert screen.read_for(20, until=b"REC") is not None, screen.text()
    screen.read_for(1.0)
    assert "NOT STARTING?" not in screen.text()
    took: list[float] = []
    for number in range(3):  # a machine busy with something else may take one of them away, not all three
        now = time.time()
        fields = {**story.alert_fields(now), "alert_id": f"alert-{number}"}
        writer.append(ev.AlertRaised(at_s=now, mono_s=1.0, host=story.HOST, **fields))  # type: ignore[arg-type]
        seconds = screen.read_for(5, until=b"NOT STARTING?")
        assert seconds is not None, screen.text()
        took.append(seconds)
        if seconds <= 1.0:
            break
        resolved = ev.AlertResolved(
            at_s=now, mono_s=1.0, host=story.HOST, alert_id=f"alert-{number}", how="-", by="-"
        )
        writer.append(resolved)
        screen.read_for(2)
    print("from the journal to the terminal:", ", ".join(f"{seconds * 1000:.0f} ms" for seconds in took))
    assert min(took) <= 1.0
    assert b"\a" in screen.raw
    screen.read_for(0.5)
    assert "r retry b16" in screen.text()
    screen.press("q")
    screen.read_for(10, until=b"come back")
    assert b"ddtop connect ct200" in screen.raw
    assert screen.process.wait(10) == 0
    assert b"Traceback" not in screen.raw


@pytest.mark.parametrize("by", ["a signal", "nothing but its end"])
def test_closing_the_terminal_ends_the_dashboard_and_nothing_else(
    terminal: tuple[Terminal, JournalWriter, story.Script], by: str
) -> None:
    screen, writer, _ = terminal
    assert screen.read_for(20, until=b"REC") is not None
    if by == "a signal":
        os.killpg(screen.process.pid, signal.SIGHUP)
    else:  # it has no controlling terminal here, as after `setsid`: nobody sends it a signal
        os.close(screen.master)
        screen.master = os.open(os.devnull, os.O_RDWR)
    assert screen.process.wait(HANG_S) == -signal.SIGHUP
    now = time.time()
    writer.append(ev.SweepPaused(at_s=now, mono_s=1.0, host=story.HOST, by="someone"))
    writer.flush()
