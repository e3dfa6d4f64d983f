"""Units beyond the shipped cases: other orders, other files, timelines of other shapes."""

from __future__ import annotations

import pytest

from ddtop.services.causes import load_causes
from ddtop.services.unit.diagnosis import diagnose_unit

BASE = {
    "MainPID": "0",
    "ControlPID": "0",
    "Result": "success",
    "NRestarts": "0",
    "ExecMainPID": "92",
    "ExecMainCode": "1",
    "ExecMainStatus": "0",
    "Id": "llm-server.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Job": "",
    "NeedDaemonReload": "no",
    "ConditionResult": "yes",
    "InvocationID": "d803c38ee8d84a31bb3423bc3918399c",
}


def show(**changes: str) -> bytes:
    return "\n".join(f"{k}={v}" for k, v in {**BASE, **changes}.items()).encode()


SHOWS = [
    (show(MainPID="12"), "ok", "active"),
    (show(MainPID="12", NeedDaemonReload="yes"), "wrong-config", "old-arguments-loaded"),
    (
        show(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="1"),
        "failed",
        "main-process-exited",
    ),
    (
        show(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="200"),
        "failed",
        "working-directory-missing",
    ),
    (
        show(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="217"),
        "failed",
        "user-missing",
    ),
    (
        show(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="226"),
        "failed",
        "sandbox-setup-failed",
    ),
    (
        show(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="137"),
        "failed",
        "main-process-killed",
    ),
    (
        show(ActiveState="failed", SubState="failed", Result="signal", ExecMainCode="2", ExecMainStatus="11"),
        "failed",
        "segmentation-fault",
    ),
    (
        show(
            ActiveState="failed", SubState="failed", Result="core-dump", ExecMainCode="3", ExecMainStatus="6"
        ),
        "failed",
        "core-dumped",
    ),
    (
        show(
            ActiveState="failed", SubState="failed", Result="oom-kill", ExecMainCode="2", ExecMainStatus="9"
        ),
        "failed",
        "oom-killed",
    ),
    (
        show(
            ActiveState="failed", SubState="failed", Result="watchdog", ExecMainCode="2", ExecMainStatus="6"
        ),
        "failed",
        "watchdog-killed",
    ),
    (show(ActiveState="failed", SubState="failed", Result="start-limit-hit"), "failed", "start-limit-hit"),
    (
        show(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainPID="0", ExecMainCode="0"),
        "failed",
        "start-pre-failed",
    ),
    (
        show(
            ActiveState="failed", SubState="failed", Result="timeout", ExecMainCode="2", ExecMainStatus="15"
        ),
        "failed",
        "start-timeout",
    ),
    (
        show(ActiveState="failed", SubState="failed", Result="timeout", ExecMainCode="2", ExecMainStatus="9"),
        "stopped",
        "stop-timeout-killed",
    ),
    (show(ActiveState="activating", SubState="auto-restart", NRestarts="7"), "crash-looping", "flapping"),
    (show(ActiveState="active", MainPID="5", NRestarts="9"), "crash-looping", "flapping"),
    (show(ActiveState="activating", SubState="start", MainPID="5", Job="4"), "starting", "start-job-running"),
    (show(ActiveState="deactivating", SubState="stop-sigterm", MainPID="5"), "stopping", "stopping"),
    (show(ActiveState="inactive", SubState="dead", ExecMainCode="1"), "stopped", "stopped-cleanly"),
    (
        show(ActiveState="inactive", SubState="dead", InvocationID="", ExecMainPID="0"),
        "not-started",
        "never-started",
    ),
    (
        show(ActiveState="inactive", SubState="dead", LoadState="not-found", InvocationID=""),
        "not-started",
        "unit-not-found",
    ),
    (
        show(ActiveState="inactive", SubState="dead", LoadState="masked", InvocationID=""),
        "not-started",
        "unit-masked",
    ),
    (
        show(ActiveState="inactive", SubState="dead", LoadState="bad-setting", InvocationID=""),
        "not-started",
        "bad-unit-file",
    ),
]


@pytest.mark.parametrize(
    ("data", "verdict", "cause"), SHOWS, ids=[f"{c}-{i}" for i, (_, _, c) in enumerate(SHOWS)]
)
def test_one_reading(data: bytes, verdict: str, cause: str) -> None:
    for form in (
        data,
        b"\n".join(reversed(data.split(b"\n"))),
        b"Last login: today\r\n" + data.replace(b"\n", b"\r\n"),
    ):
        got = diagnose_unit({"input.show": form})
        assert (got["verdict"], got["cause"]) == (verdict, cause)
        assert got["advice"] and got["evidence"]


