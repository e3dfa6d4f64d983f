"""The services' pure parts: who owns a listener, what containers and scripts say of themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ddtop.plan.model import SERVICE_KINDS
from ddtop.services.command import CommandService, script_result
from ddtop.services.containers import container_id, container_name
from ddtop.services.docker import DockerService, read_container, stamped_lines
from ddtop.services.kinds import service_for
from ddtop.services.process import ProcessService, exit_code, read_proc, split_cursor
from ddtop.services.readings import UnitReading
from ddtop.services.systemd import SystemdService, lines_of
from ddtop.services.unit.systemctl_show import exec_argv

UNIT = UnitReading(
    unit="s.service", at=0.0, active="active", main_pid=9, generation="g", cgroup="/system.slice/s.service"
)


def test_every_kind_of_a_plan_has_its_service() -> None:
    assert [service_for("s.service", kind).kind for kind in SERVICE_KINDS] == list(SERVICE_KINDS)


@pytest.mark.parametrize(
    ("row", "owned"),
    [
        ({"pid": 9, "unit": "s.service", "cgroup": "/system.slice/s.service"}, True),
        ({"pid": 8, "unit": "t.service", "cgroup": "/system.slice/t.service"}, False),
        (
            {
                "pid": 8,
                "unit": "s.service",
                "cgroup": "/user.slice/user-1.slice/user@1.service/app.slice/s.service",
            },
            False,
        ),
        ({"pid": 8, "unit": None, "cgroup": "/system.slice/s.service/child"}, True),
        ({"pid": 8, "unit": None, "cgroup": "/user.slice/session-1.scope"}, False),
        ({"unit": None}, None),
    ],
)
def test_who_owns_a_listener(row: dict, owned: bool | None) -> None:
    assert SystemdService("s.service").owns(row, UNIT) is owned
    assert CommandService("s").owns(row, UNIT) is owned


def test_a_container_under_a_unit_owns_by_its_id() -> None:
    unit = replace(UNIT, container="0123456789abcdef0123@2026@172.17.0.2,")
    service = SystemdService("s.service")
    assert service.owns({"pid": 5, "docker": "0123456789abcdef0123", "unit": "docker-x.scope"}, unit) is True
    assert service.owns({"pid": 5, "docker": "ffff456789abcdef0123", "unit": None}, unit) is False
    assert service.owns({"pid": 5, "proxy_to": "172.17.0.2", "unit": "docker.service"}, unit) is True


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["/usr/bin/docker", "run", "--rm", "--name", "qwen", "img"], ("/usr/bin/docker", "qwen")),
        (["podman", "run", "--name=k", "img"], ("podman", "k")),
        (["/usr/bin/docker", "run", "img"], None),
        (["/usr/bin/python3", "-m", "x"], None),
        ([], None),
    ],
)
def test_units_whose_main_process_is_docker_run(argv: list[str], found: tuple[str, str] | None) -> None:
    assert container_name(argv) == found


def test_exec_start_as_shown() -> None:
    shown = "{ path=/bin/a ; argv[]=/bin/a -m x --port 1 ; ignore_errors=no ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"
    assert exec_argv(shown) == ["/bin/a", "-m", "x", "--port", "1"]
    assert exec_argv(None) == exec_argv("") == []


def test_an_anchor_carries_a_cursor_and_no_text() -> None:
    found = lines_of(
        [
            {"anchor": True, "text": "", "cursor": "c0"},
            {"text": "x", "cursor": "c1"},
            {"gap": True, "text": "", "why": "y"},
        ]
    )
    assert [(line.text, line.cursor) for line in found] == [("", "c0"), ("x", "c1")]


@pytest.mark.parametrize(
    ("job", "rc", "timed_out"),
    [
        ({"state": "done", "exit": 0}, 0, False),
        ({"state": "failed", "exit": 3, "why": "exit status 3"}, 3, False),
        ({"state": "failed", "exit": -15, "why": "its time limit of 9 s passed"}, None, True),
        ({"state": "killed", "exit": None, "why": "killed by SIGKILL"}, 1, False),
        ({"state": "lost"}, 1, False),
    ],
)
def test_what_a_script_said(job: dict, rc: int | None, timed_out: bool) -> None:
    called = script_result(job, "last words", "/root/x.sh 1", "x.sh")
    assert (called.rc, called.timed_out, called.by_script) == (rc, timed_out, True)


def test_a_supervised_process_in_systemds_words() -> None:
    up = read_proc("x", {"active": True, "pid": 5, "generation": "boot/1/5@77", "argv": ["a", "b c"]}, 1.0)
    assert up.running and up.generation == "5@77:boot.1" and up.argv == "a 'b c'"
    dead = read_proc("x", {"active": False, "exit": {"signal": "SIGKILL"}, "generation": "5@77"}, 1.0)
    assert dead.active == "failed" and dead.exit_code == "killed/9" and dead.gone
    assert read_proc("x", {"active": False, "exit": {"signal": "SIGTERM"}}, 1.0).active == "inactive", (
        "a stop is no failure"
    )
    assert exit_code(None) is None and exit_code({"code": 1}) == "exited/1"
    assert split_cursor("12:34") == (12, 34) and split_cursor(None) == split_cursor("x") == (None, None)


def test_owner_of_a_supervised_process() -> None:
    service = ProcessService("x")
    assert service.owns({"pid": 5}, replace(UNIT, main_pid=5, cgroup=None)) is True
    assert service.owns({"pid": 6}, replace(UNIT, main_pid=5, cgroup=None)) is False
    assert service.owns({}, UNIT) is None


INSPECT = "abc123def456|2026-01-01T00:00:00.5Z|{running}|{pid}|{code}|{oom}|0|{label}|172.17.0.2,"


def test_a_container_in_systemds_words() -> None:
    up, label = read_container(
        "q", 0, INSPECT.format(running="running", pid=7, code=0, oom="false", label="r1"), 1.0
    )
    assert up.running and up.generation == "abc123def456@2026-01-01T00:00:00.5Z" and label == "r1"
    dead, label = read_container(
        "q", 0, INSPECT.format(running="exited", pid=0, code=137, oom="true", label="<no value>"), 1.0
    )
    assert (
        dead.active == "failed"
        and dead.result == "oom-kill"
        and dead.exit_code == "exited/137"
        and label == ""
    )
    gone, _ = read_container("q", 1, "", 1.0)
    assert gone.gone and gone.load == "not-found"
    service = DockerService("q")
    assert service.owns({"pid": 1, "docker": "abc123def456"}, up) is True
    assert service.owns({"pid": 1, "docker": "ffff"}, up) is False
    assert service.owns({"pid": 1, "proxy_to": "172.17.0.2"}, up) is True
    assert service.owns({"pid": 1}, None) is False


def test_docker_logs_lose_and_double_nothing() -> None:
    text = "2026-01-01T00:00:01.0Z a\n2026-01-01T00:00:01.0Z b\n2026-01-01T00:00:02.0Z c\r50%\r100%\n"
    first = stamped_lines(text, "", 0)
    assert [line.text for line in first] == ["a", "b", "100%"]
    stamp, _, count = (first[1].cursor or "").partition("#")
    assert [line.text for line in stamped_lines(text, stamp, int(count))] == ["100%"]
    assert stamped_lines(text, "2026-01-01T00:00:02.0Z", 1) == []


CLIENT = "{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --name qwen img ; ignore_errors=no ; pid=9 ; }"


def test_a_container_that_is_not_known_yet_is_nobody_elses() -> None:
    """systemd tells of the client as soon as it runs; who owns the port cannot be said until its container is known."""
    service, unit = SystemdService("s.service"), replace(UNIT, argv=CLIENT)
    row = {
        "pid": 5,
        "docker": "0123456789abcdef0123",
        "unit": "docker-x.scope",
        "cgroup": "/system.slice/docker-x.scope",
    }
    assert service.owns(row, unit) is None
    assert service.owns({"pid": 5, "proxy_to": "172.17.0.2", "unit": "docker.service"}, unit) is None
    assert (
        service.owns({**row, "docker": None, "unit": "t.service", "cgroup": "/system.slice/t.service"}, unit)
        is False
    )
    # Its client is gone: what still answers is not this unit's.
    assert service.owns(row, replace(unit, active="failed", main_pid=None)) is False


INSPECTED = """[{"Id": "cid", "State": {"StartedAt": "2026", "Running": true},
  "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.2"}, "host": {"IPAddress": ""}, "none": null}}}]"""


@pytest.mark.parametrize(
    "shown", ["", "[]", "{}", "[{}]", "null", "[1]", '[{"Id": "x"}]', "Error: no such object"]
)
def test_what_cannot_be_read_of_a_container(shown: str) -> None:
    assert container_id(shown) is None


RUNS = {
    "ActiveState": "active",
    "SubState": "running",
    "MainPID": "9",
    "InvocationID": "g",
    "ExecStart": CLIENT,
}


class DockerHost:
    """Answers like the agent: one change of the unit, and a container from the third inspect on."""

    def __init__(self) -> None:
        self.inspects = 0
        self.inspected_at = 0.0

    async def call(self, op: str, **args: object) -> dict[str, object]:
        if op == "unit-show":
            return {"props": RUNS}
        assert op == "exec" and args["argv"][1] == "inspect"  # type: ignore[index]
        self.inspects += 1
        self.inspected_at = time.monotonic()
        return (
            {"rc": 0, "stdout": INSPECTED, "stderr": ""}
            if self.inspects > 2
            else {"rc": 1, "stdout": "", "stderr": ""}
        )

    @asynccontextmanager
    async def stream(self, op: str, **args: object) -> AsyncIterator[AsyncIterator[list[dict[str, object]]]]:
        async def batches() -> AsyncIterator[list[dict[str, object]]]:
            yield [{"props": RUNS}]
            await asyncio.sleep(60)

        yield batches()


async def test_a_reading_with_a_container_is_as_old_as_what_systemd_said() -> None:
    """The client may end while docker is asked: the reading of that is younger, and must not be overwritten."""
    host = DockerHost()
    host.inspects = 2
    reading = await SystemdService("s.service").read(host)  # type: ignore[arg-type]
    assert reading.container and reading.at <= host.inspected_at


def test_the_watch_of_a_docker_client_tells_when_its_container_appears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ddtop.services.systemd.CONTAINER_POLL_S", 0.01)

    async def seen() -> list[str | None]:
        found = []
        async with SystemdService("s.service").watch(DockerHost()) as batches:  # type: ignore[arg-type]
            async for readings in batches:
                found += [r.generation for r in readings]
                if len(found) == 2:
                    break
        return found

    assert asyncio.run(asyncio.wait_for(seen(), 5)) == ["g", "g/cid@2026@172.17.0.2"]
