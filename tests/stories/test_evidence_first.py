"""Evidence before clocks, on real hosts: what the gate knows is named within seconds, a log that is not in the journal costs
nothing, whatever blocks the sweep is an alert, and a healthy start that is slow once raises none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised, GateSeen, RestartStarted
from tests.bed import trouble
from tests.stories.harness import Runner, alerts, plan_text, ready_configs, states_of, took

TITLE = "from the evidence to its alert"
ONE = "a = {}\n"
TWO = 'a = {}\nb = { args = ["--context-length", "8192"] }\n'
POLICY = 'foreign = "wait-1min-then-stop"\ntransient = "fail-and-go-on"\nbug = "fail-and-go-on"\nzero_tokens = "fail-and-go-on"'
UNIT = "sglang-bench.service"
FAST = ("LOAD_S=1", "WARM_S=0.3")
VICTIM = "WHEN=--context-length 8192"
LOG = "[Service]\nStandardOutput=append:/var/log/sglang.log\nStandardError=append:/var/log/sglang.log\n"


def log_in_file(host: Any) -> None:
    trouble.dropin(host.bed, host.name, UNIT, LOG)


def log_by_shell(host: Any) -> None:
    """A wrapper in the way of the engine's python sends its output to a file: no unit file says so."""
    host.sh(
        "mv /opt/sglang/bin/python /opt/sglang/bin/python.real; printf '#!/bin/sh\\nexec /opt/sglang/bin/python.real"
        ' "$@" >> /var/log/by-shell.log 2>&1\\n\' > /opt/sglang/bin/python; chmod +x /opt/sglang/bin/python'
    )


def no_wrapper(host: Any) -> None:
    """Takes the wrapper away: the bed's `restore` knows nothing of it."""
    host.sh(
        "cd /opt/sglang/bin; [ ! -e python.real ] || mv -f python.real python; rm -f /var/log/by-shell.log"
    )


def log_nowhere(host: Any) -> None:
    trouble.dropin(host.bed, host.name, UNIT, "[Service]\nStandardOutput=null\nStandardError=null\n")


def two_units(host: Any) -> None:
    """Another unit of the same server is up and has the port."""
    host.sh(
        "sed 's/Description=.*/Description=Other/' /etc/systemd/system/sglang-bench.service"
        " > /etc/systemd/system/other-llm.service; systemctl daemon-reload; systemctl start other-llm"
    )
    host.sh(
        "for i in $(seq 200); do ss -ltnH 'sport = :30000' | grep -q . && exit 0; sleep 0.1; done; exit 1"
    )


def truncated_everywhere(host: Any) -> None:
    trouble.damage_model(host.bed, host.name, "truncated", host.spec.source)
    trouble.damage_model(host.bed, host.name, "truncated")


@dataclass(frozen=True)
class Told:
    """What goes wrong, and what is to be said of it."""

    verdict: str
    cause: str
    words: tuple[str, ...]
    faults: tuple[str, ...] = ()
    before: Callable[[Any], None] | None = None
    stamp: str = ""
    """Event of the ledger from which the seconds count; empty: from the beginning of the run."""
    limit_s: float = 6.0
    undo: Callable[[Any], None] | None = None
    extra: frozenset[tuple[str, str]] = field(default_factory=frozenset)


CASES: dict[str, Told] = {
    "other-port": Told(
        "wrong-arguments", "listens-elsewhere", ("30001", "30000"), ("PORT=30001",), stamp="ready"
    ),
    "html-200": Told("no-tokens", "not-an-inference-server", ("text/html",), ("HTML=200",), stamp="ready"),
    "http-502": Told("no-tokens", "proxy-in-front", ("502",), ("HTML=502",), stamp="ready"),
    "http-500": Told("no-tokens", "server-error", ("HTTP 500",), ("HTTP500=1",), stamp="ready"),
    "log-in-file": Told(
        "failed", "oom-loading-weights", (), ("LOAD_FAULT=cuda",), before=log_in_file, stamp="fault"
    ),
    "two-units-on-port": Told(
        "foreign",
        "port-in-use",
        ("other-llm.service", "port 30000", "MiB"),
        before=two_units,
        limit_s=15.0,
        undo=lambda h: h.sh("systemctl stop other-llm"),
    ),
    "gpu-leak": Told(
        "foreign",
        "gpu-memory-held-by-other-process",
        ("ddtop_bed.foreign", "60000 MiB", "pid"),
        before=lambda h: trouble.hog(h.bed, h.name, 0, 60000),
        limit_s=15.0,
        undo=lambda h: h.sh("systemctl stop foreign-gpu-0"),
    ),
    "truncated-shard-both": Told(
        "model-missing",
        "model-weights-damaged",
        (".safetensors", "/data/models/", "/dev/shm/"),
        before=truncated_everywhere,
        limit_s=15.0,
    ),
}
IN_CI = ("other-port", "gpu-leak")


