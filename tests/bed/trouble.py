"""Trouble that is real on a real host and needs no fault switch: units, ports, models, logins gone wrong.

Every function takes (bed, host, …); `Bed.restore` undoes all of it.
"""

import shlex

from .client import Bed
from .config import HOSTS

# The tree budgets that gave no token on the real ct200; for Bed.fault, with others before them.
KNOWN_BROKEN = (
    "WHEN=--speculative-ddtree-budget 8",
    "ZERO_TOKENS=1",
    "WHEN=--speculative-ddtree-budget 12",
    "ZERO_TOKENS=1",
    "WHEN=",
)

BAD_DROPIN = "zzzz-bed.conf"  # sorts after any other drop-in, so it has the last word


def dropin(
    bed: Bed, host: str, unit: str, text: str, name: str = BAD_DROPIN, root: str = "/etc/systemd/system"
) -> None:
    """Write a drop-in of a unit and load it."""
    path = f"{root}/{unit}.d/{name}"
    bed.sh(host, f"mkdir -p {root}/{unit}.d && cat > {path} && systemctl daemon-reload", stdin=text)


def unmet_condition(bed: Bed, host: str, unit: str) -> None:
    """The unit is skipped at each start: `systemctl start` succeeds and nothing runs."""
    dropin(bed, host, unit, "[Unit]\nConditionPathExists=/etc/there-is-no-such-file\n")


def crash_loop(bed: Bed, host: str, unit: str, *faults: str, delay_ms: int = 100) -> None:
    """The unit restarts by itself and dies each time, until systemd's start limit; further faults as given."""
    dropin(bed, host, unit, f"[Service]\nRestart=always\nRestartSec={delay_ms}ms\n")
    bed.fault(host, "LOAD_FAULT=exit", *faults)


def overruled(bed: Bed, host: str, unit: str) -> None:
    """A later drop-in fixes the arguments: whatever an override asks for, the old command runs."""
    start = bed.sh(host, f"sed -n 's/^ExecStart=//p' /etc/systemd/system/{unit}").strip().splitlines()[-1]
    dropin(bed, host, unit, f"[Service]\nExecStart=\nExecStart={start}\n")


def mask(bed: Bed, host: str, unit: str) -> None:
    """The unit may not be started at all."""
    bed.sh(
        host,
        f"ln -sf /dev/null /run/systemd/system.control/{unit} 2>/dev/null || "
        f"(mkdir -p /run/systemd/system.control && ln -sf /dev/null /run/systemd/system.control/{unit}); systemctl daemon-reload",
    )


def engine_gone(bed: Bed, host: str, venv: str = "/opt/sglang") -> None:
    """The engine's python is not there any more: 203/EXEC for whatever command uses it."""
    bed.sh(host, f"mv {venv}/bin {venv}/bin.away")


def squat(bed: Bed, host: str, port: int = 30000) -> None:
    """A process of nobody's unit takes the port and answers /v1/models."""
    bed.sh(host, f"systemd-run -q --unit=foreign-app-{port} python3 -m ddtop_bed.foreign squat {port}")
    bed.sh(
        host,
        f"for i in $(seq 100); do ss -ltnH 'sport = :{port}' | grep -q . && exit 0; sleep 0.05; done; exit 1",
    )


def hog(bed: Bed, host: str, gpu: int = 0, mib: int = 40000) -> None:
    """A foreign process holds GPU memory."""
    bed.sh(host, f"systemd-run -q --unit=foreign-gpu-{gpu} python3 -m ddtop_bed.foreign hog {gpu} {mib}")
    bed.sh(
        host,
        "for i in $(seq 100); do nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -q . && exit 0; sleep 0.05; done; exit 1",
    )


DAMAGE = {
    "missing-shard": 'rm "$shard"',
    "truncated": 'truncate -s -1000 "$shard"',
    "zero-tail": 'size=$(stat -c %s "$shard"); truncate -s $((size / 2)) "$shard"; truncate -s $size "$shard"',
    "lfs-pointer": 'printf "version https://git-lfs.github.com/spec/v1\\noid sha256:0\\nsize 1\\n" > "$shard"',
    "partial": 'mv "$shard" "$shard.incomplete"',
    "no-config": 'rm "$dir/config.json"',
}


