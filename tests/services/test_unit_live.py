"""The unit's part in "not starting?": what two readings around a restart mean, and when."""

from __future__ import annotations

import pytest

from ddtop.services.unit.live import unit_verdict
from ddtop.services.unit.show import UnitProps
from ddtop.services.unit.state import refusal

OLD = UnitProps(
    id="u.service",
    load_state="loaded",
    active_state="active",
    sub_state="running",
    result="success",
    main_pid=83,
    exec_main_pid=83,
    n_restarts=0,
    invocation_id="old",
)


def unit(active: str, sub: str, **more: object) -> UnitProps:
    values: dict[str, object] = {
        "id": "u.service",
        "load_state": "loaded",
        "active_state": active,
        "sub_state": sub,
        "result": "success",
        "main_pid": 0,
        "n_restarts": 0,
        "invocation_id": "new",
    }
    return UnitProps(**{**values, **more})  # type: ignore[arg-type]


ROWS = [
    ("new process runs", unit("active", "running", main_pid=267), 0.0, 0.5, {}, "active", "active", False),
    (
        "notify unit starting",
        unit("activating", "start", main_pid=267),
        0.0,
        0.5,
        {},
        "starting",
        "start-job-running",
        False,
    ),
    (
        "failed",
        unit(
            "failed",
            "failed",
            result="exit-code",
            exec_main_code="exited",
            exec_main_status=1,
            exec_main_pid=9,
        ),
        0.0,
        0.5,
        {},
        "failed",
        "main-process-exited",
        True,
    ),
    (
        "killed",
        unit("failed", "failed", result="signal", exec_main_code="killed", exec_main_status=9),
        0.0,
        0.5,
        {},
        "failed",
        "main-process-killed",
        True,
    ),
    ("oom-kill", unit("failed", "failed", result="oom-kill"), 0.0, 0.5, {}, "failed", "oom-killed", True),
    (
        "exec 203",
        unit("failed", "failed", result="exit-code", exec_main_code="exited", exec_main_status=203),
        0.0,
        0.1,
        {"call_rc": 0},
        "refused",
        "exec-not-found",
        True,
    ),
    (
        "chdir 200",
        unit("failed", "failed", result="exit-code", exec_main_code="exited", exec_main_status=200),
        0.0,
        0.1,
        {},
        "refused",
        "working-directory-missing",
        True,
    ),
    (
        "user 217",
        unit("failed", "failed", result="exit-code", exec_main_code="exited", exec_main_status=217),
        0.0,
        0.1,
        {},
        "refused",
        "user-missing",
        True,
    ),
    (
        "namespace 226",
        unit("failed", "failed", result="exit-code", exec_main_code="exited", exec_main_status=226),
        0.0,
        0.1,
        {},
        "refused",
        "sandbox-setup-failed",
        True,
    ),
    (
        "bad setting",
        unit("inactive", "dead", load_state="bad-setting"),
        0.0,
        0.1,
        {"call_rc": 1},
        "refused",
        "bad-unit-file",
        True,
    ),
    (
        "masked",
        unit("inactive", "dead", load_state="masked"),
        0.0,
        0.1,
        {"call_rc": 1},
        "refused",
        "unit-masked",
        True,
    ),
    (
        "unmet condition",
        unit("inactive", "dead", condition_result=False, invocation_id=None),
        0.0,
        0.1,
        {"call_rc": 0},
        "refused",
        "condition-not-met",
        True,
    ),
    (
        "not permitted",
        OLD,
        0.0,
        0.1,
        {"call_rc": 1, "call_text": "Failed to restart u.service: Interactive authentication required."},
        "refused",
        "not-permitted",
        True,
    ),
    (
        "auto-restart",
        unit("activating", "auto-restart"),
        0.0,
        1.0,
        {},
        "crash-loop",
        "exited-waiting-for-restart",
        True,
    ),
    (
        "restarted twice",
        unit("active", "running", main_pid=5, n_restarts=2),
        0.0,
        9.0,
        {},
        "crash-loop",
        "flapping",
        True,
    ),
    (
        "start limit",
        unit("failed", "failed", result="exit-code", exec_main_code="exited", exec_main_status=1),
        0.0,
        1.0,
        {"lines": ["u.service: Start request repeated too quickly."]},
        "crash-loop",
        "start-limit-hit",
        True,
    ),
    (
        "start limit by result",
        unit("failed", "failed", result="start-limit-hit"),
        0.0,
        1.0,
        {},
        "crash-loop",
        "start-limit-hit",
        True,
    ),
    (
        "old one stopping",
        unit("deactivating", "stop-sigterm", main_pid=83, invocation_id="old", timeout_stop_s=60.0),
        None,
        12.0,
        {"stopping_since_s": 4.0},
        "stopping",
        "stopping",
        False,
    ),
    ("call not back yet", OLD, None, 90.0, {}, "starting", "start-job-running", False),
    ("old one, 4 s after the call", OLD, 10.0, 14.0, {"call_rc": 0}, "starting", "start-job-running", False),
    ("old one, 5 s after the call", OLD, 10.0, 15.0, {"call_rc": 0}, "never-began", "restart-not-done", True),
    (
        "old one, but a job is queued",
        UnitProps(**{**{f: getattr(OLD, f) for f in OLD.__slots__}, "job": 76}),
        10.0,
        99.0,
        {},
        "starting",
        "start-job-queued",
        False,
    ),
    (
        "old one gone, nothing came",
        unit("inactive", "dead", invocation_id="old", exec_main_pid=83),
        10.0,
        16.0,
        {"old_gone_s": 10.5},
        "never-began",
        "never-began",
        True,
    ),
    (
        "old one gone a moment ago",
        unit("inactive", "dead", invocation_id="old", exec_main_pid=83),
        10.0,
        14.0,
        {"old_gone_s": 13.0},
        "starting",
        "start-job-running",
        False,
    ),
    ("the call failed", OLD, 10.0, 10.1, {"call_rc": 1}, "never-began", "restart-not-done", True),
    (
        "old arguments",
        unit("active", "running", main_pid=267, need_daemon_reload=True),
        0.0,
        0.5,
        {},
        "wrong-arguments",
        "old-arguments-loaded",
        True,
    ),
]


