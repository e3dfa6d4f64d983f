"""A real runner on a real pty against a host of the bed, and what was seen of it: bytes with their times, and events.

Nothing here looks into ddtop's memory: what it shows is read from the pty, what it knows from the recording, and what
really happened from the bed's ledger.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddtop.errors import JournalError
from ddtop.events import AlertRaised, CellMeasured, CellStarted, Command, Event, RestartReady
from ddtop.journal.commands import append_command
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.reader import JournalReader
from ddtop.plan import parse_plan
from ddtop.runner import RunOptions, _pack
from tests.bed.client import Bed
from tests.bed.config import REPO

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")

HEAD = """
name = "{name}"
host = "{host}"
[model]
name = "Qwen3.6-27B"
path = "/dev/shm/Qwen3.6-27B"
sources = ["/data/models/Qwen3.6-27B"]
[service]
kind = "systemd"
unit = "sglang-bench.service"
engine = "sglang"
port = 30000
command = ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "{{model.path}}", "--host", "0.0.0.0",
           "--port", "{{port}}", "--tp-size", "{{tp}}", "--enable-metrics"]
[configs]
{configs}
[matrix]
baseline = "a"
[[workload]]
name = "fib"
prompts = ["Write a Python program that prints the first 50 Fibonacci numbers."]
output_tokens = [{tokens}]
[bench]
requests_per_stream = {requests}
warmup = 0
time_limit_s = 60
[policy]
answer_s = {answer_s}
{policy}
"""

KIMI = """
name = "{name}"
host = "b300"
[model]
name = "Kimi-K2.6"
path = "/dev/shm/Kimi-K2.6"
sources = ["/data/models/Kimi-K2.6"]
[service]
kind = "command"
engine = "sglang"
port = 30000
unit = "kimi.service"
configure = ["/root/reconfig_ddtree.sh", "{{budget}}", "8", "2048"]
timeout_s = 120
[configs]
"b{{budget}}" = {{ for = {{ budget = [16, 32, 64] }} }}
[matrix]
tp = [8]
concurrency = [1]
context = [0]
baseline = "b16"
[bench]
kind = "command"
argv = ["python3", "/root/bench_ddtree_matrix.py", "--context", "{{context}}", "--concurrency", "{{concurrency}}", "--port", "{{port}}", "--out", "{{result}}"]
metrics = {{ output_tok_s = "mean:results[*].tok_s" }}
time_limit_s = 120
[policy]
answer_s = 5
"""

THREE = """
a = {}
b = { args = ["--context-length", "8192"] }
c = { args = ["--context-length", "4096"] }
"""


def plan_text(
    name: str,
    *,
    host: str = "ct200",
    configs: str = THREE,
    tokens: str = "16",
    requests: int = 2,
    answer_s: float = 5,
    policy: str = "",
) -> str:
    """A small sweep of three configurations of one unit."""
    return HEAD.format(
        name=name,
        host=host,
        configs=configs,
        tokens=tokens,
        requests=requests,
        answer_s=answer_s,
        policy=policy,
    )


class Runner:
    """One runner process on a pty of its own. Use as a context manager."""

    def __init__(
        self,
        bed: Bed,
        plan: str,
        recording: Path,
        home: Path,
        *,
        attended: bool = False,
        more_env: Mapping[str, str] | None = None,
    ) -> None:
        self.recording, self.home = recording, home
        checked, _ = parse_plan(plan)
        assert checked.host is not None
        options = RunOptions(
            host=checked.host,
            plan=checked,
            record=recording,
            attended=attended,
            ssh_config=Path(bed.ssh_config),
        )
        env = {
            **os.environ,
            "DDTOP_HOME": str(home),
            "PYTHONPATH": str(REPO),
            "TERM": "xterm",
            "COLUMNS": "400",
            **(more_env or {}),
        }
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ddtop.runner", _pack(options)],
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
        )
        os.close(slave)
        self.seen: list[tuple[int, bytes]] = []
        """(time_ns of arrival, bytes) of the pty."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                if not select.select([self._master], [], [], 1.0)[0]:
                    continue
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen.append((time.time_ns(), data))

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """kill -9, as a power cut of the laptop would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(3)
        with contextlib.suppress(OSError):
            os.close(self._master)

    def wait(self, timeout_s: float) -> int:
        """The exit code; AssertionError with the last output where it does not end in time."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the runner did not end in {timeout_s:.0f} s:\n{self.text()[-6000:]}"
            ) from None
        self._reader.join(3)
        return code

    def text(self) -> str:
        """What was shown, without colours and without the bar below the lines."""
        whole = b"".join(data for _, data in self.seen).decode("utf-8", "replace")
        return "\n".join(
            line for line in _ANSI.sub("\n", whole).splitlines() if line.strip() and "━" not in line
        )

    def first_ns(self, words: str, since_ns: int = 0) -> int | None:
        """When `words` were first complete on the pty after `since_ns`."""
        so_far = b""
        for at, data in list(self.seen):
            so_far = so_far[-4096:] + data
            if at >= since_ns and words.encode() in so_far:
                return at
        return None

    # ---- the recording

    def events(self) -> list[Event]:
        """All events so far; [] before the recording exists."""
        if not self.recording.exists():
            return []
        try:
            with JournalReader(self.recording, check=False) as reader:
                return [event for _, event in reader.since()]
        except JournalError:  # its first page is not there yet
            return []

    def state(self) -> State:
        return fold(self.events())

    def until(self, found: Callable[[list[Event]], Any], timeout_s: float, what: str) -> Any:
        """Polls the recording until `found(events)` is true; returns what it gave."""
        deadline = time.monotonic() + timeout_s
        while True:
            value = found(self.events())
            if value:
                return value
            if self.process.poll() is not None:
                value = found(self.events())
                if value:
                    return value
                raise AssertionError(
                    f"the runner ended ({self.process.returncode}) before {what}:\n{self.text()[-6000:]}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {timeout_s:.0f} s:\n{self.text()[-6000:]}")
            time.sleep(0.1)

    def until_measuring(self, config: str, timeout_s: float = 60) -> None:
        """Until a cell of `config` was begun."""

        def begun(events: list[Event]) -> bool:
            specs = fold(events).cells
            return any(isinstance(e, CellStarted) and specs[e.cell_id].spec.config == config for e in events)

        self.until(begun, timeout_s, f"cell of {config}")

    def until_alert(self, timeout_s: float) -> AlertRaised:
        return self.until(
            lambda es: next((e for e in es if isinstance(e, AlertRaised)), None), timeout_s, "alert"
        )

    def send(self, make: type[Command], **fields: Any) -> str:
        """Gives a command as a dashboard does; returns its id."""
        ident = secrets.token_hex(6)
        append_command(self.recording, make(id=ident, viewer="tester", at_s=time.time(), **fields))
        return ident


