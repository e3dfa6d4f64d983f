"""A scripted run, as events: the ct200 sweep of the stories, up to a restart that fails silently.

Everything here is made up and says SIMULATED. Times are fixed, so that snapshots are stable.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from ddtop import events as ev

T0 = 1_795_000_000.0
"""Wall time at which the scripted run begins."""
HOST = "ct200"
UNIT = "sglang-bench.service"
CONFIGS = ("auto", "linear", "b8", "b12", "b15", "b16", "b32", "b64")
GAIN = {"auto": 1.0, "linear": 3.76, "b15": 5.5, "b16": 5.62, "b32": 6.35, "b64": 5.98}
COLUMNS = (
    ("fib", 256, 0, 1),
    ("fib", 1024, 0, 1),
    ("code", 512, 0, 1),
    ("fib", 256, 8192, 1),
    ("fib", 256, 0, 8),
)
BASE_TOK_S = {("fib", 256, 0, 1): 26.1, ("fib", 1024, 0, 1): 26.3, ("code", 512, 0, 1): 25.9}
ALERT = "alert-1"


def cell_id(config: str, column: int, tp: int = 1) -> str:
    """Id of a scripted cell."""
    return f"{config}-tp{tp}-{column}"


def cells(tps: tuple[int, ...] = (1,)) -> tuple[ev.CellSpec, ...]:
    """The plan's cells."""
    return tuple(
        ev.CellSpec(
            id=cell_id(config, number, tp),
            config=config,
            tp=tp,
            workload=workload,
            output_tokens=out,
            concurrency=concurrency,
            context=context,
            restart_key=f"{config}-tp{tp}",
            baseline=config == "auto",
        )
        for tp in tps
        for config in CONFIGS
        for number, (workload, out, context, concurrency) in enumerate(COLUMNS)
    )


def metrics(config: str, column: int) -> dict[str, object]:
    """Metrics of a measured cell, in the names of the design."""
    workload, out, context, concurrency = COLUMNS[column]
    base = BASE_TOK_S.get(COLUMNS[column], 24.8 if context else 171.0)
    gain = GAIN.get(config, 4.0) * (1.0 if column == 0 else 1.25 if config == "b15" and out == 1024 else 0.98)
    speed = base * gain
    itl = 1000.0 / speed * concurrency
    return {
        "output_tok_s": round(speed, 1),
        "decode_tok_s": {"p50": round(speed / concurrency * 1.04, 1)},
        "ttft_ms": {
            "p50": 84.0 + context / 40,
            "p90": 97.0 + context / 40,
            "p99": 131.0 + context / 40,
            "max": 140.0,
            "n": 8,
        },
        "itl_ms": {
            "p50": round(itl, 2),
            "p90": round(itl * 1.3, 2),
            "p99": round(itl * 2.2, 2),
            "max": round(itl * 4, 2),
            "n": 2048,
        },
        "tpot_ms": {"p50": round(itl * 0.98, 2)},
        "acceptance_length": round(max(1.0, gain * 0.83), 2),
        "j_per_token": round(412.0 / speed, 2),
        "power_w": 412.0,
        "requests_ok": 8,
        "requests_failed": 0,
        "duration_s": 61.0,
        "workload": workload,
    }


