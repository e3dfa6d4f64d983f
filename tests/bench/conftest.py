"""The conformance server as a process of its own, for the whole session."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import HANG_S

ROOT = Path(__file__).parent.parent.parent


def start(argv: list[str]) -> tuple[subprocess.Popen[str], str]:
    """Start a server that prints "listening on HOST:PORT"; returns (process, base URL)."""
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line.startswith("listening on "), line
    return child, "http://" + line.split()[-1]


@pytest.fixture(scope="session")
def lying() -> Iterator[str]:
    child, url = start([sys.executable, "-m", "tests.bench.servers.lying"])
    yield url
    child.terminate()
    child.wait(HANG_S)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
