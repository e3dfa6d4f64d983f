"""Who listens on a port, from `ss -ltnpe`, and whether that is the unit. (During a sweep: `services.base.read_listener`.)"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddtop.services.unit.systemctl_show import UnitProps

_LISTEN = re.compile(
    r"^[^\S\n]*(?:tcp[^\S\n]+)?LISTEN[^\S\n]+\d+[^\S\n]+\d+[^\S\n]+(?P<addr>\S+):(?P<port>\d+)[^\S\n]+\S+(?P<rest>.*)$",
    re.MULTILINE,
)
_USER = re.compile(r'\("(?P<comm>[^"]{1,64})",pid=(?P<pid>\d+)')
_CGROUP = re.compile(r"cgroup:(?P<path>\S+)")


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket. pid and cgroup are None where this login may not see them."""

    address: str
    port: int
    pid: int | None = None
    comm: str | None = None
    cgroup: str | None = None
    text: str = ""

    def belongs_to(self, props: UnitProps) -> bool | None:
        """Whether the socket belongs to the unit; None if its owner cannot be seen."""
        if self.cgroup is not None and props.id:
            return (
                f"/{props.id}" in f"{self.cgroup}/".replace("//", "/")
                and re.search(rf"/{re.escape(props.id)}(?:/|$)", self.cgroup) is not None
            )
        if self.pid is not None and props.main_pid:
            return self.pid == props.main_pid
        return None


def parse_listeners(text: str) -> list[Listener]:
    """Lines of `ss -ltnpe` (with or without header) → listeners."""
    found: list[Listener] = []
    for match in _LISTEN.finditer(text[:1_000_000]):
        user, cgroup = _USER.search(match["rest"]), _CGROUP.search(match["rest"])
        found.append(
            Listener(
                match["addr"],
                int(match["port"]),
                int(user["pid"]) if user else None,
                user["comm"] if user else None,
                cgroup["path"] if cgroup else None,
                match[0].strip(),
            )
        )
    return found


def port_slug(listeners: list[Listener], props: UnitProps) -> tuple[str, Listener] | None:
    """The fault in the port's owners: ``port-owned-by-other`` or ``two-listeners``; None if none is known.
    Several sockets of one process (IPv4 and IPv6) are one listener."""
    owners = {(ln.pid, ln.cgroup): ln for ln in listeners}
    foreign = [ln for ln in owners.values() if ln.belongs_to(props) is False]
    if not foreign:
        return None
    return ("two-listeners" if len(owners) > len(foreign) else "port-owned-by-other"), foreign[0]
