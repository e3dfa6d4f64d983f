"""Busy or only counted as busy, and nvidia-smi's answers with the kernel's lines under them: kinds that are no cases.

Each was written with its right verdict before ddtop was asked.
"""

from __future__ import annotations

import pytest

from ddtop.sources.gpu.diagnosis import diagnose_gpu
from ddtop.sources.kernel.log_lines import asked_action, parse_kernel_line

HEAD = "index, name, pstate, utilization.gpu [%], clocks.current.sm [MHz], clocks.max.sm [MHz], power.draw [W], enforced.power.limit [W], memory.used [MiB], memory.total [MiB]\n"


def row(
    name: str, pstate: str, util: int, mhz: int, most: int, watts: float, limit: float, i: int = 0
) -> str:
    return f"{i}, {name}, {pstate}, {util} %, {mhz} MHz, {most} MHz, {watts:.2f} W, {limit:.2f} W, 71000 MiB, 81559 MiB\n"


H100 = "NVIDIA H100 80GB HBM3"
LOADS = [
    (
        "H100 at 345 MHz in P0",
        row(H100, "P0", 100, 345, 1980, 118, 700),
        "degraded",
        "stuck-in-low-power-state",
    ),
    (
        "A100 in P8 at full load",
        row("NVIDIA A100-SXM4-80GB", "P8", 97, 210, 1410, 60, 400),
        "degraded",
        "stuck-in-low-power-state",
    ),
    (
        "laptop on battery",
        row("NVIDIA GeForce RTX 4070 Laptop GPU", "P5", 99, 690, 2175, 18, 60),
        "degraded",
        "stuck-in-low-power-state",
    ),
    (
        "8 ranks wait in NCCL",
        "".join(row(H100, "P0", 100, 1980, 1980, 121 + i, 700, i) for i in range(8)),
        "degraded",
        "busy-at-idle-power",
    ),
    (
        "GB200, ranks wait",
        row("NVIDIA GB200", "P0", 100, 1965, 2062, 205, 1200),
        "degraded",
        "busy-at-idle-power",
    ),
    (
        "RTX PRO 6000, P2P hangs",
        row("NVIDIA RTX PRO 6000 Blackwell Server Edition", "P1", 100, 2420, 2430, 138, 600),
        "degraded",
        "busy-at-idle-power",
    ),
    (
        "one of eight is stuck",
        "".join(
            row(H100, "P0", 100, 300 if i == 5 else 1980, 1980, 90 if i == 5 else 520, 700, i)
            for i in range(8)
        ),
        "degraded",
        "stuck-in-low-power-state",
    ),
    ("healthy decode", row(H100, "P0", 100, 1980, 1980, 265, 700), "ok", "busy"),
    ("healthy prefill", row(H100, "P0", 100, 1500, 1980, 690, 700), "ok", "busy"),
    ("healthy, a small model on an H200", row("NVIDIA H200", "P0", 63, 1980, 1980, 143, 700), "ok", "busy"),
    (
        "healthy, P2 is GeForce's compute state",
        row("NVIDIA GeForce RTX 3090", "P2", 98, 1695, 2100, 310, 350),
        "ok",
        "busy",
    ),
    ("healthy, idle", row(H100, "P0", 0, 345, 1980, 71, 700), "ok", "idle"),
    ("healthy, idle in P8", row("NVIDIA GeForce RTX 4090", "P8", 2, 210, 3105, 18, 450), "ok", "busy"),
    ("healthy, clocks are set a little lower", row(H100, "P0", 100, 1200, 1980, 420, 700), "ok", "busy"),
]


@pytest.mark.parametrize(("text", "verdict", "cause"), [r[1:] for r in LOADS], ids=[r[0] for r in LOADS])
def test_busy_is_weighed_with_state_clock_and_power(text: str, verdict: str, cause: str) -> None:
    got = diagnose_gpu({"input.csv": (HEAD + text).encode()})
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    if verdict != "ok":
        assert got["severity"] == "error" and "utilisation" in got["advice"] and "%" in got["advice"]


def test_the_table_of_plain_nvidia_smi_shows_it_too() -> None:
    table = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 3080        Off |   00000000:01:00.0 Off |                  N/A |
|  0%   38C    P8             24W /  320W |    9210MiB /  10240MiB |    100%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""
    got = diagnose_gpu({"input.txt": table.encode()})
    assert (got["verdict"], got["cause"]) == ("degraded", "stuck-in-low-power-state")


