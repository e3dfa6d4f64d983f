"""What a machine knows of a runner that ran on it: alive, dead, or nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ddtop.sweep.host.client import Client, identity, is_dead

pytestmark = pytest.mark.process


def test_a_process_that_lives_and_then_does_not() -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from ddtop.sweep.host.client import identity; print(identity(), flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    theirs = child.stdout.readline().strip()
    assert theirs.split(" ")[3] == str(child.pid)
    assert not is_dead(theirs, identity()) and not is_dead(identity(), theirs)
    child.kill()
    child.wait()
    child.stdout.close()
    assert is_dead(theirs, identity())


def test_only_this_machine_knows() -> None:
    own = Client(*identity().split(" "))
    gone = own._replace(pid="4194305")

    def dead(**changes: str) -> bool:
        return is_dead(" ".join(gone._replace(**changes)), " ".join(own))

    assert dead()
    assert dead(boot="00000000-0000-0000-0000-000000000000/1"), "it was rebooted since"
    assert not dead(machine="another@laptop")
    assert not dead(pid_space="pid:[1]"), "another container: its processes are not seen here"
    assert is_dead(" ".join(own._replace(ticks="1")), " ".join(own)), (
        "the number was given to another process"
    )
    for nothing in ("", None, "x", "a b c d e"):
        assert not is_dead(nothing, " ".join(own))
    assert not is_dead(" ".join(gone), "")
