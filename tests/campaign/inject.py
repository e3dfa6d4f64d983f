"""Faults on a host of the bed and on the client, each undone by itself after its time. Out of band: never through ddtop."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddtop.errors import DdtopError
from ddtop.events import Command, GoOn, Pause, StopRun
from tests.bed.client import BedError
from tests.bed.config import REPO
from tests.campaign.draw import Fault
from tests.stories.desk import Terminal

CLOCK_S = 3600
AGENT = "'^python3 -I -S -c import sys,os,hashlib'"
GENERATOR = (
    "for u in $(systemctl list-units --plain --no-legend 'ddtop-job-*' | cut -d' ' -f1);"
    " do systemctl kill -s {0} --kill-whom=all $u; done"
)
STATE = "/root/.local/state/ddtop"
SQUAT = (
    "systemd-run -q --unit=foreign-app-30000 sh -c"
    ' \'until ss -ltnH "sport = :30000" | grep -q . && sleep 0.05 || python3 -m ddtop_bed.foreign squat 30000;'
    " do sleep 0.05; done'"
)
UNIT = "sglang-bench.service"
FILE = f"/etc/systemd/system/{UNIT}"
JOURNALD = (
    "systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journald"
)
FAULTS = "/etc/ddtop-bed/faults"
SSHD = "/etc/ssh/sshd_config.d/bed.conf"
LOGINS = "pkill -9 -f '^sshd: [a-z]+(@| \\[)'; true"

ON_HOST: Mapping[str, tuple[str, str]] = {
    "kill-agent": (f"pkill -9 -f {AGENT}", ""),
    "suspend-agent": (f"pkill -STOP -f {AGENT}", f"pkill -CONT -f {AGENT}; true"),
    "kill-generator": (GENERATOR.format("KILL"), ""),
    "suspend-generator": (GENERATOR.format("STOP"), GENERATOR.format("CONT") + "; true"),
    "kill-server": (f"systemctl kill -s KILL --kill-whom=all {UNIT}", ""),
    "suspend-server": (
        f"systemctl kill -s STOP --kill-whom=all {UNIT}",
        f"systemctl kill -s CONT --kill-whom=all {UNIT}; true",
    ),
    "stop-server": (f"systemctl stop --no-block {UNIT}", ""),
    "restart-server": (f"systemctl restart --no-block {UNIT}", ""),
    "daemon-reload": ("systemctl daemon-reload", ""),
    "edit-unit": (f"sed -i 's/^Description=.*/& (edited)/' {FILE}; systemctl daemon-reload", ""),
    "owner-drop-in": (
        f"mkdir -p {FILE}.d; printf '[Service]\\nEnvironment=OWNER=1\\n' > {FILE}.d/50-owner.conf; systemctl daemon-reload",
        "",
    ),
    "kill-sshd": (
        "systemctl kill -s KILL ssh; killall -q -9 sshd; systemctl stop ssh; true",
        "systemctl reset-failed ssh; systemctl start ssh",
    ),
    "max-sessions": (
        f"echo 'MaxSessions 0' > {SSHD}; systemctl reload ssh; {LOGINS}",
        f"rm -f {SSHD}; systemctl reload ssh",
    ),
    "one-session": (
        f"echo 'MaxSessions 1' > {SSHD}; systemctl reload ssh; {LOGINS}",
        f"rm -f {SSHD}; systemctl reload ssh",
    ),
    "kill-journald": ("systemctl kill -s KILL systemd-journald", ""),
    "restart-journald": ("systemctl restart systemd-journald", ""),
    "stop-journald": (f"systemctl stop {JOURNALD}", f"systemctl start {JOURNALD}"),
    "rotate-journal": ("journalctl -q --rotate; journalctl -q --vacuum-files=1", ""),
    "host-disk-full": (
        f"head -c 1G /dev/zero > {STATE}/filler 2>/dev/null; test -s {STATE}/filler",
        f"rm -f {STATE}/filler",
    ),
    "shm-full": (
        "fallocate -l $(($(stat -fc '%a*%S' /dev/shm))) /dev/shm/filler.bin || { rm -f /dev/shm/filler.bin; false; }",
        "rm -f /dev/shm/filler.bin",
    ),
    "smi-hang": (
        f"(cat {FAULTS}; printf 'WHEN=\\nSTARTS=\\nSMI_FAULT=hang\\n') > {FAULTS}.2; mv {FAULTS}.2 {FAULTS}",
        f"sed '/^SMI_FAULT/d' {FAULTS} > {FAULTS}.2; mv {FAULTS}.2 {FAULTS}",
    ),
    "port-taken": (SQUAT, "systemctl stop foreign-app-30000; true"),
    "gpu-taken": (
        "systemd-run -q --unit=foreign-gpu-0 python3 -m ddtop_bed.foreign hog 0 40000",
        "systemctl stop foreign-gpu-0; true",
    ),
}
"""Kind → what is run on the host, and what undoes it when its time is over. The port is taken as soon as it is free; the owner's
edits stay. `max-sessions` lets nobody in, `one-session` one channel a connection; both end the logins that are there."""


OF_PROCESS: Mapping[str, tuple[str, str]] = {
    "kill-server": ("pkill -9 -f '[s]glang.launch_server'", ""),
    "suspend-server": (
        "pkill -STOP -f '[s]glang.launch_server'",
        "pkill -CONT -f '[s]glang.launch_server'; true",
    ),
    "kill-supervisor": ("pkill -9 -f 'zip [s]upervise'", ""),
}
"""The same where the server is a plain process under a supervisor of ddtop's agent."""


