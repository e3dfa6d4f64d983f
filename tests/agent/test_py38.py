"""The agent keeps to Python 3.8 and the standard library: by vermin, by the real 3.8, and by its imports."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ddtop.agent
from ddtop.hosts.agent_zip import agent_zip
from tests.agent.helpers import oldest_python

FOLDER = Path(ddtop.agent.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))


def test_vermin_finds_nothing_newer_than_3_8() -> None:
    tool = str(Path(sys.executable).with_name("vermin"))
    words = [tool, "-t=3.8-", "--no-tips", "--violations", str(FOLDER)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_only_the_standard_library_and_itself(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_every_module_imports_on_the_oldest_python(tmp_path: Path) -> None:
    python = oldest_python()
    names = [
        ".".join(("agent", *path.relative_to(FOLDER).with_suffix("").parts))
        for path in FILES
        if path.name not in ("__main__.py", "__init__.py")
    ]
    packed = tmp_path / "agent.zip"
    packed.write_bytes(agent_zip().data)
    code = "import sys,importlib;sys.path.insert(0,sys.argv[1])\nfor n in sys.argv[2:]: importlib.import_module(n)"
    done = subprocess.run(
        [python, "-I", "-S", "-W", "error", "-c", code, str(packed), *names],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
