"""On real systemd: how fast a failure is known, overrides, journals over reconnects, rights, a hung nvidia-smi."""

import asyncio
import json
import re
import statistics
import time
from typing import Any

import pytest

from ddtop.agent.gpu.gpm import has_value
from ddtop.errors import AgentError
from tests.agent.bedhost import reached, take
from tests.agent.test_units import ODD_WORDS
from tests.bed import trouble

OURS = re.compile(r"state/ddtop|systemd-logind|user@|session-")
"""What a login leaves for a moment, whoever logs in, and the agent's state folder."""

SLEEPER = ["systemd-run", "--unit=watched", "--quiet", "-p", "Type=exec", "sleep", "1000"]


async def next_with(batches: Any, test: Any, timeout_s: float = 10) -> dict[str, Any]:
    async with asyncio.timeout(timeout_s):
        async for batch in batches:
            for item in batch:
                if test(item["props"]):
                    return dict(item)
    raise AssertionError("the stream ended")


@pytest.mark.alone
async def test_a_failed_unit_is_known_within_50_ms(ct200: Any) -> None:
    took_ms = []
    async with reached("ct200") as host:
        for round_ in range(10):
            unit = f"watched{round_}.service"
            words = [word.replace("--unit=watched", f"--unit=watched{round_}") for word in SLEEPER]
            assert (await host.call("exec", argv=words))["rc"] == 0
            async with host.stream("unit-watch", unit=unit) as batches:
                first = await next_with(batches, lambda props: props["ActiveState"] == "active")
                assert first["by"] == "first"
                pid = int(first["props"]["MainPID"])
                ticket = await host.call("ticket", pid=pid)
                await asyncio.sleep(0.15)
                began = time.monotonic()
                await host.call("signal", pid=pid, start_ticks=ticket["start_ticks"], signal="KILL")
                failed = await next_with(batches, lambda props: props["ActiveState"] == "failed")
                took_ms.append((time.monotonic() - began) * 1000)
            assert failed["by"] in ("dbus", "pidfd")
            assert failed["props"]["Result"] == "signal"
            await host.call("unit-action", unit=unit, action="reset-failed")
    print("\nkill → client, ms:", " ".join(f"{ms:.0f}" for ms in sorted(took_ms)))
    assert statistics.median(took_ms) < 50, took_ms
    assert max(took_ms) < 1000, took_ms


async def test_a_restart_is_seen_state_by_state(ct200: Any) -> None:
    ct200.stage()
    ct200.fault(LOAD_S=0.5, STOP_S=1)
    async with reached("ct200") as host, host.stream("unit-watch", unit="sglang-bench.service") as batches:
        assert (await next_with(batches, lambda p: True))["props"]["ActiveState"] == "inactive"
        assert (await host.call("unit-action", unit="sglang-bench", action="start"))["rc"] == 0
        up = await next_with(batches, lambda p: p["SubState"] == "running")
        await asyncio.to_thread(ct200.wait, "ready")
        await host.call("unit-action", unit="sglang-bench", action="restart")
        await next_with(batches, lambda p: p["ActiveState"] == "deactivating")
        again = await next_with(batches, lambda p: p["SubState"] == "running")
        assert again["props"]["InvocationID"] != up["props"]["InvocationID"]
        assert again["props"]["MainPID"] != up["props"]["MainPID"]
        await host.call("unit-action", unit="sglang-bench", action="stop")
        await next_with(batches, lambda p: p["ActiveState"] in ("inactive", "failed"))


async def test_what_dbus_does_not_say_the_poll_finds(ct200: Any) -> None:
    async with reached("ct200") as host:
        await host.call("exec", argv=["systemctl", "stop", "dbus.socket", "dbus.service"])
        try:
            await host.call("exec", argv=SLEEPER)
            async with host.stream("unit-watch", unit="watched", poll_s=1) as batches:
                await next_with(batches, lambda p: p["ActiveState"] == "active")
                ct200.sh("systemctl kill -s KILL watched")
                failed = await next_with(batches, lambda p: p["ActiveState"] == "failed", timeout_s=5)
                assert failed["by"] == "pidfd", "the kernel tells without any bus"
        finally:
            ct200.sh("systemctl start dbus.socket; systemctl reset-failed watched")