def test_names_of_files_do_not_decide() -> None:
    files = {
        "a.txt": show(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="1"),
        "b.txt": b"u.service: Start request repeated too quickly.\n",
    }
    assert diagnose_unit(files)["cause"] == "start-limit-hit"
    assert diagnose_unit(files["a.txt"])["cause"] == "main-process-exited"


JOURNALS = [
    (
        "llm.service: Failed at step EXEC spawning /opt/nope/python: No such file or directory\nllm.service: Main process exited, code=exited, status=203/EXEC\n",
        "exec-not-found",
    ),
    (
        "Nov 30 06:39:03 h systemd[1]: llm.service: Main process exited, code=exited, status=200/CHDIR\n",
        "working-directory-missing",
    ),
    (
        "Starting llm.service - L...\nllm.service: start operation timed out. Terminating.\nllm.service: Failed with result 'timeout'.\n",
        "start-timeout",
    ),
    (
        "llm.service: A process of this unit has been killed by the OOM killer.\nllm.service: Failed with result 'oom-kill'.\n",
        "oom-killed",
    ),
    (
        "".join(f"llm.service: Scheduled restart job, restart counter is at {n}.\n" for n in (1, 2, 3)),
        "flapping",
    ),
    ("Dependency failed for llm.service - LLM.\n", "dependency-failed"),
    ("Condition check resulted in LLM inference server being skipped.\n", "condition-not-met"),
    ("Started llm.service - L.\n", "active"),
    ("Started llm.service - L.\nllm.service: Deactivated successfully.\n", "stopped-cleanly"),
    (
        "llm.service: Control process exited, code=exited, status=1/FAILURE\nllm.service: Failed with result 'exit-code'.\n",
        "start-pre-failed",
    ),
]


@pytest.mark.parametrize(("text", "cause"), JOURNALS, ids=[c for _, c in JOURNALS])
def test_the_journal_alone(text: str, cause: str) -> None:
    got = diagnose_unit({"input.journal": text.encode()})
    assert got["cause"] == cause and got["evidence"]


def test_a_condition_that_guards_something_else_has_another_remedy() -> None:
    line = "u.service - X was skipped because of an unmet condition check (ConditionPathExists=!/run/maintenance).\n"
    got = diagnose_unit(
        {
            "input.show": show(
                ActiveState="inactive", SubState="dead", ConditionResult="no", InvocationID=""
            ),
            "input.journal": line.encode(),
        }
    )
    assert (got["cause"], got["path"], got["remedy"]) == (
        "condition-not-met",
        "/run/maintenance",
        "meet the condition",
    )


def test_a_refused_start() -> None:
    text = b"$ systemctl restart llm-server\nFailed to restart llm-server.service: Interactive authentication required.\nrc=1\n"
    got = diagnose_unit({"input.startcmd": text, "input.show": show(MainPID="12")})
    assert (got["verdict"], got["cause"], got["systemctl_start_rc"]) == ("not-started", "not-permitted", 1)


def test_successive_readings_carry_their_number() -> None:
    files = {
        "input.show": show(ActiveState="deactivating", SubState="stop-sigterm", MainPID="5"),
        "input2.show": show(ActiveState="activating", SubState="start-pre", ControlPID="9"),
        "input3.show": show(ActiveState="active", SubState="running", MainPID="7"),
    }
    got = diagnose_unit(files)
    assert (got["verdict"], got["verdict_input"], got["verdict_input2"], got["verdict_input3"]) == (
        "ok",
        "stopping",
        "starting",
        "ok",
    )
    assert (got["main_pid"], got["main_pid_input"], got["phase_input2"]) == (7, 5, "start-pre")


TIMELINE = """\
t0      show: ActiveState=active SubState=running MainPID=83  InvocationID=aaa NRestarts=0
t0+0.1  systemctl restart llm-server   rc=0
{middle}
t0+9.0  show: {last}
"""


