"""A server that hangs or dies under a cell: what is said, when, and what becomes of the cell."""

from __future__ import annotations

import pytest

from ddtop import events as ev
from ddtop.events import Evidence
from ddtop.journal.fold.state import State
from ddtop.services.base import Launch
from ddtop.services.readings import UnitReading
from ddtop.sweep.cell.ending import failure_judgement, hang_judgement
from ddtop.sweep.cell.life.ended import EndedProcess
from ddtop.sweep.cell.life.server_watch import ServerLog
from ddtop.sweep.cell.life.silence import Life, Silence
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.verdict import CauseReading
from tests.sweep.test_controller import Rig


def raised(rig: Rig) -> list[ev.AlertRaised]:
    return [e for e in rig.events if isinstance(e, ev.AlertRaised)]


def test_a_server_that_stands_still_is_told_and_its_cell_measured_again() -> None:
    rig = Rig()
    rig.world.faults, rig.world.limits = {"--context-length 8192": "freeze-mid"}, {"--context-length 8192": 1}
    assert rig.run().word == "done"
    (alert,) = [a for a in raised(rig) if a.cell_ids == ("b1",)]
    assert (alert.title, alert.verdict, alert.cause) == (
        "SERVER HUNG",
        "stalled",
        "engine-hung-zero-throughput",
    )
    begun = next(e for e in rig.events if isinstance(e, ev.CellStarted) and e.cell_id == "b1")
    assert alert.mono_s - begun.mono_s < 65, (
        "no sign of life can be read on this host: later than where one can"
    )
    assert rig.world.served.count("b0") == 1 and rig.world.served.count("b1") == 1
    assert "no byte" in alert.cause_text


def test_an_engine_killed_under_its_server_is_the_servers_death_and_no_result() -> None:
    rig = Rig()
    rig.world.faults = {"--context-length 8192": "core-mid"}
    assert rig.run().word == "done"
    (alert,) = [a for a in raised(rig) if a.cell_ids == ("b1",)]
    assert (alert.title, alert.verdict) == ("SERVER DIED", "failed")
    assert "sglang::schedul" in alert.cause_text and "SIGKILL" in alert.cause_text
    assert rig.world.served.count("b0") == 1 and rig.world.served.count("b1") == 2
    assert [a.validity for a in rig.state.cells["b1"].attempts if a.metrics].count("INVALID") == 0


READING = UnitReading(unit="s.service", at=1.0, active="active", sub="running", result="success")
LOGGED = CauseReading(slug="engine-core-died", kind="bug", text="The engine process died.")


@pytest.mark.parametrize(
    ("u", "logged", "ended", "said"),
    [
        (READING, LOGGED, (EndedProcess("VLLM::EngineCor", 812, 9),), "(SIGKILL)"),
        (READING, LOGGED, (EndedProcess("VLLM::EngineCor", 812, 11 | 0x80),), "(SIGSEGV)"),
        (READING, LOGGED, (EndedProcess("VLLM::Worker_TP", 812, 1 << 8),), "code 1"),
        (READING, LOGGED, (EndedProcess("VLLM::EngineCor", 812),), "is not known"),
        (READING, LOGGED, (EndedProcess("VLLM::EngineCor", 812, spoke=False),), "ended by a signal"),
        (READING, LOGGED, (), "The engine process died."),
    ],
)
def test_the_alert_names_the_death(
    u: UnitReading, logged: CauseReading, ended: tuple[EndedProcess, ...], said: str
) -> None:
    j = failure_judgement("s.service", u, logged, ended)
    assert said in j.text and j.cause == "engine-core-died"
    assert (said in j.evidence[0].text) is bool(ended)


@pytest.mark.parametrize(
    ("exit_code", "result", "said"),
    [
        ("killed/9", "signal", "(SIGKILL)"),
        ("dumped/11", "core-dump", "(SIGSEGV)"),
        ("killed/4", "signal", "(SIGILL)"),
        ("exited/1", "exit-code", "code 1"),
        ("killed/9", "oom-kill", "memory"),
    ],
)
def test_a_main_process_that_died(exit_code: str, result: str, said: str) -> None:
    u = UnitReading(unit="s", at=1.0, kind="process", active="failed", result=result, exit_code=exit_code)
    j = failure_judgement("s", u, None)
    assert said in j.text and j.evidence[-1].source == "supervisor"


