"""A live runner on the demo's machine: a real SSH server, the real agent, the `process` service; SIMULATED GPUs and engine.

with Rig(tmp_path) as rig:
    runner = rig.start(rig.plan(configs=...), attended=True)
    runner.until(lambda state: state.proposed, "steps")
    runner.command(Pause)
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ddtop.commands.demo import free_port
from ddtop.demo.machine import World
from ddtop.errors import DdtopError, JournalError
from ddtop.events import Attend, Command, CommandSeen, Event
from ddtop.journal.commands import append_command
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.read.reader import JournalReader
from ddtop.plan import parse_plan
from ddtop.runner import RunOptions, _pack
from tests.waiting import HANG_S

REPO = Path(__file__).resolve().parents[2]

PLAN = """
name = "{name}"
host = "demo"
[model]
name = "Sim-27B"
path = "{root}/shm/Sim-27B"
sources = ["{root}/disk/Sim-27B"]
[service]
kind = "process"
engine = "sglang"
unit = "sglang-demo"
port = {port}
command = ["{root}/bin/python3", "-m", "ddtop.demo.engine", "--model-path", "{{model.path}}", "--tp-size", "{{tp}}", "--port", "{{port}}"]
env = {{ DDTOP_DEMO_DIR = "{root}", SIM_LOAD_S = "0.2", SIM_STEP_S = "{step_s}" }}
[configs]
{configs}
[matrix]
baseline = "{baseline}"
[[workload]]
name = "fib"
prompts = ["Write a Python program that prints the first 50 Fibonacci numbers."]
output_tokens = {tokens}
[bench]
requests_per_stream = {requests}
warmup = 0
time_limit_s = 60
{bench}
[policy]
answer_s = {answer_s}
{policy}
{tail}
"""

PATCHED = """
import importlib, json, sys
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)
from ddtop.runner import _main
raise SystemExit(_main())
"""
"""A runner whose constants (limits meant for real machines) are shorter."""


QUICK = {"ddtop.sweep.host.streams.GPU_MS": 250, "ddtop.bench.judge.stillness.PAUSE_S": HANG_S}
"""A start waits until the GPUs' memory is seen to be free: seen more often, that is quicker. And where this machine itself stands
still for a second, no cell is measured again for it."""


class Rig:
    """The demo's machine and a place for recordings. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "machine")
        self.home = folder / "home"
        self.recording = folder / "run.ddtop"
        self.port = free_port()
        self.runners: list[Runner] = []
        self.server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Rig:
        self.world.build()
        self.serve()
        return self

    def __exit__(self, *_: object) -> None:
        for runner in self.runners:
            runner.kill()
        self.end_server()
        self.world.end_processes()

    # ---- the machine

    def serve(self, port: int = 0) -> int:
        """Starts the machine's SSH server; returns its port."""
        self.server = subprocess.Popen(
            [sys.executable, "-m", "ddtop.demo.server", str(self.world.root), "keep", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=REPO,
        )
        assert self.server.stdout is not None
        self.ssh_port = int(self.server.stdout.readline())
        if not port:
            self.world.write_ssh_config(self.ssh_port)
        return self.ssh_port

    def kill_server(self) -> None:
        """kill -9 of the SSH server: its sessions are cut, what runs detached goes on."""
        assert self.server is not None
        self.server.kill()
        self.server.wait(10)

    def end_server(self) -> None:
        if self.server is not None and self.server.poll() is None:
            assert self.server.stdin is not None
            self.server.stdin.close()
            try:
                self.server.wait(15)
            except subprocess.TimeoutExpired:
                self.server.kill()

    def agents(self) -> list[int]:
        """Processes of the machine that are agents: those whose command line is the agent's start."""
        return [
            pid for pid in self.world.processes() if b"-nonce" in cmdline(pid) or b"ddtop-" in cmdline(pid)
        ]

    def engines(self) -> list[int]:
        return [
            pid
            for pid in self.world.processes()
            if b"ddtop.demo.engine" in cmdline(pid) and cmdline(pid).split(b"\0")[1:2] == [b"-m"]
        ]

    # ---- plans and runners

    def plan(
        self,
        configs: str = "a = {}",
        *,
        name: str = "rig",
        tokens: str = "[8]",
        requests: int = 2,
        answer_s: float = 60,
        policy: str = "",
        bench: str = "",
        tail: str = "",
        step_s: float = 0.01,
        baseline: str = "a",
    ) -> str:
        """A plan of one workload; each configuration costs about a second to start."""
        return PLAN.format(
            name=name,
            root=self.world.root,
            port=self.port,
            configs=configs,
            tokens=tokens,
            requests=requests,
            answer_s=answer_s,
            policy=policy,
            bench=bench,
            tail=tail,
            step_s=step_s,
            baseline=baseline,
        )

    def start(
        self,
        plan: str | None,
        *,
        recording: Path | None = None,
        attended: bool = False,
        leave_running: bool = False,
        env: Mapping[str, str] | None = None,
        patch: Mapping[str, Any] | None = None,
        wrap: tuple[str, ...] = (),
    ) -> Runner:
        """A runner process. `patch`: constants of ddtop to set in it; `wrap`: argv to go before it."""
        checked = parse_plan(plan)[0] if plan is not None else None
        options = RunOptions(
            host="demo",
            plan=checked,
            record=recording or self.recording,
            attended=attended,
            ssh_config=self.world.ssh_config,
            leave_running=leave_running,
            simulated=True,
        )
        runner = Runner(self, options, env or {}, {**QUICK, **(patch or {})}, wrap)
        self.runners.append(runner)
        return runner


class Runner:
    """One runner process, and what its recording says."""

    def __init__(
        self,
        rig: Rig,
        options: RunOptions,
        env: Mapping[str, str],
        patch: Mapping[str, Any],
        wrap: tuple[str, ...],
    ) -> None:
        assert options.record is not None
        self.rig = rig
        self.recording = options.record
        self.out = rig.home.parent / f"runner-{secrets.token_hex(3)}.txt"
        argv = [*wrap, sys.executable, "-c", PATCHED, json.dumps(dict(patch)), _pack(options)]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=REPO,
                env={**os.environ, "DDTOP_HOME": str(rig.home), "PYTHONPATH": str(REPO), **env},
            )
        self._state, self._seq = State(), 0
        self._events: list[Event] = []

    def said(self) -> str:
        """What it printed."""
        return self.out.read_text(errors="replace")

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def wait(self, seconds: float = HANG_S) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end in {seconds:g} s:\n{self.said()[-4000:]}") from None

    # ---- the recording

    def events(self) -> list[Event]:
        """All events so far."""
        if self.recording.exists():
            try:
                with JournalReader(self.recording, check=False) as reader:
                    for seq, event in reader.since(self._seq):
                        self._seq = seq
                        self._events.append(event)
                        apply(self._state, event, seq)
            except JournalError:  # its first page is not there yet
                pass
        return self._events

    def state(self) -> State:
        self.events()
        return self._state

    def of(self, kind: type) -> list[Any]:
        """All events of one kind."""
        return [e for e in self.events() if isinstance(e, kind)]

    def until(self, found: Callable[[State], Any], what: str, seconds: float = HANG_S) -> Any:
        """Waits until `found(state)` is true; returns what it gave."""
        deadline = time.monotonic() + seconds
        while True:
            value = found(self.state())
            if value:
                return value
            ended = self.process.poll() is not None
            if ended and (value := found(self.state())):
                return value
            assert not ended, f"it ended ({self.process.returncode}) before {what}:\n{self.said()[-4000:]}"
            assert time.monotonic() < deadline, f"no {what} in {seconds:g} s:\n{self.said()[-4000:]}"
            time.sleep(0.05)

    def alert(self, verdict: str = "", seconds: float = HANG_S) -> Any:
        """The first open alert (of a verdict), waited for."""

        def find(state: State) -> Any:
            return next((a for a in state.open_alerts if verdict in ("", a.raised.verdict)), None)

        return self.until(find, f"alert {verdict}", seconds)

    def running(self, config: str, seconds: float = HANG_S) -> Any:
        """The cell of `config` that is being measured, waited for."""

        def find(state: State) -> Any:
            return next(
                (c for c in state.plan_cells if c.spec.config == config and c.state == "running"), None
            )

        return self.until(find, f"running cell of {config}", seconds)

    def states(self, config: str = "") -> list[str]:
        """States of the cells (of a configuration), in plan order."""
        return [c.state for c in self.state().plan_cells if config in ("", c.spec.config)]

    # ---- commands

    @contextlib.contextmanager
    def viewer(self, name: str = "anna", *, says_goodbye: bool = True) -> Iterator[None]:
        """A dashboard is open: it says so every 4 s, and at the end that it leaves (a killed one does not)."""
        gone = threading.Event()

        def stay() -> None:
            while True:
                with contextlib.suppress(DdtopError):  # no runner yet, or none any more
                    self.send(Attend, viewer=name)
                if gone.wait(4.0):
                    return

        thread = threading.Thread(target=stay, daemon=True)
        thread.start()
        try:
            yield
        finally:
            gone.set()
            thread.join()
            if says_goodbye:
                with contextlib.suppress(DdtopError):
                    self.send(Attend, viewer=name, leaving=True)

    def send(
        self,
        kind: type[Command],
        *,
        viewer: str = "anna",
        at_s: float | None = None,
        ident: str = "",
        **args: Any,
    ) -> str:
        """Puts a command into the recording as a dashboard does; returns its id."""
        ident = ident or secrets.token_hex(6)
        append_command(
            self.recording, kind(id=ident, viewer=viewer, at_s=time.time() if at_s is None else at_s, **args)
        )
        return ident

    def command(self, kind: type[Command], **args: Any) -> CommandSeen:
        """Sends a command and waits for its answer."""
        ident = self.send(kind, **args)
        found: CommandSeen = self.until(
            lambda state: next((c for c in reversed(state.commands) if c.command_id == ident), None),
            f"answer to {kind.__name__}",
        )
        return found

    def obeyed(self, kind: type[Command], **args: Any) -> CommandSeen:
        answer = self.command(kind, **args)
        assert answer.outcome == "obeyed", f"{kind.__name__}: {answer.outcome}, {answer.reason}"
        return answer

    def refused(self, kind: type[Command], words: str, **args: Any) -> None:
        answer = self.command(kind, **args)
        assert answer.outcome == "refused" and words in answer.reason, answer


def cmdline(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
