"""Names, addresses and places of the bed. Everything else in this folder reads them from here."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
ROOTFS = HERE / "rootfs"

CACHE = Path(os.environ.get("DDTOP_BED_CACHE", Path.home() / ".cache/ddtop-testbed"))
BASE, REAL_LAYER, SLURM_LAYER = CACHE / "base", CACHE / "real", CACHE / "slurm"  # shared by all instances
ENGINES = Path(os.environ.get("DDTOP_ENGINES") or CACHE / "engines")
"""Real engines (`tests.bed.engines`): vllm/, sglang/ and models/. Hosts see it, read-only, as /opt/engines."""
DEBS = CACHE / "debs"
"""Debian packages unpacked beside the bed, a folder each (docker). Hosts see it, read-only, as /opt/debs."""

INSTANCE = int(os.environ.get("DDTOP_BED", "1"))
"""Which bed of this machine: each has its own network, names, disks, keys and lock."""
if not 1 <= INSTANCE <= 99:
    raise SystemExit(f"DDTOP_BED is {INSTANCE}: give a number from 1 to 99")
SUFFIX = "" if INSTANCE == 1 else f"-{INSTANCE}"

PLACE = CACHE if INSTANCE == 1 else CACHE / f"bed{SUFFIX}"
DISKS, KEYS, RUN = PLACE / "hosts", PLACE / "keys", PLACE / "run"
SHARED_HOME = PLACE / "home"
"""The home of user bench on all nodes of the Slurm cluster, as if it were mounted from a file server."""
SOCK, SSH_CONFIG, KNOWN_HOSTS = RUN / "control", RUN / "ssh_config", RUN / "known_hosts"
LOCK = Path(f"/tmp/ddtop-bed{SUFFIX}.lock")  # held by whoever uses the bed: one test run at a time on one bed
CGROUPS = Path(f"/sys/fs/cgroup/ddtop-bed{SUFFIX}")

_PREFIX = f"10.{76 + INSTANCE}.0"
NET, CLIENT_IP = f"{_PREFIX}.0/24", f"{_PREFIX}.1"
CLIENT_TUN, TUN = f"ddtop{INSTANCE - 1}", f"tun{SUFFIX}-"


@dataclass(frozen=True)
class Spec:
    """One host: its address and its made-up GPUs (names and sizes are those of the real cards)."""

    ip: str
    gpu: str
    mib: int
    watts: int
    idle_w: int
    decode_w: int
    driver: str
    gpm: bool
    unit: str  # the unit a benchmark restarts
    model: str  # where that unit reads its model
    source: str  # where the model lies on disk
    count: int = 8


HOSTS = {
    "ct200": Spec(
        f"{_PREFIX}.11",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        97887,
        600,
        32,
        395,
        "580.95.05",
        False,
        "sglang-bench.service",
        "/dev/shm/Qwen3.6-27B",
        "/data/models/Qwen3.6-27B",
    ),
    "b300": Spec(
        f"{_PREFIX}.12",
        "NVIDIA B300 SXM6 AC",
        275040,
        1100,
        187,
        450,
        "580.95.05",
        True,
        "kimi.service",
        "/dev/shm/Kimi-K2.6",
        "/data/models/Kimi-K2.6",
    ),
}

_NODE = Spec("", "NVIDIA H200", 143771, 700, 80, 420, "580.95.05", True, "", "", "", 4)
CLUSTER = {
    name: replace(_NODE, ip=f"{_PREFIX}.{21 + n}", count=4 if n else 0)
    for n, name in enumerate(("login1", "n1", "n2"))
}
"""The Slurm cluster (`slurm.py`): a login node without GPUs and two compute nodes. Off until a test asks for it."""
ALL = HOSTS | CLUSTER
