"""`connect`, `replay`: find or start the runner, open the dashboard, or run without one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ddtop import paths
from ddtop.commands.options import chosen
from ddtop.commands.terminal import need_terminal
from ddtop.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from ddtop.config import Settings
    from ddtop.journal.read.session import Session
    from ddtop.plan import Plan
    from ddtop.runner import RunOptions
    from ddtop.sources.gpu.sample import GpuSample

UNFINISHED = ("interrupted", "crashed", "host-lost")
"""States of a recording that `ddtop connect HOST` resumes without being asked: its runner was not stopped."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `ddtop connect`."""

    hosts: tuple[str, ...]
    plan: Path | None = None
    record: Path | None = None
    detach: bool = False
    ask: bool = False
    once: bool = False
    json_out: bool = False
    leave_running: bool = False
    if_taken: Literal["refuse", "wait", "take-over"] = "refuse"
    ssh_config: Path | None = None


def connect(options: Options) -> int:
    """The command. Returns its exit code; raises DdtopError with a sentence."""
    from ddtop.config import load_settings

    settings = load_settings()
    if len(set(options.hosts)) != len(options.hosts):
        raise UsageError("the same host is given twice", do="give each host once")
    if options.record is not None and len(options.hosts) > 1:
        raise UsageError(
            "--record takes one host", do="start one `ddtop connect HOST --record FILE` for each host"
        )
    if options.plan is not None and len(options.hosts) > 1:
        raise UsageError(
            "--plan takes one host", do="give each host's plan in config.toml: [hosts.NAME] plan = …"
        )
    if options.once and (options.detach or options.record is not None):
        raise UsageError("--once goes with neither --record nor --detach", do="leave it out, or the others")
    if options.once:
        return max(_once(host, options, settings) for host in options.hosts)
    if options.ask and not (options.detach or options.record is not None):
        raise UsageError(
            "--ask needs --record or --detach", do="a dashboard is asked without it: leave --ask out"
        )
    if options.detach:
        return _detach(options, settings)
    if options.record is not None:
        from ddtop.runner import run

        return run(run_options_for(options.hosts[0], options, settings, record=options.record))
    if options.json_out:
        raise UsageError("--json needs --once, --record or --detach", do="ddtop connect HOST --once --json")
    from ddtop.journal.act.pending import viewer_name

    need_terminal("ddtop connect HOST --record FILE")
    viewer = viewer_name()
    sessions = [_session(_recording(host, options, settings), viewer) for host in options.hosts]
    return show(sessions, viewer, settings, starter(options.ssh_config))


def show(
    sessions: list[Session],
    viewer: str,
    settings: Settings,
    start_runner: Callable[[Session], Awaitable[str]] | None = None,
    *,
    farewell: bool = True,
) -> int:
    """Opens the dashboard on `sessions`. `farewell`: print at the end how to come back."""
    from ddtop.dashboard.run import run_dashboard

    return run_dashboard(
        sessions,
        theme=settings.theme,
        keymap=settings.keys,
        bell=settings.bell,
        start_runner=start_runner,
        viewer=viewer,
        themes_folder=paths.config_dir() / "themes",
        fault_log=paths.state_dir() / "ddtop.log",
        looks=paths.state_dir() / "looks",
        farewell=farewell,
    )


def starter(ssh_config: Path | None) -> Callable[[Session], Awaitable[str]]:
    """The dashboard's way to start a runner for a recording that has none."""

    async def start(session: Session) -> str:
        from ddtop.journal.read.runs import run_info
        from ddtop.runner import RunOptions, spawn_runner

        host = run_info(session.path).host
        options = RunOptions(host=host, record=session.path, attended=True, ssh_config=ssh_config)
        spawned = await asyncio.to_thread(spawn_runner, options)
        return f"started a runner for {host} that resumes the run (pid {spawned.pid})"

    return start


def _session(path: Path, viewer: str) -> Session:
    from ddtop.journal.read.session import LiveSession

    return LiveSession(path, viewer)


def run_options_for(
    host: str, options: Options, settings: Settings, *, record: Path | None = None, attended: bool = False
) -> RunOptions:
    from ddtop.runner import RunOptions

    own = settings.host(host)
    ssh_config = options.ssh_config or (Path(own.ssh_config).expanduser() if own.ssh_config else None)
    # /dev/null, by which ssh is told to read no configuration, is no regular file.
    if ssh_config is not None and (not ssh_config.exists() or ssh_config.is_dir()):
        raise UsageError(
            f"--ssh-config {ssh_config}: there is no such file", do="name an existing SSH configuration"
        )
    return RunOptions(
        host=host,
        plan=_plan(host, options, settings),
        record=record,
        attended=attended,
        ask=options.ask,
        json_out=options.json_out and not options.detach,
        leave_running=options.leave_running,
        if_taken=options.if_taken,
        ssh_config=ssh_config,
        host_dir=own.host_dir or None,
    )


def _plan(host: str, options: Options, settings: Settings) -> Plan | None:
    """The plan of --plan, else of the host's settings; its warnings go to stderr."""
    from ddtop.plan import check_plan

    own = settings.host(host).plan
    path = options.plan or (Path(own).expanduser() if own else None)
    if path is None:
        return None
    plan, warnings = check_plan(path)
    for warning in warnings:
        print(f"ddtop: {path}: {warning}", file=sys.stderr)
    return plan