async def test_an_override_runs_its_exact_words_and_leaves_nothing(ct200: Any) -> None:
    before = ct200.snapshot()
    printer = "import sys,json,os;print('ARGV', json.dumps(sys.argv[1:]), os.environ.get('ODD'), flush=True)"
    async with reached("ct200") as host:
        argv = ["/usr/bin/python3", "-c", printer, *ODD_WORDS]
        env = {"ODD": 'a "b" $HOME 100% \\x'}
        written = await host.call(
            "override-write",
            unit="sglang-bench",
            run="r1",
            expires_at_s=5e9,
            exec_argv=argv,
            env=env,
            extra={"Restart": "no", "WorkingDirectory": "/"},
        )
        assert written["need_reload"] is False
        assert written["text"] in (await host.call("unit-cat", unit="sglang-bench"))["text"]
        (override,) = (await host.call("probe"))["overrides"]
        assert (override["unit"], override["run"], override["user"]) == ("sglang-bench.service", "r1", False)
        await host.call("unit-action", unit="sglang-bench", action="start")
        for _ in range(50):
            entries = (await host.call("journal-read", unit="sglang-bench", lines=50))["entries"]
            said = [entry["text"] for entry in entries if entry["text"].startswith("ARGV")]
            if said:
                break
            await asyncio.sleep(0.1)
        words, _, odd = said[-1][len("ARGV ") :].rpartition("] ")
        assert json.loads(words + "]") == ODD_WORDS
        assert odd == env["ODD"]
        assert (await host.call("override-remove", unit="sglang-bench"))["removed"] == [written["path"]]
        assert (await host.call("override-remove", unit="sglang-bench"))["removed"] == []
        assert (await host.call("unit-show", unit="sglang-bench"))["props"]["NeedDaemonReload"] == "no"
        foreign = "/run/systemd/system/sglang-bench.service.d/50-ddtop.conf"
        ct200.sh(f"mkdir -p $(dirname {foreign}) && echo '[Service]' > {foreign}")
        for op, args in (("override-remove", {}), ("override-write", {"run": "r", "expires_at_s": 1})):
            with pytest.raises(AgentError, match="not written by ddtop"):
                await host.call(op, unit="sglang-bench", **args)
        ct200.sh(f"rm -r $(dirname {foreign}); systemctl daemon-reload; systemctl reset-failed || true")
    assert [line for line in ct200.settled(before, timeout_s=1) if not OURS.search(line)] == []


async def test_a_forgotten_reload_is_seen(ct200: Any) -> None:
    ct200.stage()
    ct200.sh("systemctl start sglang-bench")  # a unit that is not loaded is read anew, and needs no reload
    ct200.fault(SYSTEMCTL_FAULT="no-reload")
    async with reached("ct200") as host:
        written = await host.call(
            "override-write", unit="sglang-bench", run="r", expires_at_s=1, exec_argv=["/bin/sleep", "9"]
        )
        assert written["need_reload"] is True
        ct200.fault()
        removed = await host.call("override-remove", unit="sglang-bench")
        assert removed == {"removed": [written["path"]], "need_reload": False}


TALKER = "import time\nfor i in range(3000):\n print('line', i, flush=True)\n if i % 100 == 0: time.sleep(0.1)\nprint('x' * 60000, flush=True)\ntime.sleep(0.2)\nprint('end', flush=True)\ntime.sleep(100)"


