"""The agent as a zip, and BOOT, the one line of Python that starts it through any login shell.

The zip is stored (no zlib needed), in fixed order and with fixed time stamps: the same sources give the same
bytes, and the hash of the bytes is the agent's version.
"""

from __future__ import annotations

import functools
import hashlib
import io
import re
import shlex
import zipfile
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

MAIN = b"from agent.main import main\n\nmain()\n"

# Plain one-line Python without ' \ ! newline and tab, so that shlex.join's single quotes mean the same in every
# shell (sh, bash, dash, zsh, ksh, mksh, fish, csh, tcsh). Each marker is preceded by a newline: noise without
# one does no harm. No marker stands whole in the command, so that a shell which echoes it is not taken for it.
BOOT = (
    "import sys,os,hashlib,runpy;n,h,k=sys.argv[1:4];"
    'w=lambda s:os.write(1,("%cddtop-%s-%s%c"%(10,k,s,10)).encode());'
    'sys.version_info<(3,8) and (w("old-python"),sys.exit(77));w("ready");'
    "b=sys.stdin.buffer.read(int(n));"
    'hashlib.sha256(b).hexdigest()==h or (w("bad-zip"),sys.exit(76));'
    'f=getattr(os,"memfd_create",lambda s:os.open("/tmp",os.O_TMPFILE|os.O_RDWR,384))("ddtop");'
    'os.write(f,b);w("sync");runpy.run_path("/proc/self/fd/%d"%f,run_name="__main__")'
)

# Where there is no /proc (a local macOS): the zip lies in a file, named by the fourth argument.
BOOT_BY_PATH = (
    "import sys,os,runpy;k,p=sys.argv[3:5];"
    'w=lambda s:os.write(1,("%cddtop-%s-%s%c"%(10,k,s,10)).encode());'
    'w("ready");w("sync");sys.argv.pop(4);runpy.run_path(p,run_name="__main__")'
)

_UNSAFE = re.compile(r"['\\!\x00-\x1f]")


class AgentZip(NamedTuple):
    """The packed agent: its bytes and their SHA-256 in hex, which is its version."""

    data: bytes
    sha256: str


def pack(files: Iterable[tuple[str, bytes]]) -> AgentZip:
    """A zip of (name in the zip, content), the same for the same files in whatever order they come."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, content)
    data = buffer.getvalue()
    return AgentZip(data, hashlib.sha256(data).hexdigest())


def _walk(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _walk(entry, prefix + entry.name + "/")
        elif not entry.name.endswith((".pyc", ".pyo")):
            yield prefix + entry.name, entry.read_bytes()


@functools.cache
def agent_zip() -> AgentZip:
    """The agent of this ddtop: all of ddtop/agent, data files included."""
    files = list(_walk(resources.files("ddtop") / "agent", "agent/"))
    return pack([("__main__.py", MAIN), *files])


def is_plain(text: str) -> bool:
    """Whether a word means the same in every login shell once shlex.join has quoted it."""
    return not _UNSAFE.search(text)


def start_argv(zip_: AgentZip, nonce: str, host_dir: str | None, python: str = "python3") -> list[str]:
    """The command that starts the agent: isolated (-I: no json.py of the login folder) and quick (-S)."""
    words = [python, "-I", "-S", "-c", BOOT, str(len(zip_.data)), zip_.sha256, nonce]
    return [*words, host_dir] if host_dir else words


def start_command(zip_: AgentZip, nonce: str, host_dir: str | None, python: str = "python3") -> str:
    """`start_argv` as one line for a login shell. Raises ValueError for words that shells read differently."""
    words = start_argv(zip_, nonce, host_dir, python)
    bad = next((word for word in words if not is_plain(word)), None)
    if bad is not None:
        raise ValueError(f"{bad!r} holds a quote, backslash, ! or control character")
    return shlex.join(words)
