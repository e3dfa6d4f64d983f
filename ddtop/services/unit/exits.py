"""How a process or a step of a unit ended: the signal, the exit status and systemd's own codes by name. Pure.

The one owner of this: `ddtop inspect unit`, the watchdog of a start and the end of a cell all ask here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.services.unit.systemctl_show import EXIT_NAMES, SIGNAL_NAMES


@dataclass(frozen=True, slots=True)
class Ending:
    """slug: a cause of causes.toml; words: what follows the unit's name in a sentence."""

    slug: str
    words: str


_SIGNALS = {
    4: ("illegal-instruction", "an instruction that this CPU does not have"),
    6: ("process-aborted", "the program ended itself over an error it found"),
    7: ("bus-error", "a page of a file or of shared memory could not be read"),
    8: ("arithmetic-fault", "a division by zero or an overflow in native code"),
    9: ("main-process-killed", "by the OOM killer, by systemd or by a person"),
    11: ("segmentation-fault", "native code used memory that it does not have"),
    15: ("main-process-killed", "a person, a script or a shutdown stopped it"),
    31: ("illegal-instruction", "a system call that its sandbox forbids (SystemCallFilter)"),
}
_STEPS = {
    "CHDIR": ("working-directory-missing", "its working directory does not exist or may not be entered"),
    "EXEC": ("exec-not-found", "its program cannot be executed"),
    "GROUP": ("user-missing", "its group does not exist"),
    "USER": ("user-missing", "its user does not exist"),
    "STDOUT": (
        "sandbox-setup-failed",
        "StandardOutput= cannot be opened (its folder is missing, or may not be written)",
    ),
    "STDERR": ("sandbox-setup-failed", "StandardError= cannot be opened"),
    "STDIN": ("sandbox-setup-failed", "StandardInput= cannot be opened"),
    "LIMITS": ("sandbox-setup-failed", "a Limit…= cannot be set for this user"),
    "CHROOT": ("sandbox-setup-failed", "RootDirectory= or RootImage= cannot be used"),
    "CPUAFFINITY": ("sandbox-setup-failed", "CPUAffinity= names CPUs that are not there"),
    "NUMA_POLICY": ("sandbox-setup-failed", "NUMAPolicy= or NUMAMask= cannot be set on this machine"),
    "CGROUP": ("sandbox-setup-failed", "its control group cannot be set up"),
    "PAM": ("sandbox-setup-failed", "the session of PAMName= cannot be opened"),
    "NETWORK": ("sandbox-setup-failed", "PrivateNetwork= or its network namespace cannot be set up"),
    "NAMESPACE": (
        "sandbox-setup-failed",
        "its mount namespace cannot be set up (a path of ReadWritePaths=, BindPaths= or ReadOnlyPaths= is missing)",
    ),
    "CAPABILITIES": ("sandbox-setup-failed", "AmbientCapabilities= or CapabilityBoundingSet= cannot be set"),
    "SECCOMP": ("sandbox-setup-failed", "SystemCallFilter= cannot be set"),
    "RUNTIME_DIRECTORY": ("sandbox-setup-failed", "RuntimeDirectory= cannot be made"),
    "STATE_DIRECTORY": ("sandbox-setup-failed", "StateDirectory= cannot be made"),
    "CACHE_DIRECTORY": ("sandbox-setup-failed", "CacheDirectory= cannot be made"),
    "LOGS_DIRECTORY": ("sandbox-setup-failed", "LogsDirectory= cannot be made"),
    "CONFIGURATION_DIRECTORY": ("sandbox-setup-failed", "ConfigurationDirectory= cannot be made"),
    "CREDENTIALS": ("sandbox-setup-failed", "LoadCredential= or SetCredential= cannot be read"),
    "KEYRING": ("sandbox-setup-failed", "its kernel keyring cannot be set up"),
}
NUMBERS = {name: number for number, name in EXIT_NAMES.items()}


def step_ending(name: str) -> Ending:
    """A step of systemd before the program ran, by its name (`EXEC`, `CHDIR` …)."""
    slug, words = _STEPS.get(
        name, ("sandbox-setup-failed", f"systemd could not do the step {name} before the program ran")
    )
    return Ending(slug, f"was not started: {words} ({NUMBERS.get(name, '')}/{name})".replace("(/", "("))


def signal_ending(number: int, *, dumped: bool = False, by_child: bool = False) -> Ending:
    """A process that a signal ended; `by_child`: its shell or container reported it as 128 + number."""
    name = SIGNAL_NAMES.get(number)
    slug, why = _SIGNALS.get(number, ("core-dumped" if dumped else "main-process-killed", ""))
    if dumped and slug in ("segmentation-fault", "process-aborted", "arithmetic-fault"):
        slug = "core-dumped"  # its stack is there to be read
    word = f"signal {number} (SIG{name})" if name else f"signal {number}"
    tail = f" (exit code {128 + number})" if by_child else ""
    core = " and dumped core" if dumped else ""
    return Ending(slug, f"was killed by {word}{tail}{core}" + (f": {why}" if why else ""))