def _detach(options: Options, settings: Settings) -> int:
    """Starts a runner of its own for each host, and prints what it records."""
    import msgspec

    from ddtop.journal.read.runs import run_info
    from ddtop.runner import spawn_runner

    for host in options.hosts:
        spawned = spawn_runner(_options_here(host, options, settings))
        run = run_info(spawned.path)
        if options.json_out:
            facts = {"schema": 1, "run": run.run_id, "name": run.name, "host": host, "pid": spawned.pid}
            print(msgspec.json.encode({**facts, "path": str(spawned.path)}).decode())
            continue
        print(f"{host}: run {run.run_id} (pid {spawned.pid}) records {spawned.path}")
        print(
            f"  watch: ddtop status {run.run_id} · ddtop wait {run.run_id} --for alert · ddtop connect {host}"
        )
        print(f"  stop:  ddtop stop {run.run_id}")
    return 0


def _options_here(host: str, options: Options, settings: Settings, *, attended: bool = False) -> RunOptions:
    """Options of a runner for `host`. Without a plan and a file, an unfinished sweep of it is resumed."""
    from ddtop.journal.read.runs import list_runs

    found = run_options_for(host, options, settings, record=options.record, attended=attended)
    if found.plan is None and found.record is None:
        left = next(
            (r for r in list_runs() if r.host == host and r.mode == "sweep" and r.problem is None), None
        )
        if left is not None and left.state in UNFINISHED:
            return run_options_for(host, options, settings, record=left.path, attended=attended)
    return found


def _recording(host: str, options: Options, settings: Settings) -> Path:
    """The recording to show: that of the active runner, else of a runner started now.

    Without --plan, an unfinished sweep of this host is resumed.
    """
    from ddtop.journal.read.runs import live_run, run_info
    from ddtop.runner import spawn_runner

    alive = live_run(host)
    if alive is not None:
        if options.plan is not None:
            wanted, running = _plan(host, options, settings), run_info(alive)
            if wanted is not None and running.name != wanted.name:
                raise RefusedError(
                    f"a runner is already active: it {'runs plan ' + running.name if running.name else 'watches, without a plan'}",
                    means="each host has one runner at a time, so that no sweep measures another one's load",
                    do=f"ddtop stop {running.run_id}, then run this command again",
                    host=host,
                )
            if wanted is not None and _edited(alive, wanted):
                raise RefusedError(
                    f"plan {wanted.name} was edited since its runner started",
                    means="the run continues with the plan as it was; the edit has no effect on it",
                    do=f"to watch it: ddtop connect {host}; to apply the edit: ddtop stop {running.run_id}, then this command "
                    "again (measured cells are kept)",
                    host=host,
                )
        return alive
    return spawn_runner(_options_here(host, options, settings, attended=True)).path


def _edited(recording: Path, wanted: Plan) -> bool:
    """Whether a recording's run has read a plan that differs from `wanted` by more than comments and file paths."""
    from msgspec.structs import replace

    from ddtop.errors import PlanError
    from ddtop.events import PlanSource, RunStarted
    from ddtop.journal.read.reader import JournalReader
    from ddtop.plan import recorded_plan

    with JournalReader(recording, check=False) as reader:
        texts = [e.plan_toml for _, e in reader.kinds(("run-started",)) if isinstance(e, RunStarted)]
        sources = [e for _, e in reader.kinds(("plan-source",)) if isinstance(e, PlanSource)]
    if not texts or texts[-1] is None:
        return False
    try:
        read = recorded_plan(texts[-1], sources[-1] if sources else None, wanted.path)
    except PlanError:  # a plan of another version of ddtop
        return texts[-1] != wanted.text
    return replace(read, text="", path=None) != replace(wanted, text="", path=None)


def _once(host: str, options: Options, settings: Settings) -> int:
    """Prints one probe."""
    from ddtop.commands.probe_text import probe_json, probe_text
    from ddtop.runner import make_connector
    from ddtop.sweep.recovery.probe import probe
    from ddtop.sweep.setup.from_plan import sweep_from

    run_options = run_options_for(host, options, settings)
    sweep = sweep_from(run_options.plan) if run_options.plan else None

    async def ask() -> tuple[dict[str, object], float | None, str]:
        connector = make_connector(run_options)
        reached = await connector.connect()
        try:
            return await probe(reached, sweep), reached.rtt_ms, connector.target
        finally:
            await reached.close()
            if hasattr(connector, "release"):
                await connector.release(forget=True)

    found, rtt_ms, target = asyncio.run(ask())
    if target == "this machine":
        found = {**found, "gpus": local_gpus() or found.get("gpus")}
    print(
        probe_json(host, target, found, rtt_ms)
        if options.json_out
        else probe_text(host, target, found, rtt_ms)
    )
    return 0


def local_gpus() -> tuple[GpuSample, ...]:
    """This machine's GPUs by NVML, which says more than nvidia-smi; empty where it cannot be asked."""
    from ddtop.errors import HostError
    from ddtop.sources.gpu.nvml import NvmlSource

    try:
        with NvmlSource() as source:
            return source.sample()
    except HostError:
        return ()


def replay(recording: Path | None, speed: float) -> int:
    """The dashboard on a recording."""
    from ddtop.config import load_settings
    from ddtop.journal.act.pending import viewer_name
    from ddtop.journal.read.replay import ReplaySession

    if speed <= 0:
        raise UsageError(f"--speed is {speed}", do="give a number above 0, such as 4")
    path = chosen(str(recording) if recording is not None else None, "replay").path
    session = ReplaySession(path, speed)
    need_terminal(f"ddtop report {path}")
    return show([session], viewer_name(), load_settings())
