"""A container that ddtop did not make is neither stopped nor replaced, and what can be restored is. `docker` is SIMULATED."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import Launch, OriginalState
from ddtop.services.docker import DockerService

LAUNCH = Launch(
    key="k", config="b", tp=1, kind="docker", unit="qwen", engine="sglang", port=30000, argv=("img", "serve")
)


class Docker:
    """A host with one container of that name, or none."""

    def __init__(self, ident: str | None, *, label: str = "", running: bool = True) -> None:
        self.ident, self.label, self.running = ident, label, running
        self.said: list[str] = []

    async def call(
        self, op: str, *, argv: list[str], timeout_s: float = 15.0, max_b: int = 0
    ) -> dict[str, Any]:
        assert op == "exec"
        if argv[1] == "inspect":
            if self.ident is None:
                return {"rc": 1, "stdout": "", "stderr": "No such container"}
            up = "running" if self.running else "exited"
            shown = f"{self.ident}|2026|{up}|{9 if self.running else 0}|0|false|0|{self.label}|"
            return {"rc": 0, "stdout": shown, "stderr": ""}
        self.said.append(argv[1])
        if argv[1] == "rm":
            self.ident = None
        elif argv[1] == "start":
            self.running = True
        return {"rc": 0, "stdout": "", "stderr": ""}


def original(ident: str, active: bool = True) -> OriginalState:
    return OriginalState(
        unit="qwen", kind="docker", active=active, generation=f"{ident}@2026" if active else None
    )


async def test_another_container_of_the_name_is_refused_before_it_is_stopped() -> None:
    docker = Docker("aaa")
    with pytest.raises(AgentError, match="was not made by ddtop"):
        await DockerService("qwen").configure(cast(Host, docker), LAUNCH, "run1", 0.0)
    assert docker.said == [] and docker.running
    await DockerService("qwen").configure(cast(Host, Docker("aaa", label="run0")), LAUNCH, "run1", 0.0)
    await DockerService("qwen").configure(cast(Host, Docker(None)), LAUNCH, "run1", 0.0)


class Watched(Docker):
    """The container is read, by the watch, while the one before is removed."""

    service: DockerService
    run: list[str]

    async def call(
        self, op: str, *, argv: list[str], timeout_s: float = 15.0, max_b: int = 0
    ) -> dict[str, Any]:
        if argv[1] == "rm":
            assert (await self.service.read(cast(Host, self))).running
        if argv[1] == "run":
            self.run = argv
        return await super().call(op, argv=argv, timeout_s=timeout_s, max_b=max_b)


async def test_a_reading_beside_a_start_does_not_change_whose_the_container_is() -> None:
    """It was labelled with what the reading said of the one before, and then nobody removed it."""
    docker = Watched("aaa", label="run1")
    docker.service = DockerService("qwen")
    assert (await docker.service.start(cast(Host, docker), LAUNCH, "run1-2")).rc == 0
    assert docker.run[docker.run.index("--label") + 1] == "ddtop.run=run1"


@pytest.mark.parametrize(
    ("docker", "was", "said", "left"),
    [
        (Docker("aaa"), original("aaa"), [], 0),
        (Docker("aaa", label="run0"), original("aaa"), [], 0),
        (Docker("aaa", label="run0", running=False), original("aaa"), ["start"], 0),
        (Docker("bbb", label="run1"), original("aaa"), ["rm"], 1),
        (Docker("bbb", label="run1"), original("", active=False), ["rm"], 0),
        (Docker(None), original("", active=False), [], 0),
    ],
)
async def test_putting_a_container_back(
    docker: Docker, was: OriginalState, said: list[str], left: int
) -> None:
    words = await DockerService("qwen").restore(cast(Host, docker), was)
    assert (docker.said, len(words)) == (said, left), words
