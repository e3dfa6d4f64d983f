"""`do`: what a key of the dashboard does, as a command; waits for the runner's answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ddtop.commands.live.codes import Code
from ddtop.commands.live.read import Now, as_json, read_now, which
from ddtop.errors import NobodyError, UsageError, plain
from ddtop.events import CommandSeen
from ddtop.journal.act.actions import Actions, Ask
from ddtop.journal.act.now import SCHEMA, known
from ddtop.journal.act.pending import GRACE_S, viewer_name
from ddtop.journal.act.seat import Seat
from ddtop.journal.act.targets import NotNow, Target, target_of
from ddtop.journal.commands import append_command
from ddtop.journal.locks import is_live
from ddtop.journal.read.reader import Follower

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Wish:
    """What was typed."""

    action: str
    target: str = ""
    alert: str | None = None
    leave_out: tuple[str, ...] = ()
    leave_running: bool = False


Maker = Callable[[Actions, Wish], Ask | NotNow]


def _on_cells(make: Callable[[Actions, Target], Ask | NotNow], tag: str) -> Maker:
    """An action on the cells that TARGET names; without one, what the alert offers."""

    def found(actions: Actions, wish: Wish) -> Ask | NotNow:
        if wish.target:
            target = target_of(actions.state, wish.target)
            return target if isinstance(target, NotNow) else make(actions, target)
        alert = actions.alert
        action = actions.offered(alert, tag) if alert is not None else None
        if alert is not None and action is not None:
            return actions.answer(alert, action)
        return NotNow(
            f"`{wish.action}` needs a target: a configuration, or a cell (ddtop cells lists them)",
            unknown=True,
        )

    return found


def _answer(actions: Actions, wish: Wish) -> Ask | NotNow:
    """The alert's choice that TARGET names by its key, command or label; without TARGET the advised one."""
    state = actions.state
    if wish.alert is not None:
        fitting = [a for a in state.open_alerts if a.id.startswith(wish.alert)]
        if len(fitting) != 1:
            return NotNow(
                f"no open alert `{wish.alert}`; open: {_named([a.id for a in state.open_alerts])}",
                unknown=True,
            )
        alert = fitting[0]
    elif actions.alert is None:
        return NotNow("no alert is open, so nothing needs an answer now")
    else:
        alert = actions.alert
    choices = alert.raised.actions
    if not choices:
        return NotNow(f"{alert.raised.title} offers no choice: {alert.raised.advice}")
    action = actions.offered(alert, wish.target) if wish.target else choices[0]
    if action is None:
        offered = ", ".join(f"{a.key} ({a.label})" for a in choices)
        return NotNow(f"{alert.raised.title} offers no `{wish.target}`; choices: {offered}", unknown=True)
    return actions.answer(alert, action, now=True)


ACTIONS: dict[str, tuple[str, Maker]] = {
    "answer": ("answer an alert: TARGET is a choice's key or name; without it the advised one", _answer),
    "resume": (
        "do the proposed steps (--leave-out STEP), or go on after an alert or a pause",
        lambda a, w: a.resume(w.leave_out),
    ),
    "retry": ("run a cell or configuration again", _on_cells(Actions.retry, "retry")),
    "skip": ("leave a cell or configuration out", _on_cells(Actions.skip, "skip")),
    "mark-broken": (
        "mark a cell or configuration as broken",
        _on_cells(lambda a, t: a.mark_broken(t, broken=True), "mark-broken"),
    ),
    "unmark": (
        "take that mark away",
        _on_cells(lambda a, t: a.mark_broken(t, broken=False), ""),
    ),
    "undo": ("take back your last skip, retry or mark", lambda a, _: a.undo()),
    "restage": ("copy what is missing of the model", lambda a, _: a.restage()),
    "restart": ("restart the service; TARGET: its unit", lambda a, w: a.restart_service(w.target or None)),
    "wait-longer": ("give a stalled start more time", lambda a, _: a.wait_longer()),
    "pause": ("pause after the running cell", lambda a, _: a.pause()),
    "go-on": ("go on after a pause", lambda a, _: a.go_on()),
    "stop": (
        "stop the run and restore the host (--leave-running)",
        lambda a, w: a.stop(leave_running=w.leave_running),
    ),
}
"""Action → what it does, and what makes its command."""

TARGETED = ("answer", "retry", "skip", "mark-broken", "unmark", "restart")


