"""The container behind a systemd unit whose main process is `docker run` or `podman run`."""

from __future__ import annotations

import json

from ddtop.hosts.base import Host
from ddtop.services.readings import UnitReading
from ddtop.services.unit.systemctl_show import exec_argv


def runs_container(argv: list[str]) -> bool:
    """Whether a command is `docker run` or `podman run`."""
    return len(argv) > 1 and argv[0].rsplit("/", 1)[-1] in ("docker", "podman") and "run" in argv[1:3]


def lacks_container(unit: UnitReading) -> bool:
    """Whether a unit runs `docker run` and its container is not known yet."""
    return unit.running and unit.container is None and runs_container(exec_argv(unit.argv))


def container_name(argv: list[str]) -> tuple[str, str] | None:
    """(program, container name) where a command is `docker run --name X` or `podman run`; None otherwise."""
    if not runs_container(argv):
        return None
    for i, word in enumerate(argv):
        if word == "--name" and i + 1 < len(argv):
            return argv[0], argv[i + 1]
        if word.startswith("--name="):
            return argv[0], word[7:]
    return None


async def inspect_container(host: Host, program: str, name: str) -> str | None:
    """`ID@StartedAt@IP,IP` of a container; None if it does not exist (yet) or this login may not inspect it."""
    answer = await host.call("exec", argv=[program, "inspect", name], timeout_s=5)
    return container_id(answer["stdout"]) if answer["rc"] == 0 else None


def container_id(shown: str) -> str | None:
    """`ID@StartedAt@IP,IP` from the JSON of `docker inspect`; None if it cannot be read.

    >>> container_id('[{"Id": "ab", "State": {"StartedAt": "t"}, "NetworkSettings": {"Networks": {"n": {"IPAddress": "10.1.1.2"}}}}]')
    'ab@t@10.1.1.2'
    """
    try:
        value = json.loads(shown)[0]
        ident, started = str(value["Id"]), str(value["State"]["StartedAt"])
        networks = (value.get("NetworkSettings") or {}).get("Networks") or {}
        addresses = [str(n["IPAddress"]) for n in networks.values() if n and n.get("IPAddress")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return f"{ident}@{started}@{','.join(addresses)}" if ident else None
