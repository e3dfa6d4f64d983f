"""systemctl: show, cat and actions, for system units and for a user's own."""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List

from ..context import Context
from ..errors import OpError
from ..programs import Done, run
from ..wire import UNIT_PROPS
from .dbus import UnitSignals

ACTIONS = ("start", "stop", "restart", "reset-failed", "daemon-reload", "kill")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}\Z")
_SHOW_S = 10.0
HOLD_S = 30.0


def unit_name(text: Any) -> str:
    """A unit's name, checked; `x` means `x.service`."""
    if not isinstance(text, str) or not _UNIT.match(text) or text.startswith("-"):
        raise OpError("bad-request", f"{text!r} is not a unit name")
    return (
        text
        if text.endswith((".service", ".scope", ".slice", ".target", ".socket", ".timer"))
        else text + ".service"
    )


def scope(user: bool) -> List[str]:
    return ["--user"] if user else []


def parse_show(text: str) -> Dict[str, str]:
    """KEY=VALUE lines of one `systemctl show`; a value may hold newlines, which continue the last key.

    >>> parse_show("Id=a.service\\nExecStart={ path=/x ; argv[]=/x a=b ; }\\n")
    {'Id': 'a.service', 'ExecStart': '{ path=/x ; argv[]=/x a=b ; }'}
    """
    found: Dict[str, str] = {}
    last = ""
    for line in text.split("\n"):
        key, sep, value = line.partition("=")
        if sep and key.isalnum() and key[:1].isupper():
            if key in found:  # ExecStart comes once for each command
                found[key] += "\n" + value
            else:
                found[key] = value
            last = key
        elif last and line:
            found[last] += "\n" + line
    return found


def need_systemd(context: Context) -> None:
    if "systemd" not in context.rights.can:
        raise OpError(
            "not-found",
            "systemd is not running on this host",
            'use service.kind = "process" or "command" in the plan',
        )


def need_linger(context: Context) -> None:
    """Raises OpError where user units would end with the last session: linger is off. A cut link ends a session."""
    need_systemd(context)
    if "user-units" not in context.rights.can:
        user = context.rights.user
        raise OpError(
            "not-permitted",
            f"user units of {user} end with the last session: linger is off, or the user manager cannot be reached",
            f"run as root there: loginctl enable-linger {user}; then connect again",
        )


def complain(done: Done, words: str) -> OpError:
    """A failed systemctl as an OpError: "not-permitted", "not-found" or "failed", by its message."""
    text = done.err.strip() or done.out.strip()
    low = text.lower()
    if (
        "access denied" in low
        or "authentication" in low
        or "password is required" in low
        or "not permitted" in low
    ):
        return OpError(
            "not-permitted", f"{words}: {text}", "log in as root, or allow it with sudo without a password"
        )
    if "not found" in low or "no such" in low or "not loaded" in low or "no files found" in low:
        return OpError("not-found", f"{words}: {text}")
    return OpError("failed", f"{words}: rc {done.rc}: {text}")


async def show_units(
    units: List[str], user: bool = False, timeout_s: float = _SHOW_S
) -> Dict[str, Dict[str, str]]:
    """unit → properties, of several units with one systemctl. An unknown unit has LoadState=not-found."""
    words = ["systemctl", *scope(user), "--no-pager", "show", "-p", ",".join(UNIT_PROPS), "--", *units]
    done = await run(words, timeout_s=timeout_s, max_b=2_000_000)
    blocks = [
        parse_show(block) for block in re.split(r"\n\n(?=[A-Z])", done.out.strip("\n")) if block.strip()
    ]
    if len(blocks) != len(units):
        raise complain(done, "systemctl show")
    return dict(zip(units, blocks))  # noqa: B905


