"""SIMULATED: stands in for nvidia-smi in the demo, and says so in every GPU's name.

Reads what the demo's engine wrote under $DDTOP_DEMO_DIR/gpu. Knows the queries ddtop sends; an unknown field is
refused in the real tool's words, so that the fall-back for old drivers is on the demo's path too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

COUNT, TOTAL_MIB, LIMIT_W, IDLE_W = 8, 97_887, 600.0, 32.0
NAME = "SIMULATED RTX PRO 6000 Blackwell"
UNITS = {
    "memory": "MiB",
    "used_memory": "MiB",
    "utilization": "%",
    "power": "W",
    "enforced": "W",
    "clocks": "MHz",
}
LOOKS = {
    # phase: share of the power range, GPU %, memory %, SM clock
    "off": (0.0, 0, 0, 180),
    "idle": (0.08, 0, 0, 1200),
    "load": (0.12, 7, 3, 1500),
    "decode": (1.0, 100, 88, 2280),
}


def servers() -> list[dict[str, Any]]:
    """The engines that run now."""
    found = []
    for path in Path(os.environ["DDTOP_DEMO_DIR"], "gpu").glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            state = json.loads(path.read_text())
            os.kill(state["pid"], 0)
            found.append(state)
    return found


def gpu(index: int, now: float) -> dict[str, str]:
    """All fields of one GPU, without units."""
    state = next((s for s in servers() if index < s["tp"]), None)
    phase = state["phase"] if state else "off"
    share, util, mem_util, clock = LOOKS[phase]
    if state and phase == "decode":
        share = state["activity"]
    draw = IDLE_W + (LIMIT_W - IDLE_W) * share + 4 * math.sin(now + index) * (phase != "off")
    used = state["mib"] if state else 0
    stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"
    uuid = f"GPU-51c0de00-0000-0000-0000-{index:012d}"
    return {
        "timestamp": stamp,
        "count": str(COUNT),
        "index": str(index),
        "uuid": uuid,
        "gpu_uuid": uuid,
        "name": NAME,
        "pci.bus_id": f"00000000:{16 + index:02X}:00.0",
        "driver_version": "580.95.05",
        "pstate": "P0" if state else "P8",
        "memory.total": str(TOTAL_MIB),
        "memory.used": str(used),
        "memory.free": str(TOTAL_MIB - used),
        "utilization.gpu": str(util),
        "utilization.memory": str(mem_util),
        "power.draw": f"{draw:.2f}",
        "power.draw.average": f"{draw:.2f}",
        "power.draw.instant": f"{draw:.2f}",
        "power.limit": f"{LIMIT_W:.2f}",
        "enforced.power.limit": f"{LIMIT_W:.2f}",
        "temperature.gpu": str(33 + int(31 * share)),
        "clocks.sm": str(clock),
        "clocks.current.sm": str(clock),
        "clocks.mem": "12481",
        "clocks.current.memory": "12481",
        "clocks_event_reasons.active": "0x0000000000000000" if state else "0x0000000000000001",
        "clocks_throttle_reasons.active": "0x0000000000000000" if state else "0x0000000000000001",
        "mig.mode.current": "[N/A]",
        "gpu_recovery_action": "None",
    }


def rows(query: str) -> list[dict[str, str]]:
    now = time.time()
    if query == "gpu":
        return [gpu(i, now) for i in range(COUNT)]
    return [
        {
            **gpu(i, now),
            "pid": str(s["pid"]),
            "process_name": "sglang::scheduler",
            "used_memory": str(s["mib"]),
        }
        for s in servers()
        for i in range(s["tp"])
    ]


GPM = {2: "smutil", 3: "smocc", 5: "mmaact", 10: "dram"}
GPM_LOOKS = {"off": (0, 0, 0, 0), "idle": (0, 0, 0, 0), "load": (1, 0, 0, 2), "decode": (87, 12, 4, 90)}
"""SM activity, occupancy, tensor and DRAM activity of each phase: decode as an H200 was measured at batch 1."""
FULL_PCT = 90
"""Tensor or DRAM activity of a GPU that does nothing else; the engine says for which share of a step each is at work."""


def dmon_row(index: int, now: float, metrics: list[int], tick: int) -> list[str]:
    """One GPU's row of `dmon -s u`; GPM shows `-` for the first two ticks, as the real tool does."""
    state = next((s for s in servers() if index < s["tp"]), None)
    phase = state["phase"] if state else "off"
    values = dict(zip(GPM, GPM_LOOKS[phase], strict=True))
    if state and phase == "decode":
        dram, tensor = state["busy"]
        values[5] = round(2 + FULL_PCT * tensor)
        values[10] = round(FULL_PCT * dram + 1.5 * math.sin(now + index))
    reading = gpu(index, now)
    use = [reading["utilization.gpu"], reading["utilization.memory"], "0", "0", "0", "0"]
    return [str(index), *use, *(str(values[m]) if tick >= 2 and m in values else "-" for m in metrics)]


