"""The runner: one headless process for one run. It has the connection, the sweep and the recording, and no Textual.

    exit code = run(RunOptions(host="ct200", plan=plan, record=Path("x.ddtop")))      in the foreground
    spawned = spawn_runner(RunOptions(host="ct200", plan=plan, attended=True))        detached; spawned.path to view

Exit codes: 0 all done and the host put back, 10 some cells failed or broken or something could not be undone, 11 host lost
or never reached, 12 refused, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from ddtop import __version__, paths
from ddtop.errors import DdtopError, HostError, HostUnreachableError, JournalError, RefusedError
from ddtop.events import (
    AlertResolved,
    CellsPlanned,
    CellStateSet,
    Event,
    HostConnected,
    HostLost,
    HostRebooted,
    Note,
    PlanSource,
    RunEnded,
    RunStarted,
    SweepPaused,
    SweepResumed,
)
from ddtop.hosts.base import Connector, Host
from ddtop.journal.fold.state import State
from ddtop.journal.locks import live_recording
from ddtop.journal.read.reader import JournalReader, read_state
from ddtop.journal.read.runs import check_continues, find_run, live_run, new_path, remember
from ddtop.journal.write.writer import FLUSH_S, JournalWriter
from ddtop.plan import Plan, as_begun, parse_plan, recorded_plan
from ddtop.sweep.commands import CommandHandler
from ddtop.sweep.configuration.refine import planned_now
from ddtop.sweep.controller import Controller
from ddtop.sweep.crash import crashed
from ddtop.sweep.host.allocation import keeper_for
from ddtop.sweep.host.lease import HostLease
from ddtop.sweep.host.leaving import Leaving
from ddtop.sweep.host.link import Link
from ddtop.sweep.monitor import Monitor
from ddtop.sweep.recorder import Recorder
from ddtop.sweep.recovery.restore import not_undone
from ddtop.sweep.setup.from_plan import sweep_from
from ddtop.sweep.setup.history import learn_from, recall, recall_causes
from ddtop.sweep.shared.context import Outcome, SweepContext
from ddtop.sweep.shared.plan import Sweep
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.shared.tasks import alongside
from ddtop.sweep.tell.alerts import alert_id, disk_full_alert
from ddtop.sweep.tell.console import make_printers, show
from ddtop.sweep.tell.notify import Notifier
from ddtop.sweep.tell.raise_alert import is_open, raise_alert

EXIT_CODES = {
    "done": 0,
    "some-failed": 10,
    "host-lost": 11,
    "refused": 12,
    "stopped": 130,
    "interrupted": 130,
    "crashed": 1,
}
SPAWN_WAIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is asked to do."""

    host: str
    plan: Plan | None = None
    """None: the plan of the recording that is continued, else monitor."""
    record: Path | None = None
    """None: continue the host's unfinished recording of this plan, else a new one where ddtop keeps them."""
    attended: bool = False
    """A dashboard is about to open on this run."""
    ask: bool = False
    """Questions wait for an answer also while no dashboard is open: `ddtop do` gives it."""
    json_out: bool = False
    """Events as JSON lines on standard output."""
    progress: bool = True
    """Plain progress on standard error."""
    leave_running: bool = False
    if_taken: Literal["refuse", "wait", "take-over"] = "refuse"
    """What is done where another run has the host and nobody is asked."""
    ssh_config: Path | None = None
    host_dir: str | None = None
    simulated: bool = False


@dataclass(frozen=True, kw_only=True)
class Spawned:
    """A detached runner and the recording it writes."""

    pid: int
    path: Path


def run(options: RunOptions) -> int:
    """Runs in the foreground until the end; returns the exit code. Raises DdtopError before anything was begun."""
    gc.collect()
    gc.freeze()  # what is loaded stays: the collector need not look at it again
    return asyncio.run(_run(options))


async def _run(options: RunOptions) -> int:
    path, plan = _choose(options)
    sweep = sweep_from(plan) if plan is not None else None
    info = check_continues(path, options.host, plan.name if plan is not None else None)
    writer = JournalWriter.open(path, host=options.host, log_mib=sweep.log_mib if sweep else 512.0)
    try:
        state = read_state(path, check=False) if info is not None else State()
        if plan is not None and (begun := as_begun(plan, state.cells)) is not plan:
            sweep = sweep_from(begun)
        code = await _record(options, writer, state, sweep)
    except BaseException:
        with contextlib.suppress(JournalError):  # the first error is the cause
            writer.close()
        raise
    writer.close()
    return code


