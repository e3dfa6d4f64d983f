"""What the machine withheld during a cell: CPU pressure (PSI), time spent waiting for a CPU, stolen time, the generator's
and the server's share. Reads /proc only; what cannot be read is absent.
"""

from __future__ import annotations

import os
from typing import Any


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def parse_psi(text: str) -> dict[str, int]:
    """/proc/pressure/cpu → {"some_us": total, "full_us": total}."""
    out: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        for word in words[1:]:
            if word.startswith("total=") and word[6:].isdigit():
                out[words[0] + "_us"] = int(word[6:])
    return out


def parse_schedstat(text: str) -> tuple[int, int] | None:
    """/proc/PID/schedstat → (ns on a CPU, ns runnable but waiting for one)."""
    words = text.split()
    if len(words) < 2 or not words[0].isdigit() or not words[1].isdigit():
        return None
    return int(words[0]), int(words[1])


def parse_steal(text: str) -> tuple[int, int] | None:
    """/proc/stat → (ticks stolen by the hypervisor, all ticks), over all CPUs."""
    for line in text.splitlines():
        if line.startswith("cpu "):
            ticks = [int(word) for word in line.split()[1:] if word.isdigit()]
            return (ticks[7] if len(ticks) > 7 else 0), sum(ticks[:8])
    return None


def descendants(pids: list[int]) -> list[int]:
    """The processes and all their children (SGLang and vLLM run schedulers and workers as children)."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return list(pids)
    for name in names:
        if not name.isdigit():
            continue
        stat = _read("/proc/%s/stat" % name)
        rest = stat[stat.rfind(")") + 2 :].split()
        if len(rest) > 1 and rest[1].isdigit():
            children.setdefault(int(rest[1]), []).append(int(name))
    found: list[int] = []
    todo = list(pids)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.append(pid)
            todo.extend(children.get(pid, []))
    return found


def waits(pids: list[int]) -> dict[int, tuple[int, int]]:
    """{thread id: (ns on CPU, ns waiting)} over all threads of the processes."""
    out: dict[int, tuple[int, int]] = {}
    for pid in pids:
        try:
            threads = os.listdir("/proc/%d/task" % pid)
        except OSError:
            continue
        for thread in threads:
            times = parse_schedstat(_read("/proc/%d/task/%s/schedstat" % (pid, thread)))
            if times is not None:
                out[int(thread)] = times
    return out


def snapshot(server_pids: list[int]) -> dict[str, Any]:
    """All readings at one moment, for `difference`."""
    return {
        "psi": parse_psi(_read("/proc/pressure/cpu")),
        "steal": parse_steal(_read("/proc/stat")),
        "server": waits(server_pids),
        "server_pids": server_pids,
    }


def difference(before: dict[str, Any], after: dict[str, Any], wall_s: float) -> dict[str, Any]:
    """The cell's part: shares of its wall time. `server_wait_share` is that of the thread that waited most."""
    out: dict[str, Any] = {}
    wall_ns = max(1.0, wall_s * 1e9)
    for key in ("some_us", "full_us"):
        if key in before["psi"] and key in after["psi"]:
            share = (after["psi"][key] - before["psi"][key]) * 1000 / wall_ns
            out["psi_cpu_%s_share" % key[:4]] = min(1.0, share)  # PSI is brought up to date every 2 s only
    if before["steal"] and after["steal"] and after["steal"][1] > before["steal"][1]:
        out["steal_share"] = (after["steal"][0] - before["steal"][0]) / (
            after["steal"][1] - before["steal"][1]
        )
    if before["server_pids"]:
        gaps = [
            (then[1] - before["server"][thread][1], then[0] - before["server"][thread][0])
            for thread, then in after["server"].items()
            if thread in before["server"]
        ]
        if gaps:
            out["server_wait_share"] = max(gap[0] for gap in gaps) / wall_ns
            out["server_cpu_s"] = sum(gap[1] for gap in gaps) / 1e9
        out["server_threads"] = len(gaps)
    return out


def own_wait_ns() -> int | None:
    """ns this process (all of its threads) has waited for a CPU so far."""
    times = waits([os.getpid()])
    return sum(one[1] for one in times.values()) if times else None
