"""Diagnose a unit from what was fetched of it: `systemctl show`, the journal, systemctl's own output, timelines.

`diagnose_unit` is the offline form (`ddtop inspect unit`); the live form is `unit_verdict`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddtop.services.causes import verdict_fields
from ddtop.services.journald.json_form import Entry, looks_like_journal_json, parse_journal_json
from ddtop.services.unit.containers import container_props, looks_like_inspect
from ddtop.services.unit.live import UnitVerdict, unit_verdict
from ddtop.services.unit.port_owner import Listener, parse_listeners, port_slug
from ddtop.services.unit.show import UnitProps, looks_like_show, looks_like_status, parse_status, parse_units
from ddtop.services.unit.state import UnitState, refusal, state_fields, unit_state, worker_killed
from ddtop.services.unit.timeline import looks_like_timeline, read_timeline

__all__ = ["UnitVerdict", "diagnose_unit", "unit_verdict"]

NOTHING = {"file": "rule", "line": None, "text": "no reading of the unit was given"}
_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\\\))")
"""Colours and hyperlinks of a systemctl that wrote to a terminal."""
_STATUS_LOG = re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ", re.MULTILINE)
_STATUS_CONDITION = re.compile(
    r"^[^\S\n]*(?:Condition: (?=start condition (?:failed|unmet))|[└├]─ ?(?=\w*Condition))(?P<what>[^\n]{1,500})",
    re.MULTILINE,
)
_SUPPRESSED = re.compile(r"Suppressed (?P<n>\d+) messages from")
_LEFTOVER = re.compile(r"Found left-over process (?P<pid>\d+) \((?P<comm>[^)]*)\)")
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
_MODEL_PATH = re.compile(
    r"model|config\.json|\.safetensors|\.gguf|/dev/shm|huggingface|hf[_-]?cache|weights", re.IGNORECASE
)
_BAR = re.compile(r"\d{1,3}% ?(?:Completed )?\|[^\n]*?(?P<n>\d+)/(?P<of>\d+)")
_PREFIX = re.compile(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? |\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* )\S+ [^:\s]+(?:\[\d+\])?: "
)


@dataclass(slots=True)
class _Moment:
    """All that was fetched of one moment (one input number)."""

    props: UnitProps | None = None
    lines: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    has_json: bool = False
    listeners: list[Listener] = field(default_factory=list)
    start_rc: int | None = None
    start_verb: str | None = None
    start_text: str = ""
    show_file: str = ""
    line_at: dict[str, tuple[str, int]] = field(default_factory=dict)


def _number(name: str) -> int:
    match = _NUMBER.match(name)
    return int(match["n"]) if match and match["n"] and len(match["n"]) < 6 else 1


def _looks_like_command(name: str, text: str) -> bool:
    return bool(
        _RC.search(text)
        and (_COMMAND.search(text) or _FAILED_JOB.search(text) or "startcmd" in name or "no output" in text)
    )


def _take(moment: _Moment, name: str, data: bytes) -> None:
    """Decide by the contents what a file is, and add it to its moment."""
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
        for told in _STATUS_CONDITION.finditer(text):
            _add_line(moment, told["what"].strip(), name, text.count("\n", 0, told.start("what")) + 1)
        text = text[m.start() :] if (m := _STATUS_LOG.search(text)) else ""
    if listeners := parse_listeners(text):
        moment.listeners = listeners
        return
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


def _add_line(moment: _Moment, line: str, name: str, number: int) -> None:
    moment.lines.append(line)
    moment.line_at.setdefault(line, (name, number))


def _service(units: list[UnitProps]) -> UnitProps:
    """Of several units shown together, the one that tells most: a failing one first, else the first service."""
    failing = [u for u in units if u.active_state == "failed" or u.sub_state == "auto-restart"]
    services = [u for u in units if (u.id or "").endswith(".service")]
    return (failing or services or units)[0]


def _journal_fields(entries: list[Entry]) -> dict[str, Any]:
    """What the journal's own form tells: types of messages, parts, bars, who wrote."""
    found: dict[str, Any] = {
        "entries": len(entries),
        "message_types": [e.message_type for e in entries],
        "bytes_entries": sum(e.message_type == "bytes" for e in entries),
        "null_messages": sum(e.message_type == "null" for e in entries),
        "invalid_utf8_entries": sum(e.invalid_utf8 for e in entries),
        "from_systemd": sum(e.from_systemd for e in entries),
        "line_max_entries": sum(e.line_break == "line-max" for e in entries),
    }
    bars = [
        m[-1]
        for e in entries
        if e.text
        and "%" in e.text
        and (m := [b for part in e.text[-20_000:].split("\r") for b in _BAR.finditer(part[:2_000])])
    ]
    if bars:
        found["bar_state"] = f"{bars[-1]['n']}/{bars[-1]['of']}"
    return found


