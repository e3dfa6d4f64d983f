"""Collect the files fetched of a unit (`systemctl show`, journal, `ss`, a command's output) into moments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ddtop.services.journald.entries import Entry, looks_like_journal_json, parse_journal_json
from ddtop.services.unit.container_table import read_table
from ddtop.services.unit.docker_inspect import container_props, looks_like_inspect
from ddtop.services.unit.failed import UnitState
from ddtop.services.unit.port_owner import Listener, parse_listeners
from ddtop.services.unit.systemctl_show import UnitProps, looks_like_show, parse_units
from ddtop.services.unit.systemctl_status import looks_like_status, parse_status

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\))")
"""Colours and hyperlinks of a systemctl that wrote to a terminal."""
_STATUS_LOG = re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ", re.MULTILINE)
_STATUS_CONDITION = re.compile(
    r"^[^\S\n]*(?:Condition: (?=start condition (?:failed|unmet))|[└├]─ ?(?=\w*Condition))(?P<what>[^\n]{1,500})",
    re.MULTILINE,
)
_NUMBER = re.compile(r"^[A-Za-z_]+?(?P<n>\d*)\.")
_RC = re.compile(
    r"^[^\S\n]*(?:rc|exit(?: ?code| ?status)?|\$\?) *[=:] *(?P<rc>-?\d{1,3})[^\S\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
_COMMAND = re.compile(
    r"^[^\S\n]*(?:[$#>] *)?(?:sudo (?:-\w )*)?systemctl (?:--\S+ )*(?P<verb>start|restart|reload-or-restart|try-restart|stop)\b",
    re.MULTILINE,
)
_FAILED_JOB = re.compile(r"Job for \S+ failed because|Failed to (?:re)?start ")
_PREFIX = re.compile(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? |\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* )\S+ [^:\s]+(?:\[\d+\])?: "
)


@dataclass(slots=True)
class Moment:
    """What was fetched of one unit at one moment.

    line_at  line → (file, line number)
    """

    props: UnitProps | None = None
    lines: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    has_json: bool = False
    listeners: list[Listener] = field(default_factory=list)
    told: UnitState | None = None
    start_rc: int | None = None
    start_verb: str | None = None
    start_text: str = ""
    show_file: str = ""
    line_at: dict[str, tuple[str, int]] = field(default_factory=dict)


def moment_number(name: str) -> int:
    """The moment a file belongs to, by its name: `input2.show` → 2, without a number 1."""
    match = _NUMBER.match(name)
    return int(match["n"]) if match and match["n"] and len(match["n"]) < 6 else 1


def _looks_like_command(name: str, text: str) -> bool:
    return bool(
        _RC.search(text)
        and (_COMMAND.search(text) or _FAILED_JOB.search(text) or "startcmd" in name or "no output" in text)
    )


def take(moment: Moment, name: str, data: bytes) -> None:
    """Add a file to its moment; what it is is decided by its contents."""
    if looks_like_journal_json(data):
        entries = parse_journal_json(data)
        moment.has_json = True
        moment.entries = entries
        boot: str | None = None
        for number, entry in enumerate(entries, 1):
            if entry.boot_id and boot and entry.boot_id != boot:
                _add_line(moment, f"-- Boot {entry.boot_id} --", name, number)
            boot = entry.boot_id or boot
            if entry.text is not None and (
                entry.from_systemd or entry.unit is None or entry.identifier == "systemd"
            ):
                _add_line(moment, entry.text, name, number)
        return
    text = _COLOURS.sub("", data.decode("utf-8", "replace"))
    if looks_like_show(text):
        units = parse_units(text)
        if units:
            moment.props = _service(units)
            moment.show_file = name
        return
    if looks_like_status(text):
        moment.props, moment.show_file = parse_status(text), name
        for found in _STATUS_CONDITION.finditer(text):
            _add_line(moment, found["what"].strip(), name, text.count("\n", 0, found.start("what")) + 1)
        text = text[m.start() :] if (m := _STATUS_LOG.search(text)) else ""
    if listeners := parse_listeners(text):
        moment.listeners = listeners
        return
    if (told := read_table(text)) is not None:
        moment.told = told
    if looks_like_inspect(text):
        moment.props, moment.show_file = container_props(text), name
        return
    if _looks_like_command(name, text):
        if rc := _RC.search(text):
            moment.start_rc = int(rc["rc"])
        verb = _COMMAND.search(text)
        moment.start_verb = verb["verb"] if verb else "start"
        moment.start_text = text
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            _add_line(moment, _PREFIX.sub("", line.strip()), name, number)


def _add_line(moment: Moment, line: str, name: str, number: int) -> None:
    moment.lines.append(line)
    moment.line_at.setdefault(line, (name, number))


def _service(units: list[UnitProps]) -> UnitProps:
    """Of several units shown together: a failing one, else the first service, else the first."""
    failing = [u for u in units if u.active_state == "failed" or u.sub_state == "auto-restart"]
    services = [u for u in units if (u.id or "").endswith(".service")]
    return (failing or services or units)[0]