def _choose(options: RunOptions) -> tuple[Path, Plan | None]:
    """The recording to write and the plan to follow. A run that has ended is waited for until it lets go of its recording."""
    live_run(options.host)
    plan, path = options.plan, options.record
    if path is None and plan is not None:
        found = find_run(options.host, plan.name)
        unfinished = found is not None and (
            found.ended is None
            or found.counts.remaining > 0
            or found.ended.outcome == "host-lost"  # all is measured, and the host is not put back
        )
        path = found.path if found is not None and unfinished else new_path(options.host, plan.name)
    elif path is None:
        path = new_path(options.host, "")
    if plan is None and path.exists() and path.stat().st_size:
        old = read_state(path, check=False)
        check_continues(
            path, options.host, old.run.name
        )  # another host's recording is refused before its plan is read
        if old.run.mode == "sweep" and old.run.plan_toml:
            plan = recorded_plan(old.run.plan_toml, old.run.plan_source, old.run.plan_path)
    return path, plan


def make_connector(options: RunOptions, sweep: Sweep | None = None, run_id: str = "") -> Any:
    """The connector for the options' host. Nothing is contacted. A Slurm allocation is that of `run_id`."""
    from ddtop.hosts.inventory import connector_for

    ssh = [options.ssh_config] if options.ssh_config else None
    return connector_for(
        options.host,
        config_paths=[paths.config_file()],
        ssh_config=ssh,
        host_dir=options.host_dir,
        slurm=sweep.slurm if sweep is not None else None,
        owner=run_id,
    )


async def _record(options: RunOptions, writer: JournalWriter, state: State, sweep: Sweep | None) -> int:
    """One segment of a run, from RunStarted to RunEnded."""
    run_id = state.run.run_id or secrets.token_hex(4)
    connector = make_connector(options, sweep, run_id)
    printers = make_printers(json_out=options.json_out, progress=options.progress)
    notifier = (
        Notifier(sweep.notify_command, sweep.webhook_env, sweep.name)
        if sweep is not None
        else Notifier((), None)
    )

    recorder = Recorder(writer)
    remember(writer.path)

    def sink(event: Event) -> None:
        recorder.append(event)
        notifier.see(event)

    ctx = SweepContext(run_id=run_id, host_name=options.host, sink=sink, state=state, sweep=sweep)
    # An event that is not on disk is not shown.
    ctx.on_event = lambda event: show(printers, event, state) if recorder.shows(event) else None
    _emit_started(
        ctx,
        name=sweep.name if sweep else "",
        mode="sweep" if sweep else "monitor",
        plan_toml=sweep.plan_toml if sweep else None,
        plan_path=sweep.plan_path if sweep else None,
        attended=options.attended or options.ask,
        simulated=options.simulated,
    )
    recall_causes(ctx)
    if sweep is not None:
        if sweep.plan_files or sweep.plan_env or sweep.plan_datasets:
            source = {"files": sweep.plan_files, "env": sweep.plan_env, "datasets": sweep.plan_datasets}
            ctx.emit(PlanSource, **{name: dict(found) for name, found in source.items()})
        ctx.emit(CellsPlanned, cells=planned_now(sweep, state), baseline=sweep.baseline, rule=sweep.rule)
        recall(ctx, sweep)
    allocation = keeper_for(ctx, connector)
    main = (
        Controller(ctx, connector, recorder.pending_commands, allocation=allocation)
        if sweep
        else Monitor(ctx, connector, recorder.pending_commands)
    )
    recorder.stop = main.stop
    _pause_while_full(ctx, recorder, main.requests, writer.path)
    notifier.said = ctx.note
    if notifier.problem:
        ctx.note("warn", notifier.problem)
    main.requests.leave_running, main.requests.if_taken = options.leave_running, options.if_taken
    main.requests.ask = options.ask
    _take_signals(main)
    try:
        outcome = await alongside(
            main.run(attended=options.attended), recorder.keep_flushed(), notifier.run()
        )
    except HostUnreachableError as error:
        outcome = Outcome(word="host-lost", reason=str(error))
    except HostError as error:
        outcome = Outcome(word="some-failed", reason=str(error))
    except Exception as error:
        outcome = crashed(error)
    if allocation is not None:
        outcome = await allocation.end(outcome, keep=main.requests.leave_running)
    code, lost = exit_code(outcome), recorder.error(outcome.left_behind)
    if lost is not None:
        outcome, code = replace(outcome, word="crashed", reason=lost.what), lost.exit_code
    word = cast(Any, outcome.word)
    ctx.emit(RunEnded, outcome=word, exit_code=code, reason=outcome.reason, left_behind=outcome.left_behind)
    if lost is None:
        learn_from(state)  # now: a second signal ends what follows at once
    # Before the recording is closed: what is not delivered is noted there, and what is asked meanwhile is refused in words.
    await alongside(notifier.drain(), _refuse(main.command_handler, recorder))
    recorder.close()
    if lost is not None:
        raise lost
    return code