async def test_no_journal_line_is_lost_or_doubled_over_reconnects(ct200: Any) -> None:
    ct200.sh(
        "mkdir -p /run/systemd/journald.conf.d && printf '[Journal]\\nRateLimitIntervalSec=0\\n' "
        "> /run/systemd/journald.conf.d/t.conf && systemctl restart systemd-journald"
    )
    texts: list[str] = []
    cursor = None
    connections = 0
    async with asyncio.timeout(60):
        while "end" not in texts:
            connections += 1
            async with reached("ct200") as host:
                follow = host.stream("journal-follow", unit="talker", after_cursor=cursor, anchor=True)
                async with follow as batches:
                    if connections == 1:
                        (first,) = await take(batches, 1)
                        assert first["anchor"] is True
                        cursor = first["cursor"]
                        argv = ["systemd-run", "--unit=talker", "--quiet", "python3", "-c", TALKER]
                        assert (await host.call("exec", argv=argv))["rc"] == 0
                        continue  # a loss before the first line came
                    async with asyncio.timeout(10):
                        async for batch in batches:
                            texts += [item["text"] for item in batch if item.get("pid") != 1]
                            cursor = batch[-1]["cursor"]
                            if "end" in texts or len(texts) > connections * 800:
                                break
    ct200.sh(
        "systemctl stop talker; rm /run/systemd/journald.conf.d/t.conf; systemctl restart systemd-journald"
    )
    assert connections >= 4
    assert texts == [f"line {i}" for i in range(3000)] + ["x" * 60000, "end"]


async def test_one_generations_lines_only(ct200: Any) -> None:
    async with reached("ct200") as host:
        for word in ("one", "two"):
            argv = [
                "systemd-run",
                "--unit=gen",
                "--quiet",
                "--wait",
                "sh",
                "-c",
                # It lives on for a moment: journald asks for the invocation of a line's unit, and a unit that is gone has none.
                f"sleep 0.3; echo said {word}; printf 'a\\rb\\r'; sleep 1",
            ]
            assert (await host.call("exec", argv=argv))["rc"] == 0
        entries = (await host.call("journal-read", unit="gen"))["entries"]
        last = next(entry for entry in entries if entry["text"] == "said two")["invocation"]
        mine = (await host.call("journal-read", unit="gen", invocation=last))["entries"]
        texts = [entry["text"] for entry in mine]
        assert "said two" in texts
        assert "said one" not in texts
        assert "b" in texts
        assert any("Started" in text for text in texts), "systemd's own words about that start"
        at = next(i for i, e in enumerate(entries) if e["text"] == "said one")
        after = entries[at]["cursor"]
        rest = (await host.call("journal-read", unit="gen", after_cursor=after))["entries"]
        assert [e["text"] for e in rest] == [e["text"] for e in entries[at + 1 :]]
        with pytest.raises(AgentError):
            await host.call("journal-read", unit="gen", after_cursor="nonsense")


async def test_a_hung_nvidia_smi_costs_only_its_own_section(ct200: Any) -> None:
    ct200.fault(SMI_FAULT="hang")
    async with reached("ct200") as host:
        began = time.monotonic()
        found = await host.call("probe", units=["sglang-bench"], port=30000, timeout_s=3)
        assert time.monotonic() - began < 4.5
        assert "error" in found["gpus"]
        assert found["units"]["sglang-bench.service"]["LoadState"] == "loaded"
        assert found["listeners"] == []
        assert max(ms for name, ms in found["took_ms"].items() if name != "gpu") < 2000


async def test_gpu_streams(ct200: Any, b300: Any) -> None:
    async with reached("ct200") as host, reached("b300") as other:
        async with host.stream("gpu-follow", every_ms=200) as batches:
            items = await take(batches, 17)
        assert "power.draw" in items[0]["fields"]
        assert [line["line"].split(",")[0] for line in items[1:9]] == [str(i) for i in range(8)]
        async with other.stream("gpm-follow", every_s=1) as batches:
            items = await take(batches, 27)
        assert items[0]["line"].startswith("#")
        assert any(has_value(item["line"]) for item in items), "the third tick has values"
        with pytest.raises(AgentError) as caught:
            async with host.stream("gpm-follow", every_s=1) as batches:
                await take(batches, 1000)
        assert caught.value.code == "not-found"
    async with reached("ct200") as host, reached("b300") as other:
        assert "gpm" in other.hello.can and "gpm" not in host.hello.can | host.hello.unknown


