"""The test bed: `bed` once for each worker of a run, `ct200`, `b300` and `oracle`, each host put back before a test."""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

if WORKER := os.environ.get("PYTEST_XDIST_WORKER", ""):
    os.environ["DDTOP_BED"] = str(int(os.environ.get("DDTOP_BED", "1")) + int(WORKER.removeprefix("gw")))
    """Each worker of a run has a bed of its own: nothing of one is another's (tests/bed/README.md)."""

from tests.bed.client import Bed
from tests.bed.config import HOSTS, LOCK, Spec
from tests.bed.control import cluster_up
from tests.bed.oracle import Oracle
from tests.bed.slurm import Cluster

pytest_plugins = ["tests.tiers", "tests.summary"]

LOCK_WAIT_S = float(os.environ.get("DDTOP_BED_WAIT_S", "3600"))


def why_no_bed() -> str:
    """Why the bed cannot run here; empty if it can."""
    if sys.platform != "linux":
        return "the test bed needs Linux"
    if os.geteuid() != 0:
        return "the test bed needs root"
    if not Path("/dev/net/tun").exists():
        return "the test bed needs /dev/net/tun"
    if not Path("/sys/fs/cgroup").exists():
        return "the test bed needs cgroups"
    if not shutil.which("systemd-nspawn") and not shutil.which("apt-get"):
        return "the test bed needs systemd-nspawn, or apt-get to install it"
    if os.environ.get("DDTOP_NO_BED"):
        return "DDTOP_NO_BED is set"
    return ""


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """Both hosts, up, with the real llama.cpp layer. Held by a lock: one test run, or one worker of it, at a time."""
    if reason := why_no_bed():
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI runs the bed always, but {reason}")
        pytest.skip(reason)
    with open(LOCK, "a") as lock:
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    pytest.fail(f"another test run has held the bed for {LOCK_WAIT_S:.0f} s ({LOCK})")
                time.sleep(0.2)
        the_bed = Bed()
        was_up = the_bed.is_up()
        the_bed.up(real=True)
        yield the_bed
        for host in the_bed.hosts:
            the_bed.restore(host)
        if not was_up and not os.environ.get("DDTOP_BED_KEEP"):
            the_bed.down()


@pytest.fixture(scope="session")
def slurm(bed: Bed) -> Cluster:
    """The bed's Slurm cluster, booted beside its hosts."""
    cluster_up()
    return Cluster(bed)


@pytest.fixture
def cluster(slurm: Cluster) -> Cluster:
    """The cluster, idle and without faults."""
    slurm.restore()
    return slurm


@pytest.fixture(scope="session")
def oracle(bed: Bed) -> Oracle:
    """The judge outside of ddtop: ledgers, journals, snapshots."""
    return Oracle(bed)


@dataclass(frozen=True)
class BedHost:
    """One host of the bed, as it was shipped; every method of `Bed` and `Oracle` with the host filled in."""

    name: str
    bed: Bed
    oracle: Oracle

    @property
    def spec(self) -> Spec:
        """Address, GPUs, unit and model folders."""
        return HOSTS[self.name]

    def __getattr__(self, method: str) -> Any:
        target = getattr(self.bed, method, None) or getattr(self.oracle, method)
        return lambda *args, **kwargs: target(self.name, *args, **kwargs)

    def stage(self) -> None:
        """Copy the unit's model from disk to /dev/shm."""
        self.bed.sh(self.name, f"mkdir -p {self.spec.model} && cp -r {self.spec.source}/. {self.spec.model}/")


def _host(name: str, bed: Bed, oracle: Oracle) -> Iterator[BedHost]:
    bed.restore(name)
    yield BedHost(name, bed, oracle)
    bed.heal(name)


@pytest.fixture
def ct200(bed: Bed, oracle: Oracle) -> Iterator[BedHost]:
    """ct200, restored before the test."""
    yield from _host("ct200", bed, oracle)


@pytest.fixture
def b300(bed: Bed, oracle: Oracle) -> Iterator[BedHost]:
    """b300, restored before the test."""
    yield from _host("b300", bed, oracle)
