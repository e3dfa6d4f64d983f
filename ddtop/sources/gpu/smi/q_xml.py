"""Read `nvidia-smi -q -x` of any driver. Paths differ between versions, so each field has several."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import msgspec

from ddtop.sources.gpu.sample import GpuSample
from ddtop.sources.gpu.smi.query_csv import build_sample
from ddtop.sources.gpu.smi.value import Problem, flag, number, read_cell

# query name -> element paths below <gpu>, newest driver first
_PATHS: dict[str, tuple[str, ...]] = {
    "name": ("product_name",),
    "uuid": ("uuid",),
    "serial": ("serial",),
    "pci.bus_id": ("pci/pci_bus_id",),
    "fan.speed": ("fan_speed",),
    "pstate": ("performance_state", "gpu_power_readings/power_state", "power_readings/power_state"),
    "persistence_mode": ("persistence_mode",),
    "compute_mode": ("compute_mode",),
    "gpu_recovery_action": ("gpu_recovery_action",),
    "mig.mode.current": ("mig_mode/current_mig",),
    "memory.total": ("fb_memory_usage/total",),
    "memory.used": ("fb_memory_usage/used",),
    "memory.free": ("fb_memory_usage/free",),
    "memory.reserved": ("fb_memory_usage/reserved",),
    "utilization.gpu": ("utilization/gpu_util",),
    "utilization.memory": ("utilization/memory_util",),
    "utilization.encoder": ("utilization/encoder_util",),
    "utilization.decoder": ("utilization/decoder_util",),
    "temperature.gpu": ("temperature/gpu_temp",),
    "temperature.memory": ("temperature/memory_temp",),
    "power.draw": ("gpu_power_readings/power_draw", "power_readings/power_draw"),
    "power.draw.instant": ("gpu_power_readings/instant_power_draw", "power_readings/instant_power_draw"),
    "power.draw.average": ("gpu_power_readings/average_power_draw", "power_readings/average_power_draw"),
    "enforced.power.limit": (
        "gpu_power_readings/current_power_limit",
        "gpu_power_readings/enforced_power_limit",
        "power_readings/enforced_power_limit",
    ),
    "power.limit": (
        "gpu_power_readings/requested_power_limit",
        "gpu_power_readings/power_limit",
        "power_readings/power_limit",
    ),
    "power.default_limit": ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
    "power.min_limit": ("gpu_power_readings/min_power_limit", "power_readings/min_power_limit"),
    "power.max_limit": ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit"),
    "clocks.current.sm": ("clocks/sm_clock",),
    "clocks.current.graphics": ("clocks/graphics_clock",),
    "clocks.current.memory": ("clocks/mem_clock",),
    "clocks.max.sm": ("max_clocks/sm_clock",),
    "clocks.max.graphics": ("max_clocks/graphics_clock",),
    "remapped_rows.pending": ("remapped_rows/remapped_row_pending",),
    "remapped_rows.failure": ("remapped_rows/remapped_row_failure",),
    "pcie.link.gen.current": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
    "pcie.link.width.current": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    "fabric.state": ("fabric/state",),
}
_REASONS = (
    ("clocks_event_reasons", "clocks_event_reason_"),
    ("clocks_throttle_reasons", "clocks_throttle_reason_"),
)
_UNCORRECTABLE = (
    "dram_uncorrectable",
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "double_bit/total",
)


class XmlReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one `-q -x` document. `whole` is False if it is truncated."""

    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[GpuSample, ...] = ()
    attached: int | None = None
    mig_devices: tuple[dict[str, Any], ...] = ()
    processes: tuple[dict[str, Any], ...] = ()
    whole: bool = True


def parse_xml(text: str) -> XmlReport:
    """Read a document, or the part of it that is there. Raises ValueError if it has no <gpu> and no driver."""
    if "<!ENTITY" in text[:20_000]:
        raise ValueError("XML with entities is not from nvidia-smi")
    start = text.find("<nvidia_smi_log")
    parser: Any = ElementTree.XMLPullParser(["end"])
    whole = True
    try:
        parser.feed(text[start:] if start > 0 else text)
        parser.close()
    except ElementTree.ParseError:
        whole = False
    gpus: list[GpuSample] = []
    mig: list[dict[str, Any]] = []
    processes: list[dict[str, Any]] = []
    head: dict[str, str] = {}
    try:
        for _, element in parser.read_events():
            if element.tag == "gpu":
                gpus.append(_gpu(element, len(gpus)))
                mig += _mig_devices(element, len(gpus) - 1)
                processes += _processes(element, len(gpus) - 1)
            elif element.tag in {
                "driver_version",
                "cuda_version",
                "cuda_umd_version",
                "kmd_version",
                "attached_gpus",
            }:
                head.setdefault(element.tag, (element.text or "").strip())
    except ElementTree.ParseError:
        whole = False
    if not gpus and not head:
        raise ValueError("no GPU in this XML")
    attached = number(head.get("attached_gpus", ""))
    return XmlReport(
        driver_version=_version(head, "kmd_version", "driver_version"),
        cuda_version=_version(head, "cuda_umd_version", "cuda_version"),
        gpus=tuple(gpus),
        attached=int(attached) if attached is not None else None,
        mig_devices=tuple(mig),
        processes=tuple(processes),
        whole=whole,
    )


def _version(head: dict[str, str], *names: str) -> str | None:
    return next((head[n] for n in names if head.get(n, "")[:1].isdigit()), None)


def _gpu(element: ElementTree.Element, index: int) -> GpuSample:
    values: list[tuple[str, str]] = []
    for name, paths in _PATHS.items():
        texts = [t for path in paths if (t := element.findtext(path)) is not None]
        # A path that has a value wins over one that says N/A.
        texts.sort(key=lambda t: read_cell(t).problem is not None)
        if texts:
            values.append((name, texts[0]))
    if element.get("id") and not any(name == "pci.bus_id" for name, _ in values):
        values.append(("pci.bus_id", element.get("id") or ""))
    for folder, prefix in _REASONS:
        for reason in element.find(folder) or ():
            name = reason.tag.removeprefix(prefix)
            if flag(reason.text or "") is not None:
                values.append((f"clocks_event_reasons.{name}", reason.text or ""))
    return build_sample(values, {"index": index, **_ecc(element)})


def _ecc(element: ElementTree.Element) -> dict[str, Any]:
    volatile = element.find("ecc_errors/volatile")
    if volatile is None:
        return {}
    counts = [number(t) for path in _UNCORRECTABLE if (t := volatile.findtext(path)) is not None]
    known = [int(c) for c in counts if c is not None]
    return {"ecc_uncorrected": sum(known)} if known else {}


def _mig_devices(element: ElementTree.Element, index: int) -> list[dict[str, Any]]:
    return [
        {
            "gpu": index,
            "gi": number(device.findtext("gpu_instance_id", "")),
            "mem_total_mib": number(device.findtext("fb_memory_usage/total", "")),
            "mem_used_mib": number(device.findtext("fb_memory_usage/used", "")),
        }
        for device in element.findall("mig_devices/mig_device")
    ]


def _processes(element: ElementTree.Element, index: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for process in element.findall("processes/process_info"):
        pid = number(process.findtext("pid", ""))
        if pid is None:
            continue
        row: dict[str, Any] = {
            "gpu": index,
            "pid": int(pid),
            "name": process.findtext("process_name", "").strip(),
        }
        memory = process.findtext("used_memory", "")
        if read_cell(memory).problem is Problem.ABSENT or number(memory) is None:
            out.append(row)
        else:
            out.append({**row, "used_mib": number(memory)})
    return out