async def test_a_plain_login_says_what_it_does_not_know(ct200: Any) -> None:
    ct200.stage()
    ct200.sh("systemctl start sglang-bench; mv /etc/sudoers.d/bench /root/sudoers-bench")
    try:
        async with reached("ct200", user="bench") as host:
            assert not host.hello.can & {"restart", "override", "journal", "ports", "jobs", "sudo"}
            assert {"journal", "ports"} <= host.hello.unknown
            async with asyncio.timeout(20):
                while not (found := await host.call("listeners", port=30000))["listeners"]:
                    await asyncio.sleep(0.1)
            assert found["unknown"] == ["ports"]
            assert "pid" not in found["listeners"][0], "unknown is absent, not guessed"
            for op, args in (
                ("unit-action", {"unit": "sglang-bench", "action": "restart"}),
                ("override-write", {"unit": "sglang-bench", "run": "r", "expires_at_s": 1}),
                ("journal-read", {"unit": "sglang-bench"}),
                ("job-start", {"job": "j", "kind": "exec", "spec": {"argv": ["true"]}}),
            ):
                with pytest.raises(AgentError) as caught:
                    await host.call(op, **args)
                assert caught.value.code == "not-permitted", op
                assert caught.value.do
            watched = await host.call("unit-show", unit="sglang-bench")
            assert watched["props"]["ActiveState"] == "active", "but it may look"
    finally:
        ct200.sh("mv /root/sudoers-bench /etc/sudoers.d/bench")


async def test_with_sudo_a_login_can_do_it_all(ct200: Any) -> None:
    before = ct200.snapshot()
    async with reached("ct200", user="bench") as host:
        assert {"restart", "override", "journal", "ports", "jobs", "sudo"} <= host.hello.can
        argv = ["/bin/sh", "-c", "echo by sudo; exec sleep 60"]
        written = await host.call(
            "override-write", unit="sglang-bench", run="r", expires_at_s=5e9, exec_argv=argv
        )
        assert written["need_reload"] is False
        assert (await host.call("unit-action", unit="sglang-bench", action="start"))["rc"] == 0
        for _ in range(50):
            entries = (await host.call("journal-read", unit="sglang-bench"))["entries"]
            if any(entry["text"] == "by sudo" for entry in entries):
                break
            await asyncio.sleep(0.1)
        assert any(entry["text"] == "by sudo" for entry in entries)
        await host.call("unit-action", unit="sglang-bench", action="stop")
        await host.call("override-remove", unit="sglang-bench")
        await host.call("unit-action", unit="sglang-bench", action="reset-failed")
    assert [line for line in ct200.settled(before, timeout_s=1) if not OURS.search(line)] == []


async def test_a_users_own_unit_with_linger(ct200: Any) -> None:
    ct200.sh("loginctl enable-linger bench; mv /etc/sudoers.d/bench /root/sudoers-bench")
    try:
        async with asyncio.timeout(20):
            while True:
                async with reached("ct200", user="bench") as host:
                    if "user-units" in host.hello.can:
                        break
                await asyncio.sleep(0.3)
        async with reached("ct200", user="bench") as host:
            assert "jobs" in host.hello.can
            unit = "sglang-user.service"
            async with host.stream("unit-watch", unit=unit, user=True) as batches:
                await next_with(batches, lambda p: True)
                argv = ["/bin/sleep", "55"]
                await host.call(
                    "override-write", unit=unit, user=True, run="r", expires_at_s=5e9, exec_argv=argv
                )
                assert (await host.call("unit-action", unit=unit, user=True, action="start"))["rc"] == 0
                up = await next_with(batches, lambda p: p["ActiveState"] == "active")
                assert "/bin/sleep" in up["props"]["ExecStart"]
                await host.call("unit-action", unit=unit, user=True, action="kill", signal="KILL")
                down = await next_with(batches, lambda p: p["ActiveState"] == "failed")
                assert down["by"] in ("dbus", "pidfd"), "the user's own bus tells"
            entries = (await host.call("journal-read", unit=unit, user=True))["entries"]
            assert entries, "a user may read his own journal"
            await host.call("override-remove", unit=unit, user=True)
            told = await host.call("job-start", job="mine", kind="exec", spec={"argv": ["true"]})
            assert told["unit"] == "ddtop-job-mine.service"
            async with host.stream("job-watch", job="mine") as batches:
                last = [item async for batch in batches for item in batch][-1]
            assert (last["state"]["state"], last["state"]["mode"]) == ("done", "user")
            await host.call("job-forget", job="mine")
    finally:
        ct200.sh("mv /root/sudoers-bench /etc/sudoers.d/bench; loginctl disable-linger bench")