class Script:
    """Builds events with a clock of its own."""

    def __init__(self, start_s: float = T0) -> None:
        self.now = start_s
        self.out: list[ev.Event] = []
        self.random = random.Random(7)

    def add(self, make: type[ev.Event], /, **fields: object) -> None:
        """One event now."""
        self.out.append(make(at_s=self.now, mono_s=self.now - T0, host=HOST, **fields))

    def wait(self, seconds: float, *, gpu: bool = True, load: float = 0.0) -> None:
        """Let time pass, with a GPU sample every 2 s."""
        for _ in range(int(seconds // 2)):
            self.now += 2
            if gpu:
                self.add(ev.GpuSampled, gpus=gpus(self.now, load))
        self.now += seconds % 2

    def log(self, *texts: str, invocation: str = "inv-1", priority: int = 6) -> None:
        """Log lines now."""
        lines = tuple(
            ev.LogLine(
                text=t, at_s=self.now, cursor=f"c{self.now:.0f}-{n}", invocation=invocation, priority=priority
            )
            for n, t in enumerate(texts)
        )
        self.add(ev.LogRead, unit=UNIT, lines=lines)


def gpus(at_s: float, load: float, number: int = 8) -> tuple[ev.GpuReading, ...]:
    """One sample of all GPUs; GPU 0 works at `load`, the others idle."""
    out = []
    for index in range(number):
        busy = load if index == 0 else 0.0
        wave = 0.5 + 0.5 * math.sin(at_s / 9 + index)
        out.append(
            ev.GpuReading(
                index=index,
                uuid=f"GPU-{index}",
                name="NVIDIA RTX PRO 6000 Blackwell",
                power_w=round(32 + 8 * wave + busy * (370 + 40 * wave), 1),
                power_limit_w=600.0,
                mem_used_mib=85_094.0 if index == 0 and load else 4.0,
                mem_total_mib=97_887.0,
                util_gpu_pct=99.0 if busy > 0.5 else round(busy * 100),
                util_mem_pct=91.0 if busy > 0.5 else 0.0,
                temp_c=64.0 if busy > 0.5 else 35.0 + index % 3,
                sm_clock_mhz=2370.0 if busy else 180.0,
                dram_active_pct=91.0 if busy > 0.5 else None,
                tensor_active_pct=4.0 if busy > 0.5 else None,
            )
        )
    return tuple(out)


def begin(script: Script, tps: tuple[int, ...] = (1,)) -> None:
    """Run, host and plan."""
    script.add(
        ev.RunStarted,
        run_id="ct200-20261118-1",
        name="ct200-qwen",
        mode="sweep",
        segment=0,
        simulated=True,
        attended=True,
        plan_path="plans/ct200-qwen3.6-27b.toml",
    )
    script.add(ev.CellsPlanned, cells=cells(tps), baseline="auto")
    script.add(ev.HostConnecting, attempt=1, target="root@ct200:22")
    script.add(
        ev.HostConnected, agent="4f2a90c1b7de", python="3.12.3", uid=0, user="root", boot="b1/1", rtt_ms=18.2
    )
    script.add(ev.ProbeTaken, probe={"uptime_s": 7980.0, "hostname": HOST})
    script.add(ev.RttMeasured, rtt_ms=18.2)


def restart(script: Script, config: str, invocation: str, *, ready: bool = True) -> str:
    """A restart with phases, gate and log; returns its attempt id."""
    attempt = f"start-{config}"
    script.add(
        ev.RestartStarted,
        attempt_id=attempt,
        config=config,
        tp=1,
        unit=UNIT,
        expected_s=252.0,
        cell_ids=tuple(cell_id(config, n) for n in range(len(COLUMNS))),
    )
    phases: tuple[tuple[ev.Phase, float], ...] = (
        ("stopping", 3),
        ("stopped", 0),
        ("launching", 9),
        ("initialising", 22),
    )
    for phase, seconds in phases:
        script.add(ev.PhaseSeen, attempt_id=attempt, phase=phase, state="running")
        script.wait(seconds)
        script.add(ev.PhaseSeen, attempt_id=attempt, phase=phase, state="done", elapsed_s=float(seconds))
    script.add(
        ev.ServiceSeen, status=ev.ServiceStatus(unit=UNIT, active="active", sub="running", main_pid=4711)
    )
    script.add(
        ev.GateSeen,
        attempt_id=attempt,
        part="generation",
        ok=True,
        elapsed_s=12.0,
        evidence=ev.Evidence(source="systemctl", text=f"InvocationID {invocation} is new, main pid 4711"),
    )
    script.log(
        f"[ddtop] configuration {config}",
        "server_args=ServerArgs(model_path='/dev/shm/Qwen3.6-27B', tp_size=1, port=30000)",
        "Init torch distributed begin.",
        invocation=invocation,
    )
    for number, pct in enumerate((0, 13, 27, 41, 64)):
        script.add(
            ev.PhaseSeen,
            attempt_id=attempt,
            phase="loading",
            state="running",
            elapsed_s=number * 10.0,
            pct=float(pct),
            eta_s=(100 - pct) * 1.6,
            quiet_s=1.0,
            limit_s=90.0,
        )
        script.log(
            f"Loading safetensors checkpoint shards: {pct:>3}% Completed | {pct // 8}/12",
            invocation=invocation,
        )
        script.wait(10, load=0.2)
    if not ready:
        return attempt
    for phase, seconds in (
        ("loading", 150),
        ("kv", 4),
        ("capturing", 31),
        ("listening", 1),
        ("warming", 6),
        ("answering", 2),
    ):
        script.add(ev.PhaseSeen, attempt_id=attempt, phase=phase, state="done", elapsed_s=float(seconds))
    script.log(
        "Capture cuda graph end. Time elapsed: 31.02 s",
        "The server is fired up and ready to roll!",
        invocation=invocation,
    )
    texts = {
        "listener": ("ss", "port 30000 is held by pid 4711 of the unit's cgroup, alone"),
        "mark": ("log", "The server is fired up and ready to roll!"),
        "arguments": ("http", "/server_info equals the cell's 14 arguments, random_seed 482 in the log too"),
        "token": ("http", "8 tokens in 0.31 s"),
    }
    for part, (source, text) in texts.items():
        script.add(
            ev.GateSeen,
            attempt_id=attempt,
            part=part,
            ok=True,
            elapsed_s=231.0,
            evidence=ev.Evidence(source=source, text=text),
        )
    script.add(
        ev.RestartReady,
        attempt_id=attempt,
        generation=ev.Generation(boot="b1/1", id=invocation, main_pid=4711),
        ready_s=231.0,
        engine="sglang",
        engine_version="0.5.10",
    )
    return attempt


def measure(script: Script, config: str, column: int) -> None:
    """One cell from start to result."""
    name = cell_id(config, column)
    script.add(ev.CellStarted, cell_id=name, attempt=1)
    script.add(ev.CellStateSet, cell_id=name, state="running", attempt=1)
    script.log(
        f"Decode batch. #running-req: 1, gen throughput (token/s): {26.1 * GAIN.get(config, 4):.2f}",
        invocation=f"inv-{config}",
    )
    script.wait(60, load=1.0)
    script.add(
        ev.CellMeasured,
        cell_id=name,
        attempt=1,
        metrics=metrics(config, column),
        engine="sglang",
        engine_version="0.5.10",
        driver="580.159.04",
        validity="SUSPECT" if (config, column) == ("linear", 2) else "VALID",
        reasons=("prefix cache hit in 3 of 8 requests",) if (config, column) == ("linear", 2) else (),
    )
    script.add(ev.CellStateSet, cell_id=name, state="done", attempt=1)


def under_way(script: Script, name: str) -> None:
    """36 s of a cell: the first request, the burst, and five of eight requests of its window."""
    ttft = ev.LatencySeen(5, 212.4, None, None, 262.0, 32, 73, (1, 0, 2, 1, 1))
    tpot = ev.LatencySeen(5, 6.84, None, None, 7.41, 64, 53, (1, 3, 1))
    for second in range(2, 38, 2):
        script.wait(2, load=1.0)
        script.add(ev.ServerFigures, unit=UNIT, running=1.0, queued=0.0, kv_pct=3.0 + second / 6)
        phase = "warming up" if second < 6 else "settling" if second < 14 else "window"
        fields: dict[str, object] = {"cell_id": name, "phase": phase, "in_flight": 1, "requests_total": 8}
        if second >= 6:
            done = 0 if second < 14 else round((second - 14) / 22 * 5)
            fields |= {
                "requests_done": done,
                "pct": round(done / 8 * 100, 1),
                "failed": 0,
                "tok_s": 138.2,
                "now_tok_s": round(138.2 + 9 * math.sin(second), 1),
                "tokens": 138 * (second - 14 if second >= 14 else second),
                "burst": (2 if second >= 14 else (second - 4) // 5, 3),
                "spec_tokens": 1024 * (done + 1),
                "spec_steps": 224 * (done + 1),
            }
        if second >= 14:
            fields |= {"settled": "settled", "left_s": 14.0 if second > 24 else 25.0}
            fields |= {"ttft": ttft, "tpot": tpot} if second in (24, 36) else {}
        script.add(ev.CellProgress, **fields)


def mark(script: Script, config: str, state: ev.CellState, reason: str) -> None:
    """Set all cells of a configuration."""
    for column in range(len(COLUMNS)):
        script.add(ev.CellStateSet, cell_id=cell_id(config, column), state=state, reason=reason, by="sweep")


def running(tps: tuple[int, ...] = (1,)) -> Script:
    """The run up to b15's third cell."""
    script = Script()
    begin(script, tps)
    for config in ("auto", "linear"):
        restart(script, config, f"inv-{config}")
        for column in range(len(COLUMNS)):
            measure(script, config, column)
    mark(script, "b8", "broken", "0 tok/s twice")
    mark(script, "b12", "broken", "0 tok/s twice")
    restart(script, "b15", "inv-b15")
    for column in (0, 1):
        measure(script, "b15", column)
    name = cell_id("b15", 2)
    script.add(ev.CellStarted, cell_id=name, attempt=1)
    script.add(ev.CellStateSet, cell_id=name, state="running", attempt=1)
    script.add(
        ev.BoundDiagnosed,
        verdict="memory-bound",
        strength="strong",
        why="DRAM 91 % · tensor 4 % (GPM)",
        meaning="a larger tree budget is nearly free",
        window_s=2.0,
    )
    under_way(script, name)
    script.log(
        "Decode batch. #running-req: 1, accept len: 4.57, gen throughput (token/s): 143.02",
        invocation="inv-b15",
    )
    return script


def failed(tps: tuple[int, ...] = (1,)) -> Script:
    """The run up to the silent failure of b16's restart."""
    script = running(tps)
    for column in (2, 3, 4):
        measure(script, "b15", column)
    attempt = restart(script, "b16", "inv-b16", ready=False)
    script.log(
        "Traceback (most recent call last):",
        '  File "/opt/sglang/python/sglang/srt/model_executor/model_runner.py", line 412, in init_torch_distributed',
        "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        invocation="inv-b16",
        priority=3,
    )
    script.log(
        "sglang-bench.service: Main process exited, code=exited, status=1/FAILURE",
        invocation="inv-b16",
        priority=4,
    )
    script.add(
        ev.ServiceSeen,
        status=ev.ServiceStatus(
            unit=UNIT, active="failed", sub="failed", result="exit-code", exit_code="exited/1"
        ),
    )
    script.add(
        ev.RestartFailed,
        attempt_id=attempt,
        verdict="failed",
        cause="nccl-system-error",
        kind="transient",
        alert_id=ALERT,
    )
    script.add(ev.AlertRaised, **alert_fields(script.now))
    return script


def alert_fields(now: float) -> dict[str, object]:
    """NOT STARTING? for b16."""
    return {
        "alert_id": ALERT,
        "title": "NOT STARTING?",
        "verdict": "failed",
        "cause": "nccl-system-error",
        "cause_text": "sglang-bench on ct200 failed while it loaded: NCCL unhandled system error",
        "kind": "transient",
        "advice": "Retry once; if it comes again look for NIC or shared-memory trouble with NCCL_DEBUG=INFO.",
        "evidence": (
            ev.Evidence(
                source="log",
                text="torch.distributed.DistBackendError: NCCL error: unhandled system error",
                at_s=now,
                cursor=f"c{now:.0f}-2",
            ),
        ),
        "actions": (
            ev.Action(key="r", label="retry b16", command="retry", args={"config": "b16"}),
            ev.Action(key="x", label="skip b16", command="skip", args={"config": "b16"}),
        ),
        "attempt_id": "start-b16",
        "unit": UNIT,
        "fault_seen_s": 0.8,
        "answer_by_s": now + 60,
        "policy": "one retry",
    }


def proposed(script: Script) -> None:
    """Steps that wait for an answer."""
    script.add(
        ev.StepsPlanned,
        plan_id="plan-1",
        why="ct200 was rebooted: its GPUs are at 0 MiB, sglang-bench is inactive, /dev/shm/Qwen3.6-27B is gone",
        answer_by_s=script.now + 60,
        steps=(
            ev.Step(
                id="s1",
                action="stage",
                title="re-stage Qwen3.6-27B (52 GB)",
                needs_consent=True,
                reason="/dev/shm is a tmpfs and the reboot emptied it; /data/models/Qwen3.6-27B is whole",
                detail="copy /data/models/Qwen3.6-27B → /dev/shm/Qwen3.6-27B",
            ),
            ev.Step(
                id="s2",
                action="override",
                title="write the run-time override of sglang-bench again",
                reason="drop-ins in /run vanish at a reboot",
                detail="/run/systemd/system/sglang-bench.service.d/50-ddtop.conf",
            ),
            ev.Step(
                id="s3",
                action="restart",
                title="restart sglang-bench for b16",
                needs_consent=True,
                reason="b16 was being started when the machine went away",
                detail="systemctl restart sglang-bench.service",
            ),
        ),
    )


def chunks(script: Script, size: int = 200) -> Iterator[list[ev.Event]]:
    """The events in batches."""
    for at in range(0, len(script.out), size):
        yield script.out[at : at + size]


def loading() -> Script:
    """b15's weights are being loaded; nothing is wrong."""
    script = Script()
    begin(script)
    for config in ("auto", "linear"):
        restart(script, config, f"inv-{config}")
        for column in range(len(COLUMNS)):
            measure(script, config, column)
    mark(script, "b8", "broken", "0 tok/s twice")
    mark(script, "b12", "broken", "0 tok/s twice")
    restart(script, "b15", "inv-b15", ready=False)
    return script


def rebooted(script: Script) -> None:
    """The machine was rebooted for maintenance: link lost, back, and steps proposed."""
    script.add(ev.HostLost, what="ct200 has not answered for 9 s", means="the link or the host is down")
    script.now += 420
    script.add(ev.HostConnecting, attempt=9, target="root@ct200:22")
    script.add(
        ev.HostConnected, agent="4f2a90c1b7de", python="3.12.3", uid=0, user="root", boot="b2/1", rtt_ms=18.4
    )
    script.add(ev.ProbeTaken, probe={"uptime_s": 96.0, "hostname": HOST})
    script.add(ev.ServiceSeen, status=ev.ServiceStatus(unit=UNIT, active="inactive", sub="dead"))
    script.add(
        ev.HostRebooted,
        boot_before="b1/1",
        boot_now="b2/1",
        consequences=("all 8 GPUs at 0 MiB", "sglang-bench inactive", "/dev/shm/Qwen3.6-27B is gone (tmpfs)"),
    )
    for _ in range(20):
        script.now += 2
        script.add(ev.GpuSampled, gpus=gpus(script.now, 0.0))
    fields = alert_fields(script.now)
    fields |= {
        "alert_id": "alert-2",
        "title": "REBOOTED",
        "verdict": "rebooted",
        "cause": "rebooted",
        "cause_text": "ct200 was rebooted: 8 GPUs at 0 MiB, sglang-bench inactive, /dev/shm/Qwen3.6-27B gone",
        "kind": "host",
        "advice": "Resume: re-stage the model, restart b16, go on. 25 finished cells are kept.",
        "evidence": (ev.Evidence(source="proc", text="boot_id b2 where it was b1"),),
        "actions": (ev.Action(key="r", label="resume at b16", command="resume"),),
        "policy": "re-stage and resume",
    }
    script.add(ev.AlertResolved, alert_id=ALERT, how="superseded by the reboot", by="sweep")
    script.add(ev.AlertRaised, **fields)
    proposed(script)


def finished() -> Script:
    """The whole sweep, with b16 retried and all that is left done."""
    script = failed()
    script.wait(20)
    script.add(
        ev.CommandSeen,
        command_id="c1",
        viewer="you@laptop",
        command="retry",
        outcome="obeyed",
        args={"config": "b16"},
    )
    script.add(ev.AlertResolved, alert_id=ALERT, how="retried", by="you@laptop")
    for config in ("b16", "b32", "b64"):
        restart(script, config, f"inv2-{config}")
        for column in range(len(COLUMNS)):
            measure(script, config, column)
    script.add(ev.RunEnded, outcome="some-failed", exit_code=10, reason="10 cells are broken")
    return script