def dmon(words: list[str]) -> int:
    """`nvidia-smi dmon -s u [-d S] [-c N] [--gpm-metrics IDS]`, the form that ddtop asks for."""
    period, count, metrics = 1.0, 0, list[int]()
    while words:
        flag = words.pop(0)
        value = words.pop(0) if words else ""
        if flag == "-d":
            period = float(value)
        elif flag == "-c":
            count = int(value)
        elif flag == "--gpm-metrics":
            metrics = [int(m) for m in value.split(",")]
        elif flag != "-s" or value != "u":
            print(f"Option {flag} {value}: the SIMULATED dmon knows -s u, -d, -c and --gpm-metrics only.")
            return 1
    names = ["gpu", "sm", "mem", "enc", "dec", "jpg", "ofa", *(GPM.get(m, f"gpm{m}") for m in metrics)]
    print("# " + " ".join(f"{n:>6}" for n in names))
    print("# " + " ".join(f"{u:>6}" for u in ["Idx", *["%"] * 6, *["GPM:%"] * len(metrics)]), flush=True)
    tick = 0
    while True:
        for index in range(COUNT):
            print("  " + " ".join(f"{c:>6}" for c in dmon_row(index, time.time(), metrics, tick)))
        sys.stdout.flush()
        tick += 1
        if tick == count:
            return 0
        time.sleep(period)


def main(argv: list[str]) -> int:
    if argv[:1] == ["dmon"]:
        return dmon([part for a in argv[1:] for part in (a.split("=", 1) if a.startswith("--") else [a])])
    query, fields, form, period = "", list[str](), list[str](), 0.0
    words = [part for a in argv for part in (a.split("=", 1) if a.startswith("--") else [a])]
    while words:
        flag = words.pop(0)
        if flag == "--query-gpu":
            query, fields = "gpu", words.pop(0).split(",")
        elif flag == "--query-compute-apps":
            query, fields = "apps", words.pop(0).split(",")
        elif flag == "--format":
            form = [f.strip() for f in words.pop(0).split(",")]
        elif flag in ("-lms", "--loop-ms"):
            period = int(words.pop(0)) / 1000
        elif flag in ("-l", "--loop"):
            period = float(words.pop(0))
        elif flag == "-L":
            query, fields, form = "gpu", ["index", "name", "uuid"], ["csv", "noheader"]
        else:
            print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
            return 1
    if not query:
        print(f"{NAME}: {COUNT} GPUs, none of them real")
        return 0
    fields = [f.strip() for f in fields]
    known = {**gpu(0, 0.0), "pid": "", "process_name": "", "used_memory": ""}
    for field in fields:
        if field not in known:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    unit = {f: UNITS.get(f.split(".", maxsplit=1)[0], "") for f in fields}
    if "noheader" not in form:
        print(", ".join(f + (f" [{unit[f]}]" if unit[f] else "") for f in fields), flush=True)
    while True:
        for row in rows(query):
            cells = [row[f] + (f" {unit[f]}" if unit[f] and "nounits" not in form else "") for f in fields]
            print(", ".join(cells))
        sys.stdout.flush()
        if not period:
            return 0
        time.sleep(period)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(141)
