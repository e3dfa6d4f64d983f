"""How a unit ended or why it cannot start, in words and as a cause: by what its manager says. Pure."""

from __future__ import annotations

from ddtop.services.readings import UnitReading

REFUSED_CODES = {
    "200": ("working-directory-missing", "its working directory is not there (200/CHDIR)"),
    "203": ("exec-not-found", "its program cannot be executed (203/EXEC)"),
    "216": ("user-missing", "its group does not exist (216/GROUP)"),
    "217": ("user-missing", "its user does not exist (217/USER)"),
    "226": ("sandbox-setup-failed", "its mount namespace cannot be set up (226/NAMESPACE)"),
}
BAD_LOADS = {
    "masked": ("unit-masked", "the unit is masked"),
    "not-found": ("unit-not-found", "there is no such unit"),
    "bad-setting": ("bad-unit-file", "the unit file has a setting systemd refuses"),
    "error": ("bad-unit-file", "systemd cannot load the unit file"),
}


def exit_words(u: UnitReading) -> str:
    code, _, number = (u.exit_code or "").partition("/")
    if u.result == "oom-kill":
        return "was killed by the kernel: out of memory"
    if u.result == "timeout":
        return "was killed by systemd: its start or stop took longer than the unit allows"
    if code in ("killed", "dumped"):
        return f"was killed by signal {number}"
    if code == "exited":
        return f"exited with code {number}"
    return f"is {u.active}"


def exit_slug(u: UnitReading) -> str:
    code = (u.exit_code or "").partition("/")[0]
    if u.result == "oom-kill":
        return "oom-killed"
    if u.result == "timeout":
        return "start-timeout"
    if code in ("killed", "dumped"):
        return "core-dumped" if code == "dumped" else "main-process-killed"
    return "main-process-exited"