def split(words: Sequence[str]) -> tuple[str | None, str, str]:
    """(RUN, action, target) of `[RUN] ACTION [TARGET…]`. Raises UsageError.

    >>> split(["ct200", "retry", "b16", "fib@256"]), split(["pause"])
    (('ct200', 'retry', 'b16 fib@256'), (None, 'pause', ''))
    """
    head = 1 if len(words) > 1 and words[1] in ACTIONS else 0
    if len(words) <= head or words[head] not in ACTIONS:
        said = (
            f"`{words[min(head + (len(words) > 1), len(words) - 1)]}` is no action"
            if words
            else "no action is named"
        )
        raise UsageError(
            f"do: {said}", do=f"name one of {', '.join(ACTIONS)}: ddtop do [RUN] ACTION [TARGET]"
        )
    run, action, target = (words[0] if head else None), words[head], " ".join(words[head + 1 :])
    if target and action not in TARGETED:
        raise UsageError(
            f"do {action}: it takes no target, and `{target}` follows it",
            do=f"a run or its recording stands before the action: ddtop do {target.split()[0]} {action}",
        )
    return run, action, target


def do(words: Sequence[str], *, yes: bool, json_out: bool, **more: Any) -> int:
    """The command. Returns its exit code."""
    run, action, target = split(words)
    wish = Wish(action, target, **more)
    now = read_now(which(run, live=True))
    viewer = viewer_name("cli")
    ask = ACTIONS[action][1](Actions(now.state, viewer, time.time(), Seat(held=now.live)), wish)
    if isinstance(ask, NotNow) and ask.nobody:
        return _say(now, wish, None, Code.NOBODY, "nobody", ask.why, json_out)
    if isinstance(ask, NotNow):
        code = Code.UNKNOWN_TARGET if ask.unknown else Code.REFUSED
        return _say(now, wish, None, code, "unknown-target" if ask.unknown else "refused", ask.why, json_out)
    if ask.confirmed_first(now.state) and not yes:
        return _say(now, wish, ask, Code.REFUSED, "needs-yes", "not done: this wants --yes", json_out)
    try:
        append_command(now.path, ask.command)
    except NobodyError as error:
        return _say(now, wish, ask, Code.NOBODY, "nobody", error.what, json_out)
    seen = answer_of(now, ask)
    if seen is None:
        return _say(
            now, wish, ask, Code.NOBODY, "nobody", "no reply in time: the runner may have ended", json_out
        )
    code = Code.DONE if seen.outcome == "obeyed" else Code.REFUSED
    outcome = "done" if seen.outcome == "obeyed" else seen.outcome
    return _say(now, wish, ask, code, outcome, seen.reason, json_out)


def answer_of(now: Now, ask: Ask) -> CommandSeen | None:
    """The runner's answer to a command that was sent; None where none came within its deadline, or before its runner ended."""
    until = time.monotonic() + ask.command.deadline_s + GRACE_S
    with closing(Follower(now.path, now.state.seq)) as follower:
        while True:
            late = time.monotonic() > until or not is_live(
                now.path
            )  # asked first: all it wrote is read below
            while batch := follower.poll():
                for seq, event in batch:
                    now.state.seq = seq
                    if isinstance(event, CommandSeen) and event.command_id == ask.command.id:
                        return event
            if late:
                return None
            time.sleep(POLL_S)


def _named(words: Sequence[str]) -> str:
    return ", ".join(words) or "none"


def _say(now: Now, wish: Wish, ask: Ask | None, code: Code, outcome: str, reason: str, json_out: bool) -> int:
    """Prints what became of it; returns the exit code."""
    facts = dict(ask.facts) if ask is not None else {}
    if json_out:
        values = known(
            schema=SCHEMA,
            run=now.state.run.run_id,
            host=now.state.host.name,
            action=wish.action,
            target=wish.target,
            outcome=outcome,
            reason=reason,
            what=ask.label if ask is not None else None,
            unit=facts.get("unit"),
            command=facts.get("command"),
            facts=[list(line) for line in ask.facts] if ask is not None else None,
            command_id=ask.command.id if ask is not None and outcome != "needs-yes" else None,
            seq=now.state.seq,
        )
        print(as_json(values))
        return code
    label = ask.label if ask is not None else wish.action
    head = {"done": "done", "late": "too late, nothing was done", "nobody": "not done"}.get(outcome, outcome)
    lines = [f"{head.replace('-', ' ')}: {label}" + (f": {reason}" if reason else "")]
    if outcome == "needs-yes" and ask is not None:
        lines = [f"not done: {label}", *(f"  {name + ':':9} {value}" for name, value in ask.facts)]
        lines.append("  do:       give --yes to do it")
    elif outcome == "unknown-target":
        lines = [f"{wish.action}: {reason}"]
    elif outcome == "nobody":
        host, ended = now.state.host.name or "HOST", now.state.run.ended
        if ended is None or ended.outcome != "done":
            lines.append(
                f"  do:    ddtop connect {host} --detach starts a runner that resumes an unfinished sweep"
            )

    print(plain("\n".join(lines)), file=sys.stdout if code == Code.DONE else sys.stderr)
    return code