def _journal_only(moment: _Moment) -> UnitState:
    fields = _journal_fields(moment.entries)
    boots = {e.boot_id for e in moment.entries if e.boot_id}
    last = moment.entries[-1] if moment.entries else None
    if (
        len(boots) > 1
        and last is not None
        and not any(e.boot_id == last.boot_id and not e.from_systemd and e.unit for e in moment.entries)
    ):  # systemd alone has written since the boot
        state = unit_state(UnitProps(), moment.lines)
        if state.slug == "rebooted":
            return state
    if fields["null_messages"]:
        return UnitState("message-null-too-large", (f"{fields['null_messages']} messages are null",))
    state = unit_state(UnitProps(), moment.lines)
    if state.slug not in ("active", "stopped-cleanly", "no-unit-data", "start-job-running"):
        return state
    if any("Suppressed " in line for line in moment.lines):
        return UnitState("log-incomplete", tuple(line for line in moment.lines if "Suppressed " in line)[:3])
    if fields["bytes_entries"]:
        return UnitState("decode-byte-arrays", (f"{fields['bytes_entries']} messages are byte values",))
    return UnitState("journal-ok") if moment.entries else state


def _judge(moment: _Moment) -> dict[str, Any]:
    asked = moment.start_verb is not None and moment.start_verb != "stop"
    refused = refusal(moment.start_text) if moment.start_rc not in (None, 0) else None
    if moment.props is not None:
        state = unit_state(moment.props, moment.lines, start_asked=asked)
        wrong = port_slug(moment.listeners, moment.props)
        if wrong is not None and state.slug == "active":
            state = UnitState(wrong[0], (wrong[1].text,))
        if refused is not None and state.slug in (
            "active",
            "stopped-cleanly",
            "never-started",
            "unit-not-found",
            "unit-failed",
            "condition-not-met",  # that would be no error: systemctl returns 0 for it
        ):
            state = refused
        elif (
            asked and moment.start_rc not in (None, 0) and state.slug in ("stopped-cleanly", "never-started")
        ):
            state = UnitState("never-began", (f"rc={moment.start_rc}", *state.why))
    elif moment.has_json and not [n for n in moment.line_at.values() if not n[0].endswith(("jsonl", "json"))]:
        state = _journal_only(moment)
    else:
        state = unit_state(UnitProps(), moment.lines, start_asked=asked)
        if refused is not None and state.slug == "no-unit-data":
            state = refused
        owners = {(ln.pid, ln.cgroup): ln for ln in moment.listeners}
        if state.slug == "no-unit-data" and len({ln.port for ln in owners.values()}) == 1 and len(owners) > 1:
            state = UnitState("two-listeners", tuple(ln.text for ln in owners.values())[:3])
    if state.slug == "no-unit-data" and any(_SUPPRESSED.search(line) for line in moment.lines):
        state = UnitState("log-incomplete", tuple(ln for ln in moment.lines if _SUPPRESSED.search(ln))[:3])
    killed = worker_killed(moment.lines) if state.slug == "active" else None
    result = verdict_fields((killed or state).slug)
    if killed is not None:
        result["verdict"], state = "degraded", killed
    if moment.props is not None or moment.lines:
        result.update(state_fields(moment.props or UnitProps(), moment.lines))
    if moment.has_json:
        result.update(_journal_fields(moment.entries))
    if moment.start_rc is not None:
        result[f"systemctl_{'stop' if moment.start_verb == 'stop' else 'start'}_rc"] = moment.start_rc
    if state.slug == "start-limit-hit":
        result["needs_reset_failed"] = True
    if state.slug in ("start-timeout", "stop-timeout-killed", "watchdog-killed"):
        result["killed_by"] = "systemd"
    if state.slug in ("oom-killed", "killed-by-oom-killer"):
        result["killed_by"] = "oom-killer"
    if moment.listeners:
        result["listener_pids"] = list(dict.fromkeys(ln.pid for ln in moment.listeners if ln.pid is not None))
        result["port"] = moment.listeners[0].port
    suppressed = [int(m["n"]) for line in moment.lines if (m := _SUPPRESSED.search(line))]
    if suppressed:
        result["suppressed_messages"] = sum(suppressed)
    leftover = [int(m["pid"]) for line in moment.lines if (m := _LEFTOVER.search(line))]
    if leftover:
        result["leftover_pids"] = leftover
    if state.path:
        result["path"] = state.path
        if state.slug == "condition-not-met" and _MODEL_PATH.search(state.path):
            result["remedy"] = "re-stage the model"
            result["advice"] = (
                "The unit is guarded by a model file that is not there (was a tmpfs emptied by a reboot?): re-stage the model, then start again."
            )
    result["evidence"] = [_evidence(moment, why) for why in state.why] or [
        {
            "file": moment.show_file or "rule",
            "line": None,
            "text": f"{len(moment.lines)} lines, {len(moment.entries)} entries",
        }
    ]
    return result


