"""Fixtures of the test bed: `bed` once a session, `ct200`, `b300` and `oracle`, each host put back before a test."""

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

from tests.bed.client import Bed
from tests.bed.config import HOSTS, LOCK, Spec
from tests.bed.oracle import Oracle

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
    """Both hosts, up, with the real llama.cpp layer. Held by a lock: one test run at a time on a machine."""
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


MAY_SKIP = (
    "no old python",  # Python 3.6 and 3.7, to be told that they are too old
    "this machine has an NVIDIA driver",
    "no NVIDIA driver on this machine",
    "may not mount here",
    "this file system has no immutable files",
)
"""What a machine of CI need not have. Any other skip there is a hole in what CI shows, and fails the run."""

_skipped: list[str] = []


def may_skip(reason: str) -> bool:
    """Whether a test may be skipped in CI for `reason`, as pytest reports it (`Skipped: …`)."""
    return any(words in reason for words in MAY_SKIP)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes skips that CI may not have."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not may_skip(reason):
        _skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With CI=true a skip that is not on the list is a failure."""
    if _skipped and os.environ.get("CI") == "true" and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which skips made the run fail."""
    if _skipped and os.environ.get("CI") == "true":
        terminalreporter.section("skipped in CI, which it may not be (tests/conftest.py: MAY_SKIP)")
        for line in _skipped:
            terminalreporter.line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test that uses the bed bears its mark."""
    for item in items:
        if "bed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.bed)
