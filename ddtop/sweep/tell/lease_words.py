"""The words about a host that another run has: who, since when, and what can be done. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtop.events import Action, Evidence
from ddtop.sweep.tell.alerts import AlertText
from ddtop.words import duration


def lease_line(entry: Mapping[str, Any]) -> str:
    """One lease in words.

    >>> lease_line({"who": "anna@laptop", "login": "root", "from": "10.0.0.5", "plan": "p", "run": "1a2b", "held_s": 720})
    'anna@laptop (root from 10.0.0.5), plan p, run 1a2b, since 12m00s'
    """
    where = f" from {entry['from']}" if entry.get("from") else ""
    plan = f", plan {entry['plan']}" if entry.get("plan") else ""
    since = f", since {duration(float(entry['held_s']))}" if entry.get("held_s") is not None else ""
    return f"{name(entry)} ({entry.get('login') or 'uid ' + str(entry.get('uid'))}{where}){plan}, run {entry.get('run')}{since}"


def name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("who") or entry.get("login") or "somebody")


def person(found: Mapping[str, Any]) -> str:
    """Whom one waits for: the holder, else the last in line before us."""
    holder = found.get("holder")
    if holder:
        return name(holder)
    line = found.get("line") or ()
    return name(line[-1]) if line else "somebody"


def _who(found: Mapping[str, Any]) -> str:
    holder = found.get("holder")
    if holder:
        return f"{lease_line(holder)}: {holder.get('why')}"
    return "; ".join(lease_line(x) for x in found.get("line") or ()) + " waited for it first"


def refusal(host: str, found: Mapping[str, Any]) -> str:
    """Why a run is refused, and the choices, for a run without a dashboard."""
    return (
        f"{host} is taken by {_who(found)}. Nothing was touched. Watch it: ddtop connect {host}. Wait in line:"
        f" --if-taken wait. Ask {person(found)} to hand it over, and take it over if their run is dead: --if-taken take-over"
    )


def taken_alert(host: str, found: Mapping[str, Any], alert: str) -> AlertText:
    """The alert of the second run."""
    wait = Action(key="w", label="wait in line", command="wait", args={"alert_id": alert})
    asks = Action(
        key="r", label=f"ask {person(found)} to hand it over", command="resume", args={"alert_id": alert}
    )
    evidence = [
        Evidence(source="lease", text=lease_line(x))
        for x in (found.get("holder"), *found.get("line", ()))
        if x
    ]
    return AlertText(
        title="HOST TAKEN",
        verdict="foreign",
        cause="host-taken",
        kind="host",
        cause_text=f"{host} is taken by {_who(found)}",
        advice=f"wait in line, or ask {person(found)} to hand it over; watching is always free: ddtop connect {host}",
        evidence=tuple(evidence[:8]),
        actions=(asks, wait),
    )


def wanted_alert(host: str, run: str, entry: Mapping[str, Any]) -> AlertText:
    """The alert of the run that has the host: somebody asks for it."""
    return AlertText(
        title="HOST WANTED",
        verdict="foreign",
        cause="host-wanted",
        kind="host",
        cause_text=f"{name(entry)} asks for {host}",
        advice=f"to hand it over, stop this run: S, or ddtop stop {run} (its finished cells are kept); else they wait",
        evidence=(Evidence(source="lease", text=lease_line(entry)),),
        actions=(),
    )
