"""What logind does to a user whose last session has ended: keep the processes (linger), delete the shared memory."""

from __future__ import annotations

import glob
from typing import Dict, Optional

from ..rights import Rights, lingers
from .facts import read_text

LOGIND = ("/etc/systemd/logind.conf", "/run/systemd/logind.conf", "/usr/lib/systemd/logind.conf")


def setting(text: str, key: str) -> Optional[str]:
    """The last value of KEY= in an ini text, comments left out."""
    value = None
    for line in text.splitlines():
        name, sep, rest = line.strip().partition("=")
        if sep and name.strip() == key:
            value = rest.strip()
    return value


def remove_ipc(rights: Rights) -> Dict[str, bool]:
    """{"remove_ipc": bool}: whether logind deletes this user's /dev/shm files with his last session.

    root and system users are exempt; absent where logind is not.
    """
    if "systemd" not in rights.can or not glob.glob("/run/systemd/seats") + glob.glob("/run/systemd/users"):
        return {}
    value = None
    for base in reversed(LOGIND):
        for path in [base, *sorted(glob.glob(base + ".d/*.conf"))]:
            value = setting(read_text(path) or "", "RemoveIPC") or value
    on = (value or "yes").lower() in ("yes", "true", "1", "on")  # systemd's own default
    return {"remove_ipc": on and rights.uid >= 1000 and not lingers(rights.user)}


def linger(rights: Rights) -> Dict[str, bool]:
    """{"linger": bool} for this login."""
    return {"linger": lingers(rights.user)} if "systemd" in rights.can else {}
