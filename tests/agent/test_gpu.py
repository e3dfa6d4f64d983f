"""nvidia-smi through a real agent. The tool itself is SIMULATED here: a script that behaves as the facts say."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.gpu.smi import FIELDS, Smi, app_memory, without_bad_fields
from ddtop.errors import AgentError
from tests.agent.helpers import agent, runs
from tests.waiting import HANG_S

SMI = """#!{python}
# SIMULATED nvidia-smi
import os, sys, time
mode = open({mode!r}).read().strip()
open({calls!r}, "a").write(f"{{os.getpid()}} " + " ".join(sys.argv[1:])[:60] + "\\n")
query = next((a for a in sys.argv if a.startswith("--query-")), "")
kind, _, fields = query[8:].partition("=")
fields = fields.split(",")
if mode == "hang":
    time.sleep(120)
if "gpu_recovery_action" in fields and mode == "old":
    print('Field "gpu_recovery_action" is not a valid field to query.'); sys.exit(2)
if mode == "broken":
    print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."); sys.exit(9)
loop = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--loop-ms=")), 0)
if kind == "compute-apps":
    print("gpu_uuid, pid, process_name, used_gpu_memory [MiB]")
    print(f"GPU-0, {{os.getppid()}}, py, thon, 100 MiB"); sys.exit()
if "noheader" not in " ".join(sys.argv):
    print(", ".join(fields))
for n in range(10**6):
    for gpu in range(2):
        print(", ".join(str(gpu) if f == "index" else str(n) for f in fields), flush=True)
    if not loop or (mode == "dies" and n == 2):
        break
    time.sleep(loop / 1000)
