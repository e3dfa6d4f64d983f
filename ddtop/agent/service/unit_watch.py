"""The stream `unit-watch`: learns of a unit's change by D-Bus and by a pidfd on its main process (0.7–4 ms), and
asks systemd once for each. A slow poll is the safety net."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Callable, Dict, Optional

from ..context import Context
from ..errors import OpError
from ..host.pidfd import open_pidfd
from .dbus import UnitSignals
from .units import need_systemd, show_unit, unit_name

SETTLE_S = 1.0
"""After the main process ended: for how long systemd is asked again until it says so."""

VOLATILE = frozenset({"MemoryCurrent"})
"""Properties whose change alone is not reported."""


class Watch:
    """Wakes up on D-Bus, pidfd or poll, and remembers which of them it was."""

    def __init__(self, loop: asyncio.AbstractEventLoop, unit: str, user: bool) -> None:
        self._loop = loop
        self._unit = unit
        self._user = user
        self._signals: Optional[UnitSignals] = None
        self._pidfd: Optional[int] = None
        self._pid = 0
        self._woken = asyncio.Event()
        self._by = ""
        self._since = 0.0

    async def open_bus(self, context: Context) -> None:
        """Subscribes; without a bus the pidfd and the poll remain."""
        try:
            self._signals = await context.thread(UnitSignals.open, self._unit, self._user)
        except (OSError, ValueError):
            return
        self._loop.add_reader(self._signals.sock.fileno(), self._bus_readable)

    @property
    def has_bus(self) -> bool:
        return self._signals is not None

    def _wake(self, by: str) -> None:
        if not self._woken.is_set():
            self._by, self._since = by, time.monotonic()
            self._woken.set()

    def _bus_readable(self) -> None:
        assert self._signals is not None
        try:
            heard = self._signals.heard()
        except (OSError, IndexError, ValueError):
            self._close_bus()  # dbus-daemon was restarted: opened again at the next poll
            heard = True
        if heard:
            self._wake("dbus")

    def _pid_readable(self) -> None:
        self._close_pid()
        self._wake("pidfd")

    def follow_pid(self, pid: int) -> None:
        """The main process now; 0 for none."""
        if pid == self._pid and (self._pidfd is not None or not pid):
            return
        self._close_pid()
        self._pid = pid
        if pid:
            self._pidfd = open_pidfd(pid)
            if self._pidfd is not None:
                self._loop.add_reader(self._pidfd, self._pid_readable)

    async def wait(self, timeout_s: float) -> str:
        """ "dbus", "pidfd", or "poll" when the time is over."""
        try:
            await asyncio.wait_for(self._woken.wait(), timeout_s)
        except asyncio.TimeoutError:
            self._since = time.monotonic()
            return "poll"
        self._woken.clear()
        return self._by

    @property
    def since(self) -> float:
        """When the last wake-up came, in CLOCK_MONOTONIC seconds."""
        return self._since

    def _close_pid(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _close_bus(self) -> None:
        if self._signals is not None:
            self._loop.remove_reader(self._signals.sock.fileno())
            self._signals.close()
            self._signals = None

    def close(self) -> None:
        self._close_pid()
        self._close_bus()


def news(old: Dict[str, str], new: Dict[str, str]) -> bool:
    """Whether anything but the volatile properties differs."""
    return any(old.get(key) != value for key, value in new.items() if key not in VOLATILE)


async def unit_watch(context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]) -> None:
    """The op `unit-watch`."""
    need_systemd(context)
    unit, user = unit_name(args["unit"]), bool(args.get("user"))
    poll_s = max(0.5, float(args.get("poll_s", 5)))
    watch = Watch(context.loop, unit, user)
    try:
        await watch.open_bus(context)
        seen_s = time.monotonic()
        props = await show_unit(unit, user)
        await emit({"props": props, "mono_s": time.monotonic(), "seen_mono_s": seen_s, "by": "first"})
        while True:
            watch.follow_pid(int(props.get("MainPID") or 0))
            by = await watch.wait(poll_s)
            seen_s = watch.since
            if by == "poll" and not watch.has_bus:
                await watch.open_bus(context)
            new = await _look(unit, user, props, by)
            if new is not None and (news(props, new) or by != "poll"):
                if news(props, new):
                    await emit({"props": new, "mono_s": time.monotonic(), "seen_mono_s": seen_s, "by": by})
                props = new
    finally:
        watch.close()


async def _look(unit: str, user: bool, old: Dict[str, str], by: str) -> Optional[Dict[str, str]]:
    """What systemd says now. After a pidfd it is asked until it has noticed: the kernel tells first."""
    until = time.monotonic() + (SETTLE_S if by == "pidfd" else 0)
    pause = 0.005
    while True:
        try:
            new = await show_unit(unit, user)
        except OpError as error:
            if error.code == "timeout":  # PID 1 is busy, a reload of many units: the next wake-up asks again
                return None
            raise
        if news(old, new) or time.monotonic() > until:
            return new
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.1)
