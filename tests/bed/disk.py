"""A host's disk: identity, keys, GPU description, models and the files of rootfs/, over the cached base."""

import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from . import slurm
from .config import (
    ALL,
    BASE,
    CLUSTER,
    DISKS,
    HERE,
    KEYS,
    KNOWN_HOSTS,
    ROOTFS,
    RUN,
    SHARED_HOME,
    SLURM_LAYER,
    SSH_CONFIG,
)
from .shell import remove, sh, write

TOOLS_DIR = ROOTFS / "common/usr/lib/python3/dist-packages"
VENVS = {
    "opt/sglang": ["/opt/sglang/src"],
    "opt/ddtree": ["/opt/sglang/src"],
}  # the second is a fork of the first
USER_UNITS = "home/bench/.config/systemd/user"
EXECUTABLE = ("bin", "libexec")


def fingerprint() -> str:
    """A hash of all the bed is made of: a bed that runs with another one is out of date."""
    digest = hashlib.sha256()
    modules = [HERE / f"{m}.py" for m in ("base", "config", "daemon", "disk", "hosts", "router", "slurm")]
    for path in [
        *modules,
        *sorted(p for p in ROOTFS.rglob("*") if p.is_file() and "__pycache__" not in p.parts),
    ]:
        digest.update(f"{path.relative_to(HERE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def keygen(path: Path) -> None:
    """Make an ed25519 key pair where there is none yet."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ddtop-bed", "-f", path)


def provision(name: str, new_keys: bool = False) -> None:
    """Make a host's empty disk, and the layer under it."""
    disk, layer = DISKS / name, DISKS / name / "layer"
    remove(disk, *[KEYS / name] if new_keys else [])
    for d in (layer, disk / "upper", disk / "work", disk / "root"):
        d.mkdir(parents=True, exist_ok=True)
    for part in ("common", *(() if name in CLUSTER else (name,))):
        shutil.copytree(
            ROOTFS / part,
            layer,
            dirs_exist_ok=True,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for path in layer.rglob("*"):
        os.chown(path, 0, 0)
        path.chmod(
            0o755 if path.is_dir() or path.parent.name in EXECUTABLE or path.suffix == ".sh" else 0o644
        )
    _identity(name, layer)
    for venv, sources in VENVS.items():
        _venv(layer / venv, sources)
    spec = dataclasses.asdict(ALL[name])
    write(layer / "etc/ddtop-bed/gpu.json", json.dumps({**spec, "host": name}))
    (layer / "var/lib/ddtop-bed").mkdir(parents=True, exist_ok=True)
    (layer / "var/lib/ddtop-bed").chmod(0o777)  # a user's service writes the ledger too
    subprocess.run(
        [sys.executable, "-m", "ddtop_bed.models", name, str(layer)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(TOOLS_DIR), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if name in CLUSTER:
        slurm.configure(name, layer)
        _share_home(layer / "home/bench")
    if (layer / USER_UNITS).exists():
        shutil.copytree(layer / USER_UNITS, layer / "usr/share/ddtop-bed/user-units", dirs_exist_ok=True)
    # What "as found" means for the quick reset between tests: the units as they were shipped.
    shutil.copytree(
        layer / "etc/systemd/system", layer / "usr/share/ddtop-bed/units", dirs_exist_ok=True, symlinks=True
    )


def _identity(name: str, layer: Path) -> None:
    keygen(KEYS / "id_ed25519")
    keygen(KEYS / name / "ssh_host_ed25519_key")
    if not (KEYS / name / "machine-id").exists():
        write(KEYS / name / "machine-id", secrets.token_hex(16) + "\n")
    shutil.copy(KEYS / name / "machine-id", layer / "etc/machine-id")
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        key = f"ssh_host_ed25519_key{suffix}"
        write(layer / "etc/ssh" / key, (KEYS / name / key).read_text(), mode)
    public = (KEYS / "id_ed25519.pub").read_text()
    # A user who may nothing: `bench`, made in the base, has sudo -n.
    for file, line in (
        ("passwd", "plain:x:1001:1001::/home/plain:/bin/bash"),
        ("group", "plain:x:1001:"),
        ("shadow", "plain:!:19000:0:99999:7:::"),
    ):
        write(
            layer / "etc" / file,
            ((SLURM_LAYER if name in CLUSTER else BASE) / "etc" / file).read_text() + line + "\n",
            0o640 if file == "shadow" else 0o644,
        )
    for home, uid in (("root", 0), ("home/bench", 1000), ("home/plain", 1001)):
        write(layer / home / ".ssh/authorized_keys", public, 0o600, uid)
        for d in (layer / home, layer / home / ".ssh"):
            d.chmod(0o700)
        for path in (layer / home, *(layer / home).rglob("*")):
            os.chown(path, uid, uid)
    write(layer / "etc/hostname", name + "\n")
    write(layer / "etc/hosts", "127.0.0.1 localhost\n" + "".join(f"{h.ip} {n}\n" for n, h in ALL.items()))


def _share_home(home: Path) -> None:
    """The first node's home of bench is that of all."""
    if not SHARED_HOME.exists():
        shutil.copytree(home, SHARED_HOME)
    for path in (SHARED_HOME, *SHARED_HOME.rglob("*")):
        os.chown(path, 1000, 1000)


def _venv(at: Path, source_paths: list[str]) -> None:
    """A virtual environment as an engine is installed in: its own bin/python, its packages by a .pth file."""
    (at / "bin").mkdir(parents=True, exist_ok=True)
    for python in ("python", "python3"):
        (at / "bin" / python).symlink_to("/usr/bin/python3")
    write(at / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n")
    write(at / "lib/python3.11/site-packages/engine.pth", "".join(p + "\n" for p in source_paths))


def write_ssh_config() -> None:
    """The client's OpenSSH configuration: every host, directly and through each other host."""
    RUN.mkdir(parents=True, exist_ok=True)
    hosts = {n: h for n, h in ALL.items() if (KEYS / n).exists()}
    KNOWN_HOSTS.write_text(
        "".join(f"{n},{h.ip} {(KEYS / n / 'ssh_host_ed25519_key.pub').read_text()}" for n, h in hosts.items())
    )
    text = "".join(f"Host {n}\n  HostName {h.ip}\n" for n, h in hosts.items())
    text += "".join(
        f"Host {n}-via-{j}\n  HostName {hosts[n].ip}\n  HostKeyAlias {n}\n  ProxyJump {j}\n"
        for n in hosts
        for j in hosts
        if n != j
    )
    text += "".join(
        f"Host {n}-rented\n  HostName {h.ip}\n  HostKeyAlias {n}\n  Port 2222\n" for n, h in hosts.items()
    )
    text += (
        f"Host *\n  User root\n  IdentityFile {KEYS}/id_ed25519\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {KNOWN_HOSTS}\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
    )
    SSH_CONFIG.write_text(text)
