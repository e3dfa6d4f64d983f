"""`systemctl show`: any order, several units, values that are not set."""

from __future__ import annotations

import pytest

from ddtop.services.unit.systemctl_show import (
    looks_like_show,
    parse_show,
    parse_units,
    span_s,
    unit_props,
)

SHOW = """\
Id=llm-server.service
ActiveState=failed
SubState=failed
MainPID=0
ExecMainCode=2
ExecMainStatus=9
NRestarts=[not set]
InvocationID=
MemoryCurrent=18446744073709551615
Job=
NeedDaemonReload=yes
ExecStart={ path=/bin/a ; argv[]=/bin/a --b=c ; pid=0 }
TimeoutStopUSec=1min 30s
"""


def test_values_that_are_not_set_are_none_never_zero() -> None:
    (unit,) = parse_units(SHOW)
    assert (unit.n_restarts, unit.invocation_id, unit.job, unit.condition_result) == (None, None, None, None)
    assert (unit.main_pid, unit.exec_main_code, unit.exec_main_status) == (0, "killed", 9)
    assert unit.need_daemon_reload is True
    assert unit.raw is not None and "argv[]=/bin/a --b=c" in unit.raw["ExecStart"]


def test_order_noise_and_line_ends_do_not_matter() -> None:
    turned = "Welcome to host\nFOO: bar\n" + "\r\n".join(reversed(SHOW.splitlines()))
    assert parse_units(turned)[0].exec_main_status == 9
    assert looks_like_show(turned) and not looks_like_show("Result=ok\nsomething")


def test_several_units() -> None:
    two = SHOW + "\n" + SHOW.replace("llm-server", "other").replace("failed", "active")
    glued = SHOW + SHOW.replace("llm-server", "other").replace("failed", "active")
    for text in (two, glued):
        assert [(u.id, u.active_state) for u in parse_units(text)] == [
            ("llm-server.service", "failed"),
            ("other.service", "active"),
        ]


def test_exec_start_may_come_twice_in_one_unit() -> None:
    (raw,) = parse_show("Id=a.service\nExecStart={ 1 }\nExecStart={ 2 }\nMainPID=3\n")
    assert raw["ExecStart"] == "{ 1 }\n{ 2 }"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1min 30s", 90.0),
        ("4s", 4.0),
        ("500ms", 0.5),
        ("1h 1min 1s", 3661.0),
        ("infinity", None),
        ("90000000", 90.0),
        ("", None),
        (None, None),
        ("[not set]", None),
        ("soon", None),
    ],
)
def test_spans(text: str | None, seconds: float | None) -> None:
    assert span_s(text) == seconds


def test_a_code_by_name_is_read_too() -> None:
    assert unit_props({"ExecMainCode": "exited", "ExecMainStatus": "203"}).exec_main_code == "exited"
    assert unit_props({"ExecMainCode": "0"}).exec_main_code is None
