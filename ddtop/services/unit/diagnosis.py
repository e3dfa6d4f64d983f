"""Diagnose a unit from files fetched of it: `systemctl show`, the journal, systemctl's own output, timelines.

`ddtop inspect unit` uses it. During a sweep `ddtop.sweep.start.watchdog` judges the unit instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ddtop.services.causes import verdict_fields
from ddtop.services.journald.entries import Entry, looks_like_journal_json, parse_journal_json
from ddtop.services.unit.exits import Ending, main_ending
from ddtop.services.unit.failed import UnitState, leftovers, worker_killed
from ddtop.services.unit.moment import Moment, moment_number, take
from ddtop.services.unit.port_owner import port_slug
from ddtop.services.unit.result_fields import state_fields
from ddtop.services.unit.state import job_failure, refusal, restart_counters, unit_state
from ddtop.services.unit.systemctl_show import UnitProps
from ddtop.services.unit.timeline import looks_like_timeline, read_timeline

NOTHING = {"file": "rule", "line": None, "text": "no reading of the unit was given"}
_SUPPRESSED = re.compile(r"Suppressed (?P<n>\d+) messages from")
_MODEL_PATH = re.compile(
    r"model|config\.json|\.safetensors|\.gguf|/dev/shm|huggingface|hf[_-]?cache|weights", re.IGNORECASE
)
_BAR = re.compile(r"\d{1,3}% ?(?:Completed )?\|[^\n]*?(?P<n>\d+)/(?P<of>\d+)")


def _journal_fields(entries: list[Entry]) -> dict[str, Any]:
    """Fields read from the journal's entries: types of messages, split lines, progress bars, lines of systemd."""
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


def _journal_only(moment: Moment) -> UnitState:
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


def _judge(moment: Moment) -> dict[str, Any]:
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
        state = moment.told or unit_state(UnitProps(), moment.lines, start_asked=asked)
        if refused is not None and state.slug == "no-unit-data":
            state = refused
        owners = {(ln.pid, ln.cgroup): ln for ln in moment.listeners}
        if state.slug == "no-unit-data" and len({ln.port for ln in owners.values()}) == 1 and len(owners) > 1:
            state = UnitState("two-listeners", tuple(ln.text for ln in owners.values())[:3])
    if state.slug == "no-unit-data":
        state = job_failure("\n".join([*moment.lines, moment.start_text])) or state
    if state.slug == "no-unit-data" and any(_SUPPRESSED.search(line) for line in moment.lines):
        state = UnitState("log-incomplete", tuple(ln for ln in moment.lines if _SUPPRESSED.search(ln))[:3])
    killed = worker_killed(moment.lines) if state.slug == "active" else None
    looping = state.slug in ("exited-waiting-for-restart", "flapping")
    if looping and moment.props is not None and (why := _never_runs(moment.props)) is not None:
        state = UnitState(
            why.slug, state.why, says=f"The main process {why.words}, and systemd starts it again and again."
        )
    result = verdict_fields((killed or state).slug)
    if looping:
        result["verdict"] = "crash-looping"
    if killed is not None:
        result["verdict"], state = "degraded", killed
    if moment.props is not None or moment.lines or moment.start_text:
        said = moment.lines or moment.start_text.splitlines()
        result.update(state_fields(moment.props or UnitProps(), said))
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
    if left := leftovers(moment.lines):
        result["leftover_pids"] = list(left)
    if state.slug == "leftover-processes" and result.get("active_state") != "active":
        looping = max(restart_counters(moment.lines), default=result.get("n_restarts") or 0) > 1
        verdict = "crash-looping" if looping else "failed"
        result.update(
            verdict=verdict if _failing(moment) else "degraded",
            severity="error" if _failing(moment) else "warn",
        )
    if state.says:
        result["meaning"] = state.says
    if state.advice:
        result["advice"] = state.advice
    if state.path:
        result["path"] = state.path
        if state.slug == "condition-not-met" and _MODEL_PATH.search(state.path):
            result["remedy"] = "re-stage the model"
            result["advice"] = (
                "A condition of the unit asks for a model file that is missing (a reboot empties a tmpfs): re-stage the model, then start the unit."
            )
    result["evidence"] = [_evidence(moment, why) for why in state.why] or [
        {
            "file": moment.show_file or "rule",
            "line": None,
            "text": f"{len(moment.lines)} lines, {len(moment.entries)} entries",
        }
    ]
    return result


def _never_runs(props: UnitProps) -> Ending | None:
    """How the main process of a unit in a restart loop ended, where that shows that it can never run as it is set up."""
    ending = main_ending(props.result, props.exec_main_code, props.exec_main_status)
    return ending if ending is not None and verdict_fields(ending.slug)["retryable"] is False else None


def _failing(moment: Moment) -> bool:
    """Whether the unit failed or is being restarted, by its state or its journal."""
    props = moment.props
    if props is not None and props.active_state not in (None, "inactive"):
        return props.active_state in ("failed", "activating")
    return any("Failed with result" in line or "Failed to start" in line for line in moment.lines)


def _evidence(moment: Moment, why: str) -> dict[str, Any]:
    if why in moment.line_at:
        name, number = moment.line_at[why]
        return {"file": name, "line": number, "text": why[:400]}
    return {"file": moment.show_file or "rule", "line": None, "text": why[:400]}


def diagnose_unit(files: Mapping[str, bytes] | bytes) -> dict[str, Any]:
    """Diagnose a systemd unit from files fetched of it.

    files  file name → bytes: `systemctl show` output, journal lines (text or JSON), what `systemctl start` printed (with
           `rc=N`), a timeline of readings; the contents decide which it is. A number before the extension
           (`input2.show`) means a later moment; `*.all.jsonl` is the same journal fetched with `--all`.
    Returns verdict (failed crash-looping stopped not-started degraded wrong-config ok partial starting stopping),
    cause, severity, evidence, advice, retryable, remedy if any, and the readings: exit_code, exit_name,
    n_restarts, main_pid … Of several moments the last one with `systemctl show` decides; each moment's own values are
    also there with the suffix `_input`, `_input2` ….
    """
    named = (
        {"input.show": bytes(files)}
        if isinstance(files, bytes | bytearray | memoryview)
        else {n: bytes(d) for n, d in files.items()}
    )
    moments: dict[int, Moment] = {}
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
        take(moments.setdefault(moment_number(name), Moment()), name, data)
    if not moments:
        if with_all is None:
            return {**verdict_fields("no-unit-data"), "evidence": [NOTHING]}
        moments[1] = Moment(entries=with_all, has_json=True)
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
