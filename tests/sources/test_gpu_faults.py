"""What is wrong with GPUs: throttling, resets, kernel lines, hung calls; mutated and huge inputs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.sources.gpu.diagnosis import diagnose_gpu
from ddtop.sources.gpu.host_signs import host_signs
from ddtop.sources.gpu.smi.error_texts import find_trouble

DATA = Path(__file__).parents[1] / "data" / "nvidia-h200"
CASES = Path(__file__).parents[1] / "cases"


def judge(text: str) -> dict[str, Any]:
    return diagnose_gpu({"input.txt": text.encode()})


@pytest.mark.parametrize(
    ("cells", "verdict", "cause"),
    [
        ("0, 50, 0x0000000000000048", "degraded", "thermal-throttling"),
        ("0, 50, 0x0000000000000088", "degraded", "power-brake"),
        ("0, 50, 0x0000000000000008", "degraded", "hw-slowdown"),
        ("0, 50, 0x0000000000000004", "ok", "power-capped"),
        ("0, 50, 0x0000000000000000", "ok", "busy"),
        ("0, 0, 0x0000000000000001", "ok", "idle"),
    ],
)
def test_throttling_is_named(cells: str, verdict: str, cause: str) -> None:
    got = judge("index, utilization.gpu [%], clocks_event_reasons.active\n" + cells)
    assert (got["verdict"], got["cause"]) == (verdict, cause)


@pytest.mark.parametrize(
    ("action", "verdict", "cause"),
    [
        ("None", "ok", "idle"),
        ("Reset", "down", "gpu-requires-reset"),
        ("Reboot", "down", "node-reboot-required"),
        ("Drain P2P", "degraded", "drain-p2p-required"),
        ("Something New", "degraded", "recovery-action-required"),
        ("[N/A]", "ok", "idle"),
    ],
)
def test_the_recovery_action_decides(action: str, verdict: str, cause: str) -> None:
    got = judge(f"index, utilization.gpu [%], gpu_recovery_action\n0, 0 %, {action}\n")
    assert (got["verdict"], got["cause"]) == (verdict, cause)


def test_the_gravest_gpu_decides() -> None:
    got = judge(
        "index, utilization.gpu [%], temperature.gpu\n0, 99 %, 50\n1, [GPU requires reset], [GPU requires "
        "reset]\n2, 99 %, 51\n"
    )
    assert got["cause"] == "gpu-requires-reset" and got["gpus_reported"] == 3
    assert got["evidence"][-1]["line"] == 3


def test_permissions_are_not_zeros() -> None:
    got = judge("index, memory.used [MiB]\n0, [Insufficient Permissions]\n")
    assert got["cause"] == "insufficient-permissions" and "mem_used_mib" not in got["gpu"][0]


@pytest.mark.parametrize(
    ("line", "verdict", "cause"),
    [
        ("NVRM: Xid (PCI:0000:61:00): 79, pid=1, GPU has fallen off the bus.", "down", "gpu-lost-from-bus"),
        (
            "[  12.3] NVRM: Xid (PCI:0000:61:00): 13, pid=77, name=python3, Graphics Exception",
            "degraded",
            "xid-application",
        ),
        (
            "Nov 30 kernel: NVRM: Xid (PCI:0000:61:00): 119, pid=5, Timeout after 45s of waiting for RPC",
            "down",
            "gsp-timeout",
        ),
        ("NVRM: GPU 0000:61:00.0 has fallen off the bus.", "down", "gpu-lost-from-bus"),
        ("NVRM: Xid (PCI:0000:61:00): 999, new", "degraded", "xid"),
    ],
)
def test_kernel_lines(line: str, verdict: str, cause: str) -> None:
    got = judge(line)
    assert (got["verdict"], got["cause"]) == (verdict, cause)


def test_a_running_nvidia_smi_is_not_hung() -> None:
    text = "root 935 0.0 0.0 16488 4056 ? S May04 0:00 /usr/bin/nvidia-smi --loop-ms=200\n"
    assert judge(text)["cause"] == "nvidia-smi-running"
    assert not host_signs("root 935 0.0 0.0 16488 4056 ? D May04 0:00 /usr/bin/nvidia-persistenced\n").hung


def test_utf16_of_powershell() -> None:
    text = (DATA / "query_units.csv").read_text()
    assert diagnose_gpu({"input.csv": text.encode("utf-16")})["cause"] == "idle-no-model-loaded"


@pytest.mark.parametrize("text", ["", "\n", "hello world", "\x00\x00", "{}", "a,b,c\n1,2,3"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not output of nvidia-smi"):
        judge(text)


SEEDS = [p.read_bytes() for p in sorted(CASES.glob("A*/input*"))] + [
    (DATA / n).read_bytes() for n in ("plain.txt", "dmon_gpm.txt", "q_perf.txt", "query_units.csv")
]


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=6)), max_size=8),
    st.integers(0, 4000),
)
def test_mutated_outputs_never_raise_anything_else(
    seed: bytes, edits: list[tuple[int, bytes]], cut: int
) -> None:
    data = bytearray(seed)
    for at, new in edits:
        at %= len(data) + 1
        data[at : at + len(new)] = new
    text = bytes(data)[: cut if cut < 3000 else None]
    try:
        got = diagnose_gpu({"input.txt": text})
    except ValueError:
        return
    assert got["verdict"] in {"ok", "partial", "degraded", "down"} and got["advice"]


@pytest.mark.parametrize(
    "text",
    [
        "|" * 1_000_000,
        "Unable to determine the device handle for GPU " * 20_000,
        "0, " * 300_000,
        "a" * 1_000_000,
        "# gpu " + " pwr" * 200_000,
        "<nvidia_smi_log>" + "<gpu>" * 20_000,
        "NVRM: Xid (PCI:" * 60_000,
        " " * 1_000_000 + "x",
        ("|   0  " + "x " * 500 + "\n") * 300,
    ],
)
def test_huge_lines_take_no_quadratic_time(text: str) -> None:
    begin = time.process_time()
    try:
        judge(text)
    except ValueError:
        pass
    find_trouble(text)
    assert time.process_time() - begin < 5
