"""Readings of a server process and of its port, the same for every kind of service. Frozen values, no I/O.

Every time named `at` is the runner's monotonic clock in seconds, at which the reading arrived. A time the
host stamped is only ever compared with another stamp of the same host and boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddtop.events import Generation, ServiceStatus
from ddtop.services.unit.systemctl_show import span_s

TOLD_BY = {"process": "supervisor", "docker": "docker"}
"""What evidence names as its source, by the service's kind; `systemctl` for the others."""
DEAD_STATES = ("failed", "inactive")
EXIT_WORDS = {"1": "exited", "2": "killed", "3": "dumped"}
"""ExecMainCode as systemd prints it (CLD_EXITED, CLD_KILLED, CLD_DUMPED)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitReading:
    """One reading of a unit, container or supervised process, in systemd's words.

    Every kind gives unit, at, kind, load (`loaded`, `not-found` …), active (`active`, `activating`, `deactivating`,
    `inactive`, `failed`), sub, main_pid, generation and exit_code; what it cannot know stays None.
    """

    unit: str
    at: float
    kind: str = "systemd"
    load: str | None = None
    active: str | None = None
    """None: cannot be read."""
    sub: str | None = None
    result: str | None = None
    main_pid: int | None = None
    generation: str | None = None
    """Id of the present start, or of the last one after it has ended; None before the first."""
    n_restarts: int | None = None
    need_reload: bool | None = None
    job: bool = False
    """systemd has a job queued for it."""
    exit_code: str | None = None
    """How the last main process ended: `exited/203`, `killed/9`."""
    condition_ok: bool | None = None
    condition_stamp: int | None = None
    """When the conditions were last tested, on the host's clock; None or 0: never."""
    cgroup: str | None = None
    container: str | None = None
    """`ID@StartedAt` where the main process is `docker run` or `podman run`."""
    stop_limit_s: float | None = None
    load_error: str | None = None
    failed_needs: str | None = None
    """Units that it requires and that have failed, by name, where it does not run."""
    argv: str | None = None
    """ExecStart as the manager has it loaded."""
    changed_mono_s: float | None = None
    """When its state last changed, on the host's monotonic clock."""

    @property
    def told_by(self) -> str:
        """The source that evidence names."""
        return TOLD_BY.get(self.kind, "systemctl")

    @property
    def running(self) -> bool:
        return self.active in ("active", "activating", "reloading") and bool(self.main_pid)

    @property
    def gone(self) -> bool:
        """Nothing runs: failed, inactive, or waiting for an automatic restart."""
        return self.active in DEAD_STATES or self.sub == "auto-restart"

    def status(self, boot: str) -> ServiceStatus:
        """The reading as the event that goes into the recording."""
        gen = Generation(boot=boot, id=self.generation, main_pid=self.main_pid) if self.generation else None
        return ServiceStatus(
            unit=self.unit,
            kind=self.kind,
            load=self.load,
            active=self.active,
            sub=self.sub,
            result=self.result,
            main_pid=self.main_pid,
            generation=gen,
            n_restarts=self.n_restarts,
            need_reload=self.need_reload,
            exit_code=self.exit_code,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenerReading:
    """One listening socket on the server's port, and whether it belongs to our unit."""

    addr: str
    port: int
    pid: int | None = None
    comm: str | None = None
    cgroup: str | None = None
    unit: str | None = None
    container: str | None = None
    owned: bool | None = None
    """By the service's present generation; None: its owner cannot be seen with these rights."""

    @property
    def who(self) -> str:
        """The owner in words."""
        if self.container:
            return f"container {self.container[:12]}" + (f" (pid {self.pid})" if self.pid else "")
        if self.unit:
            return f"{self.unit} (pid {self.pid})" if self.pid else self.unit
        if self.pid:
            return f"{self.comm or 'process'} (pid {self.pid})"
        return "an owner this login cannot see"


def _int(props: Mapping[str, str], key: str) -> int | None:
    text = props.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else None


def read_unit(unit: str, props: Mapping[str, Any], at: float) -> UnitReading:
    """A reading from the properties of `systemctl show` (agent/wire.py UNIT_PROPS), absent ones as None."""
    code, status = props.get("ExecMainCode"), props.get("ExecMainStatus")
    word = EXIT_WORDS.get(str(code), str(code) if code not in (None, "", "0") else None)
    pid = _int(props, "MainPID")
    return UnitReading(
        unit=unit,
        at=at,
        load=props.get("LoadState") or None,
        active=props.get("ActiveState") or None,
        sub=props.get("SubState") or None,
        result=props.get("Result") or None,
        main_pid=pid or None,
        generation=props.get("InvocationID") or None,
        n_restarts=_int(props, "NRestarts"),
        need_reload={"yes": True, "no": False}.get(props.get("NeedDaemonReload", "")),
        job=(props.get("Job") or "0") not in ("0", ""),
        exit_code=f"{word}/{status}" if word and status not in (None, "") else None,
        condition_ok={"yes": True, "no": False}.get(props.get("ConditionResult", "")),
        condition_stamp=_int(props, "ConditionTimestampMonotonic"),
        cgroup=props.get("ControlGroup") or None,
        stop_limit_s=span_s(props.get("TimeoutStopUSec")),
        load_error=props.get("LoadError") or None,
        failed_needs=props.get("FailedNeeds") or None,
        argv=props.get("ExecStart") or None,
        changed_mono_s=stamp / 1e6 if (stamp := _int(props, "StateChangeTimestampMonotonic")) else None,
    )
