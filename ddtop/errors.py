"""All errors that users see, as one class hierarchy.

    DdtopError
    ├── UsageError          a wrong command line or file                          exit 2
    │   └── PlanError       a plan that cannot be run, with file and key path
    ├── RefusedError        ddtop will not do it: another run, another recording  exit 12
    │   └── NobodyError     no runner is there to do it                           exit 13
    ├── HostError           something about reaching or using a host
    │   ├── HostUnreachableError never reached, or final (key changed, denied)         exit 11
    │   ├── HostLostError   was reached and is gone; trying again can help        exit 11
    │   └── AgentError      the agent answered that it could not do something
    └── JournalError        a recording that cannot be read or written            exit 12
        └── DiskFullError   … for want of room: it may come again

Each says what happened (`what`), on which host, what it means and what to do. A view prints `str(error)`.
"""

from __future__ import annotations

_RANGES = (
    (0x61C, 0x61C), (0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x2069), (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB), (0xE0000, 0xE007F),
)  # fmt: skip
INVISIBLE = {code: None for first, last in _RANGES for code in range(first, last + 1)}
"""Characters that show nothing and turn the order of what stands around them, hide it or break its line: marks of
direction (`U+202E` and its like), separators of lines, blanks of no width, tags. For `str.translate`: all go."""

_CONTROL = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"} | INVISIBLE


def plain(text: str) -> str:
    """Text of a host or a log made safe for a terminal: without control characters and `INVISIBLE` ones.

    >>> plain("a" + chr(27) + "[2Jb" + chr(0x202E))
    'a[2Jb'
    """
    return text.translate(_CONTROL)


class DdtopError(Exception):
    """Base of all errors ddtop shows to people."""

    exit_code = 1

    def __init__(self, what: str, *, means: str = "", do: str = "", host: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.means = means
        self.do = do
        self.host = host

    def __str__(self) -> str:
        head = f"{self.host}: {self.what}" if self.host and not self.what.startswith(self.host) else self.what
        parts = [head]
        if self.means:
            parts.append(f"  means: {self.means}")
        if self.do:
            parts.append(f"  do:    {self.do}")
        return plain("\n".join(parts))


class UsageError(DdtopError):
    """A wrong command line, or a file that is not what it should be."""

    exit_code = 2


class PlanError(UsageError):
    """A plan that cannot be run."""


class RefusedError(DdtopError):
    """ddtop refuses to do this, and says why."""

    exit_code = 12


class NobodyError(RefusedError):
    """No runner is alive that could do what was asked."""

    exit_code = 13


class HostError(DdtopError):
    """Something about reaching or using a host."""

    exit_code = 11


class HostUnreachableError(HostError):
    """The host was never reached, or trying again cannot help."""


class HostLostError(HostError):
    """The connection was there and is gone. Reconnecting can help."""


class AgentError(HostError):
    """The agent answered that it could not do what was asked. `code` is a word of agent/wire.py."""

    exit_code = 1

    def __init__(self, what: str, *, code: str, means: str = "", do: str = "", host: str = "") -> None:
        super().__init__(what, means=means, do=do, host=host)
        self.code = code

    @property
    def may_pass(self) -> bool:
        """Such as a full disk, or a `systemctl show` that took too long under load: worth a wait and another look."""
        return self.code in ("timeout", "failed", "internal", "cancelled", "disk")


class JournalError(DdtopError):
    """A recording that cannot be read or written."""

    exit_code = 12


class DiskFullError(JournalError):
    """There is no room for the recording: nothing is lost, and it can be written once there is."""
