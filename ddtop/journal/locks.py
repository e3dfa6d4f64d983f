"""Locks: one file beside each recording, and one for each host.

The kernel holds the lock (`flock`), so it ends with its process however that dies; the file only says who.
Both are advisory and local to this machine.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec

from ddtop import paths
from ddtop.errors import JournalError, RefusedError

TRIES = 20
TRY_S = 0.02
"""A look by `holder` holds the lock shared for a moment; a runner that starts just then tries again."""


class Lock:
    """An exclusive lock, held until `release` or the end of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path, **facts: Any) -> Lock:
        """Take the lock at `path` and write who holds it (`pid`, `since_s` and `facts`) into the file.

        Raises RefusedError where another process holds it, JournalError where the file cannot be made.
        """
        body = msgspec.json.encode({"pid": os.getpid(), "since_s": time.time(), **facts})
        for attempt in range(TRIES):
            descriptor = _open(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise JournalError(
                        f"{path} cannot be locked: {error.strerror}",
                        means="two runners could write the same recording",
                        do="keep recordings and $XDG_STATE_HOME on a local disk",
                    ) from error
                if attempt == TRIES - 1:
                    raise _held(path) from None
                time.sleep(TRY_S)
                continue
            if not _same_file(descriptor, path):
                # Its holder took it away between our open and our lock.
                os.close(descriptor)
                continue
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, body, 0)
            except OSError as error:
                os.close(descriptor)
                raise JournalError(
                    f"{path} cannot be written: {error.strerror}",
                    means="nothing can be recorded there, and nothing was begun",
                    do=f"free space on the disk of {path.parent}, or record elsewhere: --record FILE",
                ) from error
            return cls(path, descriptor)
        raise _held(path)

    def release(self) -> None:
        """Give the lock back and remove its file."""
        if self._descriptor is None:
            return
        self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(
            f"{path} cannot be created: {error.strerror}",
            means="without its lock a recording could be written by two runners",
            do=f"make {path.parent} writable, or record elsewhere: --record FILE",
        ) from error


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _held(path: Path) -> RefusedError:
    facts = read_holder(path)
    who = f"process {facts['pid']}" if "pid" in facts else "another process"
    what = facts.get("recording") or path.with_suffix("")
    return RefusedError(
        f"{who} already runs {facts.get('host') or what}",
        means="one host has one runner, and a recording one writer",
        do=f"watch it: ddtop connect {facts.get('host') or 'HOST'}, or stop it: ddtop stop {what}",
        host=str(facts.get("host", "")),
    )


def read_holder(path: Path) -> dict[str, Any]:
    """What the lock file says of its holder; empty where it cannot be read. The holder may have died."""
    try:
        facts = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return facts if isinstance(facts, dict) else {}


def holder(path: Path) -> dict[str, Any] | None:
    """Facts of the process that holds the lock at `path`; None where none holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return read_holder(path)
    finally:
        os.close(descriptor)
    return None


def recording_lock(recording: Path) -> Path:
    """Lock file of a recording: beside it."""
    return recording.with_name(recording.name + ".lock")


def host_lock(host: str) -> Path:
    """Lock file of a host, in the state folder: its name made safe, with a hash so that no two share one."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", host)[:60]
    return paths.state_dir() / "locks" / f"{safe}-{hashlib.sha256(host.encode()).hexdigest()[:8]}.lock"


def is_live(recording: Path) -> bool:
    """True while a runner holds this recording."""
    return holder(recording_lock(recording)) is not None


def live_recording(host: str) -> Path | None:
    """The recording that a runner is writing for `host` now, if one runs on this machine."""
    facts = holder(host_lock(host))
    if facts is None or not facts.get("recording"):
        return None
    return Path(str(facts["recording"]))


def live_recordings() -> list[Path]:
    """The recordings that runners of this machine write now, wherever they lie."""
    found = (holder(path) for path in sorted((paths.state_dir() / "locks").glob("*.lock")))
    return [Path(str(facts["recording"])) for facts in found if facts and facts.get("recording")]
