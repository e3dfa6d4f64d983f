"""Read the plain `nvidia-smi` table (old and new headers, MIG, processes), `nvidia-smi --version` and `-L`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.query_csv import build_sample
from ddtop.sources.gpu.smi.value import number

_BANNER = re.compile(
    r"NVIDIA-SMI\s+(?P<smi>\S{1,40})\s+(?P<dword>Driver|KMD) Version:\s*(?P<driver>\S{1,40})"
    r"(?:\s+CUDA (?P<umd>UMD )?Version:\s*(?P<cuda>\S{1,40}))?"
)
_FIRST = re.compile(
    r"^\|\s{1,6}(?P<index>\d{1,4})\s{1,6}(?P<name>\S.{0,60}?)\s{1,40}(?P<pers>On|Off|N/A|ERR!)\s{0,6}\|\s{0,10}"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|N/A)\s{0,20}(?P<disp>On|Off|N/A|ERR!)?\s{0,10}\|"
    r"\s{0,30}(?P<ecc>\S{1,20})?\s{0,30}\|"
)
_PERF = re.compile(
    r"^\s{0,6}(?P<fan>\d{1,3}%|N/A|ERR!|\[[^\]]{1,30}\])\s{0,10}(?P<temp>-?\d{1,3}C|N/A|ERR!|\[[^\]]{1,30}\])\s{0,10}"
    r"(?P<perf>P\d{1,2}|N/A|ERR!|Unknown)\s{0,24}(?P<power>\S{1,12}(?: Error)?)\s{0,10}/\s{0,10}(?P<limit>\S{1,12})\s{0,6}$"
)
_MEMORY = re.compile(
    r"(?P<used>\d{1,12}\s?[KMG]iB|N/A|ERR!|Not Supported)\s{0,10}(?:/\s{0,10}(?P<total>\d{1,12}\s?[KMG]iB|N/A|ERR!))?"
)
_UTIL = re.compile(r"^\s{0,20}(?P<util>\d{1,3}%|N/A|ERR!)\s")
_MIG = re.compile(
    r"^\|\s{1,6}(?P<gpu>\d{1,4})\s{1,8}(?P<gi>\d{1,4})\s{1,8}(?P<ci>\d{1,4})\s{1,8}(?P<dev>\d{1,4})\s{0,8}\|\s{0,30}"
    r"(?P<used>\d{1,12})MiB\s{0,6}/\s{0,6}(?P<total>\d{1,12})MiB"
)
_PROCESS = re.compile(
    r"^\|\s{1,8}(?P<gpu>\d{1,4})\s{1,10}(?:(?:N/A|\d{1,4})\s{1,8}(?:N/A|\d{1,4})\s{1,14})?(?P<pid>\d{1,9})\s{1,12}"
    r"(?P<type>[CGM+]{1,5})\s{1,6}(?P<name>.{0,200}?)\s{1,60}(?P<mem>\d{1,9}MiB|N/A)\s{0,4}\|\s{0,4}$"
)
_VERSION = re.compile(
    r"^(?P<what>NVIDIA-SMI|NVML|DRIVER|CUDA|KMD|CUDA UMD)\s+version\s{0,40}:\s{0,8}(?P<v>\S.{0,200})$", re.I
)
_LIST = re.compile(r"^GPU (?P<index>\d{1,4}): (?P<name>.{1,100}?) \(UUID: (?P<uuid>[^)\s]{1,80})\)\s{0,4}$")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the table. `new_head`: it has the header of driver 610 and later ("KMD Version")."""

    driver_version: str | None = None
    cuda_version: str | None = None
    new_head: bool = False
    gpus: tuple[tuple[int, GpuSample], ...] = ()
    mig_devices: tuple[dict[str, Any], ...] = ()
    processes: tuple[dict[str, Any], ...] = ()
    old_words: tuple[str, ...] = ()