async def _refuse(handler: CommandHandler, recorder: Recorder) -> None:
    """Tells everyone who still asks something of the run that it has ended."""
    while True:
        handler.take(recorder.pending_commands())
        await asyncio.sleep(FLUSH_S)


def exit_code(outcome: Outcome) -> int:
    """The exit code of a run. A run that leaves something behind never ends with 0.

    >>> exit_code(Outcome(word="done")), exit_code(Outcome(word="done", left_behind=("x is still active",)))
    (0, 10)
    """
    code = EXIT_CODES[outcome.word]
    return code or (EXIT_CODES["some-failed"] if not_undone(outcome.left_behind) else 0)


def _emit_started(ctx: SweepContext, **fields: Any) -> None:
    """A new segment of the run begins: by this process, with this version."""
    run = ctx.state.run
    ctx.emit(
        RunStarted,
        run_id=ctx.run_id,
        segment=run.segment + 1 if run.run_id else 0,
        ddtop_version=__version__,
        pid=os.getpid(),
        **fields,
    )


def _pause_while_full(ctx: SweepContext, recorder: Recorder, requests: Requests, path: Path) -> None:
    """A full disk pauses the run and is an alert, until there is room."""
    ident = alert_id(ctx.run_id, "client-disk-full", str(ctx.state.run.segment))

    def filled(error: JournalError) -> None:
        requests.no_room = True
        ctx.emit(SweepPaused, by="the full disk", reason="nothing new is begun; results wait on the host")
        what = "the run is paused, and goes on by itself"
        raise_alert(
            ctx, ident, disk_full_alert(path, error.what), policy=what
        )  # committed, with all before it

    def room(dropped: int) -> None:
        requests.no_room = False
        if is_open(ctx, ident):
            ctx.emit(AlertResolved, alert_id=ident, how="there is room again", by="recorder")
        if requests.paused_by is None and ctx.state.paused is not None:
            ctx.emit(SweepResumed, by="recorder")
        if dropped:
            ctx.note(
                "warn", f"{dropped} readings and pieces of logs were not recorded while the disk was full"
            )
        ctx.wake()

    recorder.filled, recorder.room = filled, room
    for alert in [a for a in ctx.state.open_alerts if a.raised.cause == "client-disk-full"]:
        # Of a runner that died on a full disk: that this one began shows that there is room.
        ctx.emit(AlertResolved, alert_id=alert.id, how="there is room again", by="recorder")


