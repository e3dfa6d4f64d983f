"""What a plan needs and this login may not do: found before anything is touched, and reported once. Pure.

Only what is certain counts. Whether a polkit rule allows a restart, or an access list allows reading a log, shows when it
is tried; the gate refuses what cannot be proven.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddtop.events import Evidence
from ddtop.hosts.base import Hello
from ddtop.sweep.shared.plan import Sweep
from ddtop.sweep.tell.alerts import AlertText

TITLE = "NOT PERMITTED"


@dataclass(frozen=True, slots=True)
class MissingRight:
    """One thing that the plan needs and this login may not do, and what would allow it."""

    what: str
    remedy: str


def missing_rights(hello: Hello, sweep: Sweep) -> list[MissingRight]:
    """Everything that is certain to be refused, whatever configuration is tried first; empty where nothing is."""
    found: list[MissingRight] = []
    launches = sweep.launches.values()
    overridden = {x.unit for x in launches if x.kind == "systemd" and not x.user and (x.argv or x.env)}
    if overridden and "systemd" in hello.can and "override" not in hello.can:
        programs = "systemctl, systemd-run, journalctl, ss, tee, mkdir, mv and rm"
        found.append(
            MissingRight(
                f"write the run-time override of {_listed(overridden)}",
                f"log in as root, or allow {hello.user} sudo without a password for {programs}",
            )
        )
    own = {x.unit for x in launches if x.user}
    if own and "user-units" not in hello.can:
        found.append(
            MissingRight(
                f"keep {_listed(own)} running: units of {hello.user}'s own manager end with the last session of {hello.user}",
                f"as root there: loginctl enable-linger {hello.user}",
            )
        )
    if hello.state_dir is None:
        found.append(
            MissingRight(
                f"keep jobs and their results: no folder on a disk is writable for {hello.user}",
                f'[hosts.NAME] host_dir = "/a/folder/on/a/disk", writable for {hello.user}',
            )
        )
    elif "jobs" not in hello.can:
        found.append(
            MissingRight(
                "start jobs that outlive the session (staging, the load generator)",
                f"as root there: loginctl enable-linger {hello.user}, or allow sudo systemd-run without a password",
            )
        )
    return found


def _listed(units: Iterable[str]) -> str:
    return ", ".join(sorted(units))


def missing_rights_alert(host: str, user: str, found: list[MissingRight]) -> AlertText:
    """One alert for all missing rights."""
    whats = "; ".join(x.what for x in found)
    return AlertText(
        title=TITLE,
        verdict="refused",
        cause="not-permitted",
        kind="config",
        cause_text=f"{host}: {user} may not do what this plan needs, so nothing was touched: {whats}",
        advice="; ".join(dict.fromkeys(x.remedy for x in found)) + "; then connect again",
        evidence=tuple(Evidence(source="agent", text=f"may not {x.what}") for x in found),
        actions=(),
    )
