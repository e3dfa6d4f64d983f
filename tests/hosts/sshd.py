"""A real OpenSSH server on loopback, with its own keys and port: nothing of this machine's own is used."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def sshd_path() -> str:
    path = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if path is None or os.getuid() != 0:
        why = "needs root and sshd (apt-get install openssh-server)"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    Path("/run/sshd").mkdir(exist_ok=True)
    return path


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


class Sshd:
    """One server; `config()` writes a client configuration that knows it as `box`."""

    def __init__(self, folder: Path, options: str = "", login_shell_rc: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.port = free_port()
        self.host_key = make_key(folder / "host_key")
        self.user_key = make_key(folder / "user_key")
        (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.host_key}\nPidFile {folder}/pid\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            f"PermitRootLogin yes\nPrintMotd no\nAcceptEnv XX\n{options}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [sshd_path(), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        for _ in range(200):
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError((self.folder / "log").read_text())

    def sessions(self) -> list[int]:
        """The processes of connections, below the listener."""
        assert self.process is not None
        out = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        found = [int(pid) for pid in out.stdout.split()]
        for pid in list(found):
            more = subprocess.run(
                ["pgrep", "-P", str(pid), "sshd"], capture_output=True, text=True, check=False
            )
            found += [int(p) for p in more.stdout.split()]
        return found

    def signal_sessions(self, number: int) -> None:
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        if self.process is not None:
            self.signal_sessions(signal.SIGCONT)
            self.signal_sessions(signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            self.process = None

    def known_hosts_line(self, name: str = "127.0.0.1", key: Path | None = None) -> str:
        kind, data = (key or self.host_key).with_suffix(".pub").read_text().split()[:2]
        return f"[{name}]:{self.port} {kind} {data}\n"

    def config(self, *, known: str | None = None, extra: str = "", jump: str = "") -> Path:
        known_hosts = self.folder / "known_hosts"
        known_hosts.write_text(self.known_hosts_line() if known is None else known)
        path = self.folder / "ssh_config"
        path.write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {self.port}\n  User root\n  IdentityFile {self.user_key}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            f"  StrictHostKeyChecking yes\n{extra}\n{jump}"
        )
        return path


@contextlib.contextmanager
def running(folder: Path, options: str = "") -> Iterator[Sshd]:
    server = Sshd(folder, options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
