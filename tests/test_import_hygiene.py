"""What a process loads is part of the design: a runner that loads Textual dies with its terminal's habits."""

import subprocess
import sys

import pytest

HEAVY = ("textual", "asyncssh", "plotext", "httpx", "sqlite3", "msgspec", "rich.console", "jinja2", "pynvml")


def loaded_by(code: str) -> set[str]:
    """Names of all modules a fresh interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_loads_nothing_heavy() -> None:
    modules = loaded_by(
        "from ddtop.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert "typer" in modules
    assert not modules & set(HEAVY)


def test_the_runner_never_loads_the_screen() -> None:
    modules = loaded_by("import ddtop.runner, ddtop.sweep.controller, ddtop.hosts.inventory, ddtop.report")
    assert "ddtop.runner" in modules
    assert not {m for m in modules if m.split(".")[0] in ("textual", "plotext")}


def test_the_dashboard_never_loads_hosts() -> None:
    modules = loaded_by("import ddtop.dashboard.app")
    assert "textual.app" in modules
    assert not {
        m for m in modules if m.split(".")[0] == "asyncssh" or m.startswith(("ddtop.hosts", "ddtop.sweep"))
    }


@pytest.mark.parametrize("module", ["ddtop.inspect", "ddtop.plan", "ddtop.report"])
def test_offline_commands_load_no_ssh(module: str) -> None:
    """`inspect` of a log and `plan check` must not pay for the SSH stack."""
    assert not {m for m in loaded_by(f"import {module}") if m.split(".")[0] in ("asyncssh", "textual")}
