"""epoll where there is one, `selectors` elsewhere (macOS), behind one small face: register, write, forget, poll."""

from __future__ import annotations

import select
import selectors
from typing import Any

READ, WRITE = 1, 4  # the values of EPOLLIN and EPOLLOUT


class Poller:
    """Level-triggered readiness of file descriptors; `poll` returns [(fd, bits)]; errors read as readable."""

    def __init__(self) -> None:
        self._epoll: Any = select.epoll() if hasattr(select, "epoll") else None
        self._selector: Any = None if self._epoll is not None else selectors.DefaultSelector()

    def register(self, fd: int, bits: int) -> None:
        """Watch `fd` for READ and/or WRITE."""
        if self._epoll is not None:
            self._epoll.register(fd, bits)
        else:
            self._selector.register(fd, _events(bits))

    def modify(self, fd: int, bits: int) -> None:
        """Watch it for these instead."""
        if self._epoll is not None:
            self._epoll.modify(fd, bits)
        else:
            self._selector.modify(fd, _events(bits))

    def forget(self, fd: int) -> None:
        """Watch it no longer."""
        try:
            if self._epoll is not None:
                self._epoll.unregister(fd)
            else:
                self._selector.unregister(fd)
        except (OSError, KeyError, ValueError):
            pass

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Wait up to `timeout_s` (0 = look only)."""
        if self._epoll is not None:
            found: list[tuple[int, int]] = self._epoll.poll(timeout_s, 512)
            return found
        ready = self._selector.select(timeout_s)
        return [(key.fd, (READ if events & 1 else 0) | (WRITE if events & 2 else 0)) for key, events in ready]

    def close(self) -> None:
        """Release the kernel's side."""
        (self._epoll or self._selector).close()


def _events(bits: int) -> int:
    return (selectors.EVENT_READ if bits & READ else 0) | (selectors.EVENT_WRITE if bits & WRITE else 0)