async def show_unit(unit: str, user: bool) -> Dict[str, str]:
    """The properties of one unit; `FailedNeeds` names the units it requires that have failed, where it does not run."""
    props = (await show_units([unit], user))[unit]
    needs = needed_units(props)
    if needs and props.get("ActiveState") == "inactive" and (props.get("Job") or "0") in ("0", ""):
        failed = await _failed_units(needs, user)
        if failed:
            props["FailedNeeds"] = ", ".join(failed)
    return props


def needed_units(props: Dict[str, str]) -> List[str]:
    """The units whose failure keeps this one from starting, without slices, targets and the root file system.

    >>> needed_units({"Requires": "system.slice -.mount model-mount.service", "BindsTo": "models.mount"})
    ['model-mount.service', 'models.mount']
    """
    names = " ".join(props.get(key, "") for key in ("Requires", "BindsTo", "Requisite")).split()
    kept = [n for n in names if not n.endswith((".slice", ".target")) and n != "-.mount" and _UNIT.match(n)]
    return list(dict.fromkeys(kept))[:20]


async def _failed_units(units: List[str], user: bool) -> List[str]:
    words = ["systemctl", *scope(user), "--no-pager", "show", "-p", "Id,ActiveState", "--", *units]
    done = await run(words, timeout_s=_SHOW_S, max_b=200_000)
    blocks = [parse_show(block) for block in done.out.split("\n\n") if block.strip()]
    return [b["Id"] for b in blocks if b.get("ActiveState") == "failed" and b.get("Id")]


async def unit_show(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `unit-show`."""
    need_systemd(context)
    unit = unit_name(args["unit"])
    props = await show_unit(unit, bool(args.get("user")))
    return {"props": props, "mono_s": time.monotonic()}


async def unit_cat(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `unit-cat`: the unit's files as systemd reads them."""
    need_systemd(context)
    words = ["systemctl", *scope(bool(args.get("user"))), "--no-pager", "cat", "--", unit_name(args["unit"])]
    done = await run(words, timeout_s=_SHOW_S)
    if done.rc != 0:
        raise complain(done, "systemctl cat")
    return {"text": done.out}


async def systemctl(context: Context, words: List[str], user: bool, timeout_s: float = 30.0) -> Done:
    """systemctl with root's rights where this login has them (a --user manager needs none)."""
    need_systemd(context)
    prefix = [] if user else context.rights.prefix("systemctl")
    return await run(
        [*prefix, "systemctl", *scope(user), "--no-pager", "--no-ask-password", *words], timeout_s=timeout_s
    )


async def _remember(context: Context, unit: str, user: bool) -> None:
    """For HOLD_S systemd keeps the unit loaded, so that it can still say why a start came to nothing.

    Not for longer, and not while merely watching: a loaded unit's files are not read anew without a reload. Where
    it is refused (a login without root's rights), only the journal tells of an unmet condition.
    """
    try:
        hold = await context.thread(UnitSignals.hold, unit, user)
    except (OSError, ValueError):
        return
    context.loop.call_later(HOLD_S, hold.close)


async def unit_action(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `unit-action`: returns as soon as systemd has queued the job."""
    action = args["action"]
    if action not in ACTIONS:
        raise OpError("bad-request", f"unknown action {action!r}: use one of {', '.join(ACTIONS)}")
    user = bool(args.get("user"))
    words = [action]
    if action in ("start", "stop", "restart"):
        words = ["--no-block", action]
    elif action == "kill":
        words = ["kill", "--signal=" + re.sub(r"[^A-Z0-9]", "", str(args.get("signal", "TERM")))]
    if action != "daemon-reload":
        words += ["--", unit_name(args["unit"])]
    if user and action in ("start", "restart"):
        need_linger(context)
    if action in ("start", "restart"):
        await _remember(context, unit_name(args["unit"]), user)
    done = await systemctl(context, words, user)
    if done.rc != 0:
        error = complain(done, f"systemctl {action}")
        if error.code == "not-permitted":
            raise error
    return {"rc": done.rc, "stderr": done.err.strip(), "mono_s": time.monotonic()}