def status_ending(status: int) -> Ending:
    """A main process that exited with `status`; systemd's own codes and 128 + signal included."""
    if status in EXIT_NAMES:
        return step_ending(EXIT_NAMES[status])
    if 128 < status < 128 + 32 and (status - 128) in _SIGNALS:
        return signal_ending(status - 128, by_child=True)
    if status == 127:
        return Ending(
            "program-missing",
            "exited with code 127: its script or container names a program that is not there",
        )
    if status == 126:
        return Ending(
            "exec-not-found",
            "exited with code 126: its script or container names a file that cannot be executed",
        )
    return Ending("main-process-exited", f"exited with code {status}")


def main_ending(result: str | None, code: str | None, status: int | None) -> Ending | None:
    """How the main process ended. result: systemd's `Result`; code: `exited`, `killed` or `dumped`; status: exit code or
    signal. None where that does not say it."""
    if result == "oom-kill":
        return Ending("oom-killed", "was killed by the kernel: out of memory")
    if result == "watchdog":
        return Ending(
            "watchdog-killed", "was killed by systemd's watchdog: no keep-alive within WatchdogSec="
        )
    if result == "protocol":
        return Ending(
            "notify-protocol",
            "broke the protocol of its Type=: it ended, or forked, without the ready message or PID file that systemd waits for",
        )
    if code in ("killed", "dumped") and status is not None:
        return signal_ending(status, dumped=code == "dumped")
    if code == "exited" and status:
        return status_ending(status)
    if result == "core-dump":
        return Ending("core-dumped", "crashed and dumped core")
    return None


_OWN_LINE = re.compile(
    r"^(?:\S+\.(?:service|mount|scope|socket|target|slice|automount|path|swap|device): "
    r"|(?:Start(?:ing|ed)|Stopp(?:ing|ed)|Failed to start|Dependency failed|Scheduled restart|Finished|Reached target|Reload)\b"
    r"|-- |Job |See |[$#>] )"
)
"""A line that systemd itself wrote."""
_CONTROL = re.compile(
    r"Control process exited, code=(?P<code>\w+),? status=(?P<st>\d+)|Failed with result 'timeout'|operation timed out"
)


def main_words(lines: Sequence[str], *, last: int = 2) -> tuple[str, ...]:
    """What the main process printed last, above "Main process exited"."""
    at = next((i for i in range(len(lines) - 1, -1, -1) if "Main process exited" in lines[i]), None)
    return () if at is None else _words_before(lines, at, last)


def control_words(lines: Sequence[str], *, last: int = 3) -> tuple[str, ...]:
    """What the command before (or after) the main process printed: the lines above "Control process exited" that are not
    systemd's, oldest first, at most `last`."""
    at = next((i for i in range(len(lines) - 1, -1, -1) if _CONTROL.search(lines[i])), None)
    return () if at is None else _words_before(lines, at, last)


def _words_before(lines: Sequence[str], at: int, last: int) -> tuple[str, ...]:
    said: list[str] = []
    for line in reversed(lines[:at]):
        if re.match(r"^(?:\S+: )?Start(?:ing|ed) ", line):
            break
        if line.strip() and not _OWN_LINE.match(line):
            said.append(line.strip())
            if len(said) == last:
                break
    return tuple(reversed(said))


_UNIT_FAILED = re.compile(
    r"^(?P<unit>[\w@.\\:\-]+\.(?:service|mount|socket|device|automount|target)): (?:Failed with result|Main process exited|Mount process exited|Job .{1,80} failed|Control process exited)"
)
_START_FAILED = re.compile(
    r"^Failed to (?:start|mount) (?P<unit>[\w@.\\:\-]+\.(?:service|mount|socket|device|automount|target))\b"
)
_DEVICE = re.compile(r"Timed out waiting for device (?P<unit>\S+)|^Job (?P<job>\S+)/start failed with result")


def failed_dependency(lines: Sequence[str], unit: str | None = None) -> tuple[str, str] | None:
    """(unit, line) of the first other unit that failed in these lines; None where none is named."""
    for line in lines:
        for pattern in (_UNIT_FAILED, _START_FAILED, _DEVICE):
            if match := pattern.search(line):
                found = match.groupdict()
                name = (found.get("unit") or found.get("job") or "").rstrip(".,")
                if name and name != unit and "job" not in name[:4]:
                    return name, line
    return None
