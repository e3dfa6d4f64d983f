"""Faults: lines KEY=VALUE of /etc/ddtop-bed/faults, read anew at each use.

WHEN=TEXT limits the lines after it to servers whose command line contains TEXT (several words: as whole
arguments one after the other); STARTS=N[,M] to the Nth start since the faults were set (1 is the first);
an empty WHEN= or STARTS= lifts the limit again. Later lines win.

`python3 -m ddtop_bed.faults KEY=VALUE…` sets them (none: clears), counting starts from zero again.
"""
import json, os, sys
from pathlib import Path

CONF = Path("/etc/ddtop-bed")
FILE = CONF / "faults"
STARTS = Path("/var/lib/ddtop-bed/starts")
WRAPPER = Path("/usr/local/bin/systemctl")  # there only while SYSTEMCTL_FAULT is set


def matches(part, argv):
    """Whether `part` is in the command line: one word anywhere, several as whole arguments in a row."""
    words = part.split()
    if len(words) <= 1:
        return any(part in a for a in argv)
    return any(list(argv[i:i + len(words)]) == words for i in range(len(argv) - len(words) + 1))


def select(text, argv, start):
    """The faults of `text` that hold for a process with this command line, at its start number `start`."""
    when, starts, out = "", "", {}
    for line in text.splitlines():
        key, eq, value = line.partition("=")
        if not eq:
            continue
        if key == "WHEN":
            when = value
        elif key == "STARTS":
            starts = value
        elif (not when or matches(when, argv)) and (not starts or str(start) in starts.split(",")):
            out[key] = value
    return out


class Faults:
    """This process's view; `start` is counted once, when the process that is to be faulty says so."""

    def __init__(self, argv=None, count=False):
        self.argv, self.start = list(sys.argv if argv is None else argv), 0
        self.cache = (None, {})
        if count:
            self.start = count_start()

    def all(self):
        try:
            stamp = FILE.stat().st_mtime_ns
            if stamp != self.cache[0]:
                self.cache = (stamp, select(FILE.read_text(), self.argv, self.start))
        except OSError:
            self.cache = (None, {})
        return self.cache[1]

    def get(self, key, default=""):
        """The value, of the default's type."""
        value = self.all().get(key)
        if value is None or value == "":
            return default
        return value if isinstance(default, str) else type(default)(float(value))

    def speed(self):
        """How many times faster than life all of it goes."""
        return self.get("SPEED", float(os.environ.get("SPEED") or 1.0)) or 1.0


def count_start():
    """The number of this start since the faults were set."""
    try:
        fd = os.open(str(STARTS), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(fd, b"x")
        size = os.fstat(fd).st_size
        os.close(fd)
        return size
    except OSError:
        return 0


def write(lines):
    CONF.mkdir(exist_ok=True)
    STARTS.unlink(missing_ok=True)
    fd = os.open(str(STARTS), os.O_WRONLY | os.O_CREAT, 0o666)
    os.fchmod(fd, 0o666)
    os.close(fd)
    new = CONF / "faults.new"
    new.write_text("".join(line + "\n" for line in lines))
    new.rename(FILE)
    fault = dict(l.split("=", 1) for l in lines if "=" in l).get("SYSTEMCTL_FAULT")
    if fault == "no-reload":  # a daemon-reload that is lost: what was written is not what runs
        WRAPPER.write_text('#!/bin/sh\ncase " $* " in *" daemon-reload "*) exit 0 ;; esac\nexec /usr/bin/systemctl "$@"\n')
        WRAPPER.chmod(0o755)
    else:
        WRAPPER.unlink(missing_ok=True)


if __name__ == "__main__":
    write(sys.argv[1:])