NONE = "$ nvidia-smi\nNo devices were found\n$ sudo dmesg | tail\n"
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n"
OK = HEAD + row(H100, "P0", 100, 1980, 1980, 500, 700)
KERNEL = [
    (
        NONE
        + "[  9.1] NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP\n[  9.2] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:1941)\n",
        "down",
        "gsp-error",
        "critical",
    ),
    (
        NONE
        + "[  9.2] NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0xffff:1234)\n[  9.3] NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0\n",
        "down",
        "gpu-init-failed",
        "critical",
    ),
    (
        NONE
        + "[  9.2] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2901)\n               NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n",
        "down",
        "open-kernel-module-required",
        "error",
    ),
    (
        NONE
        + "[  9.2] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n[  9.2] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:05:00.0)\n",
        "down",
        "gpu-init-failed",
        "critical",
    ),
    (
        NONE + "[  9.9] NVRM: GPU 0000:c1:00.0: GPU does not have the necessary power cables connected.\n",
        "down",
        "external-power-missing",
        "critical",
    ),
    (
        NO_DRIVER
        + "$ journalctl -k | grep -i nvidia\nkernel: nvidia: module verification failed: signature and/or required key missing\nkernel: Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7\n",
        "down",
        "driver-not-signed",
        "error",
    ),
    (
        NO_DRIVER
        + "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n[ 5.0] nvidia: loading out-of-tree module taints kernel.\n",
        "down",
        "driver-not-signed",
        "error",
    ),
    (
        NO_DRIVER + "[    8.1] nvidia: disagrees about version of symbol module_layout\n",
        "down",
        "driver-module-mismatch",
        "error",
    ),
    (
        NO_DRIVER + "[    8.1] NVRM: GPU 0000:65:00.0 is already bound to nouveau.\n",
        "down",
        "gpu-taken-by-other-driver",
        "error",
    ),
    (
        "Failed to initialize NVML: Unknown Error\n[ 77.1] NVRM: API mismatch: the client has the version 550.90, but\n[ 77.1] NVRM: this kernel module has the version 550.54.\n",
        "down",
        "driver-library-version-mismatch",
        "error",
    ),
    (
        OK + "[ 500.0] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.\n",
        "down",
        "gpu-lost-from-bus",
        "critical",
    ),
    (
        OK
        + "[ 500.0] NVRM: Xid (PCI:0000:9b:00): 63, pid=1, Row Remapper: New row (0x1) marked for remapping, reset gpu to activate.\n",
        "degraded",
        "row-remap-pending",
        "warn",
    ),
    (
        OK
        + "[ 500.0] NVRM: Xid (PCI:0000:9b:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault\n",
        "degraded",
        "xid-application",
        "warn",
    ),
    (
        OK + "[ 500.0] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.133.20\n",
        "ok",
        "busy",
        "info",
    ),
    (
        "[ 1.0] NVRM: Xid (PCI:0000:41:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n",
        "down",
        "gpu-requires-reset",
        "critical",
    ),
    (
        "[ 1.0] NVRM: Xid (PCI:0000:41:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n",
        "down",
        "node-reboot-required",
        "critical",
    ),
    (
        "[ 1.0] NVRM: Xid (PCI:0000:41:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)\n",
        "degraded",
        "drain-p2p-required",
        "error",
    ),
    (
        "[ 1.0] NVRM: Xid (PCI:0000:41:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n[ 1.1] NVRM: Xid (PCI:0000:41:00): 95, pid=7, Uncontained\n",
        "down",
        "uncontained-ecc",
        "critical",
    ),
    (
        "[ 10.0] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n",
        "down",
        "nvswitch-error",
        "critical",
    ),
    (
        "[ 10.0] NVRM: Xid (PCI:0019:01:00): 149, NETIR_LINK_EVT  Fatal XC0 i0 Link 06\n",
        "degraded",
        "nvlink-error",
        "critical",
    ),
    (
        "[ 10.0] NVRM: Xid (PCI:0000:01:00): 62, pid=1, 0000(0000) 00000000\n",
        "down",
        "gpu-hardware-error",
        "critical",
    ),
]


def test_an_nvidia_smi_that_did_not_return() -> None:
    got = diagnose_gpu({"input.txt": b"$ timeout 20 nvidia-smi\n$ echo $?\n124\n"})
    assert (got["verdict"], got["cause"], got["severity"]) == ("down", "nvidia-smi-hung", "critical")


@pytest.mark.parametrize(
    ("text", "verdict", "cause", "severity"), KERNEL, ids=[f"{r[2]}-{i}" for i, r in enumerate(KERNEL)]
)
def test_kernel_lines_say_why(text: str, verdict: str, cause: str, severity: str) -> None:
    got = diagnose_gpu({"input.txt": text.encode()})
    assert (got["verdict"], got["cause"], got["severity"]) == (verdict, cause, severity)
    if verdict != "ok":
        assert any(
            "NVRM" in e["text"] or "nvidia" in e["text"].lower() or "Lockdown" in e["text"]
            for e in got["evidence"]
        )


def test_the_kernel_table_and_the_inspector_agree_on_154() -> None:
    line = "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to %s"
    for action, word, severity in (
        ("0x1 (GPU Reset Required)", "reset", "critical"),
        ("0x2 (Node Reboot Required)", "reboot", "critical"),
        ("0x3 (Drain P2P)", "drain-p2p", "error"),
        ("0x4 (Drain and Reset)", "drain-and-reset", "critical"),
    ):
        fact = parse_kernel_line(line % action)
        assert asked_action(line % action) == word and fact is not None
        assert fact.severity == severity == diagnose_gpu({"input.txt": (line % action).encode()})["severity"]
    assert parse_kernel_line(line % "0x0 (None)") is None
