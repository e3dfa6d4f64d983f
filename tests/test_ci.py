"""CI shows everything: a test that is skipped there fails the run, unless its reason is on the list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.summary import MAY_SKIP, may_skip

ROOT = Path(__file__).parent.parent
TESTS = """
import pytest
def test_fine(): pass
@pytest.mark.skip(reason={reason!r})
def test_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert False
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("ci", "reason", "code"),
    [("true", "no tmux here", 1), ("", "no tmux here", 0), ("true", MAY_SKIP[0], 0)],
)
def test_a_skip_fails_ci(tmp_path: Path, ci: str, reason: str, code: int, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.format(reason=reason))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.summary",
            *workers,
            "-c",
            os.devnull,
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "CI": ci},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("which it may not be" in done.stdout) == bool(code)


def test_no_reason_is_waved_through() -> None:
    assert not may_skip("the test bed needs root") and not may_skip("")


def test_packages_are_named_for_every_tool_that_a_test_looks_for() -> None:
    """A tool of which a test says `shutil.which` is one that .ci/packages installs, or one of every Debian."""
    packages = (ROOT / ".ci" / "packages").read_text()
    always = {
        "sh",
        "bash",
        "cc",
        "gcc",
        "clang",
        "docker",
        "apt-get",
        "dpkg-deb",
        "nvidia-smi",
        "unshare",
        "mount",
        "systemctl",  # comes with systemd-container
        "python3",
        "stat",
        "ls",
        "find",
    }
    missing = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name == "shots.py":  # no test: `make shots` alone runs it
            continue
        for tool in re.findall(r'which\("([\w.-]+)"', path.read_text()):
            if f"[{tool}]=" not in packages and tool not in always:
                missing.add(f"{tool} ({path.relative_to(ROOT)})")
    assert not missing
