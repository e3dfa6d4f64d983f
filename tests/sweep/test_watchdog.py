"""READINESS's verdict table, row by row, and the healthy shapes that must raise nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddtop.events import Evidence
from ddtop.services.causes import load_causes
from ddtop.services.readings import ListenerReading, UnitReading, read_unit
from ddtop.sweep.shared.learned_limits import Limits
from ddtop.sweep.shared.verdict import CauseReading
from ddtop.sweep.start.evidence.busy_gpus import GpuLook
from ddtop.sweep.start.evidence.progress import (
    FILES_COUNTED,
    ActivityReading,
    advance,
    begin,
    evidence,
    log_line,
)
from ddtop.sweep.start.gate import ArgsReading, TokenReading
from ddtop.sweep.start.readings import CallReading, PortOwner, StartReadings
from ddtop.sweep.start.silence import quiet_limit_s
from ddtop.sweep.start.watchdog import judge

OLD, NEW = "a" * 32, "b" * 32
OLD_UNIT = UnitReading(unit="s.service", at=0.0, active="active", sub="running", main_pid=8, generation=OLD)
UNIT = UnitReading(
    unit="s.service", at=5.0, load="loaded", active="active", sub="running", main_pid=9, generation=NEW
)
FAILED = replace(UNIT, active="failed", sub="failed", result="signal", exit_code="killed/9", main_pid=None)
BASE = StartReadings(
    unit_name="s.service",
    port=30000,
    call=CallReading(asked_at=0.0, returned_at=0.1, rc=0),
    before=OLD_UNIT,
    unit=UNIT,
    progress=begin(0.0),
    phase="loading",
    phase_since=1.0,
    seen_new=True,
)
OOM = CauseReading(
    slug="oom-loading-weights",
    kind="config",
    text="GPU memory ran out while weights were loaded.",
    signature_id="oom-torch",
    evidence=(Evidence(source="log", text="torch.OutOfMemoryError"),),
)
FOREIGN = ListenerReading(addr="0.0.0.0", port=30000, pid=77, comm="nc", owned=False)
PORT = CauseReading(
    slug="port-in-use",
    kind="host",
    text="Another process already listens on the port.",
    signature_id="port",
    evidence=(Evidence(source="log", text="[Errno 98] address already in use"),),
)
SCRIPT = CallReading(asked_at=0.0, returned_at=2.0, rc=0, by_script=True, what="reconfig_ddtree.sh")
STILL_OLD = replace(BASE, unit=replace(OLD_UNIT, at=6.0), seen_new=False)
STOPPED = replace(UNIT, active="inactive", sub="dead", main_pid=None, result="success", exit_code="exited/0")
GONE = replace(BASE, unit=replace(OLD_UNIT, active="inactive", sub="dead", main_pid=None), seen_new=False)

ALARMS = [
    (
        "crash with a known cause",
        replace(BASE, unit=FAILED, cause=OOM),
        10.0,
        "failed",
        "oom-loading-weights",
    ),
    (
        "its owner stops it",
        replace(BASE, unit=STOPPED, last_lines=("Stopping sge.service - SGLang...", "Stopped sge.service.")),
        10.0,
        "failed",
        "stopped-by-request",
    ),
    (
        "its ExecStartPre fails, and the log says only that it failed",
        replace(
            BASE,
            unit=replace(FAILED, result="exit-code", exit_code=None),
            cause=replace(OOM, slug="unit-failed"),
            last_lines=(
                "mount /models is not there",
                "s.service: Control process exited, code=exited, status=3/NOTIMPLEMENTED",
                "s.service: Failed with result 'exit-code'.",
            ),
        ),
        10.0,
        "failed",
        "start-pre-failed",
    ),
    ("it ends by itself, with 0", replace(BASE, unit=STOPPED), 10.0, "failed", "main-process-exited"),
    (
        "its program is missing",
        replace(
            BASE,
            unit=replace(UNIT, generation=None, active="failed", sub="dead", main_pid=None),
            call=CallReading(
                asked_at=0.0,
                returned_at=0.1,
                rc=1,
                error="/opt/nope/python: No such file or directory",
                refused="exec-not-found",
            ),
        ),
        1.0,
        "refused",
        "exec-not-found",
    ),
    ("crash without one", replace(BASE, unit=FAILED), 10.0, "failed", "main-process-killed"),
    (
        "its container still answers",
        replace(BASE, unit=FAILED, listeners=(FOREIGN,)),
        10.0,
        "failed",
        "main-process-killed",
    ),
    (
        "illegal instruction",
        replace(BASE, unit=replace(FAILED, exit_code="dumped/4", result="core-dump")),
        10.0,
        "failed",
        "illegal-instruction",
    ),
    (
        "a log file that cannot be opened",
        replace(BASE, unit=replace(FAILED, exit_code="exited/209", result="exit-code")),
        10.0,
        "refused",
        "sandbox-setup-failed",
    ),
    (
        "no ready message",
        replace(BASE, unit=replace(FAILED, exit_code="exited/0", result="protocol")),
        10.0,
        "failed",
        "notify-protocol",
    ),
    (
        "a unit that it requires failed",
        replace(GONE, unit=replace(GONE.unit, failed_needs="model-mount.service")),
        10.0,
        "never-began",
        "dependency-failed",
    ),
    ("oom kill", replace(BASE, unit=replace(FAILED, result="oom-kill")), 10.0, "failed", "oom-killed"),
    ("start timeout", replace(BASE, unit=replace(FAILED, result="timeout")), 10.0, "failed", "start-timeout"),
    ("203", replace(BASE, unit=replace(FAILED, exit_code="exited/203")), 10.0, "refused", "exec-not-found"),
    (
        "200",
        replace(BASE, unit=replace(FAILED, exit_code="exited/200")),
        10.0,
        "refused",
        "working-directory-missing",
    ),
    ("217", replace(BASE, unit=replace(FAILED, exit_code="exited/217")), 10.0, "refused", "user-missing"),
    (
        "masked",
        replace(
            GONE,
            unit=replace(GONE.unit, load="masked"),
            call=replace(BASE.call, rc=1, error="Unit is masked."),
        ),
        1.0,
        "refused",
        "unit-masked",
    ),
    (
        "condition",
        replace(GONE, unit=replace(GONE.unit, condition_ok=False, condition_stamp=7)),
        1.0,
        "refused",
        "condition-not-met",
    ),
    (
        "denied",
        replace(GONE, call=replace(BASE.call, rc=1, error="Interactive authentication required.")),
        1.0,
        "refused",
        "not-permitted",
    ),
    (
        "call failed",
        replace(STILL_OLD, call=replace(SCRIPT, rc=3, error="sed: no such file")),
        2.1,
        "never-began",
        "reconfigure-failed",
    ),
    (
        "script in no time",
        replace(STILL_OLD, call=replace(SCRIPT, rc=None, timed_out=True)),
        2.1,
        "never-began",
        "reconfigure-timeout",
    ),
    ("script did nothing", replace(STILL_OLD, call=SCRIPT), 7.1, "never-began", "restart-not-done"),
    ("gone, no new one", replace(GONE, old_gone_at=3.0), 8.1, "never-began", "never-began"),
    (
        "auto-restart",
        replace(BASE, unit=replace(UNIT, active="activating", sub="auto-restart", main_pid=None)),
        9.0,
        "crash-loop",
        "exited-waiting-for-restart",
    ),
    (
        "counter rises",
        replace(BASE, unit=replace(UNIT, n_restarts=1), cause=OOM),
        9.0,
        "crash-loop",
        "oom-loading-weights",
    ),
    ("start limit", replace(BASE, unit=FAILED, start_limit_hit=True), 9.0, "crash-loop", "start-limit-hit"),
    ("foreign on the port", replace(BASE, listeners=(FOREIGN,)), 9.0, "foreign", "port-in-use"),
    (
        "died of the port that a foreign process has",
        replace(BASE, unit=FAILED, cause=PORT, listeners=(FOREIGN,)),
        9.0,
        "foreign",
        "port-in-use",
    ),
    (
        "exited for a port on which no listener is seen",
        replace(BASE, unit=FAILED, cause=PORT),
        9.0,
        "failed",
        "port-in-use",
    ),
    (
        "dies of a foreign process' port again and again",
        replace(BASE, unit=replace(UNIT, n_restarts=1), cause=PORT, listeners=(FOREIGN,)),
        9.0,
        "crash-loop",
        "port-in-use",
    ),
    (
        "died of something else beside a foreign process",
        replace(BASE, unit=FAILED, cause=OOM, listeners=(FOREIGN,)),
        9.0,
        "failed",
        "oom-loading-weights",
    ),
    (
        "old beside new",
        replace(BASE, port_owner=PortOwner(at=8.0, owner="old", who="pid 8")),
        9.0,
        "old-server",
        "old-process-answered",
    ),
    (
        "drop-in not loaded",
        replace(BASE, unit=replace(UNIT, need_reload=True)),
        9.0,
        "wrong-arguments",
        "old-arguments-loaded",
    ),
    (
        "wrong argument",
        replace(BASE, args=ArgsReading(at=8.0, source="server_info", wrong=("tp is 1",))),
        9.0,
        "wrong-arguments",
        "wrong-arguments",
    ),
    (
        "0 tokens",
        replace(BASE, token=TokenReading(at=8.0, tokens=0, status=200)),
        9.0,
        "no-tokens",
        "zero-tokens",
    ),
    ("asleep", BASE, 600.1, "stalled", "hang-asleep"),
    (
        "NCCL",
        replace(
            BASE,
            phase="initialising",
            last_is_nccl=True,
            gpu=GpuLook(at=61.0, util_pct=100.0, power_share=0.23, busy_low_since=1.0),
        ),
        61.1,
        "hung-gpu",
        "nccl-init-hang",
    ),
]


@pytest.mark.parametrize(
    ("r", "now", "verdict", "cause"), [c[1:] for c in ALARMS], ids=[c[0] for c in ALARMS]
)
def test_every_verdict(r: StartReadings, now: float, verdict: str, cause: str) -> None:
    got = judge(r, now)
    assert (got.verdict, got.cause) == (verdict, cause)
    assert got.alarm and got.text and got.evidence


def test_a_port_that_is_taken_names_who_has_it_however_it_was_noticed() -> None:
    before, after = (
        judge(replace(BASE, unit=u, cause=PORT, listeners=(FOREIGN,)), 9.0) for u in (UNIT, FAILED)
    )
    assert before.text == after.text and "nc" in after.text and after.advice == before.advice
    assert {e.source for e in after.evidence} == {"ss", "log", "systemctl"}


CALM = [
    ("just asked", replace(BASE, unit=OLD_UNIT, seen_new=False, call=CallReading(asked_at=0.0)), 1.0),
    ("script has not been back for 5 s", replace(STILL_OLD, call=SCRIPT), 6.9),
    ("a job is queued", replace(GONE, unit=replace(GONE.unit, job=True)), 50.0),
    (
        "old one drains and answers",
        replace(
            STILL_OLD,
            unit=replace(OLD_UNIT, active="deactivating"),
            port_owner=PortOwner(at=3.0, owner="old"),
        ),
        25.0,
    ),
    ("passing through failed", replace(BASE, unit=FAILED, gone_since=9.9), 10.0),
    ("loading quietly", BASE, 599.0),
    (
        "listener of the old one while it stops",
        replace(STILL_OLD, unit=replace(OLD_UNIT, active="deactivating"), listeners=(FOREIGN,)),
        3.0,
    ),
    (
        "condition failed long ago",
        replace(
            BASE,
            unit=replace(UNIT, condition_ok=False, condition_stamp=7),
            before=replace(OLD_UNIT, condition_stamp=7),
        ),
        9.0,
    ),
    (
        "GPUs busy without NCCL",
        replace(BASE, gpu=GpuLook(at=61.0, util_pct=100.0, power_share=0.2, busy_low_since=1.0)),
        70.0,
    ),
]


@pytest.mark.parametrize(("r", "now"), [c[1:] for c in CALM], ids=[c[0] for c in CALM])
def test_no_alarm(r: StartReadings, now: float) -> None:
    assert not judge(r, now).alarm


def test_learned_limit_and_wait() -> None:
    learned = replace(BASE, limits=Limits(learned={"loading": 2.0}, moved=True))
    assert judge(learned, 29.9).verdict is None
    assert judge(learned, 30.1).verdict == "stalled"
    assert judge(replace(learned, limits=Limits(learned={"loading": 20.0}, moved=True)), 59.0).verdict is None
    assert judge(replace(learned, waited_until=30.0), 59.0).verdict is None


def test_slow_is_calm() -> None:
    slow = replace(BASE, expected_s=10.0, progress=evidence(begin(0.0), 99.0, "GPU memory at 5 MiB"))
    got = judge(slow, 100.0)
    assert got.verdict == "slow" and not got.alarm and "GPU memory" in got.text


def _run(samples: list[ActivityReading]) -> StartReadings:
    progress = begin(0.0)
    for sample in samples:
        progress = advance(progress, sample)
    return replace(BASE, progress=progress, limits=Limits(learned={"loading": 1.0}))


def _samples(seconds: int, **kinds: object) -> list[ActivityReading]:
    out = []
    for t in range(seconds):
        values = {k: (v(t) if callable(v) else v) for k, v in kinds.items()}
        out.append(ActivityReading(at=float(t), mono_s=1000.0 + t, pids=2, **values))  # type: ignore[arg-type]
    return out


FLAT = {"gpu_mem_mib": 500.0, "read_b": 1000, "rss_mib": 900.0}
SHAPES = [
    ("memory moves", {**FLAT, "gpu_mem_mib": lambda t: 500.0 + t}, False),
    ("bytes move, memory flat", {**FLAT, "read_b": lambda t: t << 20}, False),
    ("compilers at work", {**FLAT, "compilers": ("ptxas",), "cpu_s": lambda t: t * 0.9}, False),
    ("new cache files", {**FLAT, "cache_files": lambda t: t}, False),
    ("asleep", {**FLAT, "cpu_s": 3.0}, True),
    ("spins: CPU time alone is none", {**FLAT, "cpu_s": lambda t: float(t)}, True),
    ("reads a little for ever", {**FLAT, "read_b": lambda t: t * 900}, True),
    ("compilers asleep", {**FLAT, "compilers": ("nvcc",), "cpu_s": 3.0}, True),
]


@pytest.mark.parametrize(("kinds", "dead"), [s[1:] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_a_slow_start_and_a_hung_one_that_looks_like_it(kinds: dict, dead: bool) -> None:
    r = _run(_samples(200, **kinds))
    assert (judge(r, 200.0).verdict == "stalled") is dead
    if dead:
        assert judge(r, 200.0).cause == (
            "hang-spinning" if "spin" in str(kinds) or callable(kinds.get("cpu_s")) else "hang-asleep"
        )


def test_cpu_counts_for_120_s_after_memory_moved() -> None:
    """Memory moved until t=10; then it only spins: the verdict comes at 130 s, not at 30 s and not never."""

    def upto(seconds: int) -> StartReadings:
        return _run(
            _samples(seconds, read_b=1, gpu_mem_mib=lambda t: 100.0 * min(t, 10), cpu_s=lambda t: float(t))
        )

    assert judge(upto(60), 60.0).verdict is None
    assert quiet_limit_s(upto(60), 60.0) == 120.0
    assert judge(upto(200), 200.0).cause == "hang-spinning"


def test_a_repeated_line_is_no_progress() -> None:
    p = log_line(begin(0.0), "No available shared memory broadcast block found in 60 seconds", 60.0)
    again = log_line(p, "No available shared memory broadcast block found in 120 seconds", 120.0)
    assert p.last_at == 60.0 and again.last_at == 60.0


def test_a_child_that_comes_and_goes_is_no_progress() -> None:
    p = begin(0.0)
    for t in range(1, 60):
        p = advance(p, ActivityReading(at=float(t), pids=2 + t % 2, read_b=5))
    assert p.last_at == 1.0 and p.moved_at is None


def test_read_unit_takes_systemd_words() -> None:
    unit = read_unit(
        "x.service",
        {
            "ActiveState": "failed",
            "SubState": "failed",
            "Result": "exit-code",
            "ExecMainCode": "1",
            "ExecMainStatus": "203",
            "MainPID": "0",
            "InvocationID": NEW,
            "NeedDaemonReload": "no",
            "Job": "",
            "ConditionResult": "yes",
            "TimeoutStopUSec": "1min 30s",
            "NRestarts": "0",
        },
        3.0,
    )
    assert (
        unit.exit_code == "exited/203" and unit.main_pid is None and unit.gone and unit.stop_limit_s == 90.0
    )
    assert unit.need_reload is False and not unit.job and unit.n_restarts == 0
    assert read_unit("x", {}, 0.0).active is None
    assert read_unit("x", {"TimeoutStopUSec": "infinity"}, 0.0).stop_limit_s is None


def test_every_cause_is_in_the_one_table() -> None:
    """And what the table says of retries is what the verdicts say of kinds."""
    table = load_causes().by_slug
    for name, r, now, verdict, cause in ALARMS:
        assert cause in table, name
        kind = judge(r, now).kind
        if verdict not in ("failed", "crash-loop") and kind != "unknown":
            assert (table[cause].kind == "config") == (kind == "config"), (
                f"{name}: {table[cause].kind} and {kind}"
            )
    for cause in (
        "lost-host",
        "rebooted",
        "interrupted",
        "staging-failed",
        "measuring-failed",
        "slow",
        "engine-hung-zero-throughput",
    ):
        assert cause in table


def test_a_silent_drain_may_take_three_quarters_of_what_the_unit_allows() -> None:
    draining = replace(
        STILL_OLD,
        unit=replace(OLD_UNIT, active="deactivating", stop_limit_s=60.0),
        phase="stopping",
        limits=Limits(learned={"stopping": 0.1}),
    )
    assert judge(draining, 44.0).verdict is None
    assert judge(draining, 45.1).verdict == "stalled"
    assert (
        judge(replace(draining, progress=evidence(begin(0.0), 40.0, "log: 3 requests left")), 60.0).verdict
        is None
    )


def test_memory_moved_after_the_reading_before_not_when_it_was_seen() -> None:
    """GPU memory is read every 2 s: a hang just after a reading must not be given those 2 s on top of its limit."""
    p = begin(0.0)
    for at, mib in ((1.0, 100.0), (3.0, 600.0), (5.0, 600.0)):
        p = advance(p, ActivityReading(at=at, gpu_mem_mib=mib))
    assert (p.last_at, p.moved_at, p.what) == (1.0, 1.0, "GPU memory at 600 MiB")
    p = advance(p, ActivityReading(at=6.0, read_b=0))
    p = advance(p, ActivityReading(at=7.0, read_b=5 << 20))
    p = advance(p, ActivityReading(at=7.5, gpu_mem_mib=700.0))
    assert p.last_at == 7.0 and p.moved_at == 7.0, "older evidence takes nothing back"


PRE = (
    "Starting s.service - S...",
    "mount /models is not there",
    "s.service: Control process exited, code=exited, status=3/NOTIMPLEMENTED",
    "s.service: Failed with result 'exit-code'.",
)
POST = (
    "Starting s.service - S...",
    "s.service: start-post operation timed out. Terminating.",
    "s.service: Failed with result 'timeout'.",
)


@pytest.mark.parametrize(
    ("unit", "lines", "cause", "kind", "says"),
    [
        (
            replace(FAILED, result="exit-code", exit_code="killed/15"),  # of the start before
            PRE,
            "start-pre-failed",
            "config",
            "exit code 3: mount /models is not there",
        ),
        (
            replace(FAILED, result="timeout", exit_code="killed/15"),
            POST,
            "start-timeout",
            "config",
            "ExecStartPost=",
        ),
        (replace(FAILED, exit_code="killed/7"), (), "bus-error", "host", "SIGBUS"),
        (replace(FAILED, exit_code="killed/9"), (), "main-process-killed", "unknown", "SIGKILL"),
        (
            replace(FAILED, result="exit-code", exit_code="exited/1"),
            (),
            "main-process-exited",
            "unknown",
            "code 1",
        ),
        (replace(FAILED, result="exit-code", exit_code="exited/127"), (), "program-missing", "config", "127"),
    ],
)
def test_a_failed_start_is_told_in_its_own_words(
    unit: UnitReading, lines: tuple[str, ...], cause: str, kind: str, says: str
) -> None:
    found = judge(replace(BASE, unit=unit, last_lines=lines), 10.0)
    assert (found.verdict, found.cause, found.kind) == ("failed", cause, kind)
    assert says in found.text and found.evidence


def test_a_fatal_cause_in_the_log_is_told_before_the_process_ends() -> None:
    """SGLang's server lives on for 6 to 121 s after its scheduler has died; its log has said why."""
    doomed = replace(
        BASE,
        cause=replace(OOM, final=True),
        cause_at=10.0,
        progress=evidence(begin(0.0), 11.0, "log: Traceback"),
    )
    assert not judge(replace(doomed, cause=OOM), 60.0).alarm  # caught, or its part starts anew
    assert not judge(doomed, 15.9).alarm
    found = judge(doomed, 16.1)
    assert (found.verdict, found.cause, found.kind) == ("failed", "oom-loading-weights", "config")
    assert "still runs" in found.evidence[-1].text
    moving = replace(doomed, progress=evidence(doomed.progress, 15.0, "GPU memory at 900 MiB"))
    assert not judge(moving, 19.9).alarm, "what still moves was no fatal cause"
    assert not judge(replace(doomed, phase="answering"), 30.0).alarm, "it became ready all the same"
    assert not judge(replace(doomed, cause=replace(OOM, fatal=False)), 30.0).alarm
    assert not judge(replace(doomed, waited_until=14.0), 18.9).alarm
    assert not judge(replace(doomed, cause=replace(OOM, signature_id=None)), 30.0).alarm, "in no table"
    assert not judge(replace(doomed, cause=replace(OOM, kind="transient")), 30.0).alarm, (
        "tried again by the engine"
    )


def test_what_was_read_and_compiled_is_counted() -> None:
    p = begin(0.0)
    assert (p.read_b, p.new_files) == (None, None)
    for t, (read_b, files) in enumerate(
        [(None, 70), (4096, 70), (5 << 20, 75), (6 << 20, 73), (6 << 20, 74)]
    ):
        p = advance(p, ActivityReading(at=float(t), read_b=read_b, cache_files=files))
    assert (p.read_b, p.new_files) == (6 << 20, 6)
    assert advance(p, ActivityReading(at=9.0, cache_files=FILES_COUNTED)).new_files is None
    assert advance(p, ActivityReading(at=9.0)).read_b == 6 << 20
