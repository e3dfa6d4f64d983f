"""The state folder on the host: where it may be, and files in it that are whole or absent, never half."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from typing import Any, Dict, Optional, Tuple

from .facts import read_text

SCHEMA = 1
TMPFS = ("tmpfs", "ramfs", "devtmpfs")


def filesystem_of(path: str) -> Optional[str]:
    """The type of the file system `path` lies on, from /proc/self/mountinfo; None where that cannot be read."""
    text = read_text("/proc/self/mountinfo")
    if text is None:
        return None
    real = os.path.realpath(path)
    best = ""
    kind = None
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        inside = point in ("/", real) or real.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def _usable(path: str) -> str:
    """Why `path` cannot be a state folder; empty if it can. Makes it if need be."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path, prefix=".try-")
        os.close(handle)
        os.unlink(name)
    except OSError as error:
        return "%s: %s" % (path, error.strerror)
    kind = filesystem_of(path)
    if kind in TMPFS:
        return "%s is on a %s, which a reboot empties" % (path, kind)
    return ""


def find_state_dir(wanted: Optional[str]) -> Tuple[Optional[str], str]:
    """(folder, "") or (None, why). `wanted` (--host-dir) is taken or refused; without it, ~/.local/state/ddtop."""
    home = os.path.expanduser("~")
    if wanted:
        path = os.path.abspath(os.path.expanduser(wanted))
    elif os.path.isabs(home):
        path = os.path.join(
            os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state"), "ddtop"
        )
    else:
        return None, "this login has no home folder"
    why = _usable(path)
    if why:
        return None, why
    marker = os.path.join(path, "schema")
    schema = (read_text(marker) or "").strip()
    if schema.isdigit() and int(schema) > SCHEMA:
        return None, f"{path} was written by a newer ddtop (schema {schema}, this one knows {SCHEMA})"
    if schema != str(SCHEMA):
        try:
            write_whole(marker, b"%d\n" % SCHEMA)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                return None, "%s: %s" % (marker, error.strerror)
            # A full disk may have room again: what needs some fails by itself, and says so.
    return path, ""


def write_whole(path: str, data: bytes, mode: int = 0o600) -> None:
    """Temporary name, fsync, rename, fsync of the folder: after a power loss the old or the new, never half."""
    folder = os.path.dirname(path) or "."
    handle, name = tempfile.mkstemp(dir=folder, prefix="." + os.path.basename(path)[:100] + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            own_as_folder(file.fileno(), folder)
            os.fsync(file.fileno())
        os.rename(name, path)
    except BaseException:
        try:
            os.unlink(name)
        except OSError:
            pass
        raise
    sync_folder(folder)


def own_as_folder(handle: int, folder: str) -> None:
    """Gives a file that root writes (by sudo) the owner of its folder."""
    if os.geteuid() == 0:
        info = os.stat(folder)
        if info.st_uid != 0:
            os.fchown(handle, info.st_uid, info.st_gid)


def sync_folder(folder: str) -> None:
    """Makes a rename in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some network file systems know no fsync of a folder
    finally:
        os.close(handle)


def write_json(path: str, value: Any, mode: int = 0o600) -> None:
    write_whole(path, json.dumps(value, separators=(",", ":")).encode(), mode)


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """The object in a file; None if it is absent or no JSON object."""
    text = read_text(path, 64 << 20)
    try:
        value = json.loads(text) if text is not None else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
