"""The one process that holds the bed: router, power of both hosts, control socket.

It runs in a mount and a PID namespace of its own, so when it ends, however it ends, all that was mounted or
started here goes with it.
"""

import contextlib
import json
import selectors
import signal
import socket
import time
from pathlib import Path
from typing import Any

from .config import ALL, CGROUPS, CLIENT_IP, CLIENT_TUN, CLUSTER, HOSTS, NET, RUN, SOCK, TUN
from .disk import write_ssh_config
from .hosts import Host, drop_cgroup
from .router import Router
from .shell import sh

STOP_LIMIT_S = 15.0


class Daemon:
    """Event loop over the TUN devices and the control socket."""

    def __init__(self, real: bool, made_of: str) -> None:
        self.real, self.made_of, self.stopping = real, made_of, False
        self.selector, self.hosts = selectors.DefaultSelector(), {}
        # The machine may have cgroup v1 here; the hosts are to see pure v2, as on a present-day Ubuntu.
        sh("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
        drop_cgroup(CGROUPS)
        for d in ("/run/netns", "/run/systemd/nspawn"):
            Path(d).mkdir(parents=True, exist_ok=True)
            sh("mount", "-t", "tmpfs", "tmpfs", d)
        self.router = Router(lambda name: self.hosts[name].state == "on")
        self._read(self.router.add("client", CLIENT_IP, CLIENT_TUN), "client")
        # It stays in the route table after the bed: with the bed down nothing may leave the machine instead.
        sh("ip", "route", "replace", "unreachable", NET, "metric", "4278198272")
        for name in HOSTS:
            self._add(name)
        SOCK.unlink(missing_ok=True)
        self.control = socket.socket(socket.AF_UNIX)
        self.control.bind(str(SOCK))
        self.control.listen(8)
        self._read(self.control, "control")

    def _add(self, name: str) -> Host:
        """A host, off, with its network and its disk."""
        sh("ip", "netns", "add", name)
        self._read(self.router.add(name, ALL[name].ip, TUN + name, name), name)
        host = self.hosts[name] = Host(name, self.real)
        host.mount()
        return host

    def _read(self, what: Any, name: str) -> None:
        self.selector.register(what, selectors.EVENT_READ, name)

    def answer(self) -> None:
        """Serve one request of the control socket: a line of JSON, answered by one."""
        conn = self.control.accept()[0]
        with conn:
            conn.settimeout(2)
            try:
                reply = self.command(**json.loads(conn.makefile().readline()))
            except Exception as error:
                reply = {"error": f"{type(error).__name__}: {error}"}
            with contextlib.suppress(OSError):
                conn.sendall(json.dumps(reply).encode())

    def command(self, op: str, host: str = "", **args: Any) -> dict[str, Any]:
        """Do `op` and tell the bed's state."""
        if op == "stop":
            self.stopping = True
            for h in self.hosts.values():
                h.power("off")
        elif op == "cluster":
            for name in CLUSTER:
                if name not in self.hosts:
                    self._add(name).start()
            write_ssh_config()
        elif op == "link":
            self.router.links[host].update(args)
        elif op == "power":
            self.hosts[host].power(**args)
        hosts = {
            n: {"state": h.state, "boots": h.boots, "ip": ALL[n].ip, "link": self.router.links[n]}
            for n, h in self.hosts.items()
        }
        return {"real": self.real, "made_of": self.made_of, "hosts": hosts}

    def run(self) -> None:
        """Until `stop`, or SIGTERM."""
        stop_by = None
        for h in self.hosts.values():
            h.start()
        while True:
            now = time.monotonic()
            self.router.flush(now)
            for h in self.hosts.values():
                h.tick(now)
            if self.stopping:
                stop_by = stop_by or now + STOP_LIMIT_S
                if not any(h.proc for h in self.hosts.values()):
                    break
                if now > stop_by:
                    for h in self.hosts.values():
                        h.power("kill")
            for key, _ in self.selector.select(self.router.wait_s(now, 0.1)):
                if key.data == "control":
                    self.answer()
                else:
                    self.router.forward(key.data, key.fd)
        drop_cgroup(CGROUPS)
        SOCK.unlink(missing_ok=True)


def main(real: bool, made_of: str) -> None:
    """The daemon's own entry, called by `python -m tests.bed daemon`."""
    RUN.mkdir(parents=True, exist_ok=True)
    write_ssh_config()
    daemon = Daemon(real, made_of)
    signal.signal(signal.SIGTERM, lambda *_: daemon.command("stop"))
    daemon.run()
