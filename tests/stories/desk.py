"""A person's desk: `ddtop connect HOST` as typed, on a real pty, its screen read back; the detached runner behind it; and the
bed's ledger, told apart by configuration and cell.

Nothing here looks into ddtop's memory: what it shows is read from the pty, what it knows from the recording.
"""

from __future__ import annotations

import contextlib
import os
import pty
import secrets
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pyte

from ddtop.errors import JournalError
from ddtop.events import AlertRaised, CellMeasured, CellStateSet, Command, Event, MarkBroken
from ddtop.journal.commands import append_command
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.locks import holder, recording_lock
from ddtop.journal.read.reader import JournalReader
from tests.bed.config import REPO

BASELINE = "a"
COLUMNS, LINES = 120, 40
FRAME_S = 0.05


class Terminal:
    """A program on a pty of its own; its screen is read all the time. Use as a context manager."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.raw = b""
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True, cwd="/"
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                if not select.select([self.master], [], [], 1.0)[0]:
                    continue
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            with self._lock:
                self.raw += data
                self._stream.feed(data)

    def text(self) -> str:
        """What is on the screen."""
        with self._lock:
            return "\n".join(self._screen.display)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def shows(self, *words: str) -> bool:
        """Whether all `words` are on the screen, however they are wrapped."""
        flat = " ".join(self.text().replace("│", " ").replace("┃", " ").split())
        return all(w in flat for w in words)

    def until(self, found: Callable[[], Any], timeout_s: float, what: str) -> int:
        """Waits for it; returns when (ns), to a frame. AssertionError with the screen where it does not come."""
        deadline = time.monotonic() + timeout_s
        while True:
            if found():
                return time.time_ns()
            assert time.monotonic() < deadline, f"no {what} in {timeout_s:.0f} s; the screen:\n{self.text()}"
            assert self.process.poll() is None, f"the dashboard ended before {what}:\n{self.text()}"
            time.sleep(FRAME_S)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """The window is closed the hard way."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(3)
        with contextlib.suppress(OSError):
            os.close(self.master)


class Desk:
    """One person's ddtop: settings and recordings below `home`. Use as a context manager: its runner ends with it."""

    def __init__(self, host: Any, home: Path, plan: str, *, user: str = "root") -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.host, self.home = host, home
        self.plan = home / "plan.toml"
        self.plan.write_text(plan)
        self.ssh_config = home / "ssh_config"
        config = Path(host.bed.ssh_config).read_text()
        self.ssh_config.write_text(config.replace("  User root\n", f"  User {user}\n"))
        self.env = {
            **os.environ,
            "DDTOP_HOME": str(home / "ddtop"),
            "PYTHONPATH": str(REPO),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        self.env.pop("NO_COLOR", None)
        self._events: list[Event] = []
        self._state, self._seq = State(), 0

    def sit(self, *, plan: bool) -> Terminal:
        """Types `ddtop connect HOST`, with the plan or without."""
        argv = [
            sys.executable,
            "-m",
            "ddtop",
            "connect",
            self.host.name,
            "--ssh-config",
            str(self.ssh_config),
        ]
        return Terminal(argv + (["--plan", str(self.plan)] if plan else []), self.env)

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        pid = self.runner_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ---- the runner

    @property
    def recording(self) -> Path | None:
        """The one recording of this desk."""
        found = sorted((self.home / "ddtop/data/runs").rglob("*.ddtop"))
        assert len(found) <= 1, f"one run has one recording: {found}"
        return found[0] if found else None

    def runner_pid(self) -> int | None:
        """The living runner's process."""
        path = self.recording
        if path is None:
            return None
        before = os.environ.get("DDTOP_HOME")
        os.environ["DDTOP_HOME"] = self.env["DDTOP_HOME"]
        try:
            facts = holder(recording_lock(path))
        finally:
            os.environ.pop("DDTOP_HOME")
            if before is not None:
                os.environ["DDTOP_HOME"] = before
        return int(facts["pid"]) if facts else None

    def signal_runner(self, number: int) -> int:
        """Sends the runner a signal; returns its pid."""
        pid = self.runner_pid()
        assert pid is not None, f"no runner is alive\n{self.log()}"
        os.kill(pid, number)
        return pid

    def log(self) -> str:
        """What the runners said to their own logs."""
        logs = sorted((self.home / "ddtop/state/runners").glob("*.log"))
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-5000:]}" for p in logs)

    # ---- the recording

    def events(self) -> list[Event]:
        path = self.recording
        if path is None:
            return []
        try:
            with JournalReader(path, check=False) as reader:
                for seq, event in reader.since(self._seq):
                    self._seq = seq
                    self._events.append(event)
                    apply(self._state, event, seq)
        except JournalError:  # its first page is not there yet
            pass
        return list(self._events)

    def state(self) -> State:
        """The fold of it; one object for the life of the desk."""
        self.events()
        return self._state

    def until(self, found: Callable[[list[Event]], Any], timeout_s: float, what: str) -> Any:
        """Polls the recording until `found(events)` is true; returns what it gave."""
        deadline = time.monotonic() + timeout_s
        while not (value := found(self.events())):
            assert time.monotonic() < deadline, f"no {what} in {timeout_s:.0f} s\n{self.log()}"
            time.sleep(0.1)
        return value

    def send(self, make: type[Command], **fields: Any) -> None:
        """Gives a command as another viewer does."""
        path = self.recording
        assert path is not None
        append_command(path, make(id=secrets.token_hex(6), viewer="colleague", at_s=time.time(), **fields))

    def mark_broken_at_alert(self, config: str, timeout_s: float = 60) -> None:
        """Waits for the alert about `config` and answers: broken."""

        def alert(events: list[Event]) -> AlertRaised | None:
            return next((e for e in events if isinstance(e, AlertRaised) and e.verdict == "no-tokens"), None)

        raised: AlertRaised = self.until(alert, timeout_s, f"alert about {config}")
        self.send(MarkBroken, alert_id=raised.alert_id, config=config)

    def until_end(self, timeout_s: float) -> State:
        """Waits until the runner has said how it ended, and is gone."""
        self.until(lambda _: self.state().run.ended is not None, timeout_s, "end of the run")
        deadline = time.monotonic() + 10
        while self.runner_pid() is not None:
            assert time.monotonic() < deadline, f"the runner says that it ended, and lives\n{self.log()}"
            time.sleep(0.1)
        return self.state()


