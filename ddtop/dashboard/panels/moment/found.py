"""What the probe found on a host: servers, units, model, disks, and what it may not see.

The probe's reply is shown as it is; a section that failed says so, one that is absent is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddtop.dashboard.draw.paint import Line, crop, line
from ddtop.dashboard.draw.text import duration, size, unit_name
from ddtop.journal.fold.state import State
from ddtop.words import unknown_words

ACTIVE_ROLE = {
    "active": ("●", "ok"),
    "activating": ("◌", "run"),
    "failed": ("✗", "bad"),
    "inactive": ("○", "dim"),
}


UNKNOWN_WORDS = {
    "gpm": "GPU activity counters (gpm)",
    "ports": "owners of ports (ports)",
    "journal": "the system's log (journal)",
    "kernel-log": "the kernel's log",
    "processes": "other users' processes",
}
"""What the agent could not read, in words; its own word stays beside it where one may look it up."""


def found_lines(state: State, now_s: float, width: int, height: int) -> list[Line]:
    """Lines for a run without a plan, the most useful first."""
    if not state.probe and not state.services:
        return [line(("No plan: this host is only watched.", "dim"))]
    out: list[Line] = []
    if state.probe_at_s is not None:
        out.append(line(("probed ", "dim"), (f"{duration(now_s - state.probe_at_s)} ago", "dim")))
    out.extend(server_lines(state))
    out.extend(unit_lines(state))
    out.extend(place_lines(state))
    out.extend(unknown_lines(state))
    host = state.host.name or "HOST"
    out.extend([(), line(("To measure, make a plan: ", "label"), (f"ddtop plan new --from {host}", "value"))])
    if len(out) > height:
        out = [*out[: height - 1], out[-1]]
    return [crop(row, width) for row in out]


def server_lines(state: State) -> list[Line]:
    """The serving processes: engine, port, unit, pid, and the model below."""
    servers = state.probe.get("servers")
    if not isinstance(servers, list):
        return _failed("servers", servers)
    if not servers:
        return [line(("No server process is running.", "label"))]
    out: list[Line] = []
    for server in _tables(servers):
        unit = server.get("unit")
        out.append(
            line(
                ("● ", "ok"),
                (str(server.get("engine") or "server"), "value"),
                (f" on port {server['port']}" if server.get("port") else "", "text"),
                (f" · {unit_name(str(unit))}" if unit else "", "label"),
                (f" · pid {server['pid']}" if server.get("pid") else "", "dim"),
            )
        )
        if server.get("model"):
            out.append(line(("    " + str(server["model"]), "label")))
    return out


def unit_lines(state: State) -> list[Line]:
    """The units watched."""
    out: list[Line] = []
    for unit, view in state.services.items():
        active = view.status.active
        glyph, role = ACTIVE_ROLE.get(active or "", ("?", "warn"))
        word = active or "cannot be read"
        detail = f" ({view.status.result})" if view.status.result not in (None, "", "success") else ""
        out.append(line((f"{glyph} ", role), (unit_name(unit), "value"), (f" {word}{detail}", role)))
    return out


def place_lines(state: State) -> list[Line]:
    """The model's directory, disks and memory."""
    out: list[Line] = []
    model = state.probe.get("model")
    if isinstance(model, dict) and "error" not in model:
        verdict, place = str(model.get("verdict", "")), str(model.get("path", ""))
        if _staged_since(state, place):
            verdict = "complete"
        whole = verdict == "complete"
        mark = ("✓ ", "ok") if whole else ("! ", "warn")
        out.append(line(mark, (f"model {verdict}", "value"), (f"  {place}", "label")))
    disks = state.probe.get("disks")
    if isinstance(disks, dict):
        for path, disk in disks.items():
            if not isinstance(disk, dict) or "free_b" not in disk:
                continue
            kind = " tmpfs" if disk.get("tmpfs") else ""
            text = f"{size(disk['free_b'])} free of {size(disk.get('size_b'))}{kind}"
            out.append(line(("  ", "dim"), (f"{path}  ", "label"), (text, "text")))
    memory = state.probe.get("memory")
    if isinstance(memory, dict) and isinstance(memory.get("available_b"), int | float):
        text = f"{size(memory['available_b'])} free of {size(memory.get('total_b'))}"
        out.append(line(("  ", "dim"), ("memory  ", "label"), (text, "text")))
    return out


def _staged_since(state: State, place: str) -> bool:
    """True where the model was made whole after the probe looked."""
    stage = state.stages.get(place)
    if stage is None or stage.progress.state != "done":
        return False
    return state.probe_at_s is None or stage.at_s >= state.probe_at_s


def unknown_lines(state: State) -> list[Line]:
    """What could not be found out, and why: unknown is never absent."""
    return [
        line(("? ", "warn"), ("Unknown: ", "label"), (f"{UNKNOWN_WORDS.get(name, name)}: {why}", "warn"))
        for name, why in unknown_words(state.probe).items()
    ]


def _failed(name: str, section: Any) -> list[Line]:
    if isinstance(section, dict) and section.get("error"):
        return [line(("! ", "warn"), (f"{name}: {section['error']}", "warn"))]
    return []


def _tables(rows: list[Any]) -> Iterator[dict[str, Any]]:
    return (row for row in rows if isinstance(row, dict))
