"""How a unit ended or why it cannot start, in words and as a cause. The decision is `services/unit/failed.py`'s. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ddtop.events import CauseKind
from ddtop.services.causes import load_causes
from ddtop.services.containers import runs_container
from ddtop.services.readings import UnitReading
from ddtop.services.unit.exits import main_ending
from ddtop.services.unit.failed import UnitState, exit_slug, since_last_start
from ddtop.services.unit.systemctl_show import EXIT_NAMES, UnitProps, exec_argv
from ddtop.sources.log.signatures import match_line

BAD_LOADS = {
    "masked": ("unit-masked", "the unit is masked"),
    "not-found": ("unit-not-found", "there is no such unit"),
    "bad-setting": ("bad-unit-file", "the unit file has a setting systemd refuses"),
    "error": ("bad-unit-file", "systemd cannot load the unit file"),
}
OPEN = ("main-process-exited", "main-process-killed", "unit-failed", "process-exited")
"""Causes that say only that it ended: the log may know more, so their kind is not decided here; and where systemd's line
is all that the log has, the unit's own exit code says more."""


STOPPED = "stopped-by-request"
STOP_LINES = ("Stopping ", "Stopped ")
"""How systemd's own lines on a stop begin: it writes them where it was asked for one, never where a process ends."""


def stopped_by_request(u: UnitReading, lines: Sequence[str]) -> bool:
    """Whether it was stopped in order, by its owner: a start or a cell of ours was under way."""
    if u.active != "inactive" or u.result != "success":
        return False
    return u.exit_code == "killed/15" or any(line.startswith(STOP_LINES) for line in lines)


def exit_state(u: UnitReading, lines: Sequence[str] = ()) -> UnitState:
    """How the unit's last start ended. lines: the newest log lines, systemd's own among them."""
    code, _, number = (u.exit_code or "").partition("/")
    status = int(number) if number.isdecimal() else None
    props = UnitProps(
        id=u.unit,
        result=u.result,
        active_state=u.active,
        exec_main_code=code if code in ("exited", "killed", "dumped") else None,
        exec_main_status=status,
        main_pid=u.main_pid,
        n_restarts=u.n_restarts,
    )
    state = exit_slug(props, lines)
    # A stop may end badly: SGLang kills itself after 7 s, and systemd what has not ended in TimeoutStopSec=.
    asked = any(line.startswith(STOP_LINES) for line in since_last_start(lines))
    badly = state.slug == "stopped-cleanly" or (asked and state.slug == "stop-timeout-killed")
    if badly or stopped_by_request(u, lines):
        return UnitState(
            STOPPED, state.why, advice="it is started again; to keep it down, stop the run: ddtop stop"
        )
    if u.exit_code == "exited/125" and runs_container(exec_argv(u.argv)):
        program = exec_argv(u.argv)[0].rsplit("/", 1)[-1]
        told = f"{program} exited with code 125, its own error: the program in the container never ran"
        return UnitState("container-not-started", state.why, says=told)
    if u.result == "timeout" and state.slug == "stop-timeout-killed":
        return UnitState("start-timeout", state.why)  # asked only of a start
    return state


def exit_words(u: UnitReading, lines: Sequence[str] = ()) -> str:
    """What follows the unit's name in a sentence: `was killed by signal 4 (SIGILL): …`."""
    state = exit_state(u, lines)
    if state.slug == STOPPED:
        return "was stopped on request, and not by this run"
    if state.says and not state.says.startswith("The main process "):
        return f"failed: {state.says.rstrip('.')}"
    if u.result == "timeout":
        return "was killed by systemd: its start or stop took longer than the unit allows"
    code, _, number = (u.exit_code or "").partition("/")
    ending = main_ending(u.result, code or None, int(number) if number.isdecimal() else None)
    if ending is not None:
        return ending.words
    return "exited with code 0" if code == "exited" else f"is {u.active}"


def exit_kind(slug: str) -> CauseKind:
    """Whose fault it is, by the table of causes; unknown for those that say only that it ended."""
    if slug == STOPPED:
        return "transient"  # it says nothing of the configuration: never broken by it
    row = load_causes().by_slug.get(slug)
    kinds: dict[str, CauseKind] = {"config": "config", "bug": "bug", "host": "host", "transient": "transient"}
    return "unknown" if row is None or slug in OPEN else kinds.get(row.kind, "unknown")


def refused_step(u: UnitReading) -> tuple[str, str] | None:
    """(cause, words) where systemd could not even run the program (its exit codes 200 to 245); None for any other end."""
    code, _, number = (u.exit_code or "").partition("/")
    if code != "exited" or not number.isdecimal() or int(number) not in EXIT_NAMES:
        return None
    ending = main_ending("exit-code", code, int(number))
    return (ending.slug, ending.words) if ending is not None else None


def own_words_expected(u: UnitReading) -> bool:
    """Whether a program of the unit ran and failed, and so may have said why: not where systemd could not even run it."""
    return u.result in ("exit-code", "signal", "core-dump") and refused_step(u) is None


def container_refusal(said: str) -> tuple[str, CauseKind, str]:
    """(cause, kind, the line that tells) of a `docker run` or `podman run` that failed with these words."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in lines:
        for match in match_line(line):
            if (slug := load_causes().by_signature.get(match.signature.id)) is not None:
                return slug, exit_kind(slug), line
    return "container-not-started", "config", lines[0] if lines else ""