def alerts(events: list[Event]) -> set[tuple[str, str]]:
    """(verdict, cause) of all alerts."""
    return {(e.verdict, e.cause) for e in events if isinstance(e, AlertRaised)}


def ready_configs(events: list[Event]) -> list[str]:
    """Configurations counted as ready, in order."""
    by_id = {r.attempt_id: r.config for r in fold(events).restarts}
    return [by_id[e.attempt_id] for e in events if isinstance(e, RestartReady)]


def measured(events: list[Event]) -> list[str]:
    """Cells in the order in which results were committed."""
    return [e.cell_id for e in events if isinstance(e, CellMeasured)]


def states_of(state: State, config: str) -> set[str]:
    return {c.state for c in state.plan_cells if c.spec.config == config}


def left_behind(host: Any, before: dict[str, Any], but: tuple[str, ...], timeout_s: float = 30) -> list[str]:
    """What is not as it was found, waiting for what is still going down; lines that name one of `but` do not count."""
    deadline = time.monotonic() + timeout_s
    while True:
        lines = [
            x
            for x in host.oracle.settled(host.name, before, timeout_s=0)
            if not any(name in x for name in but)
        ]
        if not lines or time.monotonic() > deadline:
            return lines
        time.sleep(0.3)


MEASURED: list[tuple[str, str, float]] = []
"""(title, kind, figure) of the running test: printed at the end of the run (conftest.py, tests/summary.py)."""


def took(title: str, kind: str, seconds: float) -> None:
    """Notes a measured time."""
    noted(f"{title}, in seconds", kind, seconds)


def noted(title: str, kind: str, value: float) -> None:
    """Notes a measured figure, such as a ratio or a count."""
    MEASURED.append((title, kind, value))