VIEWER = """import sys
from pathlib import Path
from ddtop.commands.connect import _session, show
from ddtop.journal.act.pending import viewer_name
from ddtop.config import load_settings
show([_session(Path(sys.argv[1]), viewer_name())], viewer_name(), load_settings())"""
"""A dashboard that starts no runner where none is alive."""


class VoidError(Exception):
    """The fault could not be set, such as one inside a host that has no power: it does not count."""


def build_clock(folder: Path) -> Path | None:
    """The preloaded clock; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    out = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(out), str(source)], check=True)
    return out


class Injector:
    """Sets the faults of one trial. `runner`: the living runner of the trial, which may change."""

    def __init__(self, host: Any, folder: Path, runner: Callable[[], Any], *, process: bool = False) -> None:
        self.host, self.folder, self.runner, self.process = host, folder, runner, process
        self.again_at: float | None = None
        """When the runner that was killed is started again (monotonic)."""
        self.ends_s: float | None = None
        """A runner that was asked to end is started again so many seconds after it has."""
        self.troubles: list[str] = []
        self._open: list[threading.Thread] = []

    def inject(self, fault: Fault) -> None:
        """Sets it. Raises VoidError where that cannot be."""
        try:
            ways = {**ON_HOST, **OF_PROCESS} if self.process else ON_HOST
            if fault.kind in ways:
                self._on_host(fault, *ways[fault.kind])
            else:
                getattr(self, "_" + fault.kind.replace("-", "_"))(fault)
        except (BedError, OSError, subprocess.TimeoutExpired) as error:
            raise VoidError(f"{fault.kind}: {str(error)[:200]}") from None

    def wait(self) -> None:
        """Until every fault that lasts is undone."""
        for thread in list(self._open):
            thread.join(150)

    def _later(self, seconds: float, undo: Callable[[], Any]) -> None:
        def work() -> None:
            time.sleep(seconds)
            for _ in range(40):  # a host that is dark cannot be repaired now
                try:
                    undo()
                    return
                except (BedError, OSError, subprocess.TimeoutExpired):
                    time.sleep(0.5)
            self.troubles.append(f"not undone: {undo}")

        thread = threading.Thread(target=work, daemon=True)
        self._open.append(thread)
        thread.start()

    # ---- processes

    def _kill_runner(self, fault: Fault) -> None:
        self.runner().kill()
        self.again_at = time.monotonic() + fault.lasts_s

    def _kill_dashboard(self, fault: Fault) -> None:
        """Opens one on the run and kills it."""
        argv = [sys.executable, "-c", VIEWER, str(self.runner().recording)]
        env = {
            **os.environ,
            "DDTOP_HOME": str(self.runner().home),
            "PYTHONPATH": str(REPO),
            "TERM": "xterm-256color",
        }
        self._later(fault.lasts_s, Terminal(argv, env).kill)

    def _on_host(self, fault: Fault, command: str, undo: str) -> None:
        self.host.sh(command)
        if undo:
            self._later(fault.lasts_s, lambda: self.host.sh(undo))

    def _end_runner(self, fault: Fault) -> None:
        """Asked to end: ctrl-c, a closed terminal, the machine's shutdown. It puts the host back, and is started again."""
        which = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[int(10 * fault.at_s) % 3]
        self.runner().process.send_signal(which)
        self.ends_s = fault.lasts_s

    def _stop_run(self, fault: Fault) -> None:
        """`ddtop stop`, or its key."""
        self._say(StopRun)
        self.ends_s = fault.lasts_s

    def _pause(self, fault: Fault) -> None:
        self._say(Pause)
        self._later(fault.lasts_s, lambda: self._say(GoOn))

    def _say(self, make: type[Command]) -> None:
        """A command as a dashboard gives it."""
        try:
            self.runner().send(make)
        except DdtopError as error:
            raise BedError(str(error)) from None

    def _suspend_runner(self, fault: Fault) -> None:
        """The lid is closed."""
        process = self.runner().process
        process.send_signal(signal.SIGSTOP)
        self._later(fault.lasts_s, lambda: process.send_signal(signal.SIGCONT))

    def _second_connect(self, fault: Fault) -> None:
        """Another person, with another home, who wants the host too."""
        home = self.folder / "other-home"
        env = {**os.environ, "DDTOP_HOME": str(home), "PYTHONPATH": str(REPO)}
        argv = [sys.executable, "-m", "ddtop.cli", "connect", self.host.name]
        argv += ["--plan", str(self.folder / "other.toml"), "--record", str(home / "other.ddtop")]
        process = subprocess.Popen(
            [*argv, "--ssh-config", str(self.host.bed.ssh_config)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

        def over() -> None:
            if process.wait(140) == 0:
                self.troubles.append("a second run had the host meanwhile")

        self._later(0, over)

    # ---- power and link

    def _reboot(self, fault: Fault) -> None:
        self.host.reboot(dark_s=fault.lasts_s, wait=False)

    def _power_loss(self, fault: Fault) -> None:
        self.host.crash(dark_s=fault.lasts_s, wait=False)

    def _cut(self, fault: Fault) -> None:
        self.host.cut()
        self._later(fault.lasts_s, self.host.heal)

    def _delay(self, fault: Fault) -> None:
        self.host.delay(300, 6)
        self._later(fault.lasts_s, self.host.heal)

    def _loss(self, fault: Fault) -> None:
        self.host.delay(20, 30)
        self._later(fault.lasts_s, self.host.heal)

    def _slow_link(self, fault: Fault) -> None:
        self.host.delay(80, 0, 48)
        self._later(fault.lasts_s, self.host.heal)

    # ---- disks, clocks, strangers

    def _client_disk_full(self, fault: Fault) -> None:
        """The recording's disk is a small one of its own (trial.py)."""
        if not self.runner().recording.exists():
            raise VoidError("client-disk-full: there is no recording yet")
        filler = self.runner().recording.parent / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        self._later(fault.lasts_s, lambda: filler.unlink(missing_ok=True))

    def _host_clock(self, fault: Fault) -> None:
        seconds = CLOCK_S if fault.ahead else -CLOCK_S
        self.host.sh(f"echo {seconds} > /etc/ddtop-bed/clock")

    def _client_clock(self, fault: Fault) -> None:
        (self.folder / "clock").write_text(str(CLOCK_S if fault.ahead else -CLOCK_S))
