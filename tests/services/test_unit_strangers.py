"""Units of many systemd versions, as people paste them: results beside exit-code, loops, left-over processes, signals.

Each text was written with its right verdict before ddtop was asked.
"""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.services.causes import load_causes
from ddtop.services.unit.diagnosis import diagnose_unit
from ddtop.services.unit.exits import control_words, failed_dependency, main_ending
from ddtop.services.unit.systemctl_show import EXIT_NAMES, SIGNAL_NAMES


def judge(text: str, name: str = "input.txt") -> dict[str, Any]:
    return diagnose_unit({name: text.encode()})


P = "Oct 27 12:21:09 gpu7 systemd[1]: "
ROWS = [
    (  # forking without the right PID file
        P
        + "Starting llama.service - llama.cpp...\n"
        + P
        + "llama.service: Can't open PID file /run/llama.pid (yet?) after start: No such file or directory\n"
        + P
        + "llama.service: Failed with result 'protocol'.\n"
        + P
        + "Failed to start llama.service - llama.cpp.\n",
        "failed",
        "notify-protocol",
        "PID file",
    ),
    (  # systemd 245, Debian colours
        "\x1b[0;1;31m●\x1b[0m vllm.service - vLLM\n     Loaded: loaded (/etc/systemd/system/vllm.service; enabled; vendor preset: enabled)\n"
        "     Active: \x1b[0;1;31mfailed\x1b[0m (Result: protocol) since Mon 2021-03-01 10:00:00 UTC; 2min ago\n"
        "    Process: 77 ExecStart=/opt/run.sh (code=exited, status=0/SUCCESS)\n   Main PID: 77 (code=exited, status=0/SUCCESS)\n",
        "failed",
        "notify-protocol",
        "READY=1",
    ),
    (  # loop with children of the first start (systemd 255)
        P
        + "sgl.service: Found left-over process 4711 (python3) in control group while starting unit. Ignoring.\n"
        + P
        + "Starting sgl.service...\n"
        + P
        + "sgl.service: Main process exited, code=exited, status=1/FAILURE\n"
        + P
        + "sgl.service: Failed with result 'exit-code'.\n"
        + P
        + "sgl.service: Scheduled restart job, restart counter is at 7.\n",
        "crash-looping",
        "leftover-processes",
        "4711",
    ),
    (  # stopped, but children stay: port and memory are held
        P
        + "Stopping sgl.service - SGLang...\n"
        + P
        + "sgl.service: Deactivated successfully.\n"
        + P
        + "sgl.service: Unit process 900 (sglang::schedul) remains running after unit stopped.\n"
        + P
        + "Stopped sgl.service - SGLang.\n",
        "degraded",
        "leftover-processes",
        "900",
    ),
    (  # only the counter of one line tells of the loop
        P
        + "Started vllm.service - vLLM.\n"
        + P
        + "vllm.service: Main process exited, code=exited, status=2/INVALIDARGUMENT\n"
        + P
        + "vllm.service: Failed with result 'exit-code'.\n"
        + P
        + "vllm.service: Scheduled restart job, restart counter is at 212.\n",
        "crash-looping",
        "flapping",
        "212 times",
    ),
    (
        P
        + "Started llama.service - llama.cpp.\n"
        + P
        + "llama.service: Main process exited, code=killed, status=4/ILL\n"
        + P
        + "llama.service: Failed with result 'signal'.\n",
        "failed",
        "illegal-instruction",
        "SIGILL",
    ),
    (
        P
        + "llama.service: Main process exited, code=dumped, status=4/ILL\n"
        + P
        + "llama.service: Failed with result 'core-dump'.\n",
        "failed",
        "illegal-instruction",
        "dumped core",
    ),
    (
        P
        + "vllm.service: Main process exited, code=dumped, status=7/BUS\n"
        + P
        + "vllm.service: Failed with result 'core-dump'.\n",
        "failed",
        "bus-error",
        "SIGBUS",
    ),
    (
        P
        + "vllm.service: Main process exited, code=killed, status=11/SEGV\n"
        + P
        + "vllm.service: Failed with result 'signal'.\n",
        "failed",
        "segmentation-fault",
        "SIGSEGV",
    ),
    (
        P
        + "vllm.service: Main process exited, code=dumped, status=6/ABRT\n"
        + P
        + "vllm.service: Failed with result 'core-dump'.\n",
        "failed",
        "core-dumped",
        "SIGABRT",
    ),
    (
        P
        + "vllm.service: Main process exited, code=killed, status=8/FPE\n"
        + P
        + "vllm.service: Failed with result 'signal'.\n",
        "failed",
        "arithmetic-fault",
        "SIGFPE",
    ),
    (
        P
        + "vllm.service: Main process exited, code=killed, status=9/KILL\n"
        + P
        + "vllm.service: Failed with result 'signal'.\n",
        "failed",
        "main-process-killed",
        "SIGKILL",
    ),
    (
        P
        + "vllm.service: A process of this unit has been killed by the OOM killer.\n"
        + P
        + "vllm.service: Main process exited, code=killed, status=9/KILL\n"
        + P
        + "vllm.service: Failed with result 'oom-kill'.\n",
        "failed",
        "oom-killed",
        "",
    ),
    (
        P
        + "x.service: Main process exited, code=exited, status=132/n/a\n"
        + P
        + "x.service: Failed with result 'exit-code'.\n",
        "failed",
        "illegal-instruction",
        "exit code 132",
    ),
    (
        P
        + "x.service: Main process exited, code=exited, status=127/n/a\n"
        + P
        + "x.service: Failed with result 'exit-code'.\n",
        "failed",
        "program-missing",
        "127",
    ),
    (
        P
        + "x.service: Main process exited, code=exited, status=209/STDOUT\n"
        + P
        + "x.service: Failed with result 'exit-code'.\n",
        "failed",
        "sandbox-setup-failed",
        "StandardOutput=",
    ),
    (
        P
        + "x.service: Main process exited, code=exited, status=243/CREDENTIALS\n"
        + P
        + "x.service: Failed with result 'exit-code'.\n",
        "failed",
        "sandbox-setup-failed",
        "LoadCredential=",
    ),
    (  # ExecStartPre's own words
        P + "Starting sglang.service - SGLang...\n"
        "Oct 27 12:21:10 gpu7 sh[811]: mount /models is not there\n"
        + P
        + "sglang.service: Control process exited, code=exited, status=3/NOTIMPLEMENTED\n"
        + P
        + "sglang.service: Failed with result 'exit-code'.\n"
        + P
        + "Failed to start sglang.service - SGLang.\n",
        "failed",
        "start-pre-failed",
        "mount /models is not there",
    ),
    (  # ExecStartPost hangs
        P
        + "Starting sglang.service - SGLang...\n"
        + P
        + "sglang.service: start-post operation timed out. Terminating.\n"
        + P
        + "sglang.service: Main process exited, code=killed, status=15/TERM\n"
        + P
        + "sglang.service: Failed with result 'timeout'.\n",
        "failed",
        "start-timeout",
        "ExecStartPost=",
    ),
    (  # ExecStartPost fails: the server had started
        P + "Starting q.service - Q...\n"
        "Oct 27 12:21:10 gpu7 curl[5]: curl: (7) Failed to connect to localhost port 30000\n"
        + P
        + "q.service: Control process exited, code=exited, status=7/NOTRUNNING\n"
        + P
        + "q.service: Main process exited, code=killed, status=15/TERM\n"
        + P
        + "q.service: Failed with result 'exit-code'.\n",
        "failed",
        "start-post-failed",
        "Failed to connect",
    ),
    (  # the dependency by name
        P + "Starting model-mount.service - Model mount...\n"
        "Oct 27 12:21:10 gpu7 sh[9]: mount.nfs: Connection refused\n"
        + P
        + "model-mount.service: Main process exited, code=exited, status=32/n/a\n"
        + P
        + "model-mount.service: Failed with result 'exit-code'.\n"
        + P
        + "Failed to start model-mount.service - Model mount.\n"
        + P
        + "Dependency failed for sglang.service - SGLang.\n"
        + P
        + "sglang.service: Job sglang.service/start failed with result 'dependency'.\n",
        "not-started",
        "dependency-failed",
        "model-mount.service",
    ),
    (  # a mount unit as dependency
        P
        + "models.mount: Mount process exited, code=exited, status=32/n/a\n"
        + P
        + "models.mount: Failed with result 'exit-code'.\n"
        + P
        + "Failed to mount models.mount - /models.\n"
        + P
        + "Dependency failed for vllm.service - vLLM.\n"
        + P
        + "vllm.service: Job vllm.service/start failed with result 'dependency'.\n",
        "not-started",
        "dependency-failed",
        "models.mount",
    ),
    (  # podman quadlet, user manager, 259: no bullet, no description
        "$ systemctl --user status llm\nllm.service\n     Loaded: loaded (/home/u/.config/containers/systemd/llm.container; generated)\n"
        "     Active: failed (Result: exit-code) since Wed 2026-01-14 10:01:03 CET; 5s ago\n"
        " Invocation: 0123456789abcdef0123456789abcdef\n"
        "    Process: 88 ExecStart=/usr/bin/podman run --name llm img (code=exited, status=125)\n"
        "   Main PID: 88 (code=exited, status=125)\n",
        "failed",
        "main-process-exited",
        "125",
    ),
    (  # ExecStopPost failed after a crash: the crash is the cause
        "× v.service - V\n     Loaded: loaded (/etc/systemd/system/v.service; enabled)\n"
        "     Active: failed (Result: signal) since Wed 2025-05-14 10:01:03 EEST; 5s ago\n"
        "    Process: 1 ExecStart=/opt/v (code=killed, signal=ILL)\n"
        "    Process: 2 ExecStopPost=/opt/clean (code=exited, status=1/FAILURE)\n   Main PID: 1 (code=killed, signal=ILL)\n",
        "failed",
        "illegal-instruction",
        "SIGILL",
    ),
    (  # docker: name in use
        P + "Started llm.service - LLM in docker.\n"
        'Oct 27 12:21:10 gpu7 docker[7]: docker: Error response from daemon: Conflict. The container name "/llm" is already in use\n'
        + P
        + "llm.service: Main process exited, code=exited, status=125/n/a\n"
        + P
        + "llm.service: Failed with result 'exit-code'.\n",
        "failed",
        "main-process-exited",
        "already in use",
    ),
    (
        P
        + "v.service: Failed to fork: Cannot allocate memory\n"
        + P
        + "v.service: Failed with result 'resources'.\n",
        "failed",
        "host-memory-exhausted",
        "Cannot allocate memory",
    ),
    (
        P
        + "Assertion failed for v.service - V.\n"
        + P
        + "v.service: Starting requested but asserts failed.\n",
        "not-started",
        "condition-not-met",
        "",
    ),
    (
        P
        + "v.service: Service reached runtime time limit. Stopping.\n"
        + P
        + "v.service: Failed with result 'timeout'.\n",
        "failed",
        "runtime-limit-reached",
        "RuntimeMaxSec",
    ),
    (
        'Job for v.service failed because a timeout was exceeded.\nSee "systemctl status v.service"\n',
        "failed",
        "start-timeout",
        "",
    ),
    (
        "Job for v.service failed because a fatal signal was delivered to the control process.\n",
        "failed",
        "main-process-killed",
        "",
    ),
    (
        '[{"Id":"abc","Name":"/vllm","State":{"Status":"created","Running":false,"ExitCode":128,"Error":"could not select device driver \\"\\" with capabilities: [[gpu]]","Pid":0}}]',
        "failed",
        "container-not-started",
        "could not select device driver",
    ),
    (
        P
        + "llm.service: Watchdog timeout (limit 30s)!\n"
        + P
        + "llm.service: Main process exited, code=dumped, status=6/ABRT\n"
        + P
        + "llm.service: Failed with result 'watchdog'.\n",
        "failed",
        "watchdog-killed",
        "WatchdogSec",
    ),
    (  # healthy: slow start
        "● s.service - S\n     Loaded: loaded (/etc/systemd/system/s.service; enabled)\n     Active: activating (start) since x\n"
        "   Main PID: 44 (python3)\n",
        "starting",
        "start-job-running",
        "",
    ),
    (  # healthy: the leftover was of a boot before
        "● s.service - S\n     Loaded: loaded (/etc/systemd/system/s.service; enabled)\n     Active: active (running) since x\n"
        "   Main PID: 44 (python3)\n\n" + P + "Started s.service - S.\n",
        "ok",
        "active",
        "",
    ),
]


