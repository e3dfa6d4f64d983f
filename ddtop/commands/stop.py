"""`stop`: end a run and restore its host, also after its runner has died."""

from __future__ import annotations

import secrets
import sys
from contextlib import closing
from pathlib import Path

from ddtop.commands.connect import UNFINISHED, Options, run_options_for
from ddtop.errors import RefusedError

NOT_UNDONE, HOST_LOST = 10, 11
"""Exit codes, as those of a run."""
ANSWERED_WITHIN = 10_000
"""Events before the end of a recording that are searched for an answer which came before reading began."""


def stop(run: str | None, *, leave_running: bool, ssh_config: Path | None = None) -> int:
    """Asks the active runner to stop and waits until it has restored the host. Returns 0 only if it is as it was found.

    If the run's runner has died, also while it restored the host, restores the host itself.
    """
    import time

    from ddtop.errors import UsageError
    from ddtop.events import RunEnded, StopRun
    from ddtop.journal.act.pending import viewer_name
    from ddtop.journal.commands import append_command
    from ddtop.journal.locks import is_live, live_recording, live_recordings
    from ddtop.journal.read.reader import read_state
    from ddtop.journal.read.runs import resolve_run, run_info

    if run is None:
        live = ", ".join(run_info(path).run_id for path in live_recordings())
        raise UsageError(
            "stop: no run is named",
            means=f"live here: {live}" if live else "no run is live on this machine",
            do="name one: ddtop stop RUN",
        )
    path = live_recording(run) or resolve_run(run).path
    if not is_live(path):
        return _stop_dead(path, run, leave_running=leave_running, ssh_config=ssh_config)
    command = StopRun(
        id=secrets.token_hex(8), viewer=viewer_name(), at_s=time.time(), leave_running=leave_running
    )
    append_command(path, command)
    print(f"stopping {path.name}: its runner restores the host first …", file=sys.stderr)
    await_end(path, command.id)
    ended: RunEnded | None = read_state(path, check=False).run.ended
    if ended is None:
        return _stop_dead(path, run, leave_running=leave_running, ssh_config=ssh_config)
    print(_stopped(ended.left_behind))
    return HOST_LOST if ended.outcome == "host-lost" else _code(ended.left_behind)


def await_end(path: Path, command_id: str) -> None:
    """Waits until no runner holds the recording. Raises RefusedError once the runner refuses the command (because it came
    too late, for example): the run would otherwise go on for hours."""
    import time

    from ddtop.events import CommandSeen, RunEnded
    from ddtop.journal.locks import is_live
    from ddtop.journal.read.reader import Follower, JournalReader

    ended = False
    with JournalReader(path, check=False) as reader:
        since = max(0, reader.last_seq() - ANSWERED_WITHIN)
    live = True
    with closing(Follower(path, since)) as follower:
        while live:
            live = is_live(path)  # asked first, so that everything it wrote before its end is read below
            for _, event in follower.poll():
                ended = ended or isinstance(event, RunEnded)
                if not isinstance(event, CommandSeen) or event.command_id != command_id:
                    continue
                if event.outcome != "obeyed" and not ended:  # one that has ended is stopped already
                    raise RefusedError(f"the runner did not stop: {event.reason}")
            if live:
                time.sleep(0.2)


def _stop_dead(path: Path, run: str, *, leave_running: bool, ssh_config: Path | None) -> int:
    """Restores the host of a run whose runner has died. Raises RefusedError where there is nothing to restore."""
    from ddtop.config import load_settings
    from ddtop.journal.read.reader import read_state
    from ddtop.journal.read.runs import run_info
    from ddtop.runner import put_back
    from ddtop.sweep.recovery.restore import original_states

    state = read_state(path, check=False)
    allocated = state.allocation is not None and not state.allocation.ended
    info = run_info(path)
    # A run that ended by itself may need this too: its host was unreachable, or its server was left running.
    if info.mode != "sweep" or not (info.state in UNFINISHED or allocated or original_states(state)):
        raise RefusedError(f"nothing is running for {run}", do="ddtop runs lists what is running")
    if leave_running:
        raise RefusedError(
            f"the runner of {path.name} has died; the server is as it left it",
            do=f"ddtop connect {info.host} resumes the run; ddtop stop without --leave-running restores the host",
        )
    print(f"the runner of {path.name} has died; restoring {info.host} …", file=sys.stderr)
    options = Options(hosts=(info.host,), ssh_config=ssh_config)
    outcome = put_back(run_options_for(info.host, options, load_settings(), record=path))
    print(_stopped(outcome.left_behind))
    return HOST_LOST if outcome.word == "host-lost" else _code(outcome.left_behind)


def _code(left: tuple[str, ...]) -> int:
    from ddtop.sweep.recovery.restore import not_undone

    return NOT_UNDONE if not_undone(left) else 0


def _stopped(left: tuple[str, ...]) -> str:
    return "stopped; left behind:\n  " + "\n  ".join(left) if left else "stopped; the host is as it was found"