@pytest.mark.parametrize(
    ("middle", "last", "verdict", "cause", "fields"),
    [
        (
            "t0+0.2  GET /v1/models -> 200 (answered by pid 83)\nt0+0.5  show: ActiveState=active SubState=running MainPID=90 InvocationID=bbb",
            "ActiveState=failed SubState=failed MainPID=0 InvocationID=bbb Result=exit-code",
            "failed",
            "restart-failed-old-process-answered",
            {"old_pid": 83, "new_pid": 90, "ready_at_0_2": False, "invocation_changed": True},
        ),
        (
            "t0+0.5  show: ActiveState=active SubState=running MainPID=90 InvocationID=bbb\nt0+7.5  GET /v1/models -> 200 (pid 90)",
            "ActiveState=active SubState=running MainPID=90 InvocationID=bbb NRestarts=0",
            "ok",
            "active",
            {"ready_at_7_5": True, "n_restarts_changes": False, "invocation_changed": True},
        ),
        (
            "t0+2.5  GET /health -> 200",
            "ActiveState=active SubState=running MainPID=83 InvocationID=aaa",
            "not-started",
            "restart-not-done",
            {"ready_at_2_5": False, "invocation_changed": False},
        ),
        (
            "",
            "ActiveState=deactivating SubState=stop-sigterm MainPID=83 InvocationID=aaa",
            "stopping",
            "stopping",
            {"invocation_changed": False},
        ),
        (
            "t0+0.5  show: ActiveState=active SubState=running MainPID=90 InvocationID=bbb",
            "ActiveState=failed SubState=failed MainPID=0 InvocationID=bbb Result=signal",
            "failed",
            "main-process-killed",
            {"new_pid": 90},
        ),
    ],
)
def test_timelines_of_a_restart(
    middle: str, last: str, verdict: str, cause: str, fields: dict[str, object]
) -> None:
    got = diagnose_unit({"timeline.txt": TIMELINE.format(middle=middle, last=last).encode()})
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    assert {k: got.get(k) for k in fields} == fields


def test_a_list_of_states_that_ends_well_is_no_loop() -> None:
    text = b"u.service: activating (SubState=start)\nu.service: active (SubState=running, NRestarts=0, MainPID=4)\n"
    assert diagnose_unit({"input.txt": text})["verdict"] == "ok"


def test_nothing_is_said_to_be_nothing() -> None:
    for files in ({}, {"input.txt": b""}, {"input.txt": b"\xff\xfe\x00"}):
        assert diagnose_unit(files)["cause"] == "no-unit-data"


def test_the_table_of_causes_is_whole() -> None:
    table = load_causes()
    words = [
        "unknown",
        "starting",
        "ready",
        "stalled",
        "failed",
        "degraded",
        "ok",
        "partial",
        "crash-looping",
        "stopped",
        "not-started",
        "wrong-config",
        "stopping",
    ]
    for slug, row in table.by_slug.items():
        assert slug == slug.lower() and " " not in slug
        assert row.verdict in words and row.severity in ("info", "warn", "error", "critical")
        assert (
            row.kind in ("config", "bug", "host", "transient", "slow", "info")
            and row.means.endswith(".")
            and row.advice.endswith(".")
        )
        assert not (row.kind == "config" and row.retryable and slug != "old-arguments-loaded"), (
            "a config cause is never retried"
        )
    assert all(cause in table.by_slug for _, cause in table.readiness.values())


STATUS = """\
× llm-server.service - LLM inference server
     Loaded: loaded (/etc/systemd/system/llm-server.service; enabled; preset: enabled)
     Active: failed (Result: exit-code) since Mon 2026-11-30 06:39:03 UTC; 3s ago
    Process: 92 ExecStart=/opt/nope/python -m x (code=exited, status=203/EXEC)
   Main PID: 92 (code=exited, status=203/EXEC)

Nov 30 06:39:03 host systemd[1]: Started llm-server.service - LLM inference server.
Nov 30 06:39:03 host systemd[1]: llm-server.service: Main process exited, code=exited, status=203/EXEC
"""


def test_systemctl_status_is_read_too() -> None:
    got = diagnose_unit({"input.txt": STATUS.encode()})
    assert (got["verdict"], got["cause"], got["exit_code"], got["exit_name"]) == (
        "failed",
        "exec-not-found",
        203,
        "EXEC",
    )
    running = STATUS.replace("failed (Result: exit-code)", "active (running)").replace(
        "(code=exited, status=203/EXEC)", "(python3)"
    )
    assert diagnose_unit({"s.txt": running.encode()})["main_pid"] == 92
    warned = (
        b"Warning: The unit file, source configuration file or drop-ins of u.service changed on disk. Run 'systemctl daemon-reload' to reload units.\n"
        + running.encode()
    )
    assert diagnose_unit({"s.txt": warned})["verdict"] == "wrong-config"
    killed = STATUS.replace("exit-code", "signal").replace(
        "code=exited, status=203/EXEC", "code=killed, signal=KILL"
    )
    assert diagnose_unit({"s.txt": killed.split("\n\n")[0].encode()})["exit_signal"] == 9