@pytest.mark.parametrize(
    ("text", "verdict", "cause", "says"), ROWS, ids=[f"{r[2]}-{i}" for i, r in enumerate(ROWS)]
)
def test_units_nobody_here_has_seen(text: str, verdict: str, cause: str, says: str) -> None:
    got = judge(text)
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    shown = " ".join([got.get("meaning", ""), got["advice"], *[e["text"] for e in got["evidence"]]])
    assert says in shown, shown
    assert got["advice"] and got["evidence"]


def test_show_tells_which_command_failed() -> None:
    show = (
        "Id=a.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\nMainPID=0\nExecMainPID=0\n"
        "ExecMainCode=0\nExecMainStatus=0\nType=simple\n"
        "ExecStartPre={ path=/bin/sh ; argv[]=/bin/sh -c exit 3 ; ignore_errors=no ; start_time=[x] ; stop_time=[y] ; pid=5 ; code=exited ; status=3 }\n"
    )
    got = judge(show, "input.show")
    assert (got["cause"], got["retryable"]) == ("start-pre-failed", False) and "exit code 3" in got["meaning"]


def test_a_notify_unit_that_never_said_ready_is_told_so() -> None:
    show = (
        "Id=a.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nResult=timeout\nMainPID=0\nExecMainPID=9\n"
        "ExecMainCode=2\nExecMainStatus=15\nType=notify\nNRestarts=0\n"
    )
    got = judge(show, "input.show")
    assert got["cause"] == "start-timeout" and "READY=1" in got["meaning"]


