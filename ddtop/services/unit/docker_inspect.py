"""Read `docker inspect` or `podman inspect` of one container as properties of a unit, so that one judge serves both."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ddtop.services.unit.systemctl_show import UnitProps, unit_props

_STATE = re.compile(r'"State"\s*:\s*\{')


def looks_like_inspect(text: str) -> bool:
    """Whether text is the JSON of `docker inspect`: a list or object with a container's State."""
    head = text.lstrip()[:1]
    return (
        head in ("[", "{")
        and bool(_STATE.search(text[:400_000]))
        and ('"ExitCode"' in text or '"Running"' in text)
    )


def container_props(text: str) -> UnitProps:
    """`docker inspect` output → properties; generation is `Id@StartedAt`. Text that cannot be read gives empty properties."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return UnitProps()
    if isinstance(value, list):
        value = value[0] if value else {}
    state = value.get("State") if isinstance(value, Mapping) else None
    if not isinstance(state, Mapping):
        return UnitProps()
    status = str(state.get("Status") or ("running" if state.get("Running") else "exited")).lower()
    code = state.get("ExitCode")
    code = code if isinstance(code, int) and not isinstance(code, bool) else 0
    raw: dict[str, str] = {
        "LoadState": "loaded",
        "Id": str(value.get("Name") or value.get("Id") or "container").lstrip("/"),
    }
    if started := state.get("StartedAt"):
        raw["InvocationID"] = f"{str(value.get('Id'))[:12]}@{started}"
    if isinstance(pid := state.get("Pid"), int):
        raw["MainPID"] = str(pid)
    if isinstance(restarts := value.get("RestartCount"), int):
        raw["NRestarts"] = str(restarts)
    health = state.get("Health")
    healthy = str(health.get("Status") if isinstance(health, Mapping) else "none").lower()
    if status in ("running", "paused"):
        raw |= {
            "ActiveState": "active",
            "SubState": "unhealthy" if healthy == "unhealthy" else "running",
            "Result": "success",
        }
    elif status == "restarting":
        raw |= {
            "ActiveState": "activating",
            "SubState": "auto-restart",
            "Result": "exit-code",
            "MainPID": "0",
        }
    elif status == "created":
        raw |= {"ActiveState": "inactive", "SubState": "dead", "Result": "success"}
        raw.pop("InvocationID", None)
    elif code == 0 and not state.get("OOMKilled"):
        raw |= {"ActiveState": "inactive", "SubState": "dead", "Result": "success", "ExecMainPID": "1"}
    else:
        raw |= {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "ExecMainPID": "1"}
    if status in ("exited", "dead", "restarting"):
        raw |= {"ExecMainCode": "1", "ExecMainStatus": str(code)}
    if state.get("OOMKilled"):
        raw["Result"] = "oom-kill"
    if (error := str(state.get("Error") or "").strip()) and status in ("created", "exited", "dead"):
        raw |= {
            "ActiveState": "failed",
            "SubState": "failed",
            "Result": "exit-code",
            "ContainerError": error[:500],
        }
    return unit_props(raw)
