"""Kernel lines: Xid codes, the OOM killer, lost GPUs, links, disks."""

from __future__ import annotations

import pytest

from ddtop.services.causes import load_causes
from ddtop.sources.kernel.log_lines import XIDS, parse_kernel_line

ROWS = [
    (
        "NVRM: Xid (PCI:0000:61:00): 119, pid=1365232, name=nvidia-smi, Timeout waiting for RPC from GSP!",
        "xid",
        "gpu-hardware-error",
        119,
        1365232,
    ),
    (
        "Nov 30 08:00:01 h kernel: NVRM: Xid (PCI:0000:41:00): 31, pid='4242', name=python3, Ch 00000008",
        "xid",
        "gpu-engine-exception",
        31,
        4242,
    ),
    (
        "NVRM: Xid (PCI:0000:41:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row",
        "xid",
        "gpu-memory-remap-pending",
        63,
        None,
    ),
    ("NVRM: Xid (0000:41:00): 79, GPU has fallen off the bus.", "xid", "gpu-lost-from-bus", 79, None),
    ("[1.0] NVRM: Xid (PCI:0000:41:00): 45, pid=4242, name=python3, Ch 00000008", "xid", None, 45, 4242),
    ("NVRM: Xid (PCI:0000:41:00): 149, NETIR_LINK_EVT", "xid", "gpu-hardware-error", 149, None),
    ("NVRM: Xid (PCI:0000:41:00): 777, something new", "xid", "gpu-hardware-error", 777, None),
    (
        "Out of memory: Killed process 8123 (sglang::schedul) total-vm:9kB, anon-rss:9kB, file-rss:0kB, shmem-rss:0kB",
        "oom-kill",
        "killed-by-oom-killer",
        None,
        8123,
    ),
    (
        "Memory cgroup out of memory: Killed process 77 (python3) total-vm:9kB",
        "oom-kill",
        "killed-by-oom-killer",
        None,
        77,
    ),
    (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task=python3,pid=99,uid=0",
        "oom-kill",
        "killed-by-oom-killer",
        None,
        99,
    ),
    (
        "NVRM: GPU at PCI:0000:81:00: GPU-1 has fallen off the bus and is not responding to commands.",
        "gpu-lost",
        "gpu-lost-from-bus",
        None,
        None,
    ),
    (
        "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
        "pcie",
        "gpu-hardware-error",
        None,
        None,
    ),
    ("blk_update_request: I/O error, dev nvme1n1, sector 1234", "disk", "disk-io-error", None, None),
]


@pytest.mark.parametrize(("line", "what", "cause", "code", "pid"), ROWS, ids=[r[0][:40] for r in ROWS])
def test_kernel_lines(line: str, what: str, cause: str | None, code: int | None, pid: int | None) -> None:
    fact = parse_kernel_line(line)
    assert fact is not None
    assert (fact.what, fact.cause, fact.code, fact.pid) == (what, cause, code, pid)
    assert fact.advice and fact.meaning and fact.severity in ("info", "warn", "error", "critical")
    assert cause is None or cause in load_causes().by_slug


def test_the_unit_of_an_oom_kill() -> None:
    line = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/system.slice/a.service,task_memcg=/system.slice/a.service/sub,task=python3,pid=99,uid=0"
    fact = parse_kernel_line(line)
    assert fact is not None and fact.unit == "a.service" and fact.pid == 99
    bare = parse_kernel_line("Out of memory: Killed process 8123 (x) total-vm:9kB")
    assert bare is not None and bare.unit is None


def test_a_recovery_action_that_went_back_to_none_is_no_fault() -> None:
    line = (
        "NVRM: Xid (PCI:0000:41:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from "
    )
    assert parse_kernel_line(line + "0x1 (GPU Reset Required) to 0x0 (None)") is None
    worse = parse_kernel_line(line + "0x0 (None) to 0x1 (GPU Reset Required)")
    assert worse is not None and worse.severity == "critical"


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new device",
        "",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04",
        "EXT4-fs (sda1): mounted filesystem",
    ],
)
def test_other_lines_are_nothing(line: str) -> None:
    assert parse_kernel_line(line) is None


def test_every_xid_has_its_row() -> None:
    assert all(
        code == row.code and row.advice and row.kind in ("bug", "host", "info") for code, row in XIDS.items()
    )
    assert {
        13,
        31,
        43,
        45,
        48,
        63,
        64,
        74,
        79,
        92,
        94,
        95,
        119,
        120,
        140,
        154,
        *range(144, 151),
    } <= XIDS.keys()
