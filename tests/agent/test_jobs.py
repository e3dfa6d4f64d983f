"""Detached jobs and the process service where there is no systemd: real processes on this machine."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.jobs.folder import Facts, judge
from ddtop.agent.jobs.worker import describe_wait_status
from ddtop.agent.loadgen.records import unpack
from ddtop.errors import AgentError
from ddtop.hosts.agent_zip import agent_zip
from ddtop.hosts.client import AgentHost
from tests.agent.helpers import agent, agent_pythons, runs
from tests.agent.job_results import collect_job, watch_job
from tests.bench.conftest import lying
from tests.waiting import HANG_S

__all__ = ["lying"]

pytestmark = pytest.mark.skipif(
    Path("/run/systemd/system").is_dir(), reason="here jobs are units: the bed tests them"
)


async def start(host: AgentHost, job: str, argv: list[str], **more: Any) -> dict[str, Any]:
    return await host.call("job-start", job=job, kind="exec", spec={"argv": argv, "run": "r1"}, **more)


async def ended(host: AgentHost, job: str) -> dict[str, Any]:
    async with asyncio.timeout(HANG_S):
        while (found := await host.call("job-show", job=job))["state"] == "running":
            await asyncio.sleep(0.05)
    return found


def children(pid: int) -> list[int]:
    out = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in out.split()]


@pytest.mark.parametrize("python", agent_pythons())
async def test_a_job_outlives_its_agent_and_is_collected_by_the_next(python: str, state_dir: Path) -> None:
    async with agent(state_dir, python=python, env={**os.environ, "SECRET": "s3cret"}) as host:
        told = await start(
            host, "j1", ["sh", "-c", "sleep 1; echo $SECRET $MORE"], env={"MORE": "m"}, limit_s=30
        )
        assert told["existed"] is False
        again = await start(host, "j1", ["rm", "-rf", "/nope"])
        assert (again["existed"], again["pid"]) == (True, told["pid"])
        host._pipe._process.kill()  # type: ignore[attr-defined]
    async with agent(state_dir, python=python) as host:
        seen: list[tuple[str, str]] = []
        async with asyncio.timeout(HANG_S), contextlib.aclosing(watch_job(host, "j1")) as watching:
            async for what, word, value in watching:
                seen.append((what, word))
                if what == "result":
                    assert value["output_tail"] == "s3cret m\n", "the login's environment and what was added"
        assert seen[-2:] == [("result", "exec"), ("state", "done")]
        results, job = await collect_job(host, "j1")
        assert set(results) == {"exec"}
        assert (job["state"], job["exit"], job["run"], job["results"]) == ("done", 0, "r1", 1)
        assert (await collect_job(host, "j1", known={"exec"}))[0] == {}
        folder = Path(told["dir"])
        assert not (folder / "env.json").exists(), "keys do not stay on the disk"
        assert folder.stat().st_mode & 0o077 == 0
        assert (state_dir / "agent" / f"{agent_zip().sha256}.zip").read_bytes() == agent_zip().data
        await host.call("job-forget", job="j1")
        assert not folder.exists()
        with pytest.raises(AgentError) as caught:
            await host.call("job-show", job="j1")
        assert caught.value.code == "not-found"


async def test_ends_are_told_apart(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        await start(host, "fails", ["sh", "-c", "echo last words >&2; exit 7"])
        failed = await ended(host, "fails")
        assert (failed["state"], failed["exit"]) == ("failed", 1)
        assert "exit status 7" in failed["why"]
        assert "last words" in failed["why"]

        await start(host, "absent", ["/no/such/program"])
        assert "No such file" in (await ended(host, "absent"))["why"]

        await start(host, "limit", ["sleep", "60"], limit_s=0.5)
        limit = await ended(host, "limit")
        assert (limit["state"], limit["why"]) == ("failed", "its time limit of 0.5 s passed")

        told = await start(host, "stopped", ["sleep", "60"])
        below = children(children(told["pid"])[0])
        assert (await host.call("job-stop", job="stopped"))["state"] == "killed"
        assert not any(map(runs, [told["pid"], *below]))

        told = await start(host, "shot", ["sleep", "60"])
        (worker,) = children(told["pid"])
        os.kill(worker, signal.SIGKILL)
        shot = await ended(host, "shot")
        assert (shot["state"], shot["why"]) == ("killed", "killed by SIGKILL")

        told = await start(host, "vanished", ["sleep", "60"])
        os.kill(told["pid"], signal.SIGKILL)
        vanished = await ended(host, "vanished")
        assert vanished["state"] == "lost"
        jobs = (await host.call("job-list"))["jobs"]
        assert [job["job"] for job in jobs] == ["fails", "absent", "limit", "stopped", "shot", "vanished"]
        assert (await host.call("probe"))["jobs"] == jobs


async def test_a_changed_zip_is_not_run(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        await start(host, "one", ["true"])
        await ended(host, "one")
        stored = state_dir / "agent" / f"{agent_zip().sha256}.zip"
        stored.write_bytes(stored.read_bytes()[:-1] + b"!")
        await start(host, "two", ["true"])
        assert (await ended(host, "two"))["state"] == "done", "it was stored anew"
        assert stored.read_bytes() == agent_zip().data


@pytest.mark.parametrize("job", ["", "../x", "a/b", "-x", "x" * 90, None, "a b"])
async def test_no_job_ids(job: Any, state_dir: Path) -> None:
    async with agent(state_dir) as host:
        with pytest.raises(AgentError) as caught:
            await host.call("job-start", job=job, kind="exec", spec={"argv": ["true"]})
        assert caught.value.code == "bad-request"
        with pytest.raises(AgentError):
            await host.call("job-forget", job=job)


async def test_large_results_come_whole(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        await start(host, "big", ["true"])
        await ended(host, "big")
        folder = state_dir / "jobs" / "big" / "results"
        for i in range(5):
            (folder / f"cell-c{i}.json").write_text(json.dumps({"cell": f"c{i}", "x": "y" * 400_000}))
        (folder / "cell-huge.json").write_text(
            json.dumps({"cell": "huge", "x": "ü" * 1_500_000}, ensure_ascii=False)
        )
        results, _ = await collect_job(host, "big", known={"exec", "c3"})
        assert set(results) == {"c0", "c1", "c2", "c4", "huge"}
        assert len(results["huge"]["x"]) == 1_500_000


async def test_a_newer_state_folder_is_refused(state_dir: Path) -> None:
    state_dir.mkdir()
    (state_dir / "schema").write_text("99\n")
    async with agent(state_dir) as host:
        assert host.hello.state_dir is None
        assert "newer ddtop" in host.hello.state_why


def facts(**found: Any) -> Facts:
    blank = Facts("/nope")
    for key, value in found.items():
        setattr(blank, key, value)
    return blank


STATE = {"job": "j", "kind": "exec", "boot": "b/1", "started_at_s": 100.0}


@pytest.mark.parametrize(
    ("found", "unit_alive", "state"),
    [
        ({"state": STATE, "end": {"state": "done"}}, None, "done"),
        ({"state": {**STATE, "boot": "b/2"}, "end": {"state": "done"}}, None, "done"),
        ({"state": {**STATE, "boot": "b/2"}, "alive": True}, None, "lost"),
        ({"state": STATE, "alive": True, "pid": {"pid": 3}}, None, "running"),
        ({"state": STATE, "pid": {"pid": 3}}, None, "lost"),
        ({"state": STATE, "pid": {"pid": 3}}, True, "running"),
        ({"state": STATE, "pid": {"pid": 3}}, False, "lost"),
        ({"state": {**STATE, "started_at_s": 995.0}}, None, "running"),
        ({"state": STATE}, None, "lost"),
    ],
)
def test_what_a_job_is(found: dict[str, Any], unit_alive: bool | None, state: str) -> None:
    assert judge(facts(**found), boot="b/1", now_s=1000.0, unit_alive=unit_alive)["state"] == state


def test_wait_statuses() -> None:
    assert describe_wait_status(0)["state"] == "done"
    assert describe_wait_status(3 << 8)["exit"] == 3
    assert describe_wait_status(15)["why"] == "killed by SIGTERM"


# ---------------------------------------------------------------------------------------------- process service

SERVER = "import socket,sys,time;s=socket.socket();s.bind(('127.0.0.1',0));s.listen();print('up',flush=True);time.sleep(300)"


async def until(batches: Any, test: Any) -> dict[str, Any]:
    async with asyncio.timeout(HANG_S):
        async for batch in batches:
            for item in batch:
                if test(item):
                    return dict(item)
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("python", agent_pythons())
async def test_process_service_start_watch_stop(python: str, state_dir: Path) -> None:
    async with agent(state_dir, python=python) as host:
        script = "trap 'echo got term; exit 3' TERM; echo up $WORD; sleep 300 & wait"
        told = await host.call(
            "proc-start", name="srv", argv=["sh", "-c", script], env={"WORD": "hi"}, stop_s=5
        )
        assert told["generation"].startswith(host.hello.boot + "/")
        below = children(told["pid"])
        with pytest.raises(AgentError, match="still running"):
            await host.call("proc-start", name="srv", argv=["true"])
        async with host.stream("proc-watch", name="srv") as batches:
            assert (await until(batches, lambda item: item["active"]))["pid"] == told["pid"]
            await host.call("proc-stop", name="srv")
            gone = await until(batches, lambda item: "exit" in item)
        assert gone["exit"] == {"code": 3}
        assert not any(map(runs, [told["pid"], *below])), "the workers go too"
        assert Path(told["log"]).read_text() == "up hi\ngot term\n"
        again = await host.call("proc-start", name="srv", argv=["sh", "-c", "echo second; exec sleep 300"])
        assert again["generation"] != told["generation"]
        await asyncio.sleep(0.2)
        assert Path(again["log"]).read_text() == "second\n", "a new generation's log holds its own words"
        os.kill(again["pid"], signal.SIGKILL)
        async with host.stream("proc-watch", name="srv") as batches:
            assert (await until(batches, lambda item: "exit" in item))["exit"] == {"signal": "SIGKILL"}


async def test_a_start_right_after_an_end_waits_for_the_supervisor(state_dir: Path) -> None:
    """Also: a follower tells lines by (inode, offset), and most file systems give a freed inode to the next file."""
    async with agent(state_dir) as host:
        seen = set()
        for n in range(5):
            told = await host.call("proc-start", name="srv", argv=["sh", "-c", f"echo {n}"])
            seen.add(os.stat(told["log"]).st_ino)
            async with host.stream("proc-watch", name="srv") as batches:
                await until(batches, lambda item: "exit" in item)
        assert len(seen) == 5
        left = sorted(path.name for path in Path(told["log"]).parent.iterdir())
        assert not [name for name in left if "passed" in name], left


async def test_process_service_outlives_the_agent_and_kills_the_stubborn(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        script = "trap '' TERM; (trap '' TERM; exec sleep 301) & while :; do sleep 0.2; done"
        told = await host.call("proc-start", name="hard", argv=["sh", "-c", script], stop_s=1)
        await asyncio.sleep(0.2)
        below = children(told["pid"])
    async with agent(state_dir) as host:
        assert (await host.call("proc-show", name="hard"))["active"] is True
        await host.call("proc-stop", name="hard")
        async with host.stream("proc-watch", name="hard") as batches:
            assert (await until(batches, lambda item: "exit" in item))["exit"] == {"signal": "SIGKILL"}
        assert not any(map(runs, [told["pid"], *below]))


async def test_process_service_says_what_is_wrong(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        with pytest.raises(AgentError) as caught:
            await host.call("proc-start", name="bad", argv=["/no/such/server"])
        assert "/no/such/server: No such file" in str(caught.value)
        with pytest.raises(AgentError) as caught:
            await host.call("proc-show", name="never")
        assert caught.value.code == "not-found"
        with pytest.raises(AgentError) as caught:
            await host.call("proc-start", name="x", argv=["true"], cwd="/no/such/folder")
        assert "/no/such/folder" in str(caught.value)


async def test_a_job_may_be_a_supervised_process(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        spec = {"argv": ["sh", "-c", "echo supervised; exit 0"], "stop_s": 3}
        await host.call("job-start", job="sup", kind="supervise", spec=spec)
        assert (await ended(host, "sup"))["state"] == "done"
        assert (state_dir / "jobs" / "sup" / "process" / "log").read_text() == "supervised\n"


async def test_a_load_generator_job_measures_a_server(state_dir: Path, lying: str) -> None:
    """The generator itself is tested elsewhere; here: that a job runs it and its cells are collected."""
    async with agent(state_dir) as host:
        defaults = {
            "url": lying + "/b/normal",
            "model": "m",
            "requests": 2,
            "output_tokens": 64,
            "gpus": "none",
        }
        spec = {
            "schema": 1,
            "defaults": defaults,
            "cells": [{"id": "a"}, {"id": "b", "url": lying + "/b/empty"}],
        }
        await host.call("job-start", job="load", kind="loadgen", spec=spec, limit_s=60)
        job = await ended(host, "load")
        assert job["state"] == "done", job
        assert job["progress"]["phase"] == "committed"
        results, _ = await collect_job(host, "load")
        assert set(results) == {"a", "b"}
        assert [request["class"] for request in unpack(results["a"])["requests"]] == ["ok", "ok"]
        assert [request["class"] for request in unpack(results["b"])["requests"]] == ["empty", "empty"]


async def test_a_wrong_load_generator_job_says_why(state_dir: Path) -> None:
    async with agent(state_dir) as host:
        await host.call("job-start", job="bad", kind="loadgen", spec={"cells": []}, limit_s=60)
        job = await ended(host, "bad")
        assert job["state"] == "failed"
        assert "cells" in job["why"]
