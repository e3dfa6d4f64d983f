"""The demo's machine: one folder with a home, a PATH of its own, a staged model, keys and an SSH configuration."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

SHARDS, SHARD_BYTES = 6, 4 << 20
_BORROWED = (
    "sh",
    "env",
    "cat",
    "cp",
    "df",
    "id",
    "mkdir",
    "mv",
    "rm",
    "sleep",
    "stat",
    "uname",
    "ss",
    "true",
    "setsid",
)
"""Tools of the machine that the demo's host may use. systemctl and journalctl are not among them."""


@dataclass(frozen=True)
class World:
    """Paths of the demo's machine under `root`; `build` makes them."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def host_key(self) -> Path:
        return self.root / "ssh" / "host_key"

    @property
    def client_key(self) -> Path:
        return self.root / "ssh" / "client_key"

    @property
    def authorized_keys(self) -> Path:
        return self.root / "ssh" / "authorized_keys"

    @property
    def ssh_config(self) -> Path:
        return self.root / "ssh" / "config"

    @property
    def known_hosts(self) -> Path:
        return self.root / "ssh" / "known_hosts"

    def environment(self) -> dict[str, str]:
        """What a session on the demo's machine has: a PATH with nothing of the machine's service manager."""
        return {
            "PATH": str(self.bin),
            "HOME": str(self.home),
            "USER": os.environ.get("USER", "demo"),
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "DDTOP_DEMO_DIR": str(self.root),
            "DDTOP_LEASE_DIR": str(self.home),  # the demo's machine is not the one it runs on
        }

    def build(self) -> None:
        """Makes the folder. Keys come from asyncssh, so no ssh-keygen is needed."""
        import asyncssh

        for folder in (self.home, self.bin, self.root / "ssh", self.root / "gpu"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / "ssh").chmod(0o700)
        self._script("python3", f'exec "{sys.executable}" "$@"')
        self._script(
            "nvidia-smi", f'exec "{sys.executable}" -S "{Path(__file__).with_name("nvidia_smi.py")}" "$@"'
        )
        for tool in _BORROWED:
            found = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
            if found and not (self.bin / tool).exists():
                (self.bin / tool).symlink_to(found)
        host, client = (asyncssh.generate_private_key("ssh-ed25519", comment="ddtop demo") for _ in range(2))
        host.write_private_key(str(self.host_key))
        client.write_private_key(str(self.client_key))
        client.write_public_key(str(self.authorized_keys))
        host.write_public_key(str(self.root / "ssh" / "host_key.pub"))
        for secret in (self.host_key, self.client_key):
            secret.chmod(0o600)
        self._model(self.root / "disk" / "Sim-27B")

    def _script(self, name: str, line: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def _model(self, path: Path) -> None:
        """A small model directory that is whole by every rule: index, exact shard sizes, tokenizer."""
        path.mkdir(parents=True, exist_ok=True)
        names = [f"model-{i:05d}-of-{SHARDS:05d}.safetensors" for i in range(1, SHARDS + 1)]
        for name in names:
            header = json.dumps(
                {"w": {"dtype": "U8", "shape": [SHARD_BYTES], "data_offsets": [0, SHARD_BYTES]}}
            ).encode()
            data = len(header).to_bytes(8, "little") + header + os.urandom(1 << 16) * (SHARD_BYTES >> 16)
            (path / name).write_bytes(data)
        weights = {f"layer.{i}.weight": name for i, name in enumerate(names)}
        index = {"metadata": {"total_size": SHARDS * SHARD_BYTES}, "weight_map": weights}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
        (path / "config.json").write_text(
            json.dumps({"architectures": ["Qwen3ForCausalLM"], "simulated": True})
        )
        (path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "BPE"}}))
        (path / "tokenizer_config.json").write_text("{}")

    def write_ssh_config(self, port: int) -> None:
        """An ordinary OpenSSH configuration that reaches the demo's server as `demo`, host key checked."""
        public = (self.root / "ssh" / "host_key.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
        self.ssh_config.write_text(
            "Host demo\n  HostName 127.0.0.1\n"
            f'  Port {port}\n  User demo\n  IdentityFile "{self.client_key}"\n  IdentitiesOnly yes\n'
            f'  UserKnownHostsFile "{self.known_hosts}"\n  StrictHostKeyChecking yes\n'
        )

    def processes(self) -> list[int]:
        """Processes that live in this world: those whose environment names its folder (Linux)."""
        mark = f"DDTOP_DEMO_DIR={self.root}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in entry.read_bytes().split(b"\0") and int(entry.parent.name) != os.getpid():
                    found.append(int(entry.parent.name))
        return found

    def end_processes(self) -> None:
        """Ends what the demo left running on its machine: TERM, then KILL after a second."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pids = self.processes()
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            deadline = time.monotonic() + 1
            while pids and self.processes() and time.monotonic() < deadline:
                time.sleep(0.05)
