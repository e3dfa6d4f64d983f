"""Starts that fail without a word, and starts that look dead and are healthy: what is said of each, and after how long.

The right answer stands here before ddtop is asked. `python -m tests.campaign.silent [NAME…]` runs them and prints a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtop.events import AlertRaised, RestartReady, RestartStarted
from tests.bed import trouble
from tests.stories.harness import Runner, plan_text, states_of

UNIT = "sglang-bench.service"
ONE = "a = {}\n"
TWO = 'a = {}\nb = { args = ["--context-length", "8192"] }\n'
B = "WHEN=--context-length 8192"
POLICY = (
    'foreign = "wait-1min-then-stop"\ntransient = "fail-and-go-on"\nbug = "fail-and-go-on"\nhost = "stop"\n'
    'zero_tokens = "fail-and-go-on"'
)
FAST = ("LOAD_S=1", "WARM_S=0.3")
Act = Callable[[Any], None]


def unit_has(text: str) -> Act:
    """A drop-in of the owner's."""

    def act(host: Any) -> None:
        trouble.dropin(host.bed, host.name, UNIT, text)

    return act


def service_has(text: str) -> Act:
    return unit_has(f"[Service]\n{text}\n")


def shell(text: str) -> Act:
    def act(host: Any) -> None:
        host.sh(text)

    return act


def needs_mount(command: str) -> Act:
    """The unit requires another one, which runs `command`."""

    def act(host: Any) -> None:
        text = f"[Unit]\nDescription=Model mount\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={command}\n"
        host.sh("cat > /etc/systemd/system/model-mount.service", stdin=text)
        unit_has("[Unit]\nRequires=model-mount.service\nAfter=model-mount.service\n")(host)

    return act


def boots_with(python: str) -> Act:
    def act(host: Any) -> None:
        host.sh("cat > /etc/ddtop-bed/boot.py", stdin=python)

    return act


def other_unit(host: Any) -> None:
    host.sh(
        "sed 's/Description=.*/Description=Other/' /etc/systemd/system/sglang-bench.service > /etc/systemd/system/"
        "other-llm.service; systemctl daemon-reload; systemctl start other-llm"
    )
    host.sh(
        "for i in $(seq 200); do ss -ltnH 'sport = :30000' | grep -q . && exit 0; sleep 0.1; done; exit 1"
    )


def cut_shard(everywhere: bool) -> Act:
    def act(host: Any) -> None:
        trouble.damage_model(host.bed, host.name, "truncated")
        if everywhere:
            trouble.damage_model(host.bed, host.name, "truncated", host.spec.source)

    return act


def no_room(host: Any) -> None:
    host.sh(f"rm -rf {host.spec.model}")
    trouble.fill_shm(host.bed, host.name, leave_mib=4)


def start_limit(host: Any) -> None:
    unit_has("[Unit]\nStartLimitBurst=1\nStartLimitIntervalSec=600\n")(host)
    host.sh(f"systemctl start {UNIT}; systemctl stop {UNIT}; systemctl start {UNIT}; true")


@dataclass(frozen=True)
class Silent:
    """A start that fails. `causes`: those that count as right; `words`: what the alert must name.

    limit_s  from the start's call (or the ledger's event `stamp`) to the alert
    """

    causes: tuple[str, ...]
    setup: Act | None = None
    faults: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    limit_s: float = 8.0
    stamp: str = ""
    more: str = "]"
    """The end of the plan's command."""
    program: str = ""
    """Instead of the engine's python in the plan's command."""