def _take_signals(main: Controller | Monitor) -> None:
    """The first SIGTERM, SIGINT or SIGHUP ends the run cleanly; a second one at once. nohup is respected."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)  # the terminal of a foreground run was closed

    def clean(name: str) -> None:
        main.stop(name)
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, clean, number.name)


def put_back(options: RunOptions) -> Outcome:
    """Puts the host back as it was before a run whose runner has ended, and ends that run. A cut or a reboot meanwhile is
    waited out.

    `options.record` is its recording. Raises RefusedError where a runner is alive, HostError where the host is not reached.
    """
    return asyncio.run(_put_back(options))


async def _put_back(options: RunOptions) -> Outcome:
    assert options.record is not None
    writer = JournalWriter.open(options.record, host=options.host)
    try:
        state = read_state(options.record, check=False)  # now that nobody else writes it
        plan = (
            recorded_plan(state.run.plan_toml, state.run.plan_source, state.run.plan_path)
            if state.run.plan_toml
            else None
        )
        ctx = SweepContext(
            run_id=state.run.run_id,
            host_name=options.host,
            sink=writer.append,
            state=state,
            sweep=sweep_from(plan) if plan is not None else None,
        )
        printers = make_printers(json_out=False, progress=True)
        ctx.on_event = lambda event: (
            show(printers, event, state) if isinstance(event, _WORTH_SAYING) else None
        )
        connector = make_connector(options, ctx.sweep, ctx.run_id)
        allocation = keeper_for(ctx, connector)
        # A host that is not reached at all is told at once, and nothing is recorded. An allocation is not entered again:
        # all that runs in it ends with it.
        first = await connector.connect() if allocation is None else None
        _emit_started(
            ctx,
            name=state.run.name,
            mode=state.run.mode,
            plan_toml=state.run.plan_toml,
            plan_path=state.run.plan_path,
            simulated=state.run.simulated,
        )
        for cell in [c for c in state.plan_cells if c.state == "running"]:
            ctx.emit(CellStateSet, cell_id=cell.id, state="interrupted", reason="its runner ended", by="stop")
        outcome = Outcome(word="stopped", reason="stopped after its runner had ended")
        if allocation is not None:
            outcome = await allocation.end(outcome)
        else:
            requests = Requests()
            link = Link(ctx, Reached(connector, first), ())
            lease = HostLease(ctx, requests, lambda: link.host)
            leaving = Leaving(ctx, link, requests, lease)
            outcome = await alongside(leaving.leave(outcome, by="stop"), link.run(), lease.keep())
        ctx.emit(
            RunEnded,
            outcome=cast(Any, outcome.word),
            exit_code=exit_code(outcome),
            reason=outcome.reason,
            left_behind=outcome.left_behind,
        )
        return outcome
    finally:
        writer.close()


_WORTH_SAYING = (HostLost, HostConnected, HostRebooted, Note)
"""What is printed while a host is put back: why it takes longer."""


class Reached:
    """A connector whose first connection is made already."""

    def __init__(self, connector: Connector, first: Host | None) -> None:
        self.name, self.target = connector.name, connector.target
        self._connector = connector
        self._first: Host | None = first

    async def connect(self) -> Host:
        """See base.Connector.connect."""
        first, self._first = self._first, None
        return first if first is not None else await self._connector.connect()


# ---- a runner of its own


def spawn_runner(options: RunOptions) -> Spawned:
    """Starts a detached runner (own session, no terminal) and waits until it holds its recording.

    Raises RefusedError where one runs for this host already, DdtopError with its output where it ended at once.
    """
    alive = live_run(options.host)
    if alive is not None:
        raise RefusedError(
            f"a runner for {options.host} is alive already",
            do=f"open its dashboard: ddtop connect {options.host}",
            host=options.host,
        )
    folder = paths.state_dir() / "runners"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}.log"
    argv = [sys.executable, "-m", "ddtop.runner", _pack(options)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
            env=_spawn_env(),
        )
    until = time.monotonic() + SPAWN_WAIT_S
    while time.monotonic() < until:
        path = live_recording(options.host)
        if path is not None and _has_begun(path):
            return Spawned(pid=process.pid, path=path)
        if process.poll() is not None:
            words = log.read_text(errors="replace").strip() or f"it exited with code {process.returncode}"
            raise DdtopError(
                f"the runner for {options.host} did not start: {words[-2000:]}",
                do=f"see {log}",
                host=options.host,
            )
        time.sleep(0.05)
    raise DdtopError(
        f"the runner for {options.host} wrote nothing to its recording in {SPAWN_WAIT_S:.0f} s",
        do=f"see {log}",
        host=options.host,
    )


def _has_begun(path: Path) -> bool:
    """Whether a recording has an event: its lock is taken a moment before the first one is written."""
    try:
        with JournalReader(path, check=False) as reader:
            return reader.last_seq() > 0
    except DdtopError:
        return False


def _spawn_env() -> dict[str, str]:
    """Our environment, with this very ddtop first on the module path (a checkout is not always installed)."""
    here = str(Path(__file__).resolve().parent.parent)
    old = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{old}" if old else here}


class _Packed(msgspec.Struct, omit_defaults=True):
    """Options as a spawned runner gets them: the plan as text, paths absolute."""

    options: RunOptions
    plan_text: str | None = None
    plan_path: Path | None = None


def _pack(options: RunOptions) -> str:
    plan = options.plan
    packed = _Packed(
        options=replace(options, plan=None),
        plan_text=plan.text if plan else None,
        plan_path=Path(plan.path) if plan and plan.path else None,
    )
    return msgspec.json.encode(packed, enc_hook=lambda path: str(path.absolute())).decode()


def _unpack(text: str) -> RunOptions:
    p = msgspec.json.decode(text, type=_Packed, dec_hook=lambda kind, value: kind(value))
    if p.plan_text is None:
        return p.options
    where = p.plan_path
    plan, _ = parse_plan(
        p.plan_text, name=str(where) if where else "plan", folder=where.parent if where else None
    )
    return replace(p.options, plan=plan)


def _main() -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        return run(_unpack(sys.argv[1]))
    except DdtopError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(_main())
