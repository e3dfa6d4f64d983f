"""What one reading of a systemd unit means. Pure.

Measured on systemd 252: `systemctl start` of a Type=simple unit returns 0 although ExecStart does not exist; after the
start limit `Result` stays `exit-code`, only the journal shows the limit; `activating/auto-restart` with MainPID 0 runs
nothing; a stop that timed out leaves `failed` with Result=timeout and is not a crash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.services.unit.systemctl_show import EXIT_NAMES, UnitProps

LOOP_RESTARTS = 2

_LIMIT = re.compile(r"Start request repeated too quickly|start-limit-hit")
_OOM = re.compile(r"killed by the OOM killer|with result 'oom-kill'")
_START_TIMEOUT = re.compile(r"start(?:-pre|-post)? operation timed out|State 'start\S*' timed out")
_STOP_TIMEOUT = re.compile(r"State '(?:stop|final)\S*' timed out|[Ss]topping timed out")
_CONDITION = re.compile(
    r"(?:skipped because (?:of an unmet condition check|all trigger condition checks failed|of a failed condition)|Condition check resulted in .{1,200} being skipped|start condition (?:failed|unmet)|(?=\bCondition\w{1,40}=\S.{0,400} was not met))"
    r"(?:.{0,10}?\(?\b(?P<cond>\w+)=(?P<neg>!?)(?P<arg>[^)\s]*)(?:\)| was not met))?"
)
_DEPENDENCY = re.compile(
    r"Dependency failed for |with result 'dependency'|A dependency job for .{1,120} failed"
)
_STEP = re.compile(
    r"Failed at step (?P<step>[A-Z_]+) spawning (?P<exe>[^:]+):|status=(?P<st>\d+)/(?P<name>[A-Z_]+)"
)
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
_ENV_FILE = re.compile(r"Failed to load environment files: ")
BOOT_MARK = re.compile(r"-- (?:Boot \w{1,64}|Reboot) --")
"""What journalctl prints between two boots."""
_LEFTOVER = re.compile(r"Found left-over process \d+")
_PRE = re.compile(r"Control process exited, code=(?P<code>\w+),? status=(?P<st>\d+)")


@dataclass(frozen=True, slots=True)
class UnitState:
    """What one reading means.

    slug  a cause of causes.toml
    why   the readings or journal lines it rests on
    path  the path that an unmet condition names
    """

    slug: str
    why: tuple[str, ...] = ()
    path: str | None = None


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> tuple[str, re.Match[str]] | None:
    for line in lines:
        if match := pattern.search(line):
            return line, match
    return None


def since_last_start(lines: Sequence[str]) -> list[str]:
    """The lines of the newest start attempt: from systemd's last `Starting`/`Started` on, where it failed later.

    After the start limit there is no `Started` any more, so everything from the last one on belongs together.
    """
    for index in range(len(lines) - 1, -1, -1):
        if BOOT_MARK.match(lines[index]):  # what was before it is of another boot
            return list(lines[index:])
        if re.search(r"(?:^|: |\] )(?:Started|Starting) \S", lines[index]):
            return list(lines[index:])
    return list(lines)


def exit_slug(props: UnitProps, lines: Sequence[str] = ()) -> UnitState:
    """The cause of a failed unit, from its result, its exit status and its journal."""
    if hit := _first(_LIMIT, lines):
        return UnitState("start-limit-hit", (hit[0],))
    if props.result == "start-limit-hit":
        return UnitState("start-limit-hit", ("Result=start-limit-hit",))
    if hit := _first(_OOM, lines):
        return UnitState("oom-killed", (hit[0],))
    recent = since_last_start(lines)
    result, status = props.result, props.exec_main_status
    if result == "oom-kill":
        return UnitState("oom-killed", ("Result=oom-kill",))
    if result == "timeout":
        if hit := _first(_START_TIMEOUT, recent):
            return UnitState("start-timeout", (hit[0],))
        if hit := _first(_STOP_TIMEOUT, recent):
            return UnitState("stop-timeout-killed", (hit[0],))
        slug = "start-timeout" if props.active_enter is None and status != 9 else "stop-timeout-killed"
        return UnitState(slug, (f"Result=timeout, ExecMainStatus={status}",))
    if result == "exec-condition" or (hit := _first(_CONDITION, recent)):
        return condition_state(recent)
    if hit := _first(_DEPENDENCY, recent):
        return UnitState("dependency-failed", (hit[0],))
    if props.exec_main_code == "exited" and status in EXIT_NAMES:
        return UnitState(_step_slug(EXIT_NAMES[status]), (f"ExecMainStatus={status} ({EXIT_NAMES[status]})",))
    if hit := _first(_STEP, recent):
        name = hit[1]["step"] or (hit[1]["name"] if int(hit[1]["st"] or 0) in EXIT_NAMES else "")
        if name:
            return UnitState(_step_slug(name), (hit[0],))
    by_result = {"watchdog": "watchdog-killed", "core-dump": "core-dumped", "signal": "main-process-killed"}
    stopped = any(re.search(r"(?:^|: |\] )Stopping \S", line) for line in recent)
    if stopped and (result == "signal" or status in (143, 137, 130)):
        return UnitState("stopped-cleanly", ("a stop was requested, and the process exited by a signal",))
    if result in by_result:
        return UnitState(by_result[result], (f"Result={result}, ExecMainStatus={status}",))
    if hit := _first(_PRE, recent):
        return UnitState("start-pre-failed", (hit[0],))
    if (
        result == "exit-code"
        and props.exec_main_pid in (None, 0)
        and props.exec_main_code is None
        and props.raw is not None
        and "ExecMainPID" in props.raw
    ):
        return UnitState("start-pre-failed", ("Result=exit-code, and the main process was never started",))
    if status in (137, 139, 134):
        return UnitState(
            "main-process-killed", (f"ExecMainStatus={status}: a child ended by signal {status - 128}",)
        )
    if props.exec_main_code or result == "exit-code":
        return UnitState("main-process-exited", (f"Result={result}, ExecMainStatus={status}",))
    if hit := _first(_ENV_FILE, recent):
        return UnitState("environment-file-missing", (hit[0],))
    return UnitState("unit-failed", (f"Result={result}",))


def worker_killed(lines: Sequence[str]) -> UnitState | None:
    """`oom-killed` if the OOM killer killed a process of a unit that runs on (OOMPolicy=continue)."""
    hit = _first(_OOM, since_last_start(lines))
    return UnitState("oom-killed", (hit[0],)) if hit else None


def _step_slug(name: str) -> str:
    return {
        "EXEC": "exec-not-found",
        "CHDIR": "working-directory-missing",
        "USER": "user-missing",
        "GROUP": "user-missing",
    }.get(name, "sandbox-setup-failed")


def condition_state(lines: Sequence[str]) -> UnitState:
    """`condition-not-met`, with the path that the condition names if the journal has it."""
    hits = [(line, match) for line in lines if (match := _CONDITION.search(line))]
    if not hits:
        return UnitState("condition-not-met", ("ConditionResult=no",))
    hit = next((h for h in hits if h[1]["arg"]), hits[0])
    return UnitState("condition-not-met", (hit[0],), hit[1]["arg"] or None)


def refusal(text: str) -> UnitState | None:
    """Why `systemctl` refused, from what it printed; None if that is not a known reason."""
    for pattern, slug in (
        (_NO_BUS, "systemd-unreachable"),
        (_MASKED, "unit-masked"),
        (_DENIED, "not-permitted"),
        (_MISSING, "unit-not-found"),
        (_LIMIT, "start-limit-hit"),
        (_BAD_UNIT, "bad-unit-file"),
        (_DEPENDENCY, "dependency-failed"),
    ):
        if match := pattern.search(text):
            line = next((ln for ln in text.splitlines() if match[0] in ln), match[0])
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
        if hit := _first(_LEFTOVER, since_last_start(lines)) or _first(_LEFTOVER, lines):
            return UnitState("leftover-processes", (hit[0],))
        if props.sub_state == "unhealthy":
            return UnitState("container-unhealthy", ("the container's health check fails",))
        return UnitState("active", (f"ActiveState=active, SubState={sub}",))
    if active == "inactive":
        return _inactive(props, lines, start_asked)
    return _from_journal(lines)


def _inactive(props: UnitProps, lines: Sequence[str], start_asked: bool) -> UnitState:
    recent = since_last_start(lines)
    if (hit := _first(_DEPENDENCY, recent)) and not _first(_CONDITION, recent):
        # ConditionResult=no is also the value of a unit whose conditions were never tested
        return UnitState("dependency-failed", (hit[0],))
    if props.condition_result is False and (start_asked or props.condition_at or _first(_CONDITION, lines)):
        return condition_state(lines)
    if _first(_CONDITION, recent):
        return condition_state(recent)
    if props.job:
        return UnitState("start-job-queued", (f"Job={props.job}",))
    if props.result not in (None, "success"):
        return exit_slug(props, lines)
    if props.invocation_id is None and not props.exec_main_pid:
        return UnitState("never-started", ("no InvocationID, no main process yet",))
    return UnitState("stopped-cleanly", ("ActiveState=inactive, Result=success",))


def restart_counters(lines: Sequence[str]) -> list[int]:
    """The restart counters that systemd logged, in order."""
    return [int(m["n"]) for line in lines if (m := _COUNTER.search(line))]


def _from_journal(lines: Sequence[str]) -> UnitState:
    """The state from systemd's own journal lines, without `systemctl show`."""
    props = UnitProps()
    if _first(_LIMIT, lines):
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
    if len(restart_counters(lines)) > LOOP_RESTARTS:
        return UnitState("flapping", tuple(line for line in lines if _COUNTER.search(line))[-3:])
    if _first(_CONDITION, recent):
        return condition_state(recent)
    exited = next(
        (
            m
            for line in recent
            if (m := re.search(r"Main process exited, code=(?P<c>\w+), status=(?P<s>\d+)", line))
        ),
        None,
    )
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
    if re.search(r"Deactivated successfully|(?:^|: |\] )Stopped \S", text, re.MULTILINE):
        return UnitState("stopped-cleanly", (recent[-1],) if recent else ())
    if re.search(r"(?:^|: |\] )Started \S", text, re.MULTILINE):
        return UnitState("active", (recent[0],))
    if re.search(r"(?:^|: |\] )Starting \S", text, re.MULTILINE):
        return UnitState("start-job-running", (recent[0],))
    return UnitState("no-unit-data")
