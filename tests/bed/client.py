"""The bed for tests: `Bed` does by a method what `python -m tests.bed` does by a command."""

import contextlib
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from . import control
from .config import ALL, HOSTS, SSH_CONFIG
from .control import BedError
from .disk import fingerprint, write_ssh_config

__all__ = ["Bed", "BedError"]


class Bed:
    """Both hosts. Every call but `ssh` works out of band, also while a link is cut. Errors: BedError."""

    hosts = tuple(HOSTS)
    ssh_config = str(SSH_CONFIG)

    def up(self, real: bool = True) -> None:
        """Bring the bed up; one that runs from other sources than these, or lacks the real server, is renewed."""
        now = control.state()
        if now and (now["made_of"] != fingerprint() or (real and not now["real"])):
            control.down()
        control.up(real)

    def down(self) -> None:
        """Shut it down."""
        control.down()

    def is_up(self) -> bool:
        """Whether a bed is up, of whatever sources."""
        return control.state() is not None

    def status(self) -> dict[str, Any]:
        """{"real": bool, "hosts": {name: {"state", "boots", "ip", "link"}}}"""
        return control.ask("status")

    def ip(self, host: str) -> str:
        """The host's address."""
        return ALL[host].ip

    @staticmethod
    def now() -> int:
        """Nanoseconds of CLOCK_REALTIME: the one clock that bed, hosts and client share."""
        return time.time_ns()

    # ---- power

    def reboot(self, host: str, dark_s: float = 1.5, wait: bool = True) -> None:
        """Orderly reboot."""
        control.power(host, "reboot", dark_s, wait)

    def crash(self, host: str, dark_s: float = 1.5, wait: bool = True) -> None:
        """Lose power, silently, and come back."""
        control.power(host, "crash", dark_s, wait)

    def kill(self, host: str) -> None:
        """Lose power, silently, and stay off."""
        control.power(host, "kill")

    def off(self, host: str) -> None:
        """Orderly power-off."""
        control.power(host, "off")

    def on(self, host: str, wait: bool = True) -> None:
        """Power on."""
        control.power(host, "on", None, wait)

    def reset(self, host: str, dark_s: float = 1.5, wait: bool = True) -> None:
        """Come back with an empty disk and other host keys; `trust` accepts them."""
        control.power(host, "reset", dark_s, wait)

    def trust(self) -> None:
        """Put the present host keys into the client's known_hosts."""
        write_ssh_config()

    # ---- links

    def cut(self, host: str) -> None:
        """Drop every packet to and from the host."""
        control.link(host, cut=True)

    def hide(self, host: str) -> None:
        """Drop every packet between client and host; the other host still reaches it."""
        control.link(host, hidden=True)

    def heal(self, host: str) -> None:
        """Clear cut, hide, delay, loss and rate."""
        control.link(host)

    def delay(self, host: str, ms: float, loss: float = 0, kbit: float = 0) -> None:
        """Add `ms` to the round trip, lose `loss` percent of the packets, limit each way to `kbit`."""
        control.link(host, delay_ms=ms, loss=loss, kbit=kbit)

    # ---- inside

    def sh(
        self, host: str, *argv: str, check: bool = True, timeout_s: float = 60, stdin: str | None = None
    ) -> str:
        """Run a command in the host out of band and return what it printed (one string: by a shell)."""
        command: Sequence[str] = ("sh", "-c", argv[0]) if len(argv) == 1 else argv
        done = subprocess.run(
            control.guest_argv(host, command),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            input=stdin if stdin is not None else "",
            errors="replace",
        )
        if check and done.returncode:
            raise BedError(
                f"{host}: {' '.join(argv)}: status {done.returncode}: {done.stderr.strip()[-2000:]}"
            )
        return done.stdout

    def ssh(
        self, host: str, command: str, user: str = "root", check: bool = True, timeout_s: float = 60
    ) -> str:
        """Run a command over the real sshd; returns its standard output."""
        argv = ["ssh", "-F", self.ssh_config, "-l", user, host, command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
        if check and done.returncode:
            raise BedError(f"ssh {host}: {command}: status {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def fault(self, host: str, *settings: str, **values: object) -> None:
        """Set the host's faults (README.md lists them); without any: clear them. Restart counts begin anew."""
        lines = [*settings, *(f"{k}={v}" for k, v in values.items())]
        self.sh(host, "python3", "-m", "ddtop_bed.faults", *lines)

    def wait_on(self, host: str, timeout_s: float = 60) -> None:
        """Until the host has power and its sshd greets."""
        deadline = time.monotonic() + timeout_s
        while self.status()["hosts"][host]["state"] != "on" and time.monotonic() < deadline:
            time.sleep(0.05)
        control.wait_ssh([host], max(1.0, deadline - time.monotonic()))

    def restore(self, host: str) -> None:
        """Put a host back as it was found: power, link, faults, units, models, processes, ledger. About 0.5 s."""
        self.heal(host)
        if self.status()["hosts"][host]["state"] != "on":
            with contextlib.suppress(BedError):
                self.on(host, wait=False)
            self.wait_on(host)
        self.sh(host, "python3", "-m", "ddtop_bed.reset")