NAMES = [
    (
        "Oct 27 12:21:09 gpu7 systemd[1]: vllm@0.service: Main process exited, code=exited, status=1/FAILURE\n",
        "vllm@0.service",
    ),
    (
        "2026-09-01T10:00:00+0200 gpu7 systemd[1]: sglang.service: Failed with result 'exit-code'.\n",
        "sglang.service",
    ),
    (
        "Sep 01 10:00:00 gpu7 systemd[1411]: llama-server.service: Scheduled restart job, restart counter is at 7.\n",
        "llama-server.service",
    ),
    (
        'Job for vllm.service failed because the control process exited with error code.\nSee "systemctl status vllm.service" and "journalctl -xeu vllm.service" for details.\n',
        "vllm.service",
    ),
    ("Sep 01 10:00:00 gpu7 systemd[1]: Failed to start vllm.service - vLLM server.\n", "vllm.service"),
    (
        "× tgi.service - TGI\n     Loaded: loaded (/etc/systemd/system/tgi.service; enabled)\n     Active: failed (Result: exit-code) since x\n   Main PID: 4 (code=exited, status=1/FAILURE)\n",
        "tgi.service",
    ),
    (
        "Loaded: loaded (/home/u/.config/systemd/user/llm.service; disabled)\nActive: failed (Result: exit-code)\nProcess: 2311 ExecStart=/usr/bin/python3 app.py (code=exited, status=200/CHDIR)\n",
        "llm.service",
    ),
    (
        "$ systemctl status ollama\nLoaded: loaded (/etc/systemd/system/ollama.service; enabled)\nActive: inactive (dead)\n",
        "ollama.service",
    ),
    (
        "Id=vllm.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\n",
        "vllm.service",
    ),
    ("Unit sglang.service could not be found.\n", "sglang.service"),
    ("Failed to start vllm.service: Unit vllm.service not found.\n", "vllm.service"),
    ("Failed to restart llm-server.service: Unit llm-server.service is masked.\n", "llm-server.service"),
    ("systemd[1]: start request repeated too quickly for syncer-port.service\n", "syncer-port.service"),
    (
        "[ 12.345678] systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL\n",
        "vllm.service",
    ),
]