def parse_table(text: str, *, limit_lines: int = 20_000) -> Table | None:
    """Read a table (complete or truncated), or the output of `--version` or `-L`; None for other text.

    GPU rows are read from the GPU section only: rows of the MIG section look the same to the pattern.
    """
    lines = text.splitlines()[:limit_lines]
    banner = next((m for line in lines if "NVIDIA-SMI" in line and (m := _BANNER.search(line[:400]))), None)
    gpus: list[tuple[int, GpuSample]] = []
    mig: list[dict[str, Any]] = []
    processes: list[dict[str, Any]] = []
    part = "gpus"
    for at, line in enumerate(lines):
        if "MIG devices:" in line:
            part = "mig"
        elif "Processes:" in line:
            part = "processes"
        elif _BANNER.search(line[:400]):
            part = "gpus"
        if part == "gpus" and (first := _FIRST.match(line[:400])):
            gpus.append((at + 1, _gpu(first, lines[at + 1 : at + 3])))
        elif part == "mig" and (device := _MIG.match(line[:400])):
            mig.append(
                {
                    "gpu": int(device["gpu"]),
                    "gi": int(device["gi"]),
                    "ci": int(device["ci"]),
                    "mem_used_mib": int(device["used"]),
                    "mem_total_mib": int(device["total"]),
                }
            )
        elif part == "processes" and (row := _PROCESS.match(line[:600])):
            process: dict[str, Any] = {
                "gpu": int(row["gpu"]),
                "pid": int(row["pid"]),
                "name": row["name"].strip(),
            }
            if number(row["mem"]) is not None:
                process["used_mib"] = number(row["mem"])
            processes.append(process)
        elif listed := _LIST.match(line[:300].strip()):
            gpus.append(
                (
                    at + 1,
                    build_sample(
                        [("name", listed["name"]), ("uuid", listed["uuid"])], {"index": int(listed["index"])}
                    ),
                )
            )
    versions = _versions(lines)
    if not banner and not gpus and not versions:
        return None
    driver = _first_version(banner["driver"] if banner else None, versions.get("kmd"), versions.get("driver"))
    cuda = _first_version(banner["cuda"] if banner else None, versions.get("cuda umd"), versions.get("cuda"))
    prose = tuple(k for k, v in versions.items() if not v[:1].isdigit())
    return Table(
        driver_version=driver,
        cuda_version=cuda,
        new_head=bool(banner and banner["dword"] == "KMD") or "kmd" in versions,
        gpus=tuple(gpus),
        mig_devices=tuple(mig),
        processes=tuple(processes),
        old_words=prose,
    )


def _versions(lines: list[str]) -> dict[str, str]:
    """Rows of `nvidia-smi --version`. From driver 610 on, a DRIVER row may hold prose ("Deprecated, see …")."""
    found = (_VERSION.match(line.strip()[:300]) for line in lines[:200])
    return {m["what"].lower(): m["v"].strip() for m in found if m}


def _first_version(*texts: str | None) -> str | None:
    """The first value that is a version, that is, starts with a digit; prose is skipped."""
    return next((t for t in texts if t and re.fullmatch(r"\d[\w.\-]{0,39}", t)), None)


def _gpu(first: re.Match[str], following: list[str]) -> GpuSample:
    values = [
        ("name", first["name"].strip()),
        ("pci.bus_id", first["bus"]),
        ("persistence_mode", first["pers"]),
    ]
    if first["ecc"] and first["ecc"].isdigit():
        values.append(("ecc.errors.uncorrected.volatile.total", first["ecc"]))
    if following and following[0].startswith("|"):
        cells = following[0].strip().strip("|").split("|")
        if (perf := _PERF.match(cells[0])) is not None:
            values += [
                ("fan.speed", perf["fan"]),
                ("temperature.gpu", perf["temp"]),
                ("pstate", perf["perf"]),
                ("power.draw", perf["power"]),
                ("enforced.power.limit", perf["limit"]),
            ]
        if len(cells) > 1 and (memory := _MEMORY.search(cells[1])) is not None:
            values.append(("memory.used", memory["used"]))
            values.append(("memory.total", memory["total"] or "N/A"))
        if len(cells) > 2 and (util := _UTIL.match(cells[2])) is not None:
            values.append(("utilization.gpu", util["util"]))
    if len(following) > 1 and following[1].startswith("|"):
        last = following[1].strip().strip("|").split("|")[-1].strip()
        if last in {"Enabled", "Disabled", "Enabled*", "Disabled*"}:
            values.append(("mig.mode.current", last.rstrip("*")))
    return build_sample(values, {"index": int(first["index"])})
