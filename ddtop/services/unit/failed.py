"""Why a unit failed: its result, its exit status, the commands around it, its dependencies and what it left behind. Pure.

Measured on systemd 252: after the start limit `Result` stays `exit-code`, only the journal shows the limit; a stop that
timed out leaves `failed` with Result=timeout and is not a crash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ddtop.services.unit.exits import (
    NUMBERS,
    control_words,
    failed_dependency,
    main_ending,
    main_words,
    step_ending,
)
from ddtop.services.unit.systemctl_show import UnitProps, failed_commands

LIMIT = re.compile(r"[Ss]tart request repeated too quickly|start-limit-hit|'start-limit'")
_OOM = re.compile(r"killed by the OOM killer|with result 'oom-kill'")
_START_TIMEOUT = re.compile(r"start(?:-pre|-post)? operation timed out|State 'start\S*' timed out")
_STOP_TIMEOUT = re.compile(r"State '(?:stop|final)\S*' timed out|[Ss]topping timed out")
CONDITION = re.compile(
    r"(?:skipped because (?:of an unmet condition check|all trigger condition checks failed|of a failed condition)|Condition check resulted in .{1,200} being skipped|start condition (?:failed|unmet)|Assertion failed for|asserts failed|(?=\bCondition\w{1,40}=\S.{0,400} was not met))"
    r"(?:.{0,10}?\(?\b(?P<cond>\w+)=(?P<neg>!?)(?P<arg>[^)\s]*)(?:\)| was not met))?"
)
DEPENDENCY = re.compile(
    r"Dependency failed for |with result 'dependency'|A dependency job for .{1,120} failed"
)
_STEP = re.compile(
    r"Failed at step (?P<step>[A-Z_]+) spawning (?P<exe>[^:]+):|status=(?P<st>\d+)/(?P<name>[A-Z_]+)"
)
_ENV_FILE = re.compile(r"Failed to load environment files: ")
BOOT_MARK = re.compile(r"-- (?:Boot \w{1,64}|Reboot) --")
"""What journalctl prints between two boots."""
LEFTOVER = re.compile(
    r"(?:Found left-over process|Unit process) (?P<pid>\d+) \((?P<comm>[^)]*)\)(?= in control group| remains running)"
)
"""A process that an earlier start left behind, found at a start or at a stop."""
_PRE = re.compile(r"Control process exited, code=(?P<code>\w+),? status=(?P<st>\d+)")
MAIN_EXITED = re.compile(r"Main process exited, code=(?P<c>\w+), status=(?P<s>\d+)")
_POST_TIMEOUT = re.compile(r"start-post operation timed out|State 'start-post' timed out")
_PRE_TIMEOUT = re.compile(r"start-pre operation timed out|State 'start-pre' timed out")
_PROTOCOL = re.compile(
    r"with result 'protocol'|did not take the steps required by its unit configuration"
    r"|New main PID \d+ does not (?:exist|belong)|Can't open PID file|PID file .{1,200} not readable|never wrote its PID file"
)
_RUNTIME = re.compile(r"reached runtime time limit")
_TASK = re.compile(r"Failed to (?:run '\S+' task|fork|spawn(?: executor)?): (?P<why>.{1,200})")
_PID_FILE = re.compile(r"PID file|New main PID")


@dataclass(frozen=True, slots=True)
class UnitState:
    """What one reading means.

    slug  a cause of causes.toml
    why     the readings or journal lines it rests on
    path    the path that an unmet condition names
    says    what happened in this case, in words: the signal, the command's own message, the dependency's name
    advice  what to do in this case, where the table's advice says less
    """

    slug: str
    why: tuple[str, ...] = ()
    path: str | None = None
    says: str = ""
    advice: str = ""


def first(pattern: re.Pattern[str], lines: Sequence[str]) -> tuple[str, re.Match[str]] | None:
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
    """The cause of a failed unit, from its result, its exit status and its journal. Processes that an earlier start left
    behind are the cause where nothing else explains the failure."""
    state = _exit_state(props, lines)
    if (left := leftovers(lines)) and state.slug in _EXPLAINED_BY_LEFTOVERS:
        return left_behind(left, lines, state.why)
    if left:
        more = f"{_left_words(left)} of an earlier start still run."
        return replace(state, says=f"{state.says} {more}".strip())
    return state


_EXPLAINED_BY_LEFTOVERS = ("main-process-exited", "main-process-killed", "unit-failed", "flapping")


def _exit_state(props: UnitProps, lines: Sequence[str]) -> UnitState:
    if hit := first(LIMIT, lines):
        return UnitState("start-limit-hit", (hit[0],))
    if props.result in ("start-limit-hit", "start-limit"):  # the latter before systemd 233
        return UnitState("start-limit-hit", (f"Result={props.result}",))
    if hit := first(_OOM, lines):
        return UnitState("oom-killed", (hit[0],))
    if error := (props.raw or {}).get("ContainerError"):
        return UnitState("container-not-started", (error,), says=f"The container was not started: {error}")
    recent = since_last_start(lines)
    result, code, status = props.result, props.exec_main_code, props.exec_main_status
    if hit := first(_RUNTIME, recent):
        return UnitState("runtime-limit-reached", (hit[0],))
    if result == "timeout":
        return _timeout(props, recent)
    if result == "exec-condition" or (hit := first(CONDITION, recent)):
        return condition_state(recent)
    if hit := first(DEPENDENCY, recent):
        return dependency_state(props, lines, hit[0])
    if result == "protocol" or (result is None and (hit := first(_PROTOCOL, recent))):
        hit = first(_PROTOCOL, recent)
        return UnitState(
            "notify-protocol",
            (hit[0] if hit else "Result=protocol", f"ExecMainStatus={status}"),
            says="systemd waited for a PID file of its Type=forking, and it did not fit."
            if first(_PID_FILE, recent)
            else "",
        )
    if hit := first(_STEP, recent):
        name = hit[1]["step"] or (hit[1]["name"] if hit[1]["name"] in NUMBERS else "")
        if name and (code != "exited" or status == NUMBERS.get(name)):
            step = step_ending(name)
            return UnitState(step.slug, (hit[0],), says=f"The unit {step.words}.")
    stopped = any(re.search(r"(?:^|: |\] )Stopping \S", line) for line in recent)
    if stopped and (result == "signal" or status in (143, 137, 130)):
        return UnitState("stopped-cleanly", ("a stop was requested, and the process exited by a signal",))
    if (command := _failed_command(props, recent)) is not None:
        return command
    if (ending := main_ending(result, code, status)) is not None:
        how = f"Result={result}, ExecMainCode={code}, ExecMainStatus={status}"
        said = main_words(recent) if ending.slug in ("main-process-exited", "program-missing") else ()
        tail = f": {said[-1]}" if said else "."
        return UnitState(ending.slug, (how, *said), says=f"The main process {ending.words}{tail}")
    if result == "signal":
        return UnitState("main-process-killed", (f"Result=signal, ExecMainStatus={status}",))
    if code or result == "exit-code":
        return UnitState("main-process-exited", (f"Result={result}, ExecMainStatus={status}",))
    if hit := first(_ENV_FILE, recent):
        return UnitState("environment-file-missing", (hit[0],))
    if hit := first(_TASK, recent):
        slug = "host-memory-exhausted" if "allocate memory" in hit[0] else "unit-failed"
        return UnitState(slug, (hit[0],), says=f"systemd could not start it: {hit[1]['why']}.")
    return UnitState("unit-failed", (f"Result={result}",))


def _timeout(props: UnitProps, recent: Sequence[str]) -> UnitState:
    """A start or a stop that systemd ended, and the command that took too long."""
    for pattern, which in ((_POST_TIMEOUT, "ExecStartPost"), (_PRE_TIMEOUT, "ExecStartPre")):
        if hit := first(pattern, recent):
            said = control_words(recent)
            server = (
                "the server itself had started, and systemd killed it with the unit"
                if which == "ExecStartPost"
                else "the server was never started"
            )
            return UnitState(
                "start-timeout",
                (hit[0], *said),
                says=f"{which}= did not end within TimeoutStartSec=: {server}."
                + (f" It printed: {said[-1]}" if said else ""),
                advice=f"Run the {which}= command by hand to see what it waits for; correct it, or raise TimeoutStartSec=.",
            )
    if hit := first(_START_TIMEOUT, recent):
        return UnitState("start-timeout", (hit[0],), says=_never_ready(props), advice=_type_advice(props))
    if hit := first(_STOP_TIMEOUT, recent):
        return UnitState("stop-timeout-killed", (hit[0],))
    early = props.active_enter is None and props.exec_main_status != 9
    return UnitState(
        "start-timeout" if early else "stop-timeout-killed",
        (f"Result=timeout, ExecMainStatus={props.exec_main_status}",),
        says=_never_ready(props) if early else "",
    )


def _never_ready(props: UnitProps) -> str:
    return (
        "Type=notify, and no READY=1 came before TimeoutStartSec= passed; the server may have been healthy."
        if (props.raw or {}).get("Type", "").startswith("notify")
        else ""
    )


def _type_advice(props: UnitProps) -> str:
    return (
        "If the server does not call sd_notify, set Type=simple or Type=exec; else set TimeoutStartSec= above the load time."
        if _never_ready(props)
        else ""
    )


def _failed_command(props: UnitProps, recent: Sequence[str]) -> UnitState | None:
    """A command before or after the main process that failed, with what it printed; None if none did."""
    at = next((i for i, line in enumerate(recent) if _PRE.search(line)), None)
    main_at = next((i for i, line in enumerate(recent) if MAIN_EXITED.search(line)), None)
    shown = failed_commands(props)
    which, status = next(((k, s) for k, s in shown if k in _COMMANDS), (None, None))
    if which is None and (shown or (at is not None and main_at is not None and main_at < at)):
        return None  # a command after the main process: its failure is only a consequence
    never_ran = (
        props.result == "exit-code"
        and props.exec_main_pid in (None, 0)
        and props.exec_main_code is None
        and props.raw is not None
        and "ExecMainPID" in props.raw
    )
    if at is None and which is None and not never_ran:
        return None
    hit = (recent[at], _PRE.search(recent[at])) if at is not None else None
    if which is None and main_at is not None:
        which = "ExecStartPost"  # the main process ran already, and systemd ended it after the command
    which = which or "ExecStartPre"
    status = status or (hit[1]["st"] if hit and hit[1] else None)
    said = control_words(recent)
    says = (
        f"{which}= failed"
        + (f" with exit code {status}" if status else "")
        + (f": {said[-1]}" if said else ".")
    )
    why = (*said, hit[0]) if hit else (*said, f"Result=exit-code, {which} status={status or 'unknown'}")
    return UnitState(_COMMANDS.get(which, "start-pre-failed"), why, says=says)


_COMMANDS = {
    "ExecStartPre": "start-pre-failed",
    "ExecStartPost": "start-post-failed",
    "ExecCondition": "condition-not-met",
}


def dependency_state(props: UnitProps, lines: Sequence[str], line: str) -> UnitState:
    """`dependency-failed`, with the name of the unit that failed where the lines have it."""
    found = failed_dependency(lines, props.id)
    if found is None:
        return UnitState("dependency-failed", (line,))
    name, why = found
    said = next((x for x in control_words_of(lines, name)), "")
    return UnitState(
        "dependency-failed",
        (why, line),
        says=f"It requires {name}, which failed" + (f": {said}" if said else "."),
        advice=f"Run `systemctl status {name}`, repair it, then start this unit.",
    )


def control_words_of(lines: Sequence[str], unit: str) -> tuple[str, ...]:
    """What a unit printed just above the first line that tells of its failure."""
    at = next((i for i, line in enumerate(lines) if line.startswith(f"{unit}: ")), 0)
    return tuple(
        x.strip() for x in lines[max(0, at - 1) : at] if not re.match(r"\S+\.\w+: |Start|Depend|Fail", x)
    )


def leftovers(lines: Sequence[str]) -> dict[int, tuple[str, str]]:
    """pid → (program, line) of processes that earlier starts left behind."""
    found: dict[int, tuple[str, str]] = {}
    for line in lines:
        if match := LEFTOVER.search(line):
            found.setdefault(int(match["pid"]), (match["comm"], line))
    return found


def _left_words(left: Mapping[int, tuple[str, str]]) -> str:
    shown = [f"{pid} ({comm})" for pid, (comm, _) in list(left.items())[:6]]
    return f"{len(left)} process{'es' if len(left) > 1 else ''} ({', '.join(shown)})"


def left_behind(
    left: Mapping[int, tuple[str, str]], lines: Sequence[str], why: tuple[str, ...] = ()
) -> UnitState:
    pids = " ".join(str(pid) for pid in list(left)[:12])
    return UnitState(
        "leftover-processes",
        (*[line for _, line in list(left.values())[:4]], *why),
        says=f"{_left_words(left)} of an earlier start still run: they may hold the port and GPU memory, so every new start fails.",
        advice=f"Stop the unit, end the left-over processes (`kill {pids}`), then start it. KillMode=control-group prevents this.",
    )


def worker_killed(lines: Sequence[str]) -> UnitState | None:
    """`oom-killed` if the OOM killer killed a process of a unit that runs on (OOMPolicy=continue)."""
    hit = first(_OOM, since_last_start(lines))
    return UnitState("oom-killed", (hit[0],)) if hit else None


def condition_state(lines: Sequence[str]) -> UnitState:
    """`condition-not-met`, with the path that the condition names if the journal has it."""
    hits = [(line, match) for line in lines if (match := CONDITION.search(line))]
    if not hits:
        return UnitState("condition-not-met", ("ConditionResult=no",))
    hit = next((h for h in hits if h[1]["arg"]), hits[0])
    return UnitState("condition-not-met", (hit[0],), hit[1]["arg"] or None)
