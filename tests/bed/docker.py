"""A real docker daemon for tests: Debian's packages unpacked beside the bed, no network.

`Docker` runs on this machine with a root and a socket of its own: nothing is installed, and a docker that this machine
has is never asked. `HostDocker` runs on a host of the bed, as a unit under its systemd, in the place of the stand-in."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from .base import build_base, missing_tools
from .client import Bed
from .config import BASE, CACHE, DEBS
from .shell import remove, sh

TOOLS = DEBS / "docker"
PACKAGES = ("docker.io", "containerd", "runc")
IMAGE = "ddtop-bed:1"
_IN_IMAGE = (
    "bin lib lib64 usr/lib64 usr/lib/python3.11 usr/bin/python3 usr/bin/python3.11 usr/bin/sh usr/bin/dash usr/bin/sleep "
    "usr/bin/cat usr/bin/env usr/lib/x86_64-linux-gnu/ld-*"
).split()
_LIBRARIES = "c m expat z ssl crypto ffi uuid lzma bz2".split()


def why_no_docker() -> str:
    """Why no daemon can run here; "" where one can."""
    if os.getuid() != 0:
        return "a docker daemon needs root"
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "Debian's docker packages need apt-get and dpkg-deb"
    if os.uname().machine != "x86_64":
        return "the image is made for x86_64"
    return ""


def unpack() -> None:
    """Debian's docker, containerd and runc below TOOLS; once."""
    if TOOLS.exists():
        return
    DEBS.mkdir(parents=True, exist_ok=True)
    new = DEBS / f"docker.new-{os.getpid()}"
    remove(new)
    new.mkdir()
    with tempfile.TemporaryDirectory() as debs:
        subprocess.run(["apt-get", "-qq", "update"], check=False, stdout=subprocess.DEVNULL)
        subprocess.run(
            ["apt-get", "-qq", "download", *PACKAGES], cwd=debs, check=True, stderr=subprocess.DEVNULL
        )
        for deb in Path(debs).glob("*.deb"):
            sh("dpkg-deb", "-x", deb, new)
    try:
        new.rename(TOOLS)
    except OSError:  # another worker was first
        remove(new)


class Docker:
    """One daemon. Use as a context manager: leaving it ends the daemon and all its containers."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ddtop-docker-"))
        self.socket = self.root / "docker.sock"
        path = f"{TOOLS}/usr/bin:{TOOLS}/usr/sbin:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "DOCKER_HOST": f"unix://{self.socket}"}
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Docker:
        unpack()
        if not BASE.exists() or missing_tools():
            with (CACHE / "lock").open("w") as lock:  # a bed of another worker may be building it
                fcntl.flock(lock, fcntl.LOCK_EX)
                build_base()
        (self.root / "daemon.json").write_text('{"live-restore": true}')
        self.up()
        present = [p for word in _IN_IMAGE for p in sorted(BASE.glob(word))]
        for name in _LIBRARIES:
            present += sorted((BASE / "usr/lib/x86_64-linux-gnu").glob(f"lib{name}.so*"))
        tar = subprocess.Popen(
            ["tar", "-C", BASE, "-cf", "-", *(str(p.relative_to(BASE)) for p in present)],
            stdout=subprocess.PIPE,
        )
        subprocess.run(
            ["docker", "import", "-", IMAGE],
            env=self.env,
            stdin=tar.stdout,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemon is None or self._daemon.poll() is not None:
            self.up()
        if names := self("ps", "-aq").split():
            self("rm", "-f", *names)
        self.down()
        shutil.rmtree(self.root, ignore_errors=True)

    def up(self) -> None:
        """Starts the daemon, in a mount namespace of its own, and waits until it answers."""
        with (self.root / "log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [
                    *("unshare", "--mount", "--propagation", "private", "dockerd"),
                    *("--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--bridge=none"),
                    *("--data-root", self.root / "data", "--exec-root", self.root / "exec"),
                    *("--host", f"unix://{self.socket}", "--pidfile", self.root / "pid"),
                    *("--config-file", self.root / "daemon.json"),
                ],
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while subprocess.run(["docker", "info"], env=self.env, capture_output=True, check=False).returncode:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("dockerd did not start:\n" + (self.root / "log").read_text()[-3000:])
            time.sleep(0.1)

    def down(self) -> None:
        """Ends the daemon; with live-restore its containers go on."""
        assert self._daemon is not None
        self._daemon.terminate()
        self._daemon.wait(30)

    def __call__(self, *words: str) -> str:
        """Runs `docker WORDS`; its output."""
        return subprocess.run(
            ["docker", *words], env=self.env, check=True, capture_output=True, text=True
        ).stdout


class HostDocker:
    """The real daemon as `dockerd.service` on a host of the bed, and the real client as /usr/bin/docker there.

    Use as a context manager: leaving it ends the daemon and its containers, and the stand-in is back. The image `ENGINE`
    has no files of its own: MOUNTS give it the host's, so that the bed's SIMULATED engine runs in a real container.
    The machine's memory controller may be out of the bed's reach: `--memory` is for `Docker`."""

    ENGINE = "ddtop-bed/engine:1"
    MOUNTS = (
        *("-v", "/usr:/usr:ro", "-v", "/opt:/opt:ro", "-v", "/etc/ddtop-bed:/etc/ddtop-bed:ro"),
        *("-v", "/var/lib/ddtop-bed:/var/lib/ddtop-bed", "-v", "/run/ddtop-bed-gpu:/run/ddtop-bed-gpu"),
        *("-v", "/dev/shm:/dev/shm", "-v", "/data:/data:ro"),
    )
    """Pids are the host's (`--pid host` goes with them): the stand-in of nvidia-smi names a process by what it calls itself."""

    def __init__(self, bed: Bed, host: str) -> None:
        self.bed, self.host = bed, host

    def __enter__(self) -> HostDocker:
        unpack()
        place = "/opt/debs/docker/usr"
        self.bed.sh(self.host, f"mount --bind {place}/bin/docker /usr/bin/docker")
        self.bed.sh(
            self.host,
            f"systemd-run --quiet --unit=dockerd -p Type=notify -p NotifyAccess=all -p Delegate=yes -p KillMode=process -E PATH={place}/bin:{place}/sbin:$PATH"
            f" {place}/sbin/dockerd --storage-driver=vfs --iptables=false --ip6tables=false --bridge=none --ip-forward=false --live-restore",
        )
        tree = "mkdir -p usr opt etc/ddtop-bed var/lib/ddtop-bed run/ddtop-bed-gpu dev/shm data tmp proc sys"
        links = "for d in bin sbin lib lib64; do ln -s usr/$d $d; done"
        self.bed.sh(
            self.host,
            f"cd $(mktemp -d) && {tree} && {links} && tar -cf - . | docker import - {self.ENGINE} && rm -rf $PWD",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.bed.sh(
            self.host,
            "systemctl start dockerd 2>/dev/null; for i in $(docker ps -aq); do docker rm -f $i; done;"
            "systemctl kill -s KILL --kill-whom=all dockerd; systemctl stop dockerd; umount /usr/bin/docker;"
            "systemctl reset-failed dockerd; for m in $(grep -o '/run/docker/[^ ]*' /proc/mounts); do umount $m; done; rm -rf /var/lib/docker /run/docker",
            check=False,
        )
