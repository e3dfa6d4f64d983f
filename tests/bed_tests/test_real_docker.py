"""The service kind `docker` against Debian's real daemon: starts, ends, logs, restarts, refusals."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.services.docker import DockerService, first_stamp
from ddtop.services.readings import UnitReading
from tests.agent.helpers import agent, disk_folder
from tests.bed.docker import IMAGE, Docker, why_no_docker

pytestmark = [pytest.mark.bed, pytest.mark.process, pytest.mark.xdist_group("docker")]
NAME = "ddtop-qwen"


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    if reason := os.environ.get("DDTOP_NO_BED") or why_no_docker():
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI runs the docker tests always, but {reason}")
        pytest.skip(reason)
    with Docker() as daemon:
        yield daemon


@pytest.fixture
async def host(docker: Docker) -> AsyncIterator[Host]:
    with disk_folder() as state:
        async with agent(state / "state", env=docker.env) as there:
            yield there
    for name in docker("ps", "-aq").split():
        docker("rm", "-f", name)


def launch(*argv: str) -> Launch:
    return Launch(key="k", config="a", tp=1, kind="docker", unit=NAME, engine="sglang", port=8931, argv=argv)


def python(code: str, *options: str) -> Launch:
    """A container that runs a few lines of Python."""
    return launch("--network", "host", *options, IMAGE, "python3", "-u", "-c", code)


async def started(host: Host, what: Launch) -> DockerService:
    service = DockerService(NAME)
    answer = await service.start(host, what, "run1-1")
    assert answer.rc == 0, answer
    return service


async def until(
    service: DockerService, host: Host, right: Callable[[UnitReading], bool], limit_s: float = 20
) -> UnitReading:
    """The first reading that is right; all that were seen where none is."""
    seen, deadline = [], time.monotonic() + limit_s
    while time.monotonic() < deadline:
        seen.append(await service.read(host))
        if right(seen[-1]):
            return seen[-1]
        await asyncio.sleep(0.1)
    raise AssertionError(seen[-3:])


async def all_lines(service: DockerService, host: Host, last: str) -> list[str]:
    """The log of the present start, as the follower reads it, up to the line `last`."""
    cursor = first_stamp(f"{(await service.read(host)).generation}") + "#0"
    found: list[str] = []
    deadline = time.monotonic() + 30
    while last not in found and time.monotonic() < deadline:
        for line in await service.drain(host, cursor):
            found.append(line.text)
            cursor = line.cursor or cursor
        await asyncio.sleep(0.1)
    return found


async def test_a_start_a_stop_and_the_start_after_it(host: Host) -> None:
    none = await DockerService(NAME).read(host)
    assert (none.load, none.active) == ("not-found", "inactive")
    code = "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(0)); print('up')\nwhile 1: time.sleep(.1)"
    service = await started(host, python(code))
    up = await service.read(host)
    assert up.running and up.generation and await all_lines(service, host, "up") == ["up"]
    assert (await service.stop(host)).rc == 0
    assert (await service.read(host)).active == "inactive"
    service = await started(host, python(code))
    again = await service.read(host)
    assert again.running and again.generation != up.generation


async def test_a_burst_and_long_lines_are_read_whole_and_in_order(host: Host) -> None:
    """More than one answer of the agent holds, on both outputs; lines longer than docker keeps in one piece (SGLang's
    arguments are 20 kB)."""
    service = await started(
        host,
        python(
            "import sys,time\n"
            "for i in range(9000):\n"
            "    print('line', i, 'x' * 100)\n"
            "    if i % 3 == 0: print('err', i, file=sys.stderr)\n"
            "print('server_args=' + 'b' * 40000 + 'end'); time.sleep(.2); print('last'); time.sleep(60)"
        ),
    )
    lines = await all_lines(service, host, "last")
    assert [int(x.split()[1]) for x in lines if x.startswith("line")] == list(range(9000))
    assert [int(x.split()[1]) for x in lines if x.startswith("err")] == list(range(0, 9000, 3))
    assert [x for x in lines if x.startswith("server_args")] == ["server_args=" + "b" * 40000 + "end"]


async def test_out_of_memory_is_told_as_such(host: Host) -> None:
    code = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    service = await started(host, python(code, "--memory", "64m", "--memory-swap", "64m"))
    dead = await until(service, host, lambda r: r.gone)
    assert (dead.active, dead.result, dead.exit_code) == ("failed", "oom-kill", "exited/137")


async def test_a_restart_policy_is_waiting_for_its_next_start_not_running(host: Host) -> None:
    service = await started(host, python("import sys; print('bad'); sys.exit(3)", "--restart", "always"))
    waiting = await until(service, host, lambda r: r.sub == "auto-restart" and (r.n_restarts or 0) >= 2)
    assert not waiting.running and waiting.gone and waiting.exit_code == "exited/3"


async def test_a_policy_that_gave_up_has_failed(host: Host) -> None:
    service = await started(host, python("import sys; sys.exit(3)", "--restart", "on-failure:2"))
    dead = await until(service, host, lambda r: r.active == "failed")
    assert (dead.n_restarts, dead.exit_code) == (2, "exited/3")


async def test_an_image_or_a_program_that_is_missing_is_refused_in_dockers_words(host: Host) -> None:
    service = DockerService(NAME)
    missing = await service.start(host, launch("--pull", "never", "nosuch/image:1", "serve"), "run1-1")
    assert missing.rc == 125 and "No such image: nosuch/image:1" in missing.error
    assert (await service.read(host)).load == "not-found"
    program = await service.start(host, launch("--network", "host", IMAGE, "nosuchprogram"), "run1-2")
    assert program.rc == 127 and "executable file not found" in program.error


async def test_a_name_that_is_taken_is_refused_and_its_container_is_left_alone(
    host: Host, docker: Docker
) -> None:
    theirs = docker("run", "-d", "--network", "host", "--name", NAME, IMAGE, "sleep", "600").strip()
    service = DockerService(NAME)
    with pytest.raises(AgentError, match="was not made by ddtop"):
        await service.configure(host, python("pass"), "run1", 0.0)
    answer = await service.start(host, python("pass"), "run1-1")
    assert answer.rc == 1 and "was not made by ddtop" in answer.error
    assert docker("inspect", "-f", "{{.Id}} {{.State.Running}}", NAME).split() == [theirs, "true"]


async def test_a_daemon_that_restarts_leaves_the_container_unknown_and_then_the_same(
    host: Host, docker: Docker
) -> None:
    service = await started(host, python("import time\nprint('up')\nwhile 1: time.sleep(.1)"))
    before = await service.read(host)
    docker.down()
    away = await service.read(host)
    docker.up()
    assert away.active is None and away.load is None and not away.gone, "away is not gone"
    assert "Cannot connect to the Docker daemon" in (away.load_error or "")
    after = await until(service, host, lambda r: r.running)
    assert (after.generation, after.main_pid) == (before.generation, before.main_pid)