@pytest.mark.parametrize(("text", "unit"), NAMES)
def test_the_name_of_the_unit_is_found_wherever_it_stands(text: str, unit: str) -> None:
    assert judge(text)["unit"] == unit


def test_hyperlinks_of_a_terminal_are_no_part_of_the_text() -> None:
    link = "\x1b]8;;file://h/etc/systemd/system/v.service\x1b\\/etc/systemd/system/v.service\x1b]8;;\x1b\\"
    text = f"● v.service - V\n     Loaded: loaded ({link}; enabled)\n     Active: active (running) since x\n   Main PID: 4 (python3)\n"
    got = judge(text)
    assert (got["cause"], got["unit"], got["load_state"]) == ("active", "v.service", "loaded")


@pytest.mark.parametrize("number", sorted(EXIT_NAMES))
def test_every_code_of_systemd_has_its_name(number: int) -> None:
    ending = main_ending("exit-code", "exited", number)
    assert ending is not None and f"{number}/{EXIT_NAMES[number]}" in ending.words
    assert not load_causes().by_slug[ending.slug].retryable


@pytest.mark.parametrize("number", sorted(SIGNAL_NAMES))
def test_every_signal_has_its_name(number: int) -> None:
    ending = main_ending("signal", "killed", number)
    assert ending is not None and f"SIG{SIGNAL_NAMES[number]}" in ending.words
    assert ending.slug in load_causes().by_slug


def test_what_may_be_tried_again_agrees_with_its_kind() -> None:
    wrong = {
        c.slug
        for c in load_causes().by_slug.values()
        if (c.kind == "config" and c.retryable) or (c.kind in ("bug", "transient") and not c.retryable)
    }
    assert wrong == set()


def test_words_of_a_command_stop_at_its_start() -> None:
    lines = [
        "old words",
        "Starting a.service...",
        "one",
        "two",
        "a.service: Control process exited, code=exited, status=1/FAILURE",
    ]
    assert control_words(lines) == ("one", "two")
    assert control_words(["nothing"]) == ()


def test_a_dependency_is_another_unit() -> None:
    assert failed_dependency(["a.service: Failed with result 'dependency'."], "a.service") is None
    assert (
        failed_dependency(["dev-sdb1.device: Job dev-sdb1.device/start failed with result 'timeout'."])
        is not None
    )
