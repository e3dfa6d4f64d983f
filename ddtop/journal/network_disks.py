"""Where a recording may lie: not on a network file system, for SQLite's WAL needs memory shared by mmap.

https://www.sqlite.org/wal.html: "WAL does not work over a network filesystem".
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ddtop import paths
from ddtop.errors import JournalError

NETWORK = frozenset(
    {
        "nfs",
        "nfs3",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "beegfs_nodev",
        "panfs",
        "wekafs",
        "glusterfs",
        "ncpfs",
        "ocfs2",
        "gfs2",
        "coda",
        "davfs",
        "webdav",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.gcsfuse",
        "fuse.davfs2",
        "fuse.juicefs",
        "fuse.moosefs",
        "fuse.mfs",
        "afpfs",
        "drvfs",
    }
)
"""File systems on which other machines may write too, or mmap is not shared."""


def mount_type(mountinfo: str, path: str) -> str | None:
    """File system type of absolute `path` by the text of /proc/self/mountinfo; None where no mount holds it.

    WSL's 9p mounts of Windows drives are reported as `drvfs`.
    """
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        head, found, tail = line.partition(" - ")
        fields = head.split()
        if not found or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        kind = tail.split()[0]
        if kind == "9p" and "aname=drvfs" in tail:
            kind = "drvfs"
        inside = point in ("/", path) or path.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides the earlier one.
        if inside and (best is None or len(point) >= best[0]):
            best = (len(point), kind)
    return best[1] if best else None


def mac_mount_type(mount_output: str, path: str) -> str | None:
    """The same by the output of macOS's `mount`: `//u@h/s on /Volumes/s (smbfs, nodev, …)`."""
    best: tuple[int, str] | None = None
    for line in mount_output.splitlines():
        match = re.search(r" on (?P<point>/.*) \((?P<kind>[\w.]+)", line)
        if match is None:
            continue
        point = match["point"]
        inside = point in ("/", path) or path.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= best[0]):
            best = (len(point), match["kind"])
    return best[1] if best else None


def file_system(path: Path) -> str | None:
    """Type of the file system that holds `path` (which need not exist yet); None where it cannot be known."""
    real = os.path.realpath(path)
    try:
        if sys.platform == "darwin":
            done = subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=5, check=False)
            return mac_mount_type(done.stdout, real)
        return mount_type(Path("/proc/self/mountinfo").read_text(errors="replace"), real)
    except (OSError, subprocess.SubprocessError):
        return None


def is_network(path: Path) -> str | None:
    """Name of the network file system that holds `path`, or None."""
    kind = file_system(path)
    return kind if kind in NETWORK else None


def local_alternative(name: str) -> Path:
    """A place on this machine's own disk for a recording called `name`."""
    candidates = (
        paths.runs_dir(),
        Path(f"/var/tmp/ddtop-{os.getuid()}"),
        Path(tempfile.gettempdir()) / f"ddtop-{os.getuid()}",
    )
    for folder in candidates:
        if is_network(folder) is None:
            return folder / name
    return candidates[-1] / name


def refuse_network(path: Path) -> None:
    """Raise JournalError where `path` lies on a network file system, with a local place to use instead."""
    kind = is_network(path)
    if kind is None:
        return
    raise JournalError(
        f"{path} is on a network file system ({kind})",
        means="SQLite's write-ahead log needs memory shared by one machine's processes; "
        "there a recording could be damaged",
        do=f"record locally: --record {local_alternative(path.name)}; "
        "afterwards copy it with: ddtop runs export",
    )
