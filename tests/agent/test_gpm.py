"""Whether the GPUs have GPM is found out by looking, remembered for the boot, and said in `can`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.gpu import gpm
from ddtop.agent.rights import Rights
from ddtop.errors import AgentError
from tests.agent.helpers import agent
from tests.waiting import HANG_S

SMI = Path(__file__).parents[2] / "ddtop" / "demo" / "nvidia_smi.py"


def tool(folder: Path, script: str) -> dict[str, str]:
    """An environment whose first nvidia-smi is `script` (a shell line)."""
    (folder / "bin").mkdir()
    smi = folder / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\n" + script + "\n")
    smi.chmod(0o755)
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "DDTOP_DEMO_DIR": str(folder)}


async def test_where_it_works_it_is_unknown_once_and_then_in_can(state_dir: Path, tmp_path: Path) -> None:
    env = tool(tmp_path, f'exec "{sys.executable}" -S "{SMI}" "$@"')
    (tmp_path / "gpu").mkdir()
    server = {
        "pid": os.getpid(),
        "tp": 2,
        "phase": "decode",
        "activity": 1.0,
        "mib": 1000,
        "busy": [0.9, 0.4],
    }
    (tmp_path / "gpu" / "1.json").write_text(json.dumps(server))
    async with agent(state_dir, env=env) as host:
        assert "gpm" in host.hello.unknown and "gpm" not in host.hello.can
        lines: list[str] = []
        async with asyncio.timeout(HANG_S), host.stream("gpm-follow", every_s=1) as batches:
            async for batch in batches:
                lines += [item["line"] for item in batch]
                if any(gpm.has_value(line) for line in lines):
                    break
        assert lines[0].split()[-4:] == ["smutil", "smocc", "mmaact", "dram"]
    async with agent(state_dir, env=env) as host:
        assert "gpm" in host.hello.can and "gpm" not in host.hello.unknown


async def test_where_it_does_not_it_is_said_and_remembered(state_dir: Path, tmp_path: Path) -> None:
    rows = "; ".join(["echo '    0   99  100   0   0   0   0    -    -    -    -'"] * gpm.TICKS)
    env = tool(tmp_path, f"{rows}; sleep 60")
    async with agent(state_dir, env=env) as host:
        with pytest.raises(AgentError) as caught:
            async with asyncio.timeout(HANG_S), host.stream("gpm-follow") as batches:
                async for _ in batches:
                    pass
        assert caught.value.code == "not-found"
    async with agent(state_dir, env=env) as host:
        assert not {"gpm"} & (host.hello.can | host.hello.unknown)


async def test_an_older_driver_does_not_know_the_option(state_dir: Path, tmp_path: Path) -> None:
    env = tool(
        tmp_path,
        """echo "Option '--gpm-metrics' is not recognized. Please run 'nvidia-smi dmon -h'."; exit 1""",
    )
    async with agent(state_dir, env=env) as host:
        with pytest.raises(AgentError) as caught:
            async with asyncio.timeout(HANG_S), host.stream("gpm-follow") as batches:
                async for _ in batches:
                    pass
        assert caught.value.code == "not-found" and "not recognized" in caught.value.what
    assert gpm.known(str(state_dir)) is False


def test_the_answer_holds_for_one_boot_and_driver(tmp_path: Path, monkeypatch: Any) -> None:
    rights = Rights(0, "root", frozenset({"nvidia-smi"}), frozenset(), frozenset())
    folder = str(tmp_path)
    assert gpm.known(folder) is None and "gpm" in gpm.with_gpm(rights, folder).unknown
    gpm.remember(folder, True)
    assert "gpm" in gpm.with_gpm(rights, folder).can
    monkeypatch.setattr(gpm, "identity", lambda: "another boot")
    assert gpm.known(folder) is None
    (tmp_path / "gpm.json").write_text("[")
    assert gpm.known(folder) is None and gpm.known(None) is None
    bare = rights._replace(can=frozenset())
    assert gpm.with_gpm(bare, folder) == bare
