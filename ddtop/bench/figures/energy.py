"""Energy and GPU readings of a cell, over exactly the measured window. Pure.

From the device's own counter where it is there, else the integral of instantaneous power by the trapezoid rule.
`power.draw` is a 1 s average on most chips: used only where no instantaneous power exists, and named so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtop.bench.figures.stats import summary

# nvmlClocksEventReasons (nvml.h)
THERMAL_BITS = 0x20 | 0x40  # SW thermal slowdown, HW thermal slowdown
POWER_BITS = 0x04 | 0x80  # SW power cap, HW power brake
HW_SLOWDOWN = 0x08
MAX_GAP_S = 2.5  # a longer hole between samples is missing telemetry
CAP_SHARE = 0.05
SETTLED_S = 0.5  # a reading of utilisation is of the time before it
IDLE_SAMPLES = 5  # for each GPU, before 0% is a finding


@dataclass(frozen=True, slots=True)
class CellEnergy:
    """What the GPUs did in the window; figures of all GPUs in use together. None = not known."""

    energy_j: float | None = None
    source: str = ""
    power_mean_w: float | None = None
    power_max_w: float | None = None
    power_limit_w: float | None = None
    thermal_share: float = 0.0
    power_cap_share: float = 0.0
    missing: str = ""
    idle: str = ""
    """What shows that the GPUs did nothing in the window, in words: what they drew is not the server's."""
    per_gpu: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def as_metrics(self, output_tokens: float | None, output_tok_s: float | None) -> dict[str, Any]:
        """energy_j, j_per_token, tok_s_per_w, power_mean_w, power_max_w, …; what is not known is absent."""
        out: dict[str, Any] = {}
        for key in ("energy_j", "power_mean_w", "power_max_w", "power_limit_w"):
            if getattr(self, key) is not None:
                out[key] = getattr(self, key)
        if self.source:
            out["energy_source"] = self.source
        if self.energy_j and output_tokens:
            out["j_per_token"] = self.energy_j / output_tokens
        if self.power_mean_w and output_tok_s:
            out["tok_s_per_w"] = output_tok_s / self.power_mean_w
        for key in ("thermal_share", "power_cap_share"):
            if getattr(self, key):
                out[key] = getattr(self, key)
        if self.missing or self.idle:
            out["energy_missing"] = self.missing or f"{self.idle}: their energy is not this server's"
        if self.per_gpu:
            out["gpus"] = {name: dict(value) for name, value in self.per_gpu.items()}
        return out


def integrate(samples: Sequence[tuple[float, float]], begin: float, end: float) -> tuple[float, str]:
    """(joules, why it is incomplete or "") of (time s, watts) over [begin, end], by trapezoids, cut at the borders."""
    if len(samples) < 2:
        return 0.0, "fewer than two power samples"
    if samples[0][0] > begin + MAX_GAP_S or samples[-1][0] < end - MAX_GAP_S:
        return 0.0, "the power samples do not cover the window"
    # the borders take the nearest sample's value where no sample lies beyond them
    points = list(samples)
    if points[0][0] > begin:
        points.insert(0, (begin, points[0][1]))
    if points[-1][0] < end:
        points.append((end, points[-1][1]))
    joules = 0.0
    for (t0, w0), (t1, w1) in itertools.pairwise(points):
        if t1 <= begin or t0 >= end or t1 <= t0:
            continue
        low, high = max(t0, begin), min(t1, end)
        if high - low > MAX_GAP_S:
            return 0.0, f"no power sample for {t1 - t0:.1f} s"
        if t1 - t0 > MAX_GAP_S:  # the hole lies beyond the border: what was read inside holds up to it
            joules += (w0 if t0 >= begin else w1) * (high - low)
            continue
        at_low = w0 + (w1 - w0) * (low - t0) / (t1 - t0)
        at_high = w0 + (w1 - w0) * (high - t0) / (t1 - t0)
        joules += (at_low + at_high) / 2 * (high - low)
    return joules, ""


def cell_energy(raw: Mapping[str, Any], *, gpus: Iterable[int] | None = None) -> CellEnergy:
    """Energy of one cell result. `gpus`: indices in use (None = all that were sampled). Absent telemetry is said."""
    about = raw.get("gpu") or {}
    samples = raw.get("gpu_samples") or []
    wall_s = (raw.get("window") or {}).get("wall_s") or 0.0
    if about.get("error") == "not asked":
        return CellEnergy()
    wanted = None if gpus is None else set(gpus)
    series: dict[int, list[dict[str, Any]]] = {}
    for sample in samples:
        if wanted is None or sample["gpu"] in wanted:
            series.setdefault(sample["gpu"], []).append(sample)
    if not samples or wall_s <= 0:
        return CellEnergy(missing=about.get("error") or "no GPU samples in the window")
    if wanted is not None and wanted - set(series):
        return CellEnergy(missing=f"no samples of GPU {sorted(wanted - set(series))}")
    per_gpu: dict[str, dict[str, Any]] = {}
    missing = ""
    for index, rows in sorted(series.items()):
        figures, lack = _one_gpu(rows, wall_s)
        per_gpu[str(index)] = figures
        missing = missing or lack
    idle = idle_words(series, wall_s)
    if idle:
        return CellEnergy(missing=missing, idle=idle, per_gpu=per_gpu)
    counter = _counter_j(about, sorted(series), wall_s, wanted is None)
    powers = [one["energy_j"] for one in per_gpu.values() if "energy_j" in one]
    energy, source = None, ""
    if counter is not None:
        energy, source = counter, "energy counter"
    elif not missing and len(powers) == len(per_gpu):
        instant = all(one.get("power_kind") == "instant" for one in per_gpu.values())
        energy, source = (
            sum(powers),
            "integral of instantaneous power" if instant else "integral of averaged power",
        )
    limits = [one["power_limit_w"] for one in per_gpu.values() if "power_limit_w" in one]
    return CellEnergy(
        energy_j=energy,
        source=source,
        power_mean_w=None if energy is None else energy / wall_s,
        power_max_w=_max_together(series, wall_s),
        power_limit_w=sum(limits) if len(limits) == len(per_gpu) else None,
        thermal_share=max(one["thermal_share"] for one in per_gpu.values()),
        power_cap_share=max(one["power_cap_share"] for one in per_gpu.values()),
        missing=missing,
        per_gpu=per_gpu,
    )