@pytest.mark.parametrize(
    ("logged", "stop_line", "cause"),
    [
        (LOGGED, "Stopping s.service - A server...", "stopped-by-request"),  # its last words while it stops
        (LOGGED, "", "engine-core-died"),
        (CauseReading(slug="main-process-exited", kind="bug", text="It ended."), "", "main-process-killed"),
    ],
)
def test_a_stop_that_was_asked_for_is_no_death_and_an_exit_code_says_more_than_that_it_ended(
    logged: CauseReading, stop_line: str, cause: str
) -> None:
    u = UnitReading(unit="s", at=1.0, active="failed", result="exit-code", exit_code="exited/137")
    j = failure_judgement("s.service", u, logged, (), stop_line)
    assert j.cause == cause and (stop_line in j.evidence[0].text)
    stopping = UnitReading(unit="s", at=1.0, active="deactivating", sub="stop-sigterm", result="success")
    if stop_line:
        assert failure_judgement("s.service", stopping, logged, (), stop_line).cause == "stopped-by-request"
    running = UnitReading(unit="s", at=1.0, active="active", sub="running", result="success", generation="b")
    j = failure_judgement("s.service", running, None, (), stop_line)
    assert (j.cause, j.kind, "restarted by another" in j.text) == ("stopped-by-request", "transient", True)


def test_what_a_hang_says() -> None:
    life = Life(cpu_still_s=21.0, gpu="idle", gpu_wanted=True, counters="mute")
    j = hang_judgement(
        "s", "job", Silence(quiet_s=23.0, expected_s=4.0, known=True, prompt_tokens=9.0, life=life), 4
    )
    assert (
        j.text
        == "s has given no byte for 23 s while it had 4 requests to answer; it was seen to need 4 s at most"
    )
    assert j.evidence[1] == Evidence(
        source="probe",
        text="the CPU time of its processes has stood still for 21 s; the GPUs are idle; /metrics does not respond",
    )


@pytest.mark.parametrize(
    ("lines", "spoke"),
    [
        # vLLM 0.32 after kill -9 of its core: only the process that answers for it complains
        (
            [
                "(APIServer pid=1799) ERROR 11-30 22:35:28 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: E"
            ],
            False,
        ),
        (
            [
                "(EngineCore_DP0 pid=812) ERROR 11-30 22:35:28 [core.py:9] EngineCore encountered a fatal error."
            ],
            True,
        ),
        (["(EngineCore pid=812) Traceback (most recent call last):", "(APIServer pid=1) INFO x"], True),
        (["(EngineCore pid=812) INFO 11-30 22:35:15 [core.py:1] fine", "(APIServer pid=1) INFO x"], False),
        (
            ["[2026-11-30 10:00:33] Scheduler hit an exception: Traceback"],
            True,
        ),  # no process is named: not known
        ([], True),
    ],
)
def test_whether_a_process_said_why_it_ended(lines: list[str], spoke: bool) -> None:
    ctx = SweepContext(run_id="r", host_name="h", sink=lambda _: None, state=State(), sweep=None)
    launch = Launch(key="k", config="c", tp=1, kind="process", unit="u", engine="vllm", port=1)
    log = ServerLog(ctx, launch, "g")
    for line in lines:
        log.take(ev.LogLine(text=line, invocation="g"))
    assert log.spoke(812) is spoke


TRACEBACK = [
    "(APIServer pid=1) ERROR 11-30 22:35:28 [serving_chat.py:9] Error in preprocessing prompt inputs",
    "Traceback (most recent call last):",
    '  File "x.py", line 3, in f',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB",
]
STATS = (
    "(APIServer pid=1) INFO 11-30 22:35:38 [loggers.py:127] Engine 000: Avg prompt throughput: 910.2 tokens/s,"
    " Avg generation throughput: 402.1 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.1%,"
    " Prefix cache hit rate: 0.0%"
)
DEAD = ["(EngineCore_DP0 pid=812) ERROR 11-30 22:35:48 [core.py:9] EngineCore encountered a fatal error."]


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        ([STATS], False),
        ([STATS, *TRACEBACK], True),
        ([STATS, *TRACEBACK, STATS], False),  # it answered others since: a long prefill is not its death
        ([STATS, *TRACEBACK, STATS, *DEAD], True),
    ],
)
def test_an_error_that_a_server_outlived_is_not_its_end(lines: list[str], ends: bool) -> None:
    ctx = SweepContext(run_id="r", host_name="h", sink=lambda _: None, state=State(), sweep=None)
    launch = Launch(key="k", config="c", tp=1, kind="process", unit="u", engine="vllm", port=1)
    log = ServerLog(ctx, launch, "g")
    for line in lines:
        log.take(ev.LogLine(text=line, invocation="g"))
    assert log.names_its_end() is ends
