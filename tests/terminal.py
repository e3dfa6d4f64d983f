"""A program on a real pty, its screen read back by a terminal emulator."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from fcntl import ioctl

import pyte
import pytest


class Terminal:
    """`argv` as the leader of a terminal of its own, so that its ctrl-c and its closing are the real ones."""

    def __init__(
        self, argv: list[str], *, columns: int = 120, lines: int = 40, env: Mapping[str, str] | None = None
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

        def own_terminal() -> None:
            os.setsid()
            ioctl(0, termios.TIOCSCTTY, 0)
            # As a shell starts it, also where nohup started the tests.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=own_terminal,
            close_fds=True,
            env={**(os.environ if env is None else env), "TERM": "xterm-256color"},
        )
        os.close(slave)
        self.raw = b""

    def read(self, seconds: float) -> bool:
        """Takes what comes within `seconds`; False when the other end is closed."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.raw += data
        self.stream.feed(data)
        return bool(data)

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def wait_for(self, *words: str, seconds: float) -> str:
        """The screen, once all `words` are on it; fails with the screen as it is after `seconds`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if all(word in self.text() for word in words):
                return self.text()
            if not self.read(0.2):
                break
        pytest.fail(f"{words} not on the screen within {seconds:g} s:\n{self.text()}")

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait_end(self, seconds: float) -> int:
        """The exit code, while the screen goes on being read."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            if not self.read(0.1):
                time.sleep(0.05)
        while self.process.poll() is not None and select.select([self.master], [], [], 0)[0] and self.read(0):
            pass
        code = self.process.poll()
        if code is None:
            pytest.fail(f"still runs after {seconds:g} s:\n{self.text()}")
        return code

    def hang_up(self) -> None:
        """Closes the terminal: the kernel sends SIGHUP to its session."""
        os.close(self.master)
        self.master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.master >= 0:
            os.close(self.master)