LOG = "StandardOutput=append:/var/log/sglang.log\nStandardError=append:/var/log/sglang.log"
SILENT: dict[str, Silent] = {
    "environment file missing": Silent(
        ("environment-file-missing",), service_has("EnvironmentFile=/etc/sglang/secret.env")
    ),
    "user unknown": Silent(("user-missing",), service_has("User=sglang")),
    "group unknown": Silent(("user-missing",), service_has("Group=gpuusers")),
    "working directory missing": Silent(
        ("working-directory-missing",), service_has("WorkingDirectory=/opt/nowhere")
    ),
    "unit masked": Silent(("unit-masked",), lambda h: trouble.mask(h.bed, h.name, UNIT)),
    "unit missing": Silent(
        ("unit-not-found",), shell(f"rm /etc/systemd/system/{UNIT}; systemctl daemon-reload")
    ),
    "condition not met": Silent(
        ("condition-not-met",),
        lambda h: trouble.unmet_condition(h.bed, h.name, UNIT),
        words=("no-such-file",),
    ),
    "ExecStartPre fails": Silent(
        ("start-pre-failed",),
        service_has('ExecStartPre=/bin/sh -c "echo mount /models is not there >&2; exit 3"'),
        words=("mount /models is not there",),
    ),
    "ExecStartPost hangs": Silent(
        ("start-timeout", "start-post-failed"),
        service_has("TimeoutStartSec=12\nExecStartPost=/bin/sleep 1000"),
        limit_s=20.0,
    ),
    "never READY=1": Silent(
        ("start-timeout", "notify-protocol"), service_has("Type=notify\nTimeoutStartSec=12"), limit_s=18.0
    ),
    "TimeoutStartSec too short": Silent(
        ("start-timeout",), service_has("Type=notify\nTimeoutStartSec=4"), ("LOAD_S=20",), limit_s=10.0
    ),
    "program missing": Silent(("exec-not-found",), program="/opt/nope/bin/python"),
    "program not executable": Silent(
        ("exec-not-found", "permission-denied"),
        shell("cp /usr/bin/python3 /opt/py; chmod 644 /opt/py"),
        program="/opt/py",
    ),
    "dependency fails": Silent(
        ("dependency-failed",),
        needs_mount('/bin/sh -c "echo mount.nfs: Connection refused >&2; exit 32"'),
        words=("model-mount.service",),
    ),
    "crash loop": Silent(
        ("gpu-arch-unsupported", "cuda-error"), lambda h: trouble.crash_loop(h.bed, h.name, UNIT)
    ),
    "killed while it loads": Silent(
        ("main-process-killed", "killed-by-signal"),
        boots_with("import os, time\nlog('Load weight begin.')\ntime.sleep(1)\nos.kill(os.getpid(), 9)\n"),
        ("BOOT_PY=/etc/ddtop-bed/boot.py",),
    ),
    "out of memory, log in a file": Silent(
        ("oom-loading-weights",), service_has(LOG), ("LOAD_FAULT=cuda",), stamp="fault", limit_s=6.0
    ),
    "graph capture fails": Silent(
        ("cuda-graph-capture-failed",), None, ("LOAD_FAULT=capture",), stamp="fault", limit_s=6.0
    ),
    "warm-up fails": Silent(
        ("warmup-request-failed",), None, ("WARM_FAULT=die",), stamp="fault", limit_s=6.0
    ),
    "another port": Silent(
        ("listens-elsewhere",), None, ("PORT=30001",), words=("30001",), stamp="ready", limit_s=6.0
    ),
    "another model name": Silent(
        ("wrong-model-name", "wrong-arguments"),
        None,
        ("MODEL_NAME=other-model",),
        more=', "--served-model-name", "{model.name}"]',
        words=("other-model",),
        stamp="ready",
        limit_s=6.0,
    ),
    "a web page, 200": Silent(("not-an-inference-server",), None, ("HTML=200",), stamp="ready", limit_s=6.0),
    "a web page, 502": Silent(("proxy-in-front",), None, ("HTML=502",), stamp="ready", limit_s=6.0),
    "500 for each completion": Silent(("server-error",), None, ("HTTP500=1",), stamp="ready", limit_s=6.0),
    "no token": Silent(("zero-tokens",), None, ("ZERO_TOKENS=1",), stamp="ready", limit_s=6.0),
    "dies 3 s after it was ready": Silent(
        ("cuda-illegal-memory-access",), None, ("DIE_S=3",), stamp="fault", limit_s=8.0
    ),
    "another unit on the port": Silent(
        ("port-in-use",), other_unit, words=("other-llm.service",), limit_s=15.0
    ),
    "a stranger on the port": Silent(("port-in-use",), lambda h: trouble.squat(h.bed, h.name), limit_s=15.0),
    "a stranger on the GPUs": Silent(
        ("gpu-memory-held-by-other-process",),
        lambda h: trouble.hog(h.bed, h.name, 0, 60000),
        words=("60000 MiB", "pid"),
        limit_s=15.0,
    ),
    "a shard cut here and in the source": Silent(
        ("model-weights-damaged",), cut_shard(True), words=("/data/models/",), limit_s=15.0
    ),
    "no room for the model": Silent(
        ("no-space",),
        no_room,
        words=("MiB",),
        limit_s=15.0,
    ),
    "asleep half-way in the load": Silent(
        ("hang-asleep",), None, (B, "LOAD_FAULT=hang"), stamp="fault", limit_s=33.0
    ),
}
"""Those with `B` in their faults hang in the second configuration, after a quick start."""

