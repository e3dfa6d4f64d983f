"""SIMULATED: one GPU host in memory, under the agent's protocol, and an event loop whose time jumps.

The world outlives connections and runners, as a host does: units, jobs and the model stay when a link or a runner
dies; a reboot takes the processes, the tmpfs and the overrides. Nothing sleeps for real.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import selectors
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ddtop.agent.host.lease import Me, Now, answer
from ddtop.agent.jobs.folder import spec_hash
from ddtop.errors import AgentError, HostLostError
from ddtop.hosts.base import Hello


class JumpingSelector(selectors.SelectSelector):
    """Never waits: what would have been waited for is added to `now`."""

    clock: ClassVar[list[float]] = [1000.0]
    """Shared by all loops: time goes on from one runner to the next."""

    @property
    def now(self) -> float:
        return self.clock[0]

    @now.setter
    def now(self, value: float) -> None:
        self.clock[0] = value

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits for something that never comes")
        found = super().select(0)
        if not found and timeout > 0:
            self.now += timeout
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = JumpingSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


def run_jumping(make: Any) -> Any:
    """Runs `make()` (a coroutine function) in virtual time; leaves no task behind."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(make())


SCRIPT = "/root/reconfigure.sh"


@dataclass
class Unit:
    name: str
    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    code: str = "0"
    status: str = "0"
    pid: int = 0
    invocation: str = ""
    argv: list[str] = field(default_factory=list)
    override: list[str] | None = None
    listening: bool = False
    seed: int = 0
    core_dead: bool = False
    """Its engine process was killed; the one that answers lives on for a while."""


@dataclass
class Job:
    name: str
    kind: str
    spec: dict[str, Any]
    run: str
    boot: str
    state: str = "running"
    why: str = ""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    task: asyncio.TimerHandle | None = None
    at_once: int = 1
    """How many of the same program ran when this one was started, itself among them."""