async def test_an_unmet_condition_is_remembered(ct200: Any) -> None:
    """systemd unloads such a unit at once, and then says ConditionResult=no of anything: the start holds it."""
    ct200.stage()
    async with reached("ct200") as host, host.stream("unit-watch", unit="sglang-bench") as batches:
        first = await next_with(batches, lambda p: True)
        assert first["props"]["ConditionTimestampMonotonic"] == "0"
        await asyncio.to_thread(trouble.unmet_condition, ct200.bed, "ct200", "sglang-bench.service")
        await host.call("unit-action", unit="sglang-bench", action="start")
        unmet = await next_with(batches, lambda p: p["ConditionTimestampMonotonic"] != "0", timeout_s=4)
        assert unmet["props"]["ConditionResult"] == "no"
        assert unmet["props"]["ActiveState"] == "inactive"


async def test_the_process_service_is_a_unit_where_it_can_be(ct200: Any) -> None:
    before = ct200.snapshot()
    async with reached("ct200") as host:
        for word in ("one", "two"):
            argv = ["sh", "-c", f"echo {word}; exec sleep 100"]
            told = await host.call("proc-start", name="srv", argv=argv, stop_s=3)
            show = (await host.call("unit-show", unit="ddtop-proc-srv"))["props"]
            assert show["ActiveState"] == "active"
            async with host.stream("proc-watch", name="srv") as batches:
                async with asyncio.timeout(10):
                    assert (await take(batches, 1))[0]["pid"] == told["pid"]
                    await host.call("proc-stop", name="srv")
                    async for batch in batches:
                        if "exit" in batch[-1]:
                            break
            assert batch[-1]["exit"] == {"signal": "SIGTERM"}
    assert [line for line in ct200.settled(before, timeout_s=2) if not OURS.search(line)] == []


async def test_what_a_unit_runs_on_and_says_of_its_load(ct200: Any) -> None:
    """Real systemd, SIMULATED engine and GPUs: the GPUs that the unit's processes hold, and its figures once a second."""
    ct200.stage()
    ct200.fault(LOAD_S=0.3)
    async with reached("ct200") as host:
        assert (await host.call("unit-action", unit="sglang-bench", action="start"))["rc"] == 0
        await asyncio.to_thread(ct200.wait, "ready")
        props = (await host.call("unit-show", unit="sglang-bench.service"))["props"]
        found = await host.call(
            "provenance", unit="sglang-bench.service", main_pid=int(props["MainPID"]), timeout_s=20
        )
        held, listed = found["facts"]["held"], [g["uuid"] for g in found["facts"]["gpu"]["gpus"]]
        assert held and set(held) <= set(listed), found
        assert found["facts"]["command"], found
        assert found["facts"]["image"] == {}
        assert found["facts"]["machine"]["server_cpus"]
        url = "http://127.0.0.1:30000/metrics"
        names = ["sglang:num_running_reqs", "sglang:num_queue_reqs"]
        async with host.stream("metrics-follow", url=url, names=names, every_s=0.2) as batches:
            items = await take(batches, 2)
        assert {row[0] for item in items[:2] for row in item["rows"]} == set(names), items
