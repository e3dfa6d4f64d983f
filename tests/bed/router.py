"""The only path between client and hosts: one TUN device per node and this router in user space.

Packets are dropped, held or lost here, so a link can be cut, delayed or made lossy without any support of the
kernel; and without ARP a cut host is silent instead of "no route to host".
"""

import contextlib
import fcntl
import heapq
import os
import random
import socket
import struct
import time
from collections.abc import Callable

from .shell import sh

IDLE_LINK = {"cut": False, "hidden": False, "delay_ms": 0.0, "loss": 0.0, "kbit": 0.0}
QUEUE_LIMIT = 5000  # packets under way; more than that are lost, as on a real queue


def tun(name: str) -> int:
    """Make a layer-3 TUN device; the file descriptor carries bare IP packets."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(
        fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001)
    )  # TUNSETIFF, IFF_TUN | IFF_NO_PI
    return fd


class Router:
    """Forwards packets between nodes as their links and the power of their hosts allow."""

    def __init__(self, powered: Callable[[str], bool]) -> None:
        self.powered = powered  # whether a host has power
        self.links: dict[str, dict[str, float | bool]] = {}
        self.by_ip: dict[bytes, tuple[str, int]] = {}
        self.queue: list[tuple[float, int, tuple[str, int], bytes]] = []
        self.seq = 0
        self.busy_until: dict[tuple[str, bool], float] = {}

    def add(self, name: str, ip: str, device: str, netns: str | None = None) -> int:
        """Give a node its address and device (inside `netns` if named); returns the device to read from."""
        fd = tun(device)
        at = ["ip"]
        if netns:
            sh("ip", "link", "set", device, "netns", netns)
            at = ["ip", "-n", netns]
            sh(*at, "link", "set", "lo", "up")
            self.links[name] = dict(IDLE_LINK)
        sh(*at, "addr", "add", ip + "/24", "dev", device)
        sh(*at, "link", "set", device, "up", "mtu", "1500", "txqueuelen", "4000")
        self.by_ip[socket.inet_aton(ip)] = (name, fd)
        return fd

    def lit(self, name: str, other: str) -> bool:
        """Whether `name` can speak to `other` just now, as far as its own side goes."""
        if name not in self.links:
            return True
        link = self.links[name]
        hidden = link["hidden"] and other not in self.links
        return self.powered(name) and not link["cut"] and not hidden

    def forward(self, src: str, fd: int) -> None:
        """Take what a node has sent and pass it on, now or when its delay is over."""
        for _ in range(64):
            try:
                packet = os.read(fd, 65535)
            except OSError:
                return
            dst = self.by_ip.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if not dst or not self.lit(src, dst[0]) or not self.lit(dst[0], src):
                continue
            ends = [(n, self.links[n]) for n in (src, dst[0]) if n in self.links]
            if any(link["loss"] and random.random() * 100 < link["loss"] for _, link in ends):
                continue
            now = due = time.monotonic()
            for name, link in ends:
                if link["kbit"]:
                    key = (name, src == name)
                    sent_s = len(packet) * 8 / (link["kbit"] * 1000)
                    due = self.busy_until[key] = max(due, self.busy_until.get(key, 0)) + sent_s
                due += link["delay_ms"] / 2000  # delay_ms is added to the round trip: half each way
            if due <= now:
                self._deliver(dst[1], packet)
            elif len(self.queue) < QUEUE_LIMIT:
                self.seq += 1
                heapq.heappush(self.queue, (due, self.seq, dst, packet))

    def flush(self, now: float) -> None:
        """Deliver the held packets that are due."""
        while self.queue and self.queue[0][0] <= now:
            _, _, (name, fd), packet = heapq.heappop(self.queue)
            if self.lit(name, name):
                self._deliver(fd, packet)

    def wait_s(self, now: float, at_most: float) -> float:
        """Seconds until the next held packet is due."""
        return min(at_most, max(0.0, self.queue[0][0] - now)) if self.queue else at_most

    @staticmethod
    def _deliver(fd: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(fd, packet)