class World:
    """The host. `faults`: word of a command line → kind (`crash`, `hang`, `zero`, `exit-mid`, `stop-mid`, `silent`)."""

    def __init__(self, *, load_s: float = 5.0, cell_s: float = 3.0) -> None:
        self.load_s, self.cell_s = load_s, cell_s
        self.boots = 1
        self.units: dict[str, Unit] = {}
        self.jobs: dict[str, Job] = {}
        self.begun: list[Job] = []
        """Every job, those too that the host was told to forget."""
        self.log: list[dict[str, Any]] = []
        self.model = True
        self.model_on_disk = True
        self.faults: dict[str, str] = {}
        self.limits: dict[str, int] = {}
        """Word of a command line → how many starts it spoils; absent: all."""
        self.served: list[str] = []
        """Cells that were measured, in order, whoever asked."""
        self.starts: list[list[str]] = []
        self.broken_cells: set[str] = set()
        """Cells that give 0 tokens."""
        self.speeds: dict[str, float] = {}
        """Cell → how fast it is served; absent: 1."""
        self.hosts: list[FakeHost] = []
        self.foreign_on_port = False
        self.gpu_procs: list[dict[str, Any]] = []
        self.version = "0.5.16"
        self.link_up = True
        self.overrides: list[dict[str, Any]] = []
        """Of other runs."""
        self.stubborn: set[str] = set()
        """Units that this login may not stop."""
        self.can = frozenset({"systemd", "restart", "override", "jobs"})
        self.user = "root"
        self.late_results = False
        """Whether a job that is stopped after its server's death still writes what it has of its cell."""
        self.files: dict[str, bytes] = {}
        self.environment: dict[str, str] = {}
        """What the shell around the server exports: in the environment of the processes below it."""
        self.script_s = 5.0
        self.script_acts_s: float | None = None
        """When a script restarts the server, where it goes on after that (it waits for the server, say)."""
        self.stage_s = 0.0
        """How long a copy takes."""
        self._leases = tempfile.TemporaryDirectory(prefix="ddtop-leases-")
        """The folder that every login of the host sees."""
        self.agents = itertools.count(100)
        self._n = itertools.count(1)
        self.changed: list[asyncio.Event] = []

    # ---- life of the host

    @property
    def boot(self) -> str:
        return f"boot-{self.boots}/1"

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def tell(self) -> None:
        for event in self.changed:
            event.set()

    def unit(self, name: str) -> Unit:
        return self.units.setdefault(name, Unit(name))

    def reboot(self) -> None:
        self.boots += 1
        self.model = False
        for unit in self.units.values():
            self.units[unit.name] = Unit(unit.name)
        for job in self.jobs.values():
            if job.state == "running":
                job.state, job.why = "lost", "the host was rebooted while it ran"
            if job.task is not None:
                job.task.cancel()
        self.drop("Connection lost")

    def drop(self, why: str = "cut") -> None:
        for host in list(self.hosts):
            host.lose(why)
        self.hosts.clear()

    def forget_loop(self) -> None:
        """The runner's loop is gone (it died): what the world had scheduled in it is scheduled anew by `wake`."""
        self.hosts.clear()
        self.changed.clear()

    def wake(self) -> None:
        """Called in a new loop: time passes again."""
        for unit in self.units.values():
            if unit.active == "deactivating":
                self._gone(unit)
            elif (
                unit.active == "active"
                and not unit.listening
                and self.fault_of(unit.argv) not in ("hang", "crash", "port")
            ):
                asyncio.get_running_loop().call_later(self.load_s, self._up, unit, unit.invocation)
        for job in self.jobs.values():
            if job.state == "running" and job.kind == "exec":
                job.task = asyncio.get_running_loop().call_later(self.cell_s, self.executed, job)
            elif job.state == "running" and job.kind == "stage":
                job.task = asyncio.get_running_loop().call_later(self.stage_s, self.staged, job)
            elif job.state == "running":
                self._next_cell(job)

    # ---- units

    def fault_of(self, argv: list[str]) -> str:
        words = " ".join(argv)
        return next((kind for part, kind in self.faults.items() if part in words), "")

    def say(self, unit: Unit, text: str) -> None:
        n = next(self._n)
        self.log.append(
            {
                "text": text,
                "at_s": 1.0 + n,
                "cursor": f"c{n}",
                "invocation": unit.invocation,
                "pid": unit.pid,
                "unit": unit.name,
            }
        )
        self.tell()

    def start(self, unit: Unit) -> None:
        n = next(self._n)
        unit.invocation, unit.pid, unit.seed = f"{n:032x}", 1000 + n, n
        unit.active, unit.sub, unit.result, unit.code, unit.status = "active", "running", "success", "0", "0"
        unit.argv = list(unit.override or ["/bin/own", "--port", "30000"])
        unit.listening = unit.core_dead = False
        self.starts.append(unit.argv)
        loop = asyncio.get_running_loop()
        kind = self.fault_of(unit.argv)
        if kind == "start-pre":
            self._start_pre_fails(unit)
            return
        for part in list(self.limits):
            if part in " ".join(unit.argv):
                self.limits[part] -= 1
                if self.limits[part] < 0:
                    kind = ""
        self.say(unit, f"server_args=ServerArgs(random_seed={unit.seed}, port=30000)")
        self.say(unit, "Load weight begin. avail mem=90.00 GB")
        if kind == "crash":
            loop.call_later(
                self.load_s / 2,
                self._crash,
                unit,
                unit.invocation,
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.",
            )
        elif kind == "nopath":
            loop.call_later(
                self.load_s / 2,
                self._crash,
                unit,
                unit.invocation,
                "OSError: Incorrect path_or_model_id: '/opt/nope'. Please provide either the path to a local folder or the repo_id of a model on the Hub.",
            )
        elif kind == "port":
            loop.call_later(self.load_s / 2, self._port_taken, unit, unit.invocation)
        elif kind != "hang":
            loop.call_later(120.0 if kind == "late" else self.load_s, self._up, unit, unit.invocation)
        self.tell()

    def _start_pre_fails(self, unit: Unit) -> None:
        """systemd's own line is in the journal before the words of the command that failed, as on a busy host."""
        unit.active = unit.sub = "failed"
        unit.result, unit.code, unit.status = "exit-code", "0", "0"
        unit.pid = 1
        self.say(unit, f"{unit.name}: Control process exited, code=exited, status=3/NOTIMPLEMENTED")
        unit.pid = 0
        asyncio.get_running_loop().call_later(0.7, self.say, unit, "mount /models is not there")
        self.tell()

    def _port_taken(self, unit: Unit, invocation: str) -> None:
        """A foreign process takes the port in the moment in which the server exits for that reason."""
        self.foreign_on_port = True
        self._crash(
            unit,
            invocation,
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
        )

    def _up(self, unit: Unit, invocation: str) -> None:
        if unit.invocation != invocation or unit.active != "active":
            return
        unit.listening = True
        self.say(unit, "Load weight end. type=X, avail mem=20.00 GB, mem usage=70.00 GB.")
        self.say(unit, "The server is fired up and ready to roll!")

    def _crash(self, unit: Unit, invocation: str, text: str) -> None:
        if unit.invocation != invocation or unit.active != "active":
            return
        self.say(unit, text)
        unit.active = unit.sub = "failed"
        unit.result, unit.code, unit.status, unit.pid, unit.listening = "signal", "2", "9", 0, False
        self.tell()

    def stop(self, unit: Unit) -> None:
        if unit.active == "active":
            unit.active, unit.sub = "deactivating", "stop-sigterm"
            asyncio.get_running_loop().call_later(0.5, self._gone, unit)
        else:
            unit.active, unit.sub = "inactive", "dead"
        self.tell()

    def _gone(self, unit: Unit) -> None:
        if unit.active == "deactivating":
            unit.active, unit.sub, unit.pid, unit.listening = "inactive", "dead", 0, False
            self.tell()

    def props(self, unit: Unit) -> dict[str, str]:
        return {
            "LoadState": "loaded",
            "ActiveState": unit.active,
            "SubState": unit.sub,
            "Result": unit.result,
            "MainPID": str(unit.pid),
            "InvocationID": unit.invocation,
            "NeedDaemonReload": "no",
            "Job": "",
            "ExecMainCode": unit.code,
            "ExecMainStatus": unit.status,
            "NRestarts": "0",
            "ControlGroup": f"/system.slice/{unit.name}",
        }

    @property
    def serving(self) -> Unit | None:
        return next((u for u in self.units.values() if u.listening), None)

    # ---- jobs

    def _next_cell(self, job: Job) -> None:
        if job.state != "running":
            return
        todo = [c["id"] for c in job.spec["cells"] if c["id"] not in job.results]
        if not todo:
            job.state = "done"
            self.tell()
            return
        job.progress = {
            "cell": todo[0],
            "phase": "running",
            "done": 0,
            "requests": 5,
            "in_flight": 1,
            "chunks": len(job.results),
        }
        self.tell()
        if self.serving is not None and self.fault_of(self.serving.argv) == "freeze-mid" and job.results:
            job.task = asyncio.get_running_loop().call_later(1.0, self._still_frozen, job, todo[0])
            return
        job.task = asyncio.get_running_loop().call_later(self.cell_s, self._cell_done, job, todo[0])

    def _still_frozen(self, job: Job, cell: str) -> None:
        """A second in which no byte came; requests that time out make room for others."""
        if job.state == "running":
            job.progress = {**job.progress, "done": job.progress["done"] + 1}
            self.tell()
            job.task = asyncio.get_running_loop().call_later(1.0, self._still_frozen, job, cell)

    def _cell_done(self, job: Job, cell: str) -> None:
        if job.state != "running":
            return
        serving = self.serving
        if serving is not None and self.fault_of(serving.argv) == "exit-mid" and len(job.results) == 1:
            self._crash(
                serving,
                serving.invocation,
                "RuntimeError: CUDA error: an illegal memory access was encountered",
            )
            self.faults = {k: v for k, v in self.faults.items() if v != "exit-mid"}
            return
        if serving is not None and self.fault_of(serving.argv) == "core-mid" and len(job.results) == 1:
            self._core_dies(serving, job, cell)
            return
        if serving is not None and self.fault_of(serving.argv) == "stop-mid" and len(job.results) == 1:
            self._owner_stops(serving)
        tokens = 0 if serving is None or cell in self.broken_cells else 32
        there = serving is not None and serving.listening
        job.results[cell] = self.measured(job, cell, tokens) if there else refused(cell)
        self.served.append(cell)
        self._next_cell(job)

    def measured(self, job: Job, cell: str, tokens: int) -> dict[str, Any]:
        """What the load generator gives for one cell of a job."""
        return result(cell, tokens, self.speeds.get(cell, 1.0))

    def _owner_stops(self, unit: Unit) -> None:
        """`systemctl stop` under a cell, as with a real vLLM: refused at once, and 5 s until the unit is inactive."""
        self.faults = {k: v for k, v in self.faults.items() if v != "stop-mid"}
        self.say(unit, f"Stopping {unit.name} - A server...")
        self.log[-1]["pid"] = 1
        unit.active, unit.sub, unit.listening = "deactivating", "stop-sigterm", False
        self.say(
            unit,
            "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        )
        asyncio.get_running_loop().call_later(4.8, self._gone, unit)

    def _core_dies(self, unit: Unit, job: Job, cell: str) -> None:
        """`kill -9` of the engine under load: errors inside HTTP 200, then 500s; the process ends seconds later."""
        self.faults = {k: v for k, v in self.faults.items() if v != "core-mid"}
        unit.core_dead = True
        self.say(
            unit,
            "Subprocess scheduler_0 (pid=812) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        )
        failed = result(cell, 0)
        for n, one in enumerate(failed["requests"]):
            one["class"], one["chunks"] = ("in-band error", 9) if n < 2 else ("http 500", 0)
        job.results[cell] = failed
        self.served.append(cell)
        asyncio.get_running_loop().call_later(6.0, self._crash, unit, unit.invocation, "Shutting down")
        self._next_cell(job)

    def staged(self, job: Job) -> None:
        if job.state != "running":
            return
        if self.model_on_disk:
            self.model = True
            job.state = "done"
        else:
            job.state, job.why = "failed", "no source"
        self.tell()

    def executed(self, job: Job) -> None:
        """A benchmark of the user's own has ended: its result file lies in its folder, and how it ended beside it."""
        if job.state != "running":
            return
        if job.spec["argv"][0] == SCRIPT:
            self.scripted(job)
            return
        tok_s = 50.0 if self.serving is not None else 0.0
        self.files[f"/state/jobs/{job.name}/result.json"] = json.dumps({"tok_s": tok_s}).encode()
        job.results["exec"] = {"rc": 0, "output_tail": ""}
        job.state = "done"
        self.served.append(job.spec["argv"][1])
        self.tell()

    def scripted(self, job: Job, ends: bool = True) -> None:
        """The owner's reconfigure script: it has rewritten the unit and started it anew."""
        if job.state != "running":
            return
        unit = self.unit("s.service")
        words = (
            "/usr/bin/python3 -m sglang.launch_server --model-path /dev/shm/m --port 30000 --context-length"
        )
        unit.override = [*words.split(), job.spec["argv"][1]]
        if not (ends and self.script_acts_s is not None):
            unit.active = "inactive"
            self.start(unit)
        if ends:
            job.state = "done"
        self.tell()

    def job_view(self, job: Job) -> dict[str, Any]:
        return {
            "job": job.name,
            "kind": job.kind,
            "state": job.state,
            "why": job.why,
            "run": job.run,
            "boot": job.boot,
            "results": len(job.results),
            "progress": job.progress,
            "spec_hash": spec_hash(job.kind, job.spec),
        }


def result(cell: str, tokens: int, speed: float = 1.0) -> dict[str, Any]:
    """A result of the load generator: five requests of `tokens` tokens each, `speed` times as fast as usual."""
    ms = round(1_000_000 / speed)
    requests = [
        {
            "i": i,
            "class": "ok" if tokens else "empty",
            "start": i * 100 * ms,
            "sent": i * 100 * ms,
            "end": (i * 100 + 90) * ms,
            "http": 200,
            "asked": 32,
            "tokens": tokens,
            "source": "usage-each",
            "prompt_tokens": 9,
            "finish": "length",
            "last_event": (i * 100 + 90) * ms,
            "t": [(i * 100 + 10) * ms, *[2 * ms] * 31] if tokens else [],
            "k": 1,
            "chunks": tokens,
        }
        for i in range(5)
    ]
    return {
        "schema": 1,
        "cell": cell,
        "started_at_s": 1.0,
        "spec": {"concurrency": 1, "requests": 5, "mode": "closed", "output_tokens": 32},
        "requests": requests,
        "window": {"zero_mono_ns": 0, "wall_s": 0.5, "stopped": ""},
        "clients": [],
        "gpu": {"gpus": []},
    }


def refused(cell: str) -> dict[str, Any]:
    """A result of the load generator whose server was not there."""
    gone = [
        {"i": i, "class": "refused", "start": 0, "end": 10**6, "tokens": 0, "chunks": 0} for i in range(5)
    ]
    return {**result(cell, 0), "requests": gone}


class FakeHost:
    """One connection to the world."""

    name = "fake"
    rtt_ms = 0.1

    def __init__(self, world: World) -> None:
        self.world = world
        self._lost = asyncio.get_running_loop().create_future()
        self.pid = next(world.agents)
        world.hosts.append(self)

    @property
    def hello(self) -> Hello:
        return Hello(
            agent="f" * 64,
            python="3.11",
            uid=0,
            user=self.world.user,
            boot=self.world.boot,
            can=self.world.can,
            unknown=frozenset(),
            hostname="fake",
            state_dir="/state",
            mono_s=self.world.now(),
            at_s=0.0,
        )

    def lose(self, why: str) -> None:
        if not self._lost.done():
            self._lost.set_result(why)
            self.world.tell()

    def _check(self) -> None:
        if self._lost.done():
            raise HostLostError(self._lost.result(), host="fake")

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        self.lose("closed")

    async def call(self, op: str, *, timeout_s: float = 15.0, **args: Any) -> dict[str, Any]:
        self._check()
        await asyncio.sleep(0.001)
        self._check()
        answer = getattr(self, "op_" + op.replace("-", "_"), None)
        if answer is None:
            raise AgentError(f"unknown op {op}", code="bad-request")
        return answer(**args)

    @asynccontextmanager
    async def stream(self, op: str, **args: Any) -> AsyncIterator[AsyncIterator[list[dict[str, Any]]]]:
        self._check()
        yield self._items(op, args)

    async def _items(self, op: str, args: dict[str, Any]) -> AsyncIterator[list[dict[str, Any]]]:
        news = asyncio.Event()
        self.world.changed.append(news)
        seen: Any = None
        sent: set[str] = set(args.get("known") or ())
        position = self._log_start(args)
        try:
            while True:
                self._check()
                batch: list[dict[str, Any]] = []
                ended = False
                if op == "unit-watch":
                    now = self.world.props(self.world.unit(args["unit"]))
                    if now != seen:
                        batch, seen = [{"props": dict(now), "mono_s": self.world.now()}], dict(now)
                elif op == "journal-follow":
                    rows = [e for e in self.world.log[position:] if e["unit"] == args["unit"]]
                    position = len(self.world.log)
                    batch = [dict(e) for e in rows]
                elif op == "job-watch":
                    job = self.world.jobs[args["job"]]
                    if job.progress != seen and job.state == "running":
                        seen = dict(job.progress)
                        batch.append({"progress": dict(job.progress)})
                    for cell, raw in job.results.items():
                        if cell not in sent:
                            sent.add(cell)
                            batch.append({"id": cell, "result": raw})
                    if job.state != "running":
                        batch.append({"state": self.world.job_view(job)})
                        ended = True
                if batch:
                    yield batch
                if ended:
                    return
                news.clear()
                await news.wait()
        finally:
            if news in self.world.changed:
                self.world.changed.remove(news)

    def _log_start(self, args: dict[str, Any]) -> int:
        cursor = args.get("after_cursor")
        if not cursor:
            return len(self.world.log)
        return next((i + 1 for i, e in enumerate(self.world.log) if e["cursor"] == cursor), 0)

    # ---- ops

    def op_lease(self, **args: Any) -> dict[str, Any]:
        w = self.world
        now = Now(
            boot=w.boot,
            mono_s=w.now(),
            at_s=1e9 + w.now(),
            alive=lambda pid, _: any(h.pid == pid and not h._lost.done() for h in w.hosts),
            has_jobs=lambda run: any(j.run == run and j.state == "running" for j in w.jobs.values()),
        )
        me = Me(uid=os.getuid(), login=w.user, origin="10.0.0.9", pid=self.pid, start_ticks=1)
        return {**answer(w._leases.name, args, me, now), "shared": True}

    def op_ping(self) -> dict[str, Any]:
        return {"mono_s": self.world.now(), "at_s": 0.0}

    def op_probe(self, **args: Any) -> dict[str, Any]:
        w = self.world
        source = {"path": "/data/m", "verdict": "complete"}
        return {
            "boot": w.boot,
            "at_s": 0.0,
            "kernel": "6",
            "unknown": [],
            "gpus": {"error": "there is no nvidia-smi on this host"},
            "gpu_procs": list(self.world.gpu_procs),
            "units": {u: w.props(w.unit(u)) for u in args.get("units", [])},
            "listeners": [],
            "model": {"verdict": "complete"}
            if w.model
            else {
                "verdict": "restage-needed",
                "cause": "tmpfs-empty",
                "sources": [source] if w.model_on_disk else [],
            },
            "jobs": [w.job_view(j) for j in w.jobs.values()],
            "overrides": w.overrides,
            "disks": {},
        }

    def op_unit_show(self, unit: str, user: bool = False) -> dict[str, Any]:
        return {"props": self.world.props(self.world.unit(unit)), "mono_s": 0.0}

    def op_unit_action(self, unit: str, action: str, user: bool = False) -> dict[str, Any]:
        target = self.world.unit(unit)
        if action == "stop" and unit in self.world.stubborn:
            return {"rc": 1, "stderr": f"Failed to stop {unit}: Access denied", "mono_s": 0.0}
        if action == "start":
            if self.world.fault_of(target.override or []) != "silent":
                self.world.start(target)
        elif action == "restart":
            target.active = "inactive"
            self.world.start(target)
        elif action == "stop":
            self.world.stop(target)
        elif action == "reset-failed" and target.active == "failed":
            target.active, target.sub = "inactive", "dead"
            self.world.tell()
        return {"rc": 0, "stderr": "", "mono_s": 0.0}

    def op_override_write(self, unit: str, exec_argv: list[str], **_: Any) -> dict[str, Any]:
        self.world.unit(unit).override = list(exec_argv)
        return {"path": f"/run/{unit}", "need_reload": False, "text": ""}

    def op_override_remove(self, unit: str, user: bool = False) -> dict[str, Any]:
        had = self.world.unit(unit).override is not None
        self.world.unit(unit).override = None
        return {"removed": [unit] if had else []}

    def op_journal_read(
        self, unit: str, after_cursor: str | None = None, invocation: str | None = None, **_: Any
    ) -> dict[str, Any]:
        start = self._log_start({"after_cursor": after_cursor}) if after_cursor else 0
        rows = [
            e
            for e in self.world.log[start:]
            if e["unit"] == unit and (invocation is None or e["invocation"] == invocation)
        ]
        return {"entries": [dict(e) for e in rows], "more": False}

    def op_unit_cat(self, unit: str, user: bool = False) -> dict[str, Any]:
        return {"text": "[Service]\nExecStart=/bin/own\n"}

    def op_listeners(self, port: int | None) -> dict[str, Any]:
        port = port or 30000
        w, rows = self.world, []
        if w.foreign_on_port:
            rows.append(
                {
                    "addr": "0.0.0.0",
                    "port": port,
                    "pid": 7,
                    "comm": "nc",
                    "cgroup": "/x",
                    "unit": "foreign.service",
                }
            )
        if w.serving is not None and not w.foreign_on_port:
            rows.append(
                {
                    "addr": "0.0.0.0",
                    "port": port,
                    "pid": w.serving.pid,
                    "comm": "python",
                    "cgroup": "/",
                    "unit": w.serving.name,
                }
            )
        return {"listeners": rows, "mono_s": 0.0}

    def op_processes(self, pids: list[int] | None = None, unit: str = "", **_: Any) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for u in self.world.units.values():
            if u.pid and (u.name == unit or u.pid in (pids or ())):
                seen = {"cmdline": u.argv, "start_ticks": u.seed, "state": "S"}
                rows.append({"pid": u.pid, "comm": "python3", **seen})
                if u.name == unit:
                    end = {"state": "Z", "wait_status": 9} if u.core_dead else {}
                    rows.append({"pid": u.pid + 500, "comm": "sglang::schedul", **seen, **end})
        return {"processes": rows}

    def op_ticket(self, pid: int, env: list[str] | None = None) -> dict[str, Any]:
        """SIMULATED: the unit's main process is a shell; what it exports is in the environment of the one below it."""
        known = {} if any(u.pid == pid for u in self.world.units.values()) else self.world.environment
        return {"start_ticks": 1, "cmdline": [], "cwd": None, "cgroup": "/"} | (
            {"env": {k: v for k, v in known.items() if k in env}} if env else {}
        )

    def op_http(self, method: str, url: str, **_: Any) -> dict[str, Any]:
        unit = self.world.serving
        if unit is None:
            return {"error": "refused"}
        path = url.partition("30000")[2]
        if path == "/server_info":
            facts: dict[str, Any] = {"random_seed": unit.seed, "version": self.world.version, "port": 30000}
            words = unit.argv
            facts |= {
                w[2:].replace("-", "_"): words[i + 1] for i, w in enumerate(words[:-1]) if w.startswith("--")
            }
            return {"status": 200, "body": json.dumps(facts)}
        if path == "/v1/models":
            return {"status": 200, "body": json.dumps({"data": [{"id": "m"}]})}
        if method == "POST":
            tokens = 0 if self.world.fault_of(unit.argv) == "zero" else 1
            return {
                "status": 200,
                "body": json.dumps({"choices": [], "usage": {"completion_tokens": tokens}}),
            }
        return {"status": 404, "body": ""}

    def op_model_check(self, path: str) -> dict[str, Any]:
        return {"verdict": "complete" if self.world.model else "incomplete", "cause": ""}

    def op_job_start(
        self, job: str, kind: str, spec: dict[str, Any], run: str = "", **_: Any
    ) -> dict[str, Any]:
        w = self.world
        if job not in w.jobs:
            w.jobs[job] = new = Job(job, kind, spec, run, w.boot)
            w.begun.append(new)
            if kind == "exec":
                new.at_once = sum(
                    j.state == "running" and j.kind == "exec" and j.spec["argv"][0] == spec["argv"][0]
                    for j in w.jobs.values()
                )
                wait_s = w.script_s if spec["argv"][0] == SCRIPT else w.cell_s
                new.task = asyncio.get_running_loop().call_later(wait_s, w.executed, new)
                if spec["argv"][0] == SCRIPT and w.script_acts_s is not None:
                    asyncio.get_running_loop().call_later(w.script_acts_s, w.scripted, new, False)
            elif kind == "stage":
                if w.stage_s:
                    new.task = asyncio.get_running_loop().call_later(w.stage_s, w.staged, new)
                else:
                    w.staged(new)
            else:
                w._next_cell(new)
        return {"job": job, "dir": f"/state/jobs/{job}"}

    def op_file_read(self, path: str, offset: int = 0, **_: Any) -> dict[str, Any]:
        data = self.world.files.get(path)
        if data is None:
            raise AgentError(f"there is no file {path}", code="not-found")
        return {"b64": base64.b64encode(data[offset:]).decode(), "eof": True, "size_b": len(data), "inode": 1}

    def op_job_list(self) -> dict[str, Any]:
        return {"jobs": [self.world.job_view(j) for j in self.world.jobs.values()]}

    def op_job_forget(self, job: str) -> dict[str, Any]:
        if self.world.jobs[job].state == "running":
            raise AgentError(f"job {job} is still running", code="failed")
        del self.world.jobs[job]
        return {}

    def op_job_show(self, job: str) -> dict[str, Any]:
        return self.world.job_view(self.world.jobs[job])

    def op_job_stop(self, job: str) -> dict[str, Any]:
        found = self.world.jobs.get(job)
        if found is None:
            raise AgentError(f"there is no job {job} on this host", code="not-found")
        if found.state == "running":
            found.state, found.why = "killed", "stopped"
            if self.world.late_results and found.kind == "loadgen" and self.world.serving is None:
                cell = found.progress["cell"]
                found.results[cell] = refused(cell)
            if found.task is not None:
                found.task.cancel()
            self.world.tell()
        return self.world.job_view(found)

    def op_job_collect(self, job: str, known: list[str]) -> dict[str, Any]:
        found = self.world.jobs[job]
        rows = [{"id": c, "result": r} for c, r in found.results.items() if c not in known]
        return {"results": rows, "more": False, "job": self.world.job_view(found)}


class FakeConnector:
    name = "fake"
    target = "root@fake"

    def __init__(self, world: World) -> None:
        self.world = world

    async def connect(self) -> FakeHost:
        await asyncio.sleep(0.01)
        if not self.world.link_up:
            raise HostLostError("connection timed out", host="fake")
        return FakeHost(self.world)