# ---- what really happened


@dataclass(frozen=True)
class Served:
    """Whole answers that the bed's server gave to measuring requests: (configuration, prompt) → how often."""

    times: Counter[tuple[str, str]]

    def repeated(self) -> dict[tuple[str, str], int]:
        """What was asked for more often than one measurement does. The baseline's first requests are asked for twice in its
        own job: how far the server agrees with itself."""
        return {key: n for key, n in self.times.items() if n > (2 if key[0] == BASELINE else 1)}

    def of(self, config: str) -> int:
        """How many different requests of the configuration were answered."""
        return sum(1 for name, _ in self.times if name == config)


def served(host: Any, marks: dict[str, str], since_ns: int) -> Served:
    """`marks`: configuration → part of its command line ("" for the one with none of the others'). Requests for one token
    are the gate's own."""
    ledger = host.ledger(since_ns=since_ns)
    argv = {(e["boot"], e["pid"]): " ".join(e["argv"]) for e in ledger if e["event"] == "start"}
    times: Counter[tuple[str, str]] = Counter()
    for e in ledger:
        if e["event"] != "request" or e["outcome"] not in ("length", "stop") or e["tokens"] <= 1:
            continue
        line = argv.get((e["boot"], e["pid"]), "")
        config = next((c for c, mark in marks.items() if mark and mark in line), None)
        times[config or next(c for c, mark in marks.items() if not mark), e["prompt_sha"]] += 1
    return Served(times)


def finished(state: State) -> set[str]:
    return {c.id for c in state.plan_cells if c.state == "done"}


def assert_once_each(events: list[Event]) -> None:
    """No finished cell was begun or measured again, and nothing that is broken became anything else."""
    done: set[str] = set()
    broken: set[str] = set()
    for event in events:
        if isinstance(event, CellStateSet):
            assert event.state == "done" or event.cell_id not in done, f"a finished cell became {event.state}"
            assert event.state == "broken" or event.cell_id not in broken, (
                f"a broken cell became {event.state}"
            )
            done |= {event.cell_id} if event.state == "done" else set()
            broken |= {event.cell_id} if event.state == "broken" else set()
        if isinstance(event, CellMeasured):
            assert event.cell_id not in done, "a finished cell was measured again"