"""


class FakeSmi:
    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.mode, self.calls_file = folder / "mode", folder / "calls"
        self.set("ok")
        self.calls_file.write_text("")
        script = self.bin / "nvidia-smi"
        script.write_text(SMI.format(python=sys.executable, mode=str(self.mode), calls=str(self.calls_file)))
        script.chmod(0o755)
        self.env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def set(self, mode: str) -> None:
        self.mode.write_text(mode)

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    return FakeSmi(tmp_path)


async def take(batches: Any, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(HANG_S):
        async for batch in batches:
            found += batch
            if len(found) >= count:
                return found
    return found


async def test_probe_reads_gpus_and_their_processes(state_dir: Path, smi: FakeSmi) -> None:
    async with agent(state_dir, env=smi.env) as host:
        assert "nvidia-smi" in host.hello.can
        probe = await host.call("probe")
        assert probe["gpus"]["csv"].splitlines()[1].startswith("0, ")
        (proc,) = probe["gpu_procs"]
        assert proc["mem_mib"] == 100
        assert proc["cmdline"], "the process is described from /proc"
        calls = len(smi.calls())
        await host.call("probe")
        assert len(smi.calls()) == calls, "a reading younger than 2 s serves again"


async def test_a_hung_nvidia_smi_costs_only_its_section(state_dir: Path, smi: FakeSmi) -> None:
    smi.set("hang")
    async with agent(state_dir, env=smi.env) as host:
        began = time.monotonic()
        probe = await host.call("probe", timeout_s=2, disks=["/"])
        assert time.monotonic() - began < 30, "nvidia-smi hangs for ever"
        assert "error" in probe["gpus"]
        assert probe["disks"]["/"]["size_b"] > 0
        assert probe["took_ms"]["disks"] < probe["took_ms"]["gpu"]
        await host.ping()
        pids = [int(line.split()[0]) for line in smi.calls()]
        for _ in range(100):
            if not any(map(runs, pids)):
                break
            await asyncio.sleep(0.05)
        assert not any(map(runs, pids)), "it is killed, where it can be"


async def test_fields_the_driver_does_not_know_are_left_out(state_dir: Path, smi: FakeSmi) -> None:
    smi.set("old")
    async with agent(state_dir, env=smi.env) as host:
        gpus = (await host.call("probe"))["gpus"]
        assert "gpu_recovery_action" not in gpus["fields"]
        assert gpus["csv"].count("\n") == 3
        async with host.stream(
            "gpu-follow", every_ms=50, fields=["index", "gpu_recovery_action", "name"]
        ) as batches:
            items = await take(batches, 4)
        assert items[0] == {"fields": ["index", "gpu_recovery_action", "name"]}
        assert items[1] == {"fields": ["index", "name"]}
        assert items[2]["line"] == "0, 0"


async def test_the_stream_is_one_process_and_comes_back_when_it_dies(state_dir: Path, smi: FakeSmi) -> None:
    smi.set("dies")
    async with agent(state_dir, env=smi.env) as host:
        async with host.stream("gpu-follow", every_ms=50, fields=["index", "power.draw"]) as batches:
            items = await take(batches, 9)
        lines = [item["line"] for item in items if "line" in item]
        assert lines[:6] == ["0, 0", "1, 0", "0, 1", "1, 1", "0, 2", "1, 2"]
        assert any("error" in item for item in items)
        assert lines[6] == "0, 0", "started again"
        assert len(smi.calls()) == 2
        assert all(item["mono_s"] > 0 for item in items if "line" in item)


async def test_a_dead_driver_is_an_error_item(state_dir: Path, smi: FakeSmi) -> None:
    smi.set("broken")
    async with agent(state_dir, env=smi.env) as host:
        assert "communicate with the NVIDIA driver" in (await host.call("probe"))["gpus"]["error"]
        async with host.stream("gpu-follow", every_ms=100) as batches:
            items = await take(batches, 2)
        assert "communicate with the NVIDIA driver" in items[1]["error"]


async def test_leaving_the_stream_ends_nvidia_smi(state_dir: Path, smi: FakeSmi) -> None:
    async with agent(state_dir, env=smi.env) as host:
        async with host.stream("gpu-follow", every_ms=50, fields=["index", "name"]) as batches:
            await take(batches, 3)
        pid = int(smi.calls()[0].split()[0])
        for _ in range(100):
            if not runs(pid):
                break
            await asyncio.sleep(0.05)
        assert not runs(pid)


async def test_without_the_tool_it_is_not_found(state_dir: Path, tmp_path: Path) -> None:
    async with agent(state_dir, env={**os.environ, "PATH": str(tmp_path)}) as host:
        assert "nvidia-smi" not in host.hello.can
        for op in ("gpu-follow", "gpm-follow"):
            with pytest.raises(AgentError) as caught:
                async with host.stream(op) as batches:
                    async for _ in batches:
                        pass
            assert caught.value.code == "not-found"
        assert "error" in (await host.call("probe"))["gpus"]


def test_bad_fields() -> None:
    said = 'Field "a.b" is not a valid field to query.\nField "c" is not a valid field to query.'
    assert without_bad_fields(["index", "a.b", "c"], said) == ["index"]
    assert without_bad_fields(["index"], said) is None
    assert without_bad_fields(["a.b"], said) is None, "nothing would be left"
    assert without_bad_fields(["index", "x"], "Unable to determine the device handle") is None


def test_a_refused_field_is_asked_again_by_its_older_name_once() -> None:
    def refused(field: str) -> str:
        return f'Field "{field}" is not a valid field to query.'

    fields: list[str] | None = ["index", "clocks_event_reasons.active", "gpu_recovery_action"]
    fields = without_bad_fields(fields, refused("clocks_event_reasons.active"))
    assert fields == ["index", "clocks_throttle_reasons.active", "gpu_recovery_action"]
    fields = without_bad_fields(fields, refused("clocks_throttle_reasons.active"))
    assert fields == ["index", "gpu_recovery_action"]
    asked = ["power.draw", "power.draw.instant"]
    assert without_bad_fields(asked, refused("power.draw.instant")) == ["power.draw"], "not asked twice"


def test_a_driver_that_knows_only_the_index_is_found_out_in_the_end() -> None:
    fields = list(FIELDS)
    for _ in range(3 * len(FIELDS)):
        if (bad := next((f for f in fields if f != "index"), None)) is None:
            break
        fewer = without_bad_fields(fields, f"Field `{bad}` is not a valid field to query.")
        assert fewer is not None
        fields = fewer
    assert fields == ["index"]


def test_memory_by_process_of_the_case() -> None:
    text = (Path(__file__).parent.parent / "cases" / "A17-compute-apps-odd-names" / "input.csv").read_text()
    found = app_memory(text) or app_memory("header\n" + text)
    assert found
    assert all(isinstance(pid, int) and mib >= 0 for pid, mib in found.items())


async def test_a_killed_process_that_takes_a_moment_to_go_is_not_called_hung(
    smi: FakeSmi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", smi.env["PATH"])
    looks = iter([True, True, True])
    monkeypatch.setattr("ddtop.agent.gpu.smi.alive", lambda _pid: next(looks, False))
    asking = Smi()
    asking._hung = [4_000_000]
    answer = await asking.query("gpu", ["index"])
    assert answer.get("fields") == ["index"], answer
