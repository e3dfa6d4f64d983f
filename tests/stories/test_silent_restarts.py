"""Story 2: the second configuration's restart fails silently, in each of the ways met. Never ready, the exact cause, no
other alert, told within seconds of the bed's own stamp; the sweep goes on by policy."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.bed import trouble
from tests.stories.harness import (
    KIMI,
    THREE,
    Runner,
    alerts,
    plan_text,
    ready_configs,
    states_of,
    took,
)

FAST = ("SPEED=20", "LOAD_S=2", "WARM_S=0.3")
TITLE = "from the bed's stamp to the alert's bytes on a pty"
VICTIM = "WHEN=--context-length 8192"
DDTREE = """
a = {}
b = { unit = "ddtree-qwen.service", command = ["/opt/ddtree/bin/python", "-m", "sglang.launch_server", "--model-path", "{model.path}", "--port", "{port}", "--tp-size", "{tp}"] }
c = { args = ["--context-length", "4096"] }
"""
NOWHERE = THREE.replace(
    "b = {", 'b = { command = ["/opt/nowhere/bin/python", "-m", "sglang.launch_server", "--port", "{port}"],'
)


@dataclass(frozen=True)
class Kind:
    """One way to fail. `before`: faults set at the start; `meanwhile`: done while the first configuration is measured."""

    verdict: str
    cause: str
    limit_s: float = 6.0
    before: tuple[str, ...] = ()
    meanwhile: Callable[[Any], None] | None = None
    undo: Callable[[Any], None] | None = None
    stamp: Callable[[Any, int], int] | None = None
    configs: str = THREE
    recovers: bool = False
    """Once undone, or by policy alone, the victim becomes ready after all."""
    extra: frozenset[tuple[str, str]] = field(default_factory=frozenset)


def fault(kind: str) -> Callable[[Any, int], int]:
    return lambda host, since: host.wait("fault", kind=kind, since_ns=since, timeout_s=60)["t_ns"]


def failure(unit: str) -> Callable[[Any, int], int]:
    def stamp(host: Any, since: int) -> int:
        deadline = time.monotonic() + 30
        while not (found := host.failures(unit, since_ns=since)):
            assert time.monotonic() < deadline, f"systemd never said that {unit} failed"
            time.sleep(0.2)
        return found[0].t_ns

    return stamp


def skip(unit: str) -> Callable[[Any, int], int]:
    def stamp(host: Any, since: int) -> int:
        deadline = time.monotonic() + 30
        while not (found := host.skips(unit, since_ns=since)):
            assert time.monotonic() < deadline, f"systemd never said that it skipped {unit}"
            time.sleep(0.2)
        return found[0].t_ns

    return stamp


def squat(host: Any) -> None:
    """Takes the port in the moment in which the old server lets go of it."""
    host.sh(
        "systemd-run -q --unit=foreign-app-30000 sh -c 'until python3 -m ddtop_bed.foreign squat 30000; do sleep 0.02; done'"
    )


def crash_loop(host: Any) -> None:
    trouble.dropin(
        host.bed, host.name, "ddtree-qwen.service", "[Service]\nRestart=always\nRestartSec=100ms\n"
    )


def lose_model(host: Any) -> None:
    host.sh("rm -rf /dev/shm/Qwen3.6-27B")


KINDS: dict[str, Kind] = {
    "cuda error at load": Kind(
        "failed", "oom-loading-weights", before=(VICTIM, "LOAD_FAULT=cuda"), stamp=fault("cuda")
    ),
    "exits at once": Kind(
        "failed", "gpu-arch-unsupported", before=(VICTIM, "LOAD_FAULT=exit"), stamp=fault("exit")
    ),
    "toolkit mismatch": Kind(
        "failed", "cuda-toolkit-too-old", before=(VICTIM, "LOAD_FAULT=toolkit"), stamp=fault("toolkit")
    ),
    "hangs asleep": Kind(
        "stalled", "hang-asleep", 32.0, before=(VICTIM, "LOAD_FAULT=hang"), stamp=fault("hang")
    ),
    "hangs spinning": Kind(
        "stalled", "hang-spinning", 122.0, before=(VICTIM, "LOAD_FAULT=spin"), stamp=fault("spin")
    ),
    "old answers, new dies": Kind(
        "failed", "oom-loading-weights", before=("STOP_S=20", VICTIM, "LOAD_FAULT=cuda"), stamp=fault("cuda")
    ),
    "203/EXEC": Kind("refused", "exec-not-found", configs=NOWHERE, stamp=failure("sglang-bench.service")),
    "condition unmet": Kind(
        "refused",
        "condition-not-met",
        configs=DDTREE,
        stamp=skip("ddtree-qwen.service"),
        meanwhile=lambda h: trouble.unmet_condition(h.bed, h.name, "ddtree-qwen.service"),
    ),
    "port taken": Kind(
        "foreign",
        "port-in-use",
        meanwhile=squat,
        stamp=fault("squatter"),
        recovers=True,
        undo=lambda h: h.sh("systemctl stop foreign-app-30000"),
    ),
    "crash loop": Kind(
        "crash-loop",
        "gpu-arch-unsupported",
        stamp=fault("exit"),
        before=(VICTIM, "LOAD_FAULT=exit"),
        meanwhile=crash_loop,
        configs=DDTREE.replace('"{tp}"]', '"{tp}", "--context-length", "8192"]'),
    ),
    "drop-in not loaded": Kind(
        "wrong-arguments",
        "old-arguments-loaded",
        recovers=True,
        meanwhile=lambda h: h.fault(*FAST, SYSTEMCTL_FAULT="no-reload"),
        undo=lambda h: h.fault(*FAST),
    ),
    "overruled by a drop-in": Kind(
        "wrong-arguments",
        "wrong-arguments",
        configs=DDTREE.replace('"{tp}"]', '"{tp}", "--context-length", "2048"]'),
        meanwhile=lambda h: trouble.overruled(h.bed, h.name, "ddtree-qwen.service"),
    ),
    "masked": Kind(
        "refused",
        "unit-masked",
        configs=DDTREE,
        meanwhile=lambda h: trouble.mask(h.bed, h.name, "ddtree-qwen.service"),
    ),
    "model missing": Kind(
        "failed", "model-path-missing", meanwhile=lose_model, stamp=fault("model-missing"), recovers=True
    ),
    "ready but 0 tokens": Kind(
        "no-tokens", "zero-tokens", before=(VICTIM, "ZERO_TOKENS=1"), stamp=fault("zero-tokens")
    ),
}


def trial(host: Any, tmp_path: Path, name: str, seed: int) -> None:
    """One sweep of three configurations whose second one fails."""
    kind, rng = KINDS[name], random.Random(f"{name}{seed}")
    host.stage()
    before = host.snapshot()
    host.fault(*FAST, *kind.before)
    plan = plan_text(
        f"story2-{seed}",
        configs=kind.configs,
        requests=rng.choice((2, 3, 4)),
        tokens=str(rng.choice((16, 24, 40))),
    )
    began = host.bed.now()
    with Runner(host.bed, plan, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        runner.until_measuring("a")
        if kind.meanwhile is not None:
            time.sleep(rng.random() * 0.1)
            kind.meanwhile(host)
        alert = runner.until_alert(kind.limit_s + 60)
        shown = runner.first_ns(f"[{alert.verdict}/{alert.cause}]")
        deadline = time.monotonic() + 3
        while shown is None and time.monotonic() < deadline:
            time.sleep(0.05)
            shown = runner.first_ns(f"[{alert.verdict}/{alert.cause}]")
        assert shown is not None, runner.text()[-3000:]
        if kind.undo is not None:
            kind.undo(host)
        code = runner.wait(
            kind.limit_s * 2 + 240
        )  # a hang's next try has twice the time, of another floor maybe
        events, state = runner.events(), runner.state()
        text = runner.text()
    assert alerts(events) == {(kind.verdict, kind.cause)}, text[-5000:]
    ready = ready_configs(events)
    assert ready.count("a") == 1 and states_of(state, "a") == {"done"}, text[-5000:]
    if kind.recovers:
        assert states_of(state, "b") == {"done"}, text[-5000:]
    else:
        assert "b" not in ready and states_of(state, "b") <= {"failed", "broken"}, text[-5000:]
    assert states_of(state, "c") == {"done"}, text[-5000:]
    assert code == (0 if kind.recovers else 10), text[-3000:]
    assert not state.open_alerts
    if kind.stamp is not None:
        seconds = (shown - kind.stamp(host, began)) / 1e9
        took(TITLE, name, seconds)
        assert seconds <= kind.limit_s, (
            f"{name}: {seconds:.2f} s from the bed's stamp to the alert on the pty"
        )
    left = host.oracle.settled(host.name, before)
    assert [line for line in left if not any(ours in line for ours in OWN_TRACES)] == []


OWN_TRACES = ("foreign", "zzzz-bed", "/dev/null", ".ddtop-staged.json")
"""What the trials themselves leave, and the manifest of a model staged anew."""
QUICK = [name for name in KINDS if name != "hangs spinning"]


@pytest.mark.bed
@pytest.mark.parametrize("name", QUICK)
def test_silent_restart_failure(ct200: Any, tmp_path: Path, name: str) -> None:
    trial(ct200, tmp_path, name, seed=0)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("name", list(KINDS))
def test_silent_restart_failure_ten_times(ct200: Any, tmp_path: Path, name: str, seed: int) -> None:
    trial(ct200, tmp_path, name, seed)


SCRIPTS: dict[str, tuple[tuple[str, ...], str, str, float]] = {
    "script does nothing": (
        ("RECONFIG_FAULT=nothing", "RECONFIG_BUDGET=32"),
        "never-began",
        "restart-not-done",
        6.0,
    ),
    "script fails": (("RECONFIG_FAULT=fail", "RECONFIG_BUDGET=32"), "never-began", "reconfigure-failed", 3.0),
    "script does not reload": (
        ("RECONFIG_FAULT=no-reload", "RECONFIG_BUDGET=32"),
        "wrong-arguments",
        "old-arguments-loaded",
        6.0,
    ),
    "server of the script dies": (
        ("WHEN=--speculative-ddtree-budget 32", "LOAD_FAULT=cuda"),
        "failed",
        "oom-loading-weights",
        6.0,
    ),
}


def script_end(host: Any, since: int) -> int:
    """When the first faulty run of the script was over."""
    ends = [
        e
        for e in host.ledger(since_ns=since)
        if e.get("budget") == 32 and e["event"] in ("fault", "reconfig-end")
    ]
    return int(next((e["t_ns"] for e in ends if e["event"] == "fault"), ends[0]["t_ns"]))


def script_trial(host: Any, tmp_path: Path, name: str, seed: int) -> None:
    """The same where the owner's script rewrites the unit: its success proves nothing."""
    faults, verdict, cause, limit_s = SCRIPTS[name]
    host.stage()
    host.fault(*FAST, *faults)
    began = host.bed.now()
    with Runner(
        host.bed, KIMI.format(name=f"kimi-{seed}"), tmp_path / "run.ddtop", tmp_path / "home"
    ) as runner:
        alert = runner.until_alert(90)
        runner.until(lambda _: runner.first_ns(f"[{alert.verdict}/{alert.cause}]"), 3, "alert on the pty")
        shown = runner.first_ns(f"[{alert.verdict}/{alert.cause}]")
        code = runner.wait(150)
        events, state, text = runner.events(), runner.state(), runner.text()
    assert alerts(events) == {(verdict, cause)}, text[-5000:]
    assert "b32" not in ready_configs(events) and states_of(state, "b32") <= {"failed", "broken"}, text[
        -5000:
    ]
    assert states_of(state, "b16") == states_of(state, "b64") == {"done"}, text[-5000:]
    assert code == 10
    stamp = (
        host.wait("fault", kind="cuda", since_ns=began)["t_ns"]
        if "LOAD_FAULT=cuda" in faults
        else script_end(host, began)
    )
    assert shown is not None
    took(TITLE, name, (shown - stamp) / 1e9)
    assert (shown - stamp) / 1e9 <= limit_s


@pytest.mark.bed
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_silent_script_failure(b300: Any, tmp_path: Path, name: str) -> None:
    script_trial(b300, tmp_path, name, 0)


@pytest.mark.bed
@pytest.mark.stories
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_silent_script_failure_ten_times(b300: Any, tmp_path: Path, name: str, seed: int) -> None:
    script_trial(b300, tmp_path, name, seed)
