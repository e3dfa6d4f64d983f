"""Who listens on a port: every listener with its process, cgroup, unit and container."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import struct
import time
from typing import Any, Dict, List, Optional

from ..context import Context
from ..errors import OpError
from ..programs import run
from .facts import cgroup_of, read_text, unit_of_cgroup
from .processes import cmdline, owners_of_inodes

LISTEN = "0A"
AGAIN_S, AGAIN = 0.02, 5
_DOCKER = re.compile(r"(?:docker-|/docker/|libpod-|cri-containerd-)([0-9a-f]{12,64})")
_SS_PID = re.compile(r'\("((?:[^"\\]|\\.)*)",pid=(\d+)')
_SS_INO = re.compile(r"\bino:(\d+)")


def address(hex_text: str) -> str:
    """An address of /proc/net/tcp or tcp6: 32-bit words in the machine's byte order.

    >>> address("0100007F"), address("00000000000000000000000000000000")
    ('127.0.0.1', '::')
    """
    raw = bytes.fromhex(hex_text)
    words = struct.unpack(">%dI" % (len(raw) // 4), raw)
    packed = struct.pack("=%dI" % len(words), *words)
    return str(ipaddress.ip_address(packed))


def parse_listeners(text: str, port: Optional[int]) -> List[Dict[str, Any]]:
    """Listening sockets in the text of /proc/net/tcp or tcp6, of one port or of all: addr, port, inode."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != LISTEN:
            continue
        host, _, number = fields[1].rpartition(":")
        if port is None or int(number, 16) == port:
            found.append({"addr": address(host), "port": int(number, 16), "inode": int(fields[9])})
    return found


def container_of(cgroup: Optional[str]) -> Optional[str]:
    """The container id in a cgroup path.

    >>> container_of("/system.slice/docker-0123456789abcdef.scope")
    '0123456789abcdef'
    """
    match = _DOCKER.search(cgroup or "")
    return match.group(1) if match else None


def find_listeners(port: Optional[int]) -> List[Dict[str, Any]]:
    """LISTENERs from /proc alone. Owners we may not see are absent."""
    rows = []
    for name in ("tcp", "tcp6"):
        text = read_text("/proc/net/" + name, 64 << 20)
        if text is not None:
            rows += parse_listeners(text, port)
    owners = owners_of_inodes({row["inode"] for row in rows}) if rows else {}
    for row in rows:
        row["unit"] = None
        pid = owners.get(row["inode"])
        if pid is not None:
            fill_owner(row, pid)
    return rows


def fill_owner(row: Dict[str, Any], pid: int) -> None:
    """Adds to a listener what its owner is. docker-proxy's container is found in its arguments, if anywhere."""
    row["pid"] = pid
    row["comm"] = (read_text("/proc/%d/comm" % pid) or "").strip()
    try:
        row["pgrp"] = os.getpgid(pid)
    except OSError:
        pass  # it has ended meanwhile
    row["cgroup"] = cgroup_of(pid)
    row["unit"] = unit_of_cgroup(row["cgroup"])
    container = container_of(row["cgroup"])
    if container:
        row["docker"] = container
    elif row["comm"] == "docker-proxy":
        words = cmdline(pid)
        if "-container-ip" in words[:-1]:
            row["proxy_to"] = words[words.index("-container-ip") + 1]


async def listeners_of(context: Context, port: Optional[int]) -> List[Dict[str, Any]]:
    """LISTENERs of a port, with `sudo -n ss` for the owners a plain login may not see."""
    rows = await context.thread(find_listeners, port)
    # A process that dies gives up its descriptors a moment before its port: root sees all owners, so it looks again
    # until the port is gone too; for others one more look tells what has vanished from what they may not see.
    for _ in range(AGAIN if os.geteuid() == 0 else 1):
        if all("pid" in row for row in rows):
            return rows
        await asyncio.sleep(AGAIN_S)
        rows = await context.thread(find_listeners, port)
    if any("pid" not in row for row in rows) and "ss" in context.rights.sudo_for:
        words = ["sudo", "-n", "ss", "-ltnpeH"] + (["sport = :%d" % port] if port is not None else [])
        try:
            done = await run(words, timeout_s=5)
        except OpError:
            return rows
        owners = parse_ss(done.out)
        for row in rows:
            if "pid" not in row and row["inode"] in owners:
                fill_owner(row, owners[row["inode"]])
    return rows


def parse_ss(text: str) -> Dict[int, int]:
    """inode → pid of `ss -ltnpeH`.

    >>> parse_ss('LISTEN 0 5 *:80 *:* users:(("py",pid=12,fd=3)) ino:77 sk:1 cgroup:/a <->')
    {77: 12}
    """
    found = {}
    for line in text.splitlines():
        owner, inode = _SS_PID.search(line), _SS_INO.search(line)
        if owner and inode:
            found[int(inode.group(1))] = int(owner.group(2))
    return found


async def listeners(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `listeners`."""
    port = args.get("port")
    rows = await listeners_of(context, int(port) if port is not None else None)
    hidden = any("pid" not in row for row in rows)
    return {"listeners": rows, "mono_s": time.monotonic(), "unknown": ["ports"] if hidden else []}
