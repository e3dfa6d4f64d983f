"""What one reading of a unit means after a start was asked for, and why systemctl refused."""

from __future__ import annotations

import pytest

from ddtop.services.causes import cause
from ddtop.services.unit.state import refusal, unit_state
from ddtop.services.unit.systemctl_show import UnitProps


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


def failed(result: str, **more: object) -> UnitProps:
    return unit("failed", "failed", result=result, **more)


def exited(status: int, **more: object) -> UnitProps:
    return failed("exit-code", exec_main_code="exited", exec_main_status=status, **more)


LIMIT = ("u.service: Start request repeated too quickly.",)
ROWS = [
    ("new process runs", unit("active", "running", main_pid=267), (), "active"),
    ("notify unit starting", unit("activating", "start", main_pid=267), (), "start-job-running"),
    ("failed", exited(1, exec_main_pid=9), (), "main-process-exited"),
    (
        "killed",
        failed("signal", exec_main_code="killed", exec_main_status=9),
        (),
        "main-process-killed",
    ),
    ("oom-kill", failed("oom-kill"), (), "oom-killed"),
    ("exec 203", exited(203), (), "exec-not-found"),
    ("chdir 200", exited(200), (), "working-directory-missing"),
    ("user 217", exited(217), (), "user-missing"),
    ("namespace 226", exited(226), (), "sandbox-setup-failed"),
    ("bad setting", unit("inactive", "dead", load_state="bad-setting"), (), "bad-unit-file"),
    ("masked", unit("inactive", "dead", load_state="masked"), (), "unit-masked"),
    (
        "unmet condition",
        unit("inactive", "dead", condition_result=False, invocation_id=None),
        (),
        "condition-not-met",
    ),
    ("auto-restart", unit("activating", "auto-restart"), (), "exited-waiting-for-restart"),
    ("restarted three times", unit("active", "running", main_pid=5, n_restarts=3), (), "flapping"),
    ("start limit", exited(1), LIMIT, "start-limit-hit"),
    ("start limit by result", failed("start-limit-hit"), (), "start-limit-hit"),
    ("stopping", unit("deactivating", "stop-sigterm", main_pid=83), (), "stopping"),
    ("job queued", unit("inactive", "dead", job=76), (), "start-job-queued"),
    ("never started", unit("inactive", "dead", invocation_id=None), (), "never-started"),
    (
        "a stop that timed out",
        failed("timeout", exec_main_code="killed", exec_main_status=9),
        (),
        "stop-timeout-killed",
    ),
    (
        "old arguments",
        unit("active", "running", main_pid=267, need_daemon_reload=True),
        (),
        "old-arguments-loaded",
    ),
]


@pytest.mark.parametrize(("name", "now", "lines", "slug"), ROWS, ids=[r[0] for r in ROWS])
def test_one_reading(name: str, now: UnitProps, lines: tuple[str, ...], slug: str) -> None:
    found = unit_state(now, lines, start_asked=True)
    assert found.slug == slug and found.why
    assert cause(slug).advice and cause(slug).means


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
