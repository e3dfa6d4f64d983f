"""The fields of one unit reading as `ddtop inspect unit` prints them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ddtop.services.unit.state import restart_counters
from ddtop.services.unit.systemctl_show import EXIT_NAMES, SIGNAL_NAMES, UnitProps, exec_argv

_NAME = r"(?P<u>[\w@.\\:\-]+\.(?:service|scope))"
_UNIT = re.compile(rf"^(?:.{{0,60}}?systemd(?:\[\d+\])?: )?{_NAME}: ")
_NAMED = re.compile(
    rf"(?:Job for |Failed to (?:re|reload-or-re)?start |Unit (?=\S+ (?:not|could|is masked|entered|has))|too quickly for ){_NAME}"
)
"""Where systemctl and systemd name a unit in a sentence."""


def unit_of_lines(lines: Sequence[str]) -> str | None:
    """The unit that systemd's own lines are about: the service most of them name; None where none is named."""
    names = [match["u"] for line in lines if (match := _UNIT.match(line))]
    names = names or [match["u"] for line in lines for match in _NAMED.finditer(line)]
    return max(names, key=names.count) if names else None


def state_fields(props: UnitProps, lines: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of one reading, as `ddtop inspect unit` prints them. What is not known is absent."""
    found: dict[str, Any] = {}
    known = (
        ("unit", props.id),
        ("load_state", props.load_state),
        ("active_state", props.active_state),
        ("sub_state", props.sub_state),
        ("result_property", props.result),
        ("main_pid", props.main_pid),
        ("control_pid", props.control_pid or None),
        ("invocation_id", props.invocation_id),
        ("n_restarts", props.n_restarts),
        ("job", props.job),
        ("need_daemon_reload", props.need_daemon_reload),
    )
    found.update({key: value for key, value in known if value is not None})
    if "unit" not in found and (named := unit_of_lines(lines)):
        found["unit"] = named
    counters = restart_counters(lines)
    if "n_restarts" not in found and counters:
        found["n_restarts"] = max(counters)
    status = props.exec_main_status
    if props.exec_main_code == "exited" and status is not None:
        found["exit_code"] = status
        if status in EXIT_NAMES:
            found["exit_name"] = EXIT_NAMES[status]
    elif props.exec_main_code in ("killed", "dumped") and status is not None:
        found["exit_signal"] = found["kill_signal"] = status
        found["signal_name"] = SIGNAL_NAMES.get(status, str(status))
    if props.active_enter is not None and props.exec_main_exit is not None:
        found["active_enter_equals_exit"] = props.active_enter == props.exec_main_exit
    if props.active_state is not None:
        found["is_active_rc"] = 0 if props.active_state in ("active", "reloading") else 3
    if argv := exec_argv((props.raw or {}).get("ExecStart")):
        found["exec_argv"] = argv
    if drop_ins := (props.raw or {}).get("DropInPaths"):
        found["drop_ins"] = drop_ins.split()
    if props.active_state in ("activating", "deactivating") and props.sub_state:
        found["phase"] = props.sub_state
    if props.active_state == "deactivating":
        found["old_server_can_answer"] = bool(props.main_pid)
    return found
