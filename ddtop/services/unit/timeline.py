"""Judge a timeline of a unit: readings in order, as a person or a script noted them.

Two forms, both with `Key=value` anywhere: `t0+0.5  show: ActiveState=active MainPID=267 …` among commands and HTTP
answers, or `unit.service: failed (Result=exit-code, NRestarts=0)` line by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ddtop.services.causes import verdict_fields
from ddtop.services.unit.failed import UnitState, exit_slug
from ddtop.services.unit.result_fields import state_fields
from ddtop.services.unit.state import unit_state
from ddtop.services.unit.systemctl_show import UnitProps, unit_props

_STATES = "active|activating|deactivating|inactive|failed|reloading"
_TIME = re.compile(r"^\s*(?:t0|T|t)? ?(?P<t>[+-]? ?\d+(?:\.\d+)?)? ?(?:s\b)?[:\s]+")
_PAIR = re.compile(r"\b(?P<k>[A-Z][A-Za-z]+)=(?P<v>[^\s,;()]*)")
_LISTED = re.compile(rf"^\s*(?:\S+\s+)?(?P<unit>[\w@.\-]+\.(?:service|scope)):? +(?P<state>{_STATES})\b")
_COMMAND = re.compile(
    r"systemctl (?:--\S+ )*(?P<verb>start|restart|stop|reload-or-restart)\b.*?(?:\brc ?= ?(?P<rc>\d+))?\s*$"
)
_HTTP = re.compile(
    r"\b(?:GET|POST) (?P<path>/\S*) *(?:->|→|:|=>)? *(?:HTTP )?(?P<status>\d{3})\b(?P<rest>.*)"
)
_PID = re.compile(r"pid[ =:]*(?P<pid>\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Event:
    number: int
    text: str
    at: str | None
    props: UnitProps | None = None
    verb: str | None = None
    rc: int | None = None
    http: int | None = None
    pid: int | None = None
    old: bool = False


def _time(line: str) -> str | None:
    match = re.match(r"^\s*(?:t0|T0)\s*(?P<t>[+-]\s*\d+(?:\.\d+)?)?", line) or re.match(
        r"^\s*(?P<t>\+?\d+(?:\.\d+)?) ?s?\s", line
    )
    if match is None:
        return None
    return (match["t"] or "0").replace(" ", "").lstrip("+")


def _events(text: str) -> list[_Event]:
    found: list[_Event] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        at = _time(line)
        pairs = {m["k"]: m["v"] for m in _PAIR.finditer(line)}
        listed = _LISTED.match(line)
        if listed:
            pairs.setdefault("ActiveState", listed["state"])
            pairs.setdefault("Id", listed["unit"])
        if "ActiveState" in pairs or ("SubState" in pairs and "MainPID" in pairs):
            found.append(_Event(number, line.strip(), at, props=unit_props(pairs)))
        elif (http := _HTTP.search(line)) is not None:
            pid = _PID.search(http["rest"])
            found.append(
                _Event(
                    number, line.strip(), at, http=int(http["status"]), pid=int(pid["pid"]) if pid else None
                )
            )
        elif (command := _COMMAND.search(line)) is not None:
            found.append(
                _Event(
                    number,
                    line.strip(),
                    at,
                    verb=command["verb"],
                    rc=int(command["rc"]) if command["rc"] else None,
                )
            )
    return found


def looks_like_timeline(text: str) -> bool:
    """Whether text holds several readings of a unit, one a line (and is not `systemctl show` output)."""
    lines = text.splitlines()[:400]
    readings = sum(
        1 for line in lines if _LISTED.match(line) or ("ActiveState=" in line and line.count("=") > 1)
    )
    return readings >= 2


def _merge(readings: list[UnitProps]) -> list[UnitProps]:
    """Carry NRestarts over readings that do not repeat it."""
    merged: list[UnitProps] = []
    restarts: int | None = None
    for props in readings:
        restarts = props.n_restarts if props.n_restarts is not None else restarts
        merged.append(props if props.n_restarts is not None else replace(props, n_restarts=restarts))
    return merged


def read_timeline(name: str, text: str) -> dict[str, Any]:
    """Judge a timeline. Fields: old_pid, new_pid, invocation_changed, ready_at_<seconds> for each HTTP 200 after a
    restart, n_restarts, n_restarts_changes, and those of the last reading."""
    events = _events(text)
    shows = [e for e in events if e.props is not None]
    readings = _merge([e.props for e in shows if e.props is not None])
    if not readings:
        return {
            **verdict_fields("no-unit-data"),
            "evidence": [{"file": name, "line": None, "text": "no line is a reading"}],
        }
    command_at = next((e.number for e in events if e.verb in ("restart", "start", "reload-or-restart")), None)
    before = next(
        (p for e, p in zip(shows, readings, strict=True) if command_at is None or e.number < command_at), None
    )
    final = readings[-1]
    counts = [p.n_restarts for p in readings if p.n_restarts is not None]
    fields = state_fields(final)
    if counts:
        fields["n_restarts"] = max(counts)
    states = [p.active_state for p in readings]
    old_answered = False
    if command_at is not None and before is not None:
        fields["n_restarts_changes"] = bool(counts) and max(counts) != min(counts)
        old_answered = _generations(fields, events, shows, readings, before, command_at)
    changed = bool(fields.get("invocation_changed"))
    state = _whole(final, states, counts, before, command_at, changed, old_answered)
    result = {**verdict_fields(state.slug), **fields}
    decisive = [shows[-1]] + [e for e in events if e.http is not None or e.verb is not None]
    result["evidence"] = [
        {"file": name, "line": e.number, "text": e.text[:400]}
        for e in sorted(decisive, key=lambda e: e.number)
    ][:12]
    return result


def _generations(
    fields: dict[str, Any],
    events: list[_Event],
    shows: list[_Event],
    readings: list[UnitProps],
    before: UnitProps,
    command_at: int,
) -> bool:
    """Fields on the old and the new process. Returns whether the old one answered HTTP after the restart was requested."""
    after = [p for e, p in zip(shows, readings, strict=True) if e.number > command_at]
    fields["old_pid"] = before.main_pid
    new = [p for p in after if p.invocation_id and p.invocation_id != before.invocation_id]
    new_pids = [p.main_pid for p in new if p.main_pid] or [
        p.main_pid for p in after if p.main_pid and p.main_pid != before.main_pid
    ]
    if new_pids:
        fields["new_pid"] = new_pids[0]
    fields["invocation_changed"] = bool(new)
    old_answered = False
    for event in events:
        if event.http is None or event.number < command_at:
            continue
        known = [p for e, p in zip(shows, readings, strict=True) if e.number < event.number]
        current = known[-1] if known else before
        is_new = current.invocation_id != before.invocation_id and current.active_state == "active"
        by_old = event.pid == before.main_pid if event.pid is not None else not is_new
        old_answered = old_answered or (by_old and event.http == 200)
        if event.at is not None and event.http == 200:
            by_new = is_new and (event.pid is None or event.pid == current.main_pid)
            fields[f"ready_at_{event.at.replace('.', '_').replace('-', 'minus_')}"] = by_new and not by_old
    return old_answered


def _whole(
    final: UnitProps,
    states: list[str | None],
    counts: list[int],
    before: UnitProps | None,
    command_at: int | None,
    changed: bool,
    old_answered: bool,
) -> UnitState:
    grew = bool(counts) and max(counts) > min(counts)
    rounds = sum(1 for a, b in pairwise(states) if a == "failed" and b in ("activating", "active"))
    if command_at is None and (grew or rounds >= 2) and final.active_state != "inactive":
        return UnitState("flapping")
    if final.active_state == "failed":
        return (
            UnitState("restart-failed-old-process-answered") if old_answered and changed else exit_slug(final)
        )
    if grew and final.active_state in ("activating", "failed"):
        return UnitState("flapping")
    if (
        command_at is not None
        and before is not None
        and final.active_state == "active"
        and not changed
        and final.invocation_id
    ):
        return UnitState("restart-not-done")
    state = unit_state(final, start_asked=command_at is not None)
    if state.slug == "never-started" and any(s in ("active", "deactivating") for s in states):
        return UnitState("stopped-cleanly")
    return state
