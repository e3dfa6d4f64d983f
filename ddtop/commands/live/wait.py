"""`wait`: returns when the next alert, result, ready server or end comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ddtop.commands.live.codes import Code
from ddtop.commands.live.read import Now, as_json, read_now, which
from ddtop.errors import UsageError, plain
from ddtop.events import AlertRaised, AlertResolved, CellStateSet, Event, RestartReady, RunEnded, StepsPlanned
from ddtop.journal.act.now import SCHEMA, alert_facts, asks, cell_facts, facts, known, steps_facts
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import RestartView
from ddtop.journal.locks import is_live
from ddtop.journal.read.reader import Follower
from ddtop.journal.read.select import asking

Kind = Literal["alert", "steps", "cell", "ready", "end"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULT: tuple[Kind, ...] = ("alert", "end")
"""What is waited for where nothing is named: until a person is needed, or there is nothing more to wait for."""
OVER = ("done", "failed", "broken", "skipped")
"""States in which a cell has ended."""
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Happened:
    """What was waited for, and where in the recording it stands."""

    kind: Kind
    seq: int
    event: Event | None = None
    already: bool = False
    """True where it held when `wait` began."""


class Watch:
    """Tells of each event, taken in order, whether it is one of `kinds`.

    An alert that is raised again while it is open (with what is done about it) is no second alert, unless it asks anew.
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._open: dict[str, float | None] = {}
        """Id of each open alert → until when it waits for an answer."""

    def take(self, event: Event) -> Kind | None:
        """Which kind it is; None where it is none that is waited for."""
        found: tuple[Kind, ...] = ()
        match event:
            case AlertRaised(alert_id=ident, answer_by_s=by):
                said = ident in self._open and by in (None, self._open[ident])
                found = () if said else ("alert",)
                self._open[ident] = by
            case AlertResolved(alert_id=ident):
                self._open.pop(ident, None)
            case StepsPlanned(answer_by_s=float()) if event.steps:
                found = ("steps", "alert")
            case CellStateSet() if event.state in OVER:
                found = ("cell",)
            case RestartReady():
                found = ("ready",)
            case RunEnded():
                found = ("end",)
        return next((kind for kind in found if kind in self._kinds), None)


def already(state: State, kinds: Sequence[Kind], now_s: float) -> Kind | None:
    """Which of `kinds` holds now: a question that is open, a server that is ready, a run that has ended. A cell never."""
    if state.run.ended is not None:
        return "end" if "end" in kinds else None
    if "steps" in kinds and asking(state, now_s):
        return "steps"
    if "alert" in kinds and asks(state, now_s):
        return "alert"
    ready = state.restart is not None and state.restart.outcome == "ready" and state.host.link == "connected"
    return "ready" if "ready" in kinds and ready and state.host.rebooted is None else None


def wait(
    run: str | None, kinds: Sequence[str], *, timeout_s: float | None, since: int | None, json_out: bool
) -> int:
    """The command. Returns its exit code."""
    wanted = _kinds(kinds or DEFAULT)
    until = None if timeout_s is None else time.monotonic() + timeout_s
    now = read_now(which(run, live=True))
    watch = Watch(wanted)
    found, code = _first(now, watch, wanted, since), Code.DONE
    if found is None and now.state.run.ended is not None:
        code = Code.ENDED
    elif found is None:
        found, code = _follow(now, watch, until)
    _say(now, wanted, found, code, json_out=json_out)
    return code


