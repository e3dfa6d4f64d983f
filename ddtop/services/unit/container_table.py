"""Read tables of containers: `docker ps`, `podman ps`, `docker compose ps`, `kubectl get pods`. Pure."""

from __future__ import annotations

import re

from ddtop.services.unit.exits import status_ending
from ddtop.services.unit.failed import UnitState

_DOCKER_HEAD = re.compile(r"^(?=.*\bSTATUS\b)(?:CONTAINER ID|NAMES?|IMAGE)\b.*$", re.M)
_POD_HEAD = re.compile(r"^(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\s+RESTARTS\s+AGE\b", re.M)
_UP = re.compile(
    r"(?<!\S)Up (?:\d+|About|Less|an?) [\w ]{2,20}?(?:ago)?(?: \((?P<health>[\w: ]{4,20})\))?(?=\s{2}|\s*$|\s+\S+/)"
)
_ENDED = re.compile(r"(?<!\S)(?P<what>Exited|Restarting) \((?P<code>\d{1,3})\)")
_OTHER = re.compile(r"(?<!\S)(?P<what>Created|Dead|Removal In Progress)(?!\S)")
_POD = re.compile(
    r"^(?:(?:[a-z0-9][\w.\-]{0,62})\s+)?(?P<name>[a-z0-9][\w.\-]{0,252})\s+(?P<ready>\d+)/(?P<of>\d+)\s+(?P<status>[A-Z][\w:/]{1,40})\s+(?P<restarts>\d+)\b"
)
_POD_STATES = (
    (re.compile(r"OOMKilled"), "oom-killed"),
    (
        re.compile(
            r"ImagePullBackOff|ErrImage\w+|InvalidImageName|CreateContainer\w*Error|RunContainerError|StartError"
        ),
        "container-not-started",
    ),
    (re.compile(r"CrashLoopBackOff|^Init:CrashLoop"), "flapping"),
    (re.compile(r"Error|Evicted|ContainerStatusUnknown|DeadlineExceeded|^Unknown"), "unit-failed"),
    (re.compile(r"Terminating"), "stopping"),
    (re.compile(r"Pending"), "start-job-queued"),
    (re.compile(r"ContainerCreating|PodInitializing|^Init:"), "start-pre-running"),
    (re.compile(r"Completed|Succeeded"), "stopped-cleanly"),
)
_WORST = (
    "oom-killed",
    "flapping",
    "container-not-started",
    "container-unhealthy",
    "unit-failed",
    "start-job-queued",
)
_GOOD = ("active", "stopped-cleanly")


def read_table(text: str) -> UnitState | None:
    """What a table says of its worst container; None where it is no such table, or has no row."""
    pods = _POD_HEAD.search(text) is not None
    if not pods and not _DOCKER_HEAD.search(text):
        return None
    read = [_pod(line) if pods else _container(line) for line in text.splitlines()]
    states = [state for state in read if state is not None]
    return min(states, key=_rank) if states else None


def _rank(state: UnitState) -> int:
    if state.slug in _WORST:
        return _WORST.index(state.slug)
    return len(_WORST) + _GOOD.index(state.slug) + 1 if state.slug in _GOOD else len(_WORST)


def _container(line: str) -> UnitState | None:
    why = (line.strip(),)
    if (ended := _ENDED.search(line)) is not None:
        code = int(ended["code"])
        if code == 0 and ended["what"] == "Exited":
            return UnitState("stopped-cleanly", why)
        ending = status_ending(code)
        if ended["what"] == "Restarting":
            return UnitState("flapping", why, says=f"docker restarts it again and again: it {ending.words}.")
        return UnitState(ending.slug, why, says=f"The container's main process {ending.words}.")
    if (up := _UP.search(line)) is not None:
        health = up["health"] or ""
        if health.startswith("unhealthy"):
            return UnitState("container-unhealthy", why)
        return UnitState("start-job-running" if health.startswith("health: starting") else "active", why)
    if (other := _OTHER.search(line)) is not None:
        return UnitState("never-started" if other["what"] == "Created" else "stopping", why)
    return None


def _pod(line: str) -> UnitState | None:
    if (pod := _POD.match(line)) is None:
        return None
    why = (line.strip(),)
    slug = next((slug for rule, slug in _POD_STATES if rule.search(pod["status"])), None)
    if slug is None:
        return UnitState("active" if pod["ready"] == pod["of"] else "start-job-running", why)
    return UnitState(
        slug, why, says=f"The pod {pod['name']} is {pod['status']}, restarted {pod['restarts']} times."
    )
