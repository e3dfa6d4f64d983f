"""Starting a process that outlives this session: systemd-run where systemd is, setsid only where it is not.

A plain background process stays in the login's scope: KillUserProcesses ends it with the session. So under systemd
a job is a unit of its own (as root, by sudo -n with --uid, or --user with linger proven), or it is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pwd
import re
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Sequence

from ..context import Context
from ..errors import OpError
from ..host.state_folder import write_whole
from ..programs import Done, run, tool_env

SYSTEM, SUDO, USER, SETSID = "system", "sudo", "user", "setsid"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
NOFILE = 65536
OLD_ZIP_S = 30 * 86400


def quote(word: str) -> str:
    """A word for a unit file's command line: literal, whatever it holds.

    >>> print(quote('a b'), quote('100%'), quote('$HOME'), quote('say "hi"'))
    "a b" "100%%" "$$HOME" "say \\\\"hi\\\\""
    """
    if "\n" in word or "\0" in word:
        raise OpError("bad-request", f"{word!r}: an argument in a unit file cannot hold a newline")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return '"%s"' % escaped


def quote_env(key: str, value: str) -> str:
    """NAME=VALUE for Environment=, where $ has no meaning but % has."""
    if not _ENV_NAME.match(key) or "\n" in value or "\0" in value:
        raise OpError("bad-request", f"{key!r} cannot be set in a unit file")
    return '"%s=%s"' % (key, value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%"))


def mode_of(context: Context) -> str:
    """How this login may start what outlives it. Raises OpError with the remedy where it may not."""
    context.need_state_dir()
    rights = context.rights
    if "systemd" not in rights.can:
        return SETSID
    if rights.uid == 0:
        return SYSTEM
    if "systemd-run" in rights.sudo_for:
        return SUDO
    if "user-units" in rights.can:
        return USER
    raise OpError(
        "not-permitted",
        f"{rights.user} may not start jobs that outlive the session: not root, no sudo without a password, linger off",
        f"run as root there: loginctl enable-linger {rights.user} (or allow sudo systemd-run without a password)",
    )


def systemctl_words(mode: str) -> List[str]:
    """systemctl for units that `mode` has started."""
    if mode == USER:
        return ["systemctl", "--user"]
    return ["sudo", "-n", "systemctl"] if mode == SUDO else ["systemctl"]


def stored_zip(context: Context) -> str:
    """The agent's zip as a file in the state folder, checked by its hash: what detached processes run."""
    folder = os.path.join(context.need_state_dir(), "agent")
    path = os.path.join(folder, context.zip_hash + ".zip")
    if _hash_of(path) != context.zip_hash:
        with open(context.zip_path, "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != context.zip_hash:
            raise OpError("internal", "the agent's own zip does not match its hash")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _forget_old(folder)
        write_whole(path, data)
    return path


def _forget_old(folder: str) -> None:
    """Deletes zips of other ddtop versions that are older than OLD_ZIP_S: no job runs from them any more."""
    for name in os.listdir(folder):
        full = os.path.join(folder, name)
        try:
            if name.endswith(".zip") and time.time() - os.stat(full).st_mtime > OLD_ZIP_S:
                os.unlink(full)
        except OSError:
            pass


def _hash_of(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def python_words(zip_path: str, *words: str) -> List[str]:
    """The command that runs the zip as a detached process."""
    return [sys.executable or "python3", "-I", "-S", zip_path, *words]


def run_words(
    mode: str,
    unit: str,
    argv: Sequence[str],
    *,
    stop_argv: Sequence[str] = (),
    cwd: str = "/",
    limit_s: Optional[float] = None,
    stop_s: float = 20.0,
    user: str = "",
    group: str = "",
) -> List[str]:
    """The systemd-run command. --collect forgets how it ended, so ExecStopPost writes that down."""
    words = ["sudo", "-n", "systemd-run"] if mode == SUDO else ["systemd-run"]
    if mode == USER:
        words.append("--user")
    if user:
        words += ["--uid=" + user, "--gid=" + group]
    words += ["--unit=" + unit, "--collect", "--quiet", "--no-ask-password"]
    settings: Dict[str, Any] = {
        "Type": "exec",
        "WorkingDirectory": cwd,
        "LimitNOFILE": NOFILE,
        "KillMode": "control-group",
        "TimeoutStopSec": max(1, round(stop_s)),
        "SyslogIdentifier": "ddtop",
    }
    if mode != USER:  # a user's manager may not give itself more
        settings["OOMScoreAdjust"] = 0
    if limit_s:
        settings["RuntimeMaxSec"] = round(
            limit_s + 30
        )  # the job minds its own limit; this is the net below it
    if stop_argv:
        settings["ExecStopPost"] = " ".join([stop_argv[0]] + [quote(word) for word in stop_argv[1:]])
    for key, value in settings.items():
        words += ["-p", "%s=%s" % (key, value)]
    return [*words, "--", *argv]


async def launch(
    context: Context,
    mode: str,
    unit: str,
    argv: Sequence[str],
    *,
    stop_argv: Sequence[str] = (),
    cwd: str = "/",
    log: str,
    limit_s: Optional[float] = None,
    stop_s: float = 20.0,
    as_root: bool = False,
    wait_for_name: bool = False,
) -> None:
    """Starts `argv` detached. A unit of that name that exists already is OpError "failed" (the name is the lock).

    With `wait_for_name` an ending unit of that name is waited for (3 s). With `as_root` a sudo login's job runs as root and not as the login's user.
    """
    if mode == SETSID:
        await context.thread(_setsid, list(argv), cwd, log)
        return
    account = pwd.getpwuid(context.rights.uid) if mode == SUDO and not as_root else None
    words = run_words(
        mode,
        unit,
        argv,
        stop_argv=stop_argv,
        cwd=cwd,
        limit_s=limit_s,
        stop_s=stop_s,
        user=account.pw_name if account else "",
        group=str(account.pw_gid) if account else "",
    )
    for attempt in range(30):
        done = await run(words, timeout_s=20)
        if done.rc == 0:
            return
        if not wait_for_name or "already" not in done.err or attempt == 29:
            raise _refused(done)
        await asyncio.sleep(0.1)


def _refused(done: Done) -> OpError:
    text = done.err.strip() or done.out.strip()
    low = text.lower()
    denied = "access denied" in low or "authentication" in low or "password" in low
    return OpError("not-permitted" if denied else "failed", f"systemd-run: rc {done.rc}: {text}")


def _setsid(argv: List[str], cwd: str, log: str) -> None:
    """Starts `argv` in a session of its own, adopted by init: the end of this session does not end it."""
    with open(log, "ab") as out:
        # A double fork: the Python in between ends at once, and init adopts the grandchild.
        code = (
            "import os,sys,subprocess;"
            "subprocess.Popen(sys.argv[1:],stdin=subprocess.DEVNULL,stdout=1,stderr=2,start_new_session=True)"
        )
        done = subprocess.run(
            [argv[0], "-I", "-S", "-c", code, *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env=tool_env(),
            start_new_session=True,
            timeout=20,
            check=False,
        )
    if done.returncode != 0:
        raise OpError("failed", f"could not start {argv[0]}", f"read {log} on the host")
