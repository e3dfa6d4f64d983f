"""Run-time overrides of a unit: a drop-in under /run, which a reboot forgets, with its run's id and an expiry."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Dict, List, Optional

from ..context import Context
from ..errors import OpError
from ..host.facts import read_text
from ..host.state_folder import write_whole
from ..process.launch import quote, quote_env
from ..programs import run
from .units import complain, need_linger, show_unit, systemctl, unit_name

NAME = "50-ddtop.conf"
SYSTEM_ROOT = "/run/systemd/system"
MARK = "# ddtop-override "
_SETTING = re.compile(r"[A-Z][A-Za-z0-9]*\Z")


def override_text(
    run_id: str, expires_at_s: float, argv: List[str], env: Dict[str, str], extra: Dict[str, str]
) -> str:
    """The drop-in's text. Without the empty ExecStart= first, systemd would refuse a second one."""
    mark = json.dumps({"run": run_id, "expires_at_s": expires_at_s}, separators=(",", ":"))
    lines = [MARK + mark, "# Written by ddtop; a reboot or `ddtop stop` removes it.", "[Service]"]
    if argv:
        if not argv[0].startswith("/"):
            raise OpError("bad-request", f"{argv[0]!r}: systemd needs the absolute path of the program")
        program = quote(argv[0]) if " " in argv[0] else argv[0]
        lines += ["ExecStart=", "ExecStart=" + " ".join([program] + [quote(word) for word in argv[1:]])]
    lines += ["Environment=" + quote_env(key, value) for key, value in sorted(env.items())]
    for key, value in sorted(extra.items()):
        if not _SETTING.match(key) or "\n" in str(value):
            raise OpError("bad-request", f"{key!r} is not a setting of [Service]")
        lines.append("%s=%s" % (key, value))
    return "\n".join(lines) + "\n"


def user_root() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.getuid()
    return runtime + "/systemd/user"


def path_of(unit: str, user: bool) -> str:
    return "%s/%s.d/%s" % (user_root() if user else SYSTEM_ROOT, unit, NAME)


def parse_mark(text: str) -> Optional[Dict[str, Any]]:
    """{"run", "expires_at_s"} of a drop-in that ddtop wrote; None of any other."""
    first = text.split("\n", 1)[0]
    if not first.startswith(MARK):
        return None
    try:
        mark = json.loads(first[len(MARK) :])
        return {"run": str(mark["run"]), "expires_at_s": float(mark["expires_at_s"])}
    except (ValueError, KeyError, TypeError):
        return {"run": "?", "expires_at_s": 0.0}


def find_overrides() -> List[Dict[str, Any]]:
    """Every OVERRIDE in place, of system units and of this user's."""
    found = []
    for root, user in ((SYSTEM_ROOT, False), (user_root(), True)):
        for path in sorted(glob.glob("%s/*.d/%s" % (glob.escape(root), NAME))):
            mark = parse_mark(read_text(path) or "")
            if mark is not None:
                unit = os.path.basename(os.path.dirname(path))[: -len(".d")]
                found.append({"unit": unit, "path": path, "user": user, **mark})
    return found


async def override_write(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `override-write`."""
    unit, user = unit_name(args["unit"]), bool(args.get("user"))
    argv = [str(word) for word in args.get("exec_argv") or []]
    env = {str(k): str(v) for k, v in (args.get("env") or {}).items()}
    extra = {str(k): str(v) for k, v in (args.get("extra") or {}).items()}
    text = override_text(str(args["run"]), float(args["expires_at_s"]), argv, env, extra)
    if user:
        need_linger(context)
    elif "override" not in context.rights.can:
        raise OpError(
            "not-permitted",
            f"this login may not write {path_of(unit, user)}",
            "log in as root, allow `sudo tee` and `sudo systemctl` without a password, or use a reconfigure script",
        )
    path = path_of(unit, user)
    present = read_text(path)
    if present is not None and parse_mark(present) is None:
        raise OpError("failed", f"{path} exists and was not written by ddtop", "move it away first")
    if user or context.rights.uid == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        await context.thread(write_whole, path, text.encode("utf-8", "surrogateescape"), 0o644)
    else:
        await _sudo_write(path, text)
    await _reload(context, user)
    props = await show_unit(unit, user)
    return {"path": path, "need_reload": not_loaded(props, path), "text": text}


def not_loaded(props: Dict[str, str], path: str) -> bool:
    """Whether systemd does not know a drop-in that lies there.

    NeedDaemonReload alone does not tell: of a unit whose folder of drop-ins is new, systemd 252 says "no" until
    it is reloaded, for it looks into its cache of known folders.
    """
    return props.get("NeedDaemonReload") == "yes" or path not in props.get("DropInPaths", "").split()


async def _sudo_write(path: str, text: str) -> None:
    temporary = path + ".new"  # systemd reads *.conf only
    for words, stdin in (
        (["mkdir", "-p", os.path.dirname(path)], None),
        (["tee", temporary], text),
        (["mv", "-T", temporary, path], None),
    ):
        done = await run(["sudo", "-n", *words], timeout_s=10, stdin=stdin, max_b=1000)
        if done.rc != 0:
            raise complain(done, "sudo " + words[0])


async def _reload(context: Context, user: bool) -> None:
    done = await systemctl(context, ["daemon-reload"], user)
    if done.rc != 0:
        raise complain(done, "systemctl daemon-reload")


async def override_remove(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `override-remove`: only what ddtop wrote; the folder too if it is empty then."""
    unit, user = unit_name(args["unit"]), bool(args.get("user"))
    path = path_of(unit, user)
    present = read_text(path)
    if present is None:
        return {"removed": []}
    if parse_mark(present) is None:
        raise OpError("failed", f"{path} was not written by ddtop", "it is left alone")
    if user or context.rights.uid == 0:
        os.unlink(path)
        try:
            os.rmdir(os.path.dirname(path))
        except OSError:
            pass  # others have drop-ins there
    else:
        done = await run(["sudo", "-n", "rm", "-f", path], timeout_s=10)
        if done.rc != 0:
            raise complain(done, "sudo rm")
        await run(["sudo", "-n", "rmdir", "--ignore-fail-on-non-empty", os.path.dirname(path)], timeout_s=10)
    await _reload(context, user)
    props = await show_unit(unit, user)
    still = path in props.get("DropInPaths", "").split() or props.get("NeedDaemonReload") == "yes"
    return {"removed": [path], "need_reload": still}