def _kinds(words: Sequence[str]) -> tuple[Kind, ...]:
    given = [part for word in words for part in word.split(",")]
    if wrong := [w for w in given if w not in KINDS]:
        raise UsageError(f"wait --for: `{wrong[0]}` is none", do=f"name one or more of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in given)


def _first(now: Now, watch: Watch, wanted: Sequence[Kind], since: int | None) -> Happened | None:
    """What happened after event `since`; without it, what holds now."""
    found: Happened | None = None
    for seq, event in now.events:
        kind = watch.take(event)
        # The end of a run that was resumed since is none.
        over = isinstance(event, RunEnded) and event != now.state.run.ended
        if found is None and kind is not None and since is not None and seq > since and not over:
            found = Happened(kind, seq, event)
    if since is None and (holds := already(now.state, wanted, time.time())) is not None:
        return Happened(holds, now.state.seq, already=True)
    return found


def _follow(now: Now, watch: Watch, until: float | None) -> tuple[Happened | None, Code]:
    """Reads on until it happens, the run ends, its runner dies or the time is over."""
    state = now.state
    with closing(Follower(now.path, state.seq)) as follower:
        while True:
            live = is_live(now.path)  # asked first, so that all it wrote before its end is read below
            found: Happened | None = None
            while batch := follower.poll():
                for seq, event in batch:
                    apply(state, event, seq)
                    kind = watch.take(event)
                    if found is None and kind is not None:
                        found = Happened(kind, seq, event)
                if found is not None:
                    return found, Code.DONE
            now.live = live
            if state.run.ended is not None:
                return None, Code.ENDED
            if not live:
                return None, Code.NOBODY
            if until is not None and time.monotonic() >= until:
                return None, Code.TIMED_OUT
            left = POLL_S if until is None else min(POLL_S, until - time.monotonic())
            time.sleep(max(0.01, left))


OUTCOMES = {
    Code.DONE: "happened",
    Code.ENDED: "ended",
    Code.NOBODY: "nobody",
    Code.TIMED_OUT: "timed-out",
}


def _say(now: Now, wanted: Sequence[Kind], found: Happened | None, code: Code, *, json_out: bool) -> None:
    state, at_s = now.state, time.time()
    what = _what(state, found, at_s)
    if json_out:
        values = known(
            schema=SCHEMA,
            run=state.run.run_id,
            host=state.host.name,
            waited_for=list(wanted),
            outcome=OUTCOMES[code],
            happened=found.kind if found is not None else None,
            already=found.already if found is not None else None,
            seq=found.seq if found is not None else state.seq,
            what=what,
            ended=facts(state, at_s, path=now.path, live=now.live).get("ended"),
        )
        print(as_json(values))
        return
    name = state.run.run_id or now.path.stem
    if found is not None:
        print(plain(f"{found.kind}: {_words(found, what)}"))
    elif code == Code.ENDED and state.run.ended is not None:
        ended = state.run.ended
        said = ended.outcome + (f" ({ended.reason})" if ended.reason else "")
        print(plain(f"run {name} ended: {said}; no {' or '.join(wanted)} came"), file=sys.stderr)
    elif code == Code.NOBODY:
        do = f"ddtop connect {state.host.name or 'HOST'} --detach resumes it"
        print(
            plain(f"nothing is running {name}: no {' or '.join(wanted)} will come\n  do:    {do}"),
            file=sys.stderr,
        )
    else:
        print(f"no {' or '.join(wanted)} in that time", file=sys.stderr)


def _what(state: State, found: Happened | None, now_s: float) -> dict[str, Any] | None:
    """The alert, steps, cell, start or end that happened."""
    if found is None:
        return None
    match found.event:
        case AlertRaised(alert_id=ident):
            return alert_facts(state.alerts[ident], now_s)
        case CellStateSet(cell_id=ident) if ident in state.cells:
            return cell_facts(state.cells[ident], now_s)
        case StepsPlanned():
            return steps_facts(state, now_s)
        case RestartReady(attempt_id=ident):
            return next((_ready(r) for r in state.restarts if r.attempt_id == ident), None)
    return _holds(state, found.kind, now_s)


def _ready(start: RestartView) -> dict[str, Any]:
    return known(config=start.config, tp=start.tp, unit=start.unit, ready_s=start.ready_s)


def _holds(state: State, kind: Kind, now_s: float) -> dict[str, Any] | None:
    """The same for what holds now."""
    if kind == "steps":
        return steps_facts(state, now_s)
    if kind == "alert":
        open_ = [a for a in (alert_facts(a, now_s) for a in state.open_alerts) if a["asks"]]
        return open_[-1] if open_ else steps_facts(state, now_s)
    if kind == "ready" and state.restart is not None:
        return _ready(state.restart)
    if kind == "end" and state.run.ended is not None:
        return known(outcome=state.run.ended.outcome, exit_code=state.run.ended.exit_code)
    return None


def _words(found: Happened, what: dict[str, Any] | None) -> str:
    """In a line."""
    what = what or {}
    match found.kind:
        case "alert" if "title" in what:
            return f"{what['title']}  {what.get('cause_text', '')}"
        case "alert" | "steps":
            return f"steps wait for approval: {what.get('why', '')}"
        case "cell":
            speed = what.get("output_tok_s")
            figure = f", {speed:.1f} tok/s" if speed is not None else ""
            return f"{what.get('label', '?')} {what.get('state', '?')}{figure}"
        case "ready":
            return f"{what.get('unit', '?')} is ready for {what.get('config', '?')}"
    return f"{what.get('outcome', '?')}, exit code {what.get('exit_code', '?')}"
