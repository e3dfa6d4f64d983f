"""Names, addresses and places of the bed. Everything else in this folder reads them from here."""

import os
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
ROOTFS = HERE / "rootfs"

CACHE = Path(os.environ.get("DDTOP_BED_CACHE", Path.home() / ".cache/ddtop-testbed"))
BASE, REAL_LAYER, KEYS, RUN = CACHE / "base", CACHE / "real", CACHE / "keys", CACHE / "run"
SOCK, SSH_CONFIG, KNOWN_HOSTS = RUN / "control", RUN / "ssh_config", RUN / "known_hosts"
LOCK = Path("/tmp/ddtop-bed.lock")  # held by whoever uses the bed: one test run at a time on one machine

NET, CLIENT_IP = "10.77.0.0/24", "10.77.0.1"


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
        "10.77.0.11", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 600, 32, 395, "580.95.05", False,
        "sglang-bench.service", "/dev/shm/Qwen3.6-27B", "/data/models/Qwen3.6-27B",
    ),
    "b300": Spec(
        "10.77.0.12", "NVIDIA B300 SXM6 AC", 275040, 1100, 187, 450, "580.95.05", True,
        "kimi.service", "/dev/shm/Kimi-K2.6", "/data/models/Kimi-K2.6",
    ),
}  # fmt: skip