@pytest.mark.parametrize(
    ("state", "count", "verdict", "cause"),
    [
        (
            '{"Status": "running", "Running": true, "Pid": 9, "ExitCode": 0, "StartedAt": "2026-01-01T00:00:00Z"}',
            0,
            "ok",
            "active",
        ),
        (
            '{"Status": "running", "Running": true, "Pid": 9, "ExitCode": 0, "Health": {"Status": "unhealthy"}}',
            0,
            "degraded",
            "container-unhealthy",
        ),
        (
            '{"Status": "exited", "Running": false, "Pid": 0, "ExitCode": 1}',
            0,
            "failed",
            "main-process-exited",
        ),
        (
            '{"Status": "exited", "Running": false, "Pid": 0, "ExitCode": 137, "OOMKilled": true}',
            0,
            "failed",
            "oom-killed",
        ),
        (
            '{"Status": "exited", "Running": false, "Pid": 0, "ExitCode": 137}',
            0,
            "failed",
            "main-process-killed",
        ),
        ('{"Status": "exited", "Running": false, "Pid": 0, "ExitCode": 0}', 0, "stopped", "stopped-cleanly"),
        (
            '{"Status": "restarting", "Running": true, "Pid": 0, "ExitCode": 1}',
            5,
            "crash-looping",
            "flapping",
        ),
        (
            '{"Status": "created", "Running": false, "Pid": 0, "ExitCode": 0}',
            0,
            "not-started",
            "never-started",
        ),
    ],
)
def test_containers_speak_the_same_words(state: str, count: int, verdict: str, cause: str) -> None:
    text = f'[{{"Id": "abcdef0123456789", "Name": "/llm", "RestartCount": {count}, "State": {state}}}]'
    got = diagnose_unit({"input.json": text.encode()})
    assert (got["verdict"], got["cause"]) == (verdict, cause)


def test_left_over_processes_and_lost_messages() -> None:
    line = b"u.service: Found left-over process 812 (sglang::schedul) in control group while starting unit. Ignoring.\n"
    got = diagnose_unit({"input.show": show(MainPID="12"), "input.journal": line})
    assert (got["verdict"], got["cause"], got["leftover_pids"]) == ("degraded", "leftover-processes", [812])
    import json

    entries = [
        {"__CURSOR": "a", "UNIT": "u.service", "MESSAGE": "Suppressed 5000 messages from u.service"},
        {"__CURSOR": "b", "_PID": "3", "_SYSTEMD_UNIT": "u.service", "MESSAGE": "x"},
    ]
    got = diagnose_unit({"input.jsonl": "\n".join(json.dumps(e) for e in entries).encode()})
    assert (got["verdict"], got["cause"], got["suppressed_messages"]) == ("partial", "log-incomplete", 5000)


def test_the_arguments_and_drop_ins_of_the_unit_are_told() -> None:
    got = diagnose_unit(
        {
            "input.show": show(
                MainPID="12",
                ExecStart="{ path=/bin/a ; argv[]=/bin/a --tp 8 ; ignore_errors=no ; pid=0 }",
                DropInPaths="/run/systemd/system/u.service.d/50-ddtop.conf",
            )
        }
    )
    assert got["exec_argv"] == ["/bin/a", "--tp", "8"] and got["drop_ins"] == [
        "/run/systemd/system/u.service.d/50-ddtop.conf"
    ]


def test_the_docs_table_holds_every_cause() -> None:
    from ddtop.services.causes import causes_markdown

    text = causes_markdown()
    assert all(f"| `{slug}` |" in text for slug in load_causes().by_slug)
    assert {line.replace("\\|", "").count("|") for line in text.splitlines()} == {7}


SS = 'LISTEN 0 2048 0.0.0.0:30000 0.0.0.0:* users:(("python3",pid={pid},fd=3)) ino:72671 sk:1 cgroup:/system.slice/{unit} <->\n'


@pytest.mark.parametrize(
    ("owners", "verdict", "cause"),
    [
        ([(12, "llm-server.service")], "ok", "active"),
        ([(77, "other.service")], "degraded", "port-owned-by-other"),
        ([(77, "my-llm-server.service")], "degraded", "port-owned-by-other"),
        ([(12, "llm-server.service"), (77, "other.service")], "degraded", "two-listeners"),
        ([(12, "llm-server.service"), (12, "llm-server.service")], "ok", "active"),
    ],
)
def test_the_owner_of_the_port_counts(owners: list[tuple[int, str]], verdict: str, cause: str) -> None:
    text = "".join(SS.format(pid=pid, unit=unit) for pid, unit in owners)
    got = diagnose_unit({"input.show": show(MainPID="12"), "input.ss": text.encode()})
    assert (got["verdict"], got["cause"], got["port"]) == (verdict, cause, 30000)
    assert got["listener_pids"] == list(dict.fromkeys(pid for pid, _ in owners))


def test_an_owner_that_cannot_be_seen_is_unknown_never_foreign() -> None:
    text = (
        b"State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\nLISTEN 0 2048 [::]:30000 [::]:*\n"
    )
    assert diagnose_unit({"input.show": show(MainPID="12"), "input.ss": text})["verdict"] == "ok"