@pytest.mark.parametrize(
    ("name", "now", "returned", "at", "more", "verdict", "slug", "alarm"), ROWS, ids=[r[0] for r in ROWS]
)
def test_verdicts(
    name: str,
    now: UnitProps,
    returned: float | None,
    at: float,
    more: dict,
    verdict: str,
    slug: str,
    alarm: bool,
) -> None:
    found = unit_verdict(OLD, now, returned, at, **more)
    assert (found.verdict, found.slug, found.alarm) == (verdict, slug, alarm)
    assert found.advice and found.text


def test_stopping_says_how_long_of_how_much() -> None:
    now = unit("deactivating", "stop-sigterm", main_pid=83, invocation_id="old", timeout_stop_s=60.0)
    assert unit_verdict(OLD, now, None, 12.0, stopping_since_s=4.0).text == "stopping 8 of 60 s"


def test_a_stop_that_timed_out_is_no_failure_of_the_start() -> None:
    now = unit(
        "failed", "failed", result="timeout", exec_main_code="killed", exec_main_status=9, invocation_id="old"
    )
    assert unit_verdict(OLD, now, None, 3.0).verdict == "starting"
    assert unit_verdict(OLD, now, 3.0, 9.0, old_gone_s=3.0).verdict == "never-began"


def test_the_first_start_of_a_unit_that_never_ran() -> None:
    before = unit("inactive", "dead", invocation_id=None)
    assert unit_verdict(before, before, 10.0, 12.0, call_rc=0).verdict == "starting"
    assert unit_verdict(before, before, 10.0, 15.0, call_rc=0).slug == "never-began"
    assert unit_verdict(before, unit("active", "running", main_pid=5), 10.0, 11.0).verdict == "active"
    assert (
        unit_verdict(
            None,
            unit("failed", "failed", result="exit-code", exec_main_code="exited", exec_main_status=1),
            10.0,
            11.0,
        ).verdict
        == "failed"
    )


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Failed to start u.service: Unit u.service not found.", "unit-not-found"),
        ("Failed to restart u.service: Unit u.service is masked.", "unit-masked"),
        ("Failed to restart u.service: Access denied", "not-permitted"),
        ("sudo: a password is required", "not-permitted"),
        ("Failed to start u.service: Unit u.service has a bad unit file setting.", "bad-unit-file"),
        ("A dependency job for u.service failed. See 'journalctl -xe' for details.", "dependency-failed"),
        ("Job for u.service failed because the control process exited with error code.", None),
        ("", None),
    ],
)
def test_what_systemctl_prints(text: str, slug: str | None) -> None:
    found = refusal(text)
    assert (found.slug if found else None) == slug
