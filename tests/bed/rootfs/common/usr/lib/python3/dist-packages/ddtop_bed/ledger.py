"""The ledger: what really happened on this host, written by those who did it, when they did it.

/var/lib/ddtop-bed/ledger.jsonl, on disk, so it survives a reboot. One object a line, always with t_ns
(CLOCK_REALTIME, the one clock shared with the client), event, pid, boot, invocation, unit.
"""
import json, os, time
from pathlib import Path

FILE = Path("/var/lib/ddtop-bed/ledger.jsonl")


def _unit():
    try:
        for line in Path("/proc/self/cgroup").read_text().split("\n"):
            for part in reversed(line.split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    except OSError:
        pass
    return ""


UNIT, BOOT = _unit(), ""
try:
    BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
except OSError:
    pass


def stamp(event, **more):
    """Write one event down, at once; returns its time."""
    now = time.time_ns()
    record = {"t_ns": now, "event": event, "pid": os.getpid(), "unit": UNIT, "boot": BOOT,
              "invocation": os.environ.get("INVOCATION_ID", ""), **more}
    try:
        new = not FILE.exists()
        fd = os.open(str(FILE), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if new:
                os.fchmod(fd, 0o666)  # whatever the umask: servers of other users write here too
            os.write(fd, json.dumps(record).encode() + b"\n")
        finally:
            os.close(fd)
    except OSError:
        pass
    return now