def damage_model(bed: Bed, host: str, kind: str, directory: str = "") -> str:
    """Damage a model folder (the unit's own, if not named) in one of the ways of DAMAGE; returns the shard's path."""
    where = shlex.quote(directory or HOSTS[host].model)
    shell = f'dir={where}; shard=$(ls "$dir"/*.safetensors | sed -n 3p); [ -n "$shard" ] || shard=$(ls "$dir"/*.safetensors | head -1); {DAMAGE[kind]}; echo "$shard"'
    return bed.sh(host, shell).strip()


def big_model(bed: Bed, host: str, shard_mib: int, directory: str = "") -> None:
    """Make the host's model on disk anew with larger shards, so that copying it takes a while (8 MiB: 100 to 500 MiB)."""
    path = directory or HOSTS[host].source
    code = (
        "import sys; from pathlib import Path; from ddtop_bed import models; p = Path(sys.argv[1]); "
        "n, size, gib, arch = models.MODELS[sys.argv[2]][p.name]; models.make(p, n, int(sys.argv[3]) << 20, gib, arch)"
    )
    bed.sh(host, "python3", "-c", code, path, host, str(shard_mib))


def lose_source(bed: Bed, host: str, cached_metadata: str = "") -> None:
    """The model is gone from disk; with `cached_metadata` ("org/name") the Hugging Face cache holds its config only."""
    bed.sh(host, f"rm -rf {shlex.quote(HOSTS[host].source)}")
    if cached_metadata:
        hub = "/root/.cache/huggingface/hub/models--" + cached_metadata.replace("/", "--")
        bed.sh(
            host,
            f"mkdir -p {hub}/snapshots/abc {hub}/refs {hub}/blobs && printf abc > {hub}/refs/main && "
            f"echo '{{}}' > {hub}/blobs/c0 && ln -s ../../blobs/c0 {hub}/snapshots/abc/config.json",
        )


def fill_shm(bed: Bed, host: str, leave_mib: int) -> None:
    """Leave only so much room in /dev/shm."""
    bed.sh(
        host,
        f"free=$(df -m --output=avail /dev/shm | tail -1); fallocate -l $((free - {leave_mib}))M /dev/shm/somebody-elses.bin",
    )


def rent(bed: Bed, host: str) -> str:
    """Start (or start anew) a rented container on the host: sshd, no systemd. Returns its name for ssh, HOST-rented."""
    bed.sh(
        host,
        "systemctl restart rented; for i in $(seq 100); do ss -ltnH 'sport = :2222' | grep -q . && exit 0; sleep 0.05; done; exit 1",
    )
    return f"{host}-rented"


def kill_user_processes(bed: Bed, host: str, stop_delay_s: float = 1) -> None:
    """logind ends whatever a login leaves behind, and `stop_delay_s` after the last one (10 by default on
    Debian) deletes the user's files in /dev/shm."""
    text = f"[Login]\nKillUserProcesses=yes\nRemoveIPC=yes\nUserStopDelaySec={stop_delay_s:g}s\n"
    bed.sh(
        host, "mkdir -p /etc/systemd/logind.conf.d && cat > /etc/systemd/logind.conf.d/bed.conf", stdin=text
    )
    bed.sh(host, "systemctl restart systemd-logind")


def noisy_login(bed: Bed, host: str, user: str = "root") -> None:
    """Every login, also one with a command, prints a greeting first, and reads what it finds on standard input."""
    home = "/root" if user == "root" else f"/home/{user}"
    bed.sh(
        host,
        f"cp -n {home}/.bashrc {home}/.bashrc.bed 2>/dev/null || touch {home}/.bashrc.bed; "
        f"(echo 'echo Welcome to the GPU farm; echo quota: 80 % used >&2'; cat {home}/.bashrc.bed) > {home}/.bashrc",
    )
