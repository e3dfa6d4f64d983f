"""What one reading of a systemd unit means. Pure.

Measured on systemd 252: `systemctl start` of a Type=simple unit returns 0 although ExecStart does not exist;
`activating/auto-restart` with MainPID 0 runs nothing. Why a failed unit failed is failed.py's subject.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddtop.services.unit.exits import main_ending
from ddtop.services.unit.failed import (
    BOOT_MARK,
    CONDITION,
    DEPENDENCY,
    LIMIT,
    MAIN_EXITED,
    UnitState,
    condition_state,
    dependency_state,
    exit_slug,
    first,
    left_behind,
    leftovers,
    since_last_start,
)
from ddtop.services.unit.systemctl_show import UnitProps

LOOP_RESTARTS = 2

_COUNTER = re.compile(r"restart counter is at (?P<n>\d+)")
_BAD_UNIT = re.compile(
    r"bad unit file setting|bad-setting|Service has (?:no|more than one) ExecStart=|Unit configuration has fatal error|invalid argument|Invalid unit"
)
_MASKED = re.compile(r"is masked")
_MISSING = re.compile(r"Unit \S+ (?:not found|could not be found)|not-found")
_NO_BUS = re.compile(
    r"Failed to connect to (?:the )?(?:\w+ scope )?bus|not been booted with systemd|DBUS_SESSION_BUS_ADDRESS and \$XDG_RUNTIME_DIR not defined"
)
_DENIED = re.compile(
    r"Interactive authentication required|Access denied|Permission denied|sudo: a (?:terminal|password)|not in the sudoers|Operation not permitted|polkit"
)


def refusal(text: str) -> UnitState | None:
    """Why `systemctl` refused, from what it printed; None if that is not a known reason."""
    for pattern, slug in (
        (_NO_BUS, "systemd-unreachable"),
        (_MASKED, "unit-masked"),
        (_DENIED, "not-permitted"),
        (_MISSING, "unit-not-found"),
        (LIMIT, "start-limit-hit"),
        (_BAD_UNIT, "bad-unit-file"),
        (DEPENDENCY, "dependency-failed"),
    ):
        if match := pattern.search(text):
            line = next((ln for ln in text.splitlines() if match[0] in ln), match[0])
            return UnitState(slug, (line.strip(),))
    return None


_JOBS = (
    (re.compile(r"failed because a timeout was exceeded"), "start-timeout"),
    (re.compile(r"failed because the service did not take the steps required"), "notify-protocol"),
    (re.compile(r"failed because a (?:fatal )?signal was delivered"), "main-process-killed"),
    (re.compile(r"failed because of unavailable resources"), "unit-failed"),
    (
        re.compile(r"failed because the (?:control|service) process exited|failed because the process"),
        "unit-failed",
    ),
)


def job_failure(text: str) -> UnitState | None:
    """What `systemctl start` says of a job that failed ("Job for … failed because …"); None where it says nothing."""
    for line in text.splitlines():
        for pattern, slug in _JOBS:
            if pattern.search(line):
                return UnitState(slug, (line.strip(),))
    return None


def unit_state(props: UnitProps, lines: Sequence[str] = (), *, start_asked: bool = False) -> UnitState:
    """What one reading of a unit means.

    lines        the journal of the unit (systemd's own lines count), oldest first; may be empty
    start_asked  whether a start was requested before this reading (then an unmet condition is a failure)
    """
    load, active, sub = props.load_state, props.active_state, props.sub_state
    if load == "masked":
        return UnitState("unit-masked", ("LoadState=masked",))
    if load == "not-found" and active in (None, "inactive"):
        return UnitState("unit-not-found", ("LoadState=not-found",))
    if load in ("bad-setting", "error"):
        return UnitState("bad-unit-file", (f"LoadState={load}",))
    if active == "activating":
        if sub in ("auto-restart", "auto-restart-queued"):
            count = props.n_restarts or 0
            return UnitState(
                "flapping" if count >= LOOP_RESTARTS else "exited-waiting-for-restart",
                (f"SubState={sub}, MainPID={props.main_pid}, NRestarts={props.n_restarts}",),
            )
        if sub in ("start-pre", "start-chown", "condition"):
            return UnitState("start-pre-running", (f"SubState={sub}, ControlPID={props.control_pid}",))
        return UnitState("start-job-running", (f"SubState={sub}",))
    if active == "deactivating":
        return UnitState("stopping", (f"SubState={sub}, MainPID={props.main_pid}",))
    if active == "failed":
        return exit_slug(props, lines)
    if active == "reloading":
        return UnitState("unit-reloading", ("ActiveState=reloading",))
    if active == "active":
        if props.need_daemon_reload:
            return UnitState("old-arguments-loaded", ("NeedDaemonReload=yes",))
        if (props.n_restarts or 0) > LOOP_RESTARTS or len(restart_counters(lines)) > LOOP_RESTARTS:
            return UnitState("flapping", (f"NRestarts={props.n_restarts}",))
        if left := leftovers(lines):
            return left_behind(left, lines)
        if props.sub_state == "unhealthy":
            return UnitState("container-unhealthy", ("the container's health check fails",))
        return UnitState("active", (f"ActiveState=active, SubState={sub}",))
    if active == "inactive":
        return _inactive(props, lines, start_asked)
    return _from_journal(lines)


def _inactive(props: UnitProps, lines: Sequence[str], start_asked: bool) -> UnitState:
    recent = since_last_start(lines)
    if (hit := first(DEPENDENCY, recent)) and not first(CONDITION, recent):
        # ConditionResult=no is also the value of a unit whose conditions were never tested
        return dependency_state(props, lines, hit[0])
    if props.condition_result is False and (start_asked or props.condition_at or first(CONDITION, lines)):
        return condition_state(lines)
    if first(CONDITION, recent):
        return condition_state(recent)
    if props.job:
        return UnitState("start-job-queued", (f"Job={props.job}",))
    if props.result not in (None, "success"):
        return exit_slug(props, lines)
    known_end = props.exec_main_code is not None and props.exec_main_pid is None  # the PID was not asked for
    if props.invocation_id is None and not props.exec_main_pid and not known_end:
        return UnitState("never-started", ("no InvocationID, no main process yet",))
    if left := leftovers(since_last_start(lines)):
        return left_behind(left, lines)
    return UnitState("stopped-cleanly", ("ActiveState=inactive, Result=success",))


def _loop_words(lines: Sequence[str], count: int) -> str:
    """How often it was restarted, and how it ends each time."""
    exited = next((m for line in reversed(lines) if (m := MAIN_EXITED.search(line))), None)
    how = main_ending(None, exited["c"], int(exited["s"])) if exited else None
    return f"systemd has restarted it {count} times" + (
        f"; each time the main process {how.words}." if how else "."
    )


def restart_counters(lines: Sequence[str]) -> list[int]:
    """The restart counters that systemd logged, in order."""
    return [int(m["n"]) for line in lines if (m := _COUNTER.search(line))]


def _from_journal(lines: Sequence[str]) -> UnitState:
    """The state from systemd's own journal lines, without `systemctl show`."""
    props = UnitProps()
    if first(LIMIT, lines):
        return exit_slug(props, lines)
    recent = since_last_start(lines)
    failed = next(
        (
            m
            for line in recent
            if (m := re.search(r"(?:Failed with result|with result) '(?P<r>[\w-]+)'", line))
        ),
        None,
    )
    counters = restart_counters(lines)
    if len(counters) > LOOP_RESTARTS or (failed and max(counters, default=0) > LOOP_RESTARTS):
        if left := leftovers(lines):
            return left_behind(left, lines, tuple(line for line in lines if _COUNTER.search(line))[-1:])
        return UnitState(
            "flapping",
            tuple(line for line in lines if _COUNTER.search(line))[-3:],
            says=_loop_words(lines, max(counters)),
        )
    if first(CONDITION, recent):
        return condition_state(recent)
    exited = next((m for line in recent if (m := MAIN_EXITED.search(line))), None)
    if failed or exited:
        result = failed["r"] if failed else None
        return exit_slug(
            UnitProps(
                result=result,
                exec_main_code=exited["c"] if exited else None,
                exec_main_status=int(exited["s"]) if exited else None,
            ),
            lines,
        )
    text = "\n".join(recent)
    if (refused := refusal(text)) is not None:
        return refused
    if recent and BOOT_MARK.match(recent[0]):
        return UnitState("rebooted", (recent[0],)) if len(recent) < len(lines) else UnitState("no-unit-data")
    if left := leftovers(recent):
        return left_behind(left, recent)
    if re.search(r"Deactivated successfully|(?:^|: |\] )Stopped \S", text, re.MULTILINE):
        return UnitState("stopped-cleanly", (recent[-1],) if recent else ())
    if re.search(r"(?:^|: |\] )Started \S", text, re.MULTILINE):
        return UnitState("active", (recent[0],))
    if re.search(r"(?:^|: |\] )Starting \S", text, re.MULTILINE):
        return UnitState("start-job-running", (recent[0],))
    return UnitState("no-unit-data")
