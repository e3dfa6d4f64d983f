"""What a probe says of the GPUs: rows of nvidia-smi's CSV, what the driver asks for, memory, and facts to compare. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtop.sources.kernel.fault import quiet


def gpu_rows(probe: Mapping[str, Any]) -> list[dict[str, str]] | None:
    """One row for each GPU, by nvidia-smi's field names; None where the GPUs could not be read."""
    gpus = probe.get("gpus")
    if not isinstance(gpus, Mapping) or "csv" not in gpus:
        return None
    fields = [str(f) for f in gpus.get("fields", ())]
    lines = [line for line in str(gpus["csv"]).splitlines() if line.strip()]
    return [dict(zip(fields, (c.strip() for c in line.split(",")), strict=False)) for line in lines]


def driver_version(probe: Mapping[str, Any]) -> str | None:
    """The GPU driver's version; None where it is not known."""
    versions = (row.get("driver_version", "") for row in gpu_rows(probe) or ())
    return next((v for v in versions if v[:1].isdigit()), None)


def recovery_actions(probe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(index, gpu_recovery_action) of the GPUs whose driver asks for something."""
    return [
        (row["index"], row["gpu_recovery_action"])
        for row in gpu_rows(probe) or ()
        if row.get("index", "").isdigit() and not quiet(row.get("gpu_recovery_action", ""))
    ]


def used_mib(probe: Mapping[str, Any]) -> list[float]:
    """Used memory of each GPU in MiB; those that could not be read are left out."""
    found = []
    for row in gpu_rows(probe) or ():
        try:
            found.append(float(row.get("memory.used", "").split(" ")[0]))
        except ValueError:
            continue
    return found


def comparable_facts(probe: Mapping[str, Any]) -> dict[str, str]:
    """GPU count, driver and power limits, by name; empty where the GPUs could not be read."""
    rows = gpu_rows(probe)
    if rows is None:
        return {}
    facts = {"the number of GPUs": str(len(rows))}
    for field, name in (("driver_version", "the driver"), ("power.limit", "the power limit")):
        values = {row[field] for row in rows if field in row}
        if values:
            facts[name] = ", ".join(sorted(values))
    return facts