SCARY = """
for line in ("WARNING: NCCL WARN NET/IB : Unable to open /dev/infiniband, falling back to sockets",
             "Ignore import error when loading sglang.srt.models.foo: No module named 'foo'",
             "Traceback (most recent call last): retrying download, ConnectionError: attempt 1 of 5",
             "CUDA error check: 0 errors", "Failed to load tuned MoE kernel config, using default; performance may be sub-optimal"):
    log(line)
import time
time.sleep(25)
"""
DOWNLOAD = """
import os, sys, time
if "--context-length" in sys.argv:
    folder = os.path.expanduser("~/.cache/huggingface/x")
    os.makedirs(folder, exist_ok=True)
    log("Downloading")
    for i in range(45):
        with open(f"{folder}/{i % 4}", "wb") as f:
            f.write(os.urandom(2_000_000))
        with open(f"{folder}/{i % 4}", "rb") as f:
            f.read()
        time.sleep(1)
"""
BOOT = "BOOT_PY=/etc/ddtop-bed/boot.py"
SLOW: dict[str, tuple[Act | None, tuple[str, ...]]] = {
    "90 s of load, nothing logged": (None, (B, "LOAD_S=90")),
    "75 s of warm-up, /health 503": (None, (B, "WARM_S=75")),
    "45 s of pause before the ranks meet": (None, (B, "PAUSE_S=45")),
    "70 s of silent capture": (None, (B, "CAPTURE_S=70")),
    "60 s of compiling": (None, (B, "SHAPE=compile", "SHAPE_S=60")),
    "45 s of a file server's pause in the load": (None, (B, "LOAD_S=4", "SHAPE=mount", "SHAPE_S=45")),
    "45 s of download": (boots_with(DOWNLOAD), (BOOT,)),
    "frightening log lines": (boots_with(SCARY), (BOOT,)),
    "the old server drains for 40 s": (None, ("STOP_S=40",)),
    "ExecStartPre of 45 s": (service_has("ExecStartPre=/bin/sleep 45"), ()),
    "a dependency of 40 s": (needs_mount("/bin/sleep 40"), ()),
    "Type=exec, Restart=on-failure": (
        service_has("Type=exec\nRestart=on-failure\nExecStartPre=/bin/sleep 3"),
        (),
    ),
    "the log in a file": (service_has(LOG), ()),
    "the log nowhere": (service_has("StandardOutput=null\nStandardError=null"), ()),
    "no journal": (
        shell("systemctl stop systemd-journald.socket systemd-journald-dev-log.socket systemd-journald"),
        (),
    ),
    "a start limit that the owner has used up": (start_limit, ()),
    "a shard cut here alone": (cut_shard(False), ()),
}


@dataclass
class Told:
    """What was said of one case."""

    name: str
    verdict: str = ""
    cause: str = ""
    seconds: float | None = None
    wrong: str = ""
    """Why it is not right; empty where it is."""
    whole_s: float = 0.0


