"""How a start ended, by the words of docker 20.10, podman 4.3 and systemd 252 (measured)."""

from __future__ import annotations

import pytest

from ddtop.services.readings import UnitReading
from ddtop.sweep.start.exits import container_refusal, exit_kind, exit_state, exit_words

SEE = "\nSee 'docker run --help'."
CONFLICT = (
    'docker: Error response from daemon: Conflict. The container name "/qwen" is already in use by container "b7f8".'
    " You have to remove (or rename) that container to be able to reuse that name."
)
NO_PROGRAM = (
    "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable"
    ' to start container process: exec: "nosuch": executable file not found in $PATH: unknown.'
)
PULL = (
    "Unable to find image 'nosuch/image:1' locally\ndocker: Error response from daemon: pull access denied for"
    " nosuch/image, repository does not exist or may require 'docker login': denied: requested access is denied."
)
NO_GPU = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
SHORT = (
    'Error: short-name "nosuch/image:1" did not resolve to an alias and no unqualified-search registries are defined in'
    ' "/etc/containers/registries.conf"'
)
TAKEN = (
    'Error: creating container storage: the container name "qq" is already in use by 3e9c0e22add7. You have to remove that'
    " container to be able to reuse that name: that name is already in use"
)
AWAY = "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?."


@pytest.mark.parametrize(
    ("said", "cause", "kind", "line"),
    [
        (
            "docker: Error response from daemon: No such image: nosuch/image:1." + SEE,
            "container-not-started",
            "config",
            0,
        ),
        (CONFLICT + SEE, "container-not-started", "config", 0),
        (PULL + SEE, "container-not-started", "config", 1),
        (
            "docker: invalid reference format: repository name must be lowercase." + SEE,
            "container-not-started",
            "config",
            0,
        ),
        (NO_PROGRAM, "program-missing", "config", 0),
        (NO_GPU, "nvidia-runtime-missing", "config", 0),
        (AWAY + SEE, "container-daemon-away", "host", 0),
        ("Error: nosuch/image:1: image not known", "container-not-started", "config", 0),
        (SHORT, "container-not-started", "config", 0),
        (TAKEN, "container-not-started", "config", 0),
        (
            "Error: crun: setrlimit (RLIM_MEMLOCK): Operation not permitted: OCI permission denied",
            "container-not-started",
            "config",
            0,
        ),
        ("something else\nin two lines", "container-not-started", "config", 0),
    ],
)
def test_a_refusal_in_its_own_words(said: str, cause: str, kind: str, line: int) -> None:
    assert container_refusal(said) == (cause, kind, said.splitlines()[line])


@pytest.mark.parametrize(
    ("argv", "code", "cause"),
    [
        ("/usr/bin/docker run --rm --name q image", 125, "container-not-started"),
        ("/usr/bin/podman run --rm --name q image", 125, "container-not-started"),
        ("/usr/bin/timeout 5 python3", 125, "main-process-exited"),
        ("/usr/bin/docker run --rm --name q image", 137, "main-process-killed"),
        ("/usr/bin/docker run --rm --name q image", 1, "main-process-exited"),
    ],
)
def test_the_exit_code_of_a_unit_that_wraps_docker_run(argv: str, code: int, cause: str) -> None:
    path = argv.split(maxsplit=1)[0]
    shown = f"{{ path={path} ; argv[]={argv} ; ignore_errors=no ; start_time=[n/a] }}"
    u = UnitReading(
        unit="q", at=1.0, active="failed", result="exit-code", exit_code=f"exited/{code}", argv=shown
    )
    assert exit_state(u).slug == cause
    assert ("never ran" in exit_words(u)) is (cause == "container-not-started")


STARTED, STOPPING = "Started s.service - A server.", "Stopping s.service - A server..."


@pytest.mark.parametrize(
    ("result", "exit_code", "lines", "cause"),
    [
        ("signal", "killed/9", [STARTED, STOPPING], "stopped-by-request"),  # SGLang 0.5.23, 7 s after SIGTERM
        (
            "timeout",
            "killed/9",
            [STARTED, STOPPING, "s.service: State 'stop-sigterm' timed out. Killing."],
            "stopped-by-request",
        ),
        ("signal", "killed/9", [STOPPING, STARTED], "main-process-killed"),  # the stop before this start
        (
            "timeout",
            "killed/9",
            [STARTED, "s.service: start operation timed out. Terminating."],
            "start-timeout",
        ),
        ("signal", "killed/9", [], "main-process-killed"),
    ],
)
def test_a_stop_that_ends_badly_is_still_one(
    result: str, exit_code: str, lines: list[str], cause: str
) -> None:
    u = UnitReading(unit="s", at=1.0, active="failed", sub="failed", result=result, exit_code=exit_code)
    state = exit_state(u, lines)
    assert state.slug == cause and (exit_kind(state.slug) == "transient") is (cause == "stopped-by-request")