def idle_words(series: Mapping[int, Sequence[Mapping[str, Any]]], wall_s: float) -> str:
    """What shows that no GPU in use did anything in a window of `wall_s`; "" where one did, or it cannot be told."""
    utils: list[float] = []
    for rows in series.values():
        inside = [
            r["util_gpu_pct"] for r in rows if "util_gpu_pct" in r and SETTLED_S <= r["t"] / 1e9 <= wall_s
        ]
        if len(inside) < IDLE_SAMPLES:
            return ""
        utils += inside
    if not utils or max(utils) > 0:
        return ""
    return f"the GPUs were idle: utilisation 0% in all {len(utils)} samples"


def _one_gpu(rows: list[dict[str, Any]], wall_s: float) -> tuple[dict[str, Any], str]:
    rows = sorted(rows, key=lambda row: row["t"])
    inside = [row for row in rows if 0 <= row["t"] / 1e9 <= wall_s] or rows
    kind = "instant" if any("power_instant_w" in row for row in rows) else "averaged"
    key = "power_instant_w" if kind == "instant" else "power_w"
    figures: dict[str, Any] = {"samples": len(inside)}
    power = [(row["t"] / 1e9, row[key]) for row in rows if key in row]
    joules, lack = integrate(power, 0.0, wall_s)
    if not lack:
        figures.update(energy_j=joules, power_mean_w=joules / wall_s, power_kind=kind)
    for name in ("util_gpu_pct", "util_mem_pct", "sm_mhz", "mem_used_mib", "temp_c", key):
        values = summary([row[name] for row in inside if name in row], (50,))
        if values:
            figures["power_w" if name == key else name] = {k: values[k] for k in ("mean", "max")}
    limits = [row["power_limit_w"] for row in inside if "power_limit_w" in row]
    if limits:
        figures["power_limit_w"] = limits[-1]
    figures["thermal_share"] = _share(inside, THERMAL_BITS)
    figures["power_cap_share"] = _share(inside, POWER_BITS)
    figures["hw_slowdown_share"] = _share(inside, HW_SLOWDOWN)
    return figures, lack


def _share(rows: list[dict[str, Any]], bits: int) -> float:
    known = [row["event_reasons"] for row in rows if isinstance(row.get("event_reasons"), int)]
    return sum(bool(one & bits) for one in known) / len(known) if known else 0.0


def _counter_j(about: Mapping[str, Any], indices: list[int], wall_s: float, all_gpus: bool) -> float | None:
    """Joules by the devices' counters. Their readings stand just outside the window; the small difference in span is
    taken out in proportion. None unless every GPU in use has one."""
    energy = about.get("energy") or {}
    counted = energy.get("mj") or {}
    span = energy.get("span_s") or 0.0
    names = list(counted) if all_gpus else [str(index) for index in indices]
    if not counted or span <= 0 or any(name not in counted for name in names) or len(names) < len(indices):
        return None
    if abs(span - wall_s) > max(0.1, 0.05 * wall_s):
        return None
    if any(counted[name] < 0 for name in names):  # its driver was loaded anew: it counts from 0 again
        return None
    joules = sum(counted[name] for name in names) / 1e3
    return joules * wall_s / span if joules > 0 else None


def _max_together(series: dict[int, list[dict[str, Any]]], wall_s: float) -> float | None:
    """The highest sum over GPUs of samples that were read together: in one round of sampling, inside the window. A round in
    which a GPU has no sample is none."""
    rows = sorted(
        ((row["t"], index, row) for index, mine in series.items() for row in mine), key=lambda one: one[:2]
    )
    inside = [one for one in rows if 0 <= one[0] / 1e9 <= wall_s] or rows
    most: float | None = None
    here: dict[int, float | None] = {}
    for _, index, row in [*inside, (0, -1, {})]:
        if index < 0 or index in here:  # the next round begins
            values = [value for value in here.values() if value is not None]
            if len(values) == len(series):
                most = max(sum(values), most if most is not None else 0.0)
            here = {}
        here[index] = row.get("power_instant_w", row.get("power_w"))
    return most