def tell(host: Any, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    host.stage()
    host.fault(*FAST, *case.faults)
    if case.before is not None:
        case.before(host)
    began = host.bed.now()
    plan = plan_text(name, configs=ONE, policy=POLICY)
    with Runner(host.bed, plan, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        alert = runner.until_alert(90)
        said = f"{alert.cause_text} {alert.advice} " + " ".join(e.text for e in alert.evidence)
        assert (alert.verdict, alert.cause) == (case.verdict, case.cause), said
        assert not [w for w in case.words if w not in said], said
        assert alert.policy, "what happens without a person is said"
        since = began
        if case.stamp:
            kinds = {"kind": "cuda"} if case.stamp == "fault" else {}
            since = host.wait(case.stamp, since_ns=began, timeout_s=30, **kinds)["t_ns"]
        took(TITLE, name, alert.at_s - since / 1e9)
        assert alert.at_s - since / 1e9 <= case.limit_s
        if case.undo is not None:  # it goes on by itself
            case.undo(host)
            assert runner.wait(90) == 0, runner.text()[-3000:]
            assert states_of(runner.state(), "a") == {"done"} and not runner.state().open_alerts
        elif case.verdict != "model-missing":
            assert runner.wait(90) == 10, runner.text()[-3000:]
            assert ready_configs(runner.events()) == []
            starts = [e for e in runner.events() if isinstance(e, RestartStarted)]
            assert len(starts) == 1 and alerts(runner.events()) == {(case.verdict, case.cause)}


HEALTHY: dict[str, tuple[tuple[str, ...], Callable[[Any], None] | None, str]] = {
    "log-in-file-healthy": ((), log_in_file, TWO),
    "log-by-shell-healthy": ((), log_by_shell, TWO),
    "log-nowhere-healthy": ((), log_nowhere, TWO),
    "slow-warm": ((VICTIM, "WARM_S=75"), None, TWO),
    "slow-pause-45": ((VICTIM, "PAUSE_S=45"), None, TWO),
    "slow-capture-70": ((VICTIM, "CAPTURE_S=70"), None, TWO),
    "slow-jit": ((VICTIM, "SHAPE=compile", "SHAPE_S=60"), None, TWO),
}


def healthy(host: Any, tmp_path: Path, name: str) -> None:
    """After a quick start in the same run, the slow one raises nothing and is measured."""
    faults, before, configs = HEALTHY[name]
    host.stage()
    host.fault(*FAST, *faults)
    if before is not None:
        before(host)
    plan = plan_text(name, configs=configs, policy=POLICY)
    began = time.monotonic()
    try:
        with Runner(host.bed, plan, tmp_path / "run.ddtop", tmp_path / "home") as runner:
            code = runner.wait(240)
            events = runner.events()
    finally:
        no_wrapper(host)
    assert [e for e in events if isinstance(e, AlertRaised)] == [], runner.text()[-4000:]
    assert ready_configs(events) == ["a", "b"] and code == 0, runner.text()[-3000:]
    marks = {e.ok for e in events if isinstance(e, GateSeen) and e.part == "mark"}
    if before is log_nowhere:
        assert None in marks, "where there is no log, the mark is unknown"
    elif before is not log_by_shell:  # its first start may be ready before its file was found
        assert None not in marks, "a file is followed"
    took("healthy starts that look dead, whole run", name, time.monotonic() - began)


@pytest.mark.bed
@pytest.mark.parametrize("name", IN_CI)
def test_named_within_seconds(ct200: Any, tmp_path: Path, name: str) -> None:
    tell(ct200, tmp_path, name)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("name", [n for n in CASES if n not in IN_CI])
def test_all_are_named_within_seconds(ct200: Any, tmp_path: Path, name: str) -> None:
    tell(ct200, tmp_path, name)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("name", list(HEALTHY))
def test_healthy_starts_raise_nothing(ct200: Any, tmp_path: Path, name: str) -> None:
    healthy(ct200, tmp_path, name)
