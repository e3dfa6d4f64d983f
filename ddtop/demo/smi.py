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


def main(argv: list[str]) -> int:
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