def _evidence(moment: _Moment, why: str) -> dict[str, Any]:
    if why in moment.line_at:
        name, number = moment.line_at[why]
        return {"file": name, "line": number, "text": why[:400]}
    return {"file": moment.show_file or "rule", "line": None, "text": why[:400]}


def diagnose_unit(files: Mapping[str, bytes] | bytes) -> dict[str, Any]:
    """Diagnose a systemd unit from files fetched of it.

    files  file name → bytes: `systemctl show` output, journal lines (text or JSON), what `systemctl start` printed (with
           `rc=N`), a timeline of readings; what each is is decided by its contents. A number before the extension
           (`input2.show`) puts it to a later moment; `*.all.jsonl` is the same journal fetched with `--all`.
    Returns verdict (failed crash-looping stopped not-started degraded wrong-config ok partial starting stopping),
    cause, severity, evidence, advice, retryable, remedy where there is one, and the readings: exit_code, exit_name,
    n_restarts, main_pid … Of several moments the last one with `systemctl show` decides; each moment's own values are
    also there with the suffix `_input`, `_input2` ….
    """
    named = (
        {"input.show": bytes(files)}
        if isinstance(files, bytes | bytearray | memoryview)
        else {n: bytes(d) for n, d in files.items()}
    )
    moments: dict[int, _Moment] = {}
    with_all: list[Entry] | None = None
    for name in sorted(named):
        data = named[name]
        if name.endswith((".md",)):
            continue
        text = data[:200_000].decode("utf-8", "replace")
        if ".all." in name and looks_like_journal_json(data):
            with_all = parse_journal_json(data)
            continue
        if not looks_like_journal_json(data) and looks_like_timeline(text):
            return read_timeline(name, data.decode("utf-8", "replace"))
        _take(moments.setdefault(_number(name), _Moment()), name, data)
    if not moments:
        if with_all is None:
            return {**verdict_fields("no-unit-data"), "evidence": [NOTHING]}
        moments[1] = _Moment(entries=with_all, has_json=True)
    judged = {number: _judge(moment) for number, moment in sorted(moments.items())}
    shown = [n for n, m in moments.items() if m.props is not None]
    deciding = (
        max(shown)
        if shown
        else max((n for n, m in moments.items() if m.lines or m.entries), default=min(judged))
    )
    if not shown and 1 in moments and (moments[1].lines or moments[1].entries):
        deciding = 1
    result: dict[str, Any] = {}
    for number in sorted(judged):
        if number == deciding:
            continue
        suffix = "_input" if number == 1 else f"_input{number}"
        for key, value in judged[number].items():
            result[key + suffix] = value
            if number < deciding and key in ("old_server_can_answer", "systemctl_start_rc"):
                result.setdefault(key, value)
    for key, value in judged[deciding].items():
        result[key] = value
        if len(judged) > 1:
            result[f"{key}_input{deciding if deciding > 1 else ''}"] = value
    if with_all is not None:
        result["lengths_with_all"] = [len(e.text) for e in with_all if e.text is not None]
    return result
