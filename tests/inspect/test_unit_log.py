"""A unit is told by what its server's own lines say of its end; where they say nothing, by how the process ended."""

from __future__ import annotations

import pytest

from ddtop.inspect import inspect_files

_HEAD = """● sgl.service - SGLang
     Loaded: loaded (/etc/systemd/system/sgl.service; enabled; preset: enabled)
     Active: {active}
   Main PID: 812 (code=exited, status=1/FAILURE)

"""
_FAILED = _HEAD.format(active="failed (Result: exit-code) since Tue 2026-12-01 10:00:09 UTC; 3s ago")
_LOOP = _HEAD.format(
    active="activating (auto-restart) (Result: exit-code) since Tue 2026-12-01 10:00:09 UTC; 1s ago"
)
_EXIT = "Dec 01 10:00:09 gpu1 systemd[1]: sgl.service: Main process exited, code=exited, status=1/FAILURE\n"


def _line(text: str) -> str:
    return f"Dec 01 10:00:08 gpu1 python3[812]: {text}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_FAILED + _line("OSError: [Errno 28] No space left on device") + _EXIT, ("failed", "disk-full")),
        (
            _LOOP + _line("ValueError: Model architectures ['Foo'] are not supported for now.") + _EXIT,
            ("crash-looping", "model-architecture-unsupported"),
        ),
        (_FAILED + _line("loading the thing") + _EXIT, ("failed", "main-process-exited")),
        (_FAILED + _EXIT, ("failed", "main-process-exited")),
    ],
    ids=["errno", "loop", "nothing said", "no line"],
)
def test_the_servers_own_lines_name_the_cause(text: str, expected: tuple[str, str]) -> None:
    got = inspect_files("unit", {"input.txt": text.encode()})
    assert (got["verdict"], got["cause"]) == expected
    assert got["advice"] and got["evidence"]


def test_of_a_loop_the_newest_start_that_named_a_cause_counts() -> None:
    started = "Dec 01 10:00:01 gpu1 systemd[1]: Started sgl.service - SGLang.\n"
    journal = (
        started + _line("ImportError: libcudart.so.13: cannot open shared object file") + _EXIT + started
    )
    show = "Id=sgl.service\nActiveState=activating\nSubState=auto-restart\nResult=exit-code\nExecMainCode=1\nExecMainStatus=1\nNRestarts=4\n"
    got = inspect_files("unit", {"input.show": show.encode(), "input.journal": journal.encode()})
    assert (got["verdict"], got["cause"]) == ("crash-looping", "shared-library-missing")