def failing(host: Any, folder: Path, name: str) -> Told:
    """Runs one silent failure. The host is restored before."""
    case, told = SILENT[name], Told(name)
    host.restore()
    host.stage()
    host.fault(*FAST, *case.faults)
    if case.setup is not None:
        case.setup(host)
    began = host.bed.now()
    text = plan_text("silent", configs=TWO if B in case.faults else ONE, policy=POLICY)
    text = text.replace('"--enable-metrics"]', '"--enable-metrics"' + case.more)
    if case.program:
        text = text.replace("/opt/sglang/bin/python", case.program)
    with Runner(host.bed, text, folder / "run.ddtop", folder / "home") as runner:
        try:
            alert = runner.until_alert(max(60.0, 3 * case.limit_s))
        except AssertionError as error:
            told.wrong = f"no alert: {str(error)[-300:]}"
            return told
        events = runner.events()
        told.verdict, told.cause = alert.verdict, alert.cause
        said = f"{alert.cause_text} {alert.advice} " + " ".join(e.text for e in alert.evidence)
        since = began / 1e9
        if case.stamp:
            since = host.wait(case.stamp, since_ns=began, timeout_s=30)["t_ns"] / 1e9
        elif called := [e.at_s for e in events if isinstance(e, RestartStarted) and e.at_s <= alert.at_s]:
            since = called[-1]
        told.seconds = round(alert.at_s - since, 1)
        missing = [w for w in case.words if w not in said]
        ready = [e for e in events if isinstance(e, RestartReady)]
        if alert.cause not in case.causes:
            told.wrong = f"cause {alert.cause}, not {' or '.join(case.causes)}: {said[:300]}"
        elif missing:
            told.wrong = f"does not name {missing}: {said[:300]}"
        elif told.seconds > case.limit_s:
            told.wrong = f"after {told.seconds} s, not {case.limit_s}"
        elif len(ready) > (B in case.faults or "DIE_S=3" in case.faults):
            told.wrong = "it was called ready"
    return told


def healthy(host: Any, folder: Path, name: str) -> Told:
    """Runs one slow start, after a quick one of the same run where its faults say so. No alert is right."""
    setup, faults = SLOW[name]
    told = Told(name)
    host.restore()
    host.stage()
    host.fault(*FAST, *faults)
    if setup is not None:
        setup(host)
    began = host.bed.now()
    try:
        with Runner(
            host.bed, plan_text("slow", configs=TWO, policy=POLICY), folder / "run.ddtop", folder / "home"
        ) as runner:
            code = runner.wait(300)
            raised = [e for e in runner.events() if isinstance(e, AlertRaised)]
            state = runner.state()
    finally:
        host.sh("systemctl start systemd-journald.socket systemd-journald-dev-log.socket systemd-journald")
    told.whole_s = round((host.bed.now() - began) / 1e9, 1)
    if raised:
        told.verdict, told.cause = raised[0].verdict, raised[0].cause
        told.wrong = f"{raised[0].title}: {raised[0].cause_text[:300]}"
    elif code != 0 or states_of(state, "a") | states_of(state, "b") != {"done"}:
        told.wrong = f"exit code {code}, {states_of(state, 'a')} {states_of(state, 'b')}"
    return told


def main() -> int:
    from tests.bed.client import Bed
    from tests.bed.oracle import Oracle
    from tests.conftest import BedHost

    bed = Bed()
    bed.up()
    host = BedHost("ct200", bed, Oracle(bed))
    wrong = 0
    out = Path("/tmp/ddtop-silent")
    for n, name in enumerate(sys.argv[1:] or [*SILENT, *SLOW]):
        folder = out / f"{bed.now()}-{n}"
        folder.mkdir(parents=True)
        told = (failing if name in SILENT else healthy)(host, folder, name)
        wrong += bool(told.wrong)
        what = (
            f"{told.verdict} | {told.cause} | {told.seconds}"
            if name in SILENT
            else f"{told.wrong and told.cause} | | {told.whole_s}"
        )
        print(f"| {name} | {what} | {told.wrong or 'ok'} |", flush=True)
    host.restore()
    print(f"{wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
