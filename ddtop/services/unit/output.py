"""Where a unit's output goes, by its own files: the journal, or a file that must be followed instead. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TO_FILE = ("append:", "file:", "truncate:")
DROPPED = ("null", "tty", "socket", "fd:")
FOLDERS = {"t": "/run", "L": "/var/log", "S": "/var/lib", "E": "/etc", "C": "/var/cache", "h": "/root"}


@dataclass(frozen=True, slots=True)
class Output:
    """Where stdout and stderr go."""

    files: tuple[str, ...] = ()
    """Files that hold the log, each once; empty where it is the journal's."""
    elsewhere: str = ""
    """In words, where neither the journal nor a file has it: `StandardOutput=null`."""


def output_of(text: str, unit: str) -> Output:
    """What `systemctl cat UNIT` says: of several assignments the last holds, as with systemd."""
    set_: dict[str, str] = {"StandardOutput": "", "StandardError": ""}
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line
            continue
        key, equals, value = line.partition("=")
        if section == "[Service]" and equals and key.strip() in set_:
            set_[key.strip()] = value.strip()
    out = set_["StandardOutput"] or "journal"
    err = set_["StandardError"] or "inherit"
    files: list[str] = []
    lost: list[str] = []
    for name, value in (("StandardOutput", out), ("StandardError", out if err == "inherit" else err)):
        head = next((word for word in TO_FILE if value.startswith(word)), None)
        if head is not None:
            path = expanded(value[len(head) :], unit)
            if path is None:
                lost.append(f"{name}={value}")
            elif path not in files:
                files.append(path)
        elif value.startswith(DROPPED):
            lost.append(f"{name}={value}")
    told = not files and len(lost) == 2
    return Output(tuple(files), ", ".join(dict.fromkeys(lost)) if told or (lost and not files) else "")


def expanded(path: str, unit: str, more: Mapping[str, str] | None = None) -> str | None:
    """A path with systemd's specifiers replaced; None where one is not known here.

    >>> expanded("/var/log/%p-%i.log", "sglang@8.service"), expanded("%L/x.log", "a.service"), expanded("/x/%q", "a")
    ('/var/log/sglang-8.log', '/var/log/x.log', None)
    """
    stem = unit.rsplit(".", 1)[0] if "." in unit else unit
    prefix, _, instance = stem.partition("@")
    known = {**FOLDERS, "n": unit, "N": stem, "p": prefix, "i": instance, "%": "%", **(more or {})}
    found, rest = "", path.strip("\"'")
    while rest:
        head, sign, rest = rest.partition("%")
        found += head
        if sign:
            if rest[:1] not in known:
                return None
            found += known[rest[:1]]
            rest = rest[1:]
    return found if found.startswith("/") else None
