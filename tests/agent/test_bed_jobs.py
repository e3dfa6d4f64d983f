"""Detached jobs on real hosts: cut links, KillUserProcesses, reboots, SIGKILL; and how a loss is seen and healed."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from ddtop.errors import HostLostError
from ddtop.hosts.base import Host
from ddtop.hosts.reconnect import Backoff, connect_forever
from tests.agent.bedhost import connector, reached
from tests.agent.job_results import collect_job, watch_job
from tests.bed import trouble


async def start(host: Host, job: str, script: str, **more: Any) -> dict[str, Any]:
    return await host.call("job-start", job=job, kind="exec", spec={"argv": ["sh", "-c", script]}, **more)


async def end_of(host: Host, job: str, timeout_s: float = 60) -> dict[str, Any]:
    async with asyncio.timeout(timeout_s), contextlib.aclosing(watch_job(host, job)) as watching:
        async for what, word, value in watching:
            if what == "state" and word != "running":
                return value
    raise AssertionError("the watch ended without an end state")


async def test_ends_of_units_are_written_even_by_a_kill(ct200: Any) -> None:
    before = ct200.snapshot()
    async with reached("ct200") as host:
        told = await start(host, "k1", "sleep 100")
        assert told["unit"] == "ddtop-job-k1.service"
        show = (await host.call("unit-show", unit=told["unit"]))["props"]
        assert show["WorkingDirectory"].endswith("/jobs/k1")
        ct200.sh(f"systemctl kill -s KILL {told['unit']}")
        killed = await end_of(host, "k1")
        assert killed["state"] == "killed"
        assert "systemd: signal" in killed["why"] or "SIGKILL" in killed["why"]
        again = await start(host, "k1", "echo never")
        assert (again["existed"], again["state"]) == (True, "killed")

        await start(host, "ok", "ulimit -n; echo in $PWD")
        assert (await end_of(host, "ok"))["state"] == "done"
        results, _ = await collect_job(host, "ok")
        assert int(results["exec"]["output_tail"].split()[0]) > 1024, "as many files as this host grants"

        await start(host, "stop", "trap '' TERM; sleep 100")
        began = time.monotonic()
        assert (await host.call("job-stop", job="stop", timeout_s=60))["state"] == "killed"
        assert time.monotonic() - began < 25
        for job in ("k1", "ok", "stop"):
            await host.call("job-forget", job=job)
    assert [
        line for line in ct200.settled(before, timeout_s=1) if "ddtop" in line and "state" not in line
    ] == []


async def test_a_cut_is_seen_within_15_s_and_the_job_goes_on(ct200: Any) -> None:
    """The link is cut over the whole of the job: it is done when it heals, and its agent is found again."""
    lost: list[float] = []
    box = connector("ct200")
    async with contextlib.aclosing(connect_forever(box, lambda *a: None, Backoff(most_s=2))) as hosts:
        host, _ = await anext(hosts)
        await start(host, "cut", "sleep 10; echo finished alone")
        cut_s = time.monotonic()
        ct200.cut()
        async with asyncio.timeout(20):
            why = await host.wait_lost()
        lost.append(time.monotonic() - cut_s)
        with pytest.raises(HostLostError):
            await host.call("job-list")
        await asyncio.sleep(max(0.0, 16 - lost[0]))
        ct200.heal()
        healed_s = time.monotonic()
        async with asyncio.timeout(45):
            again, told = await anext(hosts)
        back_s = time.monotonic() - healed_s
        assert told == why
        job = await end_of(again, "cut", 5)
        assert job["state"] == "done"
        results, _ = await collect_job(again, "cut")
        assert results["exec"]["output_tail"] == "finished alone\n"
        assert results["exec"]["ended_at_s"] - results["exec"]["started_at_s"] < 12, (
            "it was not slowed either"
        )
        assert again.hello.boot == host.hello.boot
    print(f"\nloss seen after {lost[0]:.1f} s ({why}); back {back_s:.1f} s after healing")
    assert lost[0] <= 15


@pytest.mark.parametrize("cut_for_s", [8, pytest.param(40, marks=pytest.mark.stories)])
async def test_a_users_job_and_model_outlive_kill_user_processes(ct200: Any, cut_for_s: float) -> None:
    """As `bench` with KillUserProcesses and RemoveIPC, the link cut: job and staged model are there."""
    trouble.kill_user_processes(ct200.bed, "ct200")
    try:
        async with reached("ct200", user="bench") as host:
            found = await host.call("probe", disks=["/dev/shm"])
            assert found["remove_ipc"] is True, "and the login is warned of it"
            spec = {"path": "/dev/shm/by-bench", "sources": ["/data/models/Qwen3.6-27B"]}
            await host.call("job-start", job="stage", kind="stage", spec=spec)
            staged = await end_of(host, "stage")
            assert staged["state"] == "done", staged
            assert staged["mode"] == "sudo"
            script = f"sleep {cut_for_s + 3}; id -un; ls /dev/shm/by-bench | wc -l"
            told = await start(host, "long", script)
            assert told["state"] == "running"
            cut_s = time.monotonic()
            ct200.cut()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(20, cut_for_s - 3)):
                    await host.wait_lost()
        ct200.sh("loginctl terminate-user bench || true")
        await asyncio.sleep(max(0.0, cut_for_s - (time.monotonic() - cut_s)))
        ct200.heal()
        async with reached("ct200", user="bench") as host:
            job = await end_of(host, "long", 20)
            assert job["state"] == "done", job
            results, _ = await collect_job(host, "long")
            owner, files = results["exec"]["output_tail"].split("\n")[:2]
            assert owner == "bench"
            assert int(files) >= 16, "the model was there to the end"
            model = await host.call("model-check", path="/dev/shm/by-bench")
            assert model["verdict"] == "complete", "RemoveIPC has not taken it"
            for name in ("long", "stage"):
                await host.call("job-forget", job=name)
    finally:
        ct200.heal()
        ct200.sh(
            "rm -rf /etc/systemd/logind.conf.d/bed.conf /dev/shm/by-bench; systemctl restart systemd-logind"
        )


@pytest.mark.parametrize("how", ["reboot", "crash"])
async def test_a_reboot_is_a_new_boot_and_its_jobs_are_lost_or_kept(ct200: Any, how: str) -> None:
    box = connector("ct200")
    tries: list[tuple[int, str, float | None]] = []
    async with contextlib.aclosing(
        connect_forever(box, lambda *a: tries.append(a), Backoff(most_s=1))
    ) as hosts:
        host, _ = await anext(hosts)
        await start(host, "before", "echo kept")
        await end_of(host, "before")
        await start(host, "during", "sleep 1000")
        began = time.monotonic()
        await asyncio.to_thread(getattr(ct200, how))
        async with asyncio.timeout(20):
            await host.wait_lost()
        seen_s = time.monotonic() - began
        async with asyncio.timeout(60):
            again, _ = await anext(hosts)
        assert again.hello.boot != host.hello.boot
        jobs = {job["job"]: job for job in (await again.call("job-list"))["jobs"]}
        assert jobs["before"]["state"] == "done", "results are on a disk"
        during = jobs["during"]
        if how == "crash":
            assert (during["state"], during["why"]) == ("lost", "the host was rebooted while it ran")
        else:
            assert during["state"] in ("killed", "lost"), "an orderly shutdown lets the job say so"
        assert (await collect_job(again, "before"))[0]["exec"]["output_tail"] == "kept\n"
        for name in jobs:
            await again.call("job-forget", job=name)
    print(f"\n{how}: loss seen after {seen_s:.1f} s, {len(tries)} tries")
    assert seen_s <= 15 + 6, "the bed's own reboot call takes some seconds of it"


async def test_noisy_logins_do_not_break_the_start(ct200: Any) -> None:
    trouble.noisy_login(ct200.bed, "ct200")
    async with reached("ct200") as host:
        assert "GPU farm" in host.noise  # type: ignore[attr-defined]
        assert (await host.call("exec", argv=["hostname"]))["stdout"] == "ct200\n"


@pytest.mark.alone
async def test_the_agent_costs_little_at_rest(ct200: Any) -> None:
    """Two watched units, a followed journal and a GPU stream at 1 Hz: CPU of the agent itself over 5 s."""
    async with reached("ct200") as host, contextlib.AsyncExitStack() as stack:
        for op, args in (
            ("unit-watch", {"unit": "sglang-bench"}),
            ("unit-watch", {"unit": "llama-bench"}),
            ("journal-follow", {"unit": "sglang-bench"}),
        ):
            await stack.enter_async_context(host.stream(op, **args))
        pid = int((await host.call("exec", argv=["sh", "-c", "echo $PPID"]))["stdout"])
        (me,) = (await host.call("processes", pids=[pid]))["processes"]
        assert "-I" in me["cmdline"]
        await asyncio.sleep(5)
        (after,) = (await host.call("processes", pids=[me["pid"]]))["processes"]
        share = (after["cpu_s"] - me["cpu_s"]) / 5
        print(f"\nagent at rest: {100 * share:.1f} % of a core, {after['rss_mib']:.0f} MiB")
        assert share < 0.05
