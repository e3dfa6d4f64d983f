"""`GpuSample`: one GPU at one moment, however it was read. A missing value is None, never 0."""

from __future__ import annotations

from typing import Any

import msgspec

Number = int | float

# Reasons that cost speed, other than the power cap. gpu_idle and clocks set by a person are not throttling.
THERMAL_REASONS = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
THROTTLE_REASONS = THERMAL_REASONS | {"hw_slowdown", "hw_power_brake_slowdown", "reliability", "board_limit"}
POWER_CAP_REASON = "sw_power_cap"


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of one GPU. Units are in the names; None means unknown: `absent_fields` and `denied_fields` name what
    is not offered or not permitted, `error_fields` what could not be read.

    `stamp` is the driver's time stamp as printed (host clock, never compared with ours), `count` the number of GPUs at
    that tick. `power_w` is the best power reading available, `power_source` which one it is (draw, instant, average).
    `power_limit_w` is the enforced limit if known, else the requested one.
    """

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    bus_id: str | None = None
    serial: str | None = None
    stamp: str | None = None
    count: int | None = None
    driver_version: str | None = None
    power_w: Number | None = None
    power_source: str | None = None
    power_instant_w: Number | None = None
    power_average_w: Number | None = None
    power_limit_w: Number | None = None
    power_default_limit_w: Number | None = None
    power_min_limit_w: Number | None = None
    power_max_limit_w: Number | None = None
    mem_used_mib: Number | None = None
    mem_total_mib: Number | None = None
    mem_free_mib: Number | None = None
    mem_reserved_mib: Number | None = None
    util_gpu_pct: Number | None = None
    util_mem_pct: Number | None = None
    util_enc_pct: Number | None = None
    util_dec_pct: Number | None = None
    temp_c: Number | None = None
    mem_temp_c: Number | None = None
    fan_pct: Number | None = None
    sm_clock_mhz: Number | None = None
    gfx_clock_mhz: Number | None = None
    mem_clock_mhz: Number | None = None
    sm_clock_max_mhz: Number | None = None
    gfx_clock_max_mhz: Number | None = None
    throttle_reasons: tuple[str, ...] | None = None
    pstate: str | None = None
    energy_j: Number | None = None
    sm_active_pct: Number | None = None
    sm_occupancy_pct: Number | None = None
    tensor_active_pct: Number | None = None
    dram_active_pct: Number | None = None
    recovery_action: str | None = None
    mig: bool | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    compute_cap: str | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    pcie_gen: Number | None = None
    pcie_width: Number | None = None
    fabric_state: str | None = None
    power_violation_pct: Number | None = None
    thermal_violation: Number | None = None
    fault: str | None = None
    absent_fields: tuple[str, ...] = ()
    denied_fields: tuple[str, ...] = ()
    error_fields: tuple[str, ...] = ()

    @property
    def power_fraction(self) -> float | None:
        """Power over the enforced limit, or None when either is unknown. May be above 1; never clamped."""
        if self.power_w is None or not self.power_limit_w:
            return None
        return self.power_w / self.power_limit_w

    @property
    def clock_fraction(self) -> float | None:
        """The clock of the SMs (else of graphics) over its highest, or None when either is unknown."""
        pairs = ((self.sm_clock_mhz, self.sm_clock_max_mhz), (self.gfx_clock_mhz, self.gfx_clock_max_mhz))
        # Both clocks are the same domain, and people query one now and the other's maximum.
        now = self.sm_clock_mhz if self.sm_clock_mhz is not None else self.gfx_clock_mhz
        highest = next((high for _, high in pairs if high), None)
        return now / highest if now is not None and highest else None

    @property
    def key(self) -> str:
        """Identifies the GPU: uuid, else bus id, else index (which may change at a reboot)."""
        return self.uuid or self.bus_id or (f"#{self.index}" if self.index is not None else "#?")


_FIELDS = GpuSample.__struct_fields__


def sample_dict(sample: GpuSample) -> dict[str, Any]:
    """The sample as plain data for JSON: without unknown values, tuples as lists, with `power_fraction` and
    `power_over_limit` where these are known."""
    out: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(sample, name)
        if value is None or (value == () and name != "throttle_reasons"):
            continue
        out[name] = list(value) if isinstance(value, tuple) else value
    fraction = sample.power_fraction
    if fraction is not None:
        out["power_fraction"] = round(fraction, 4)
        if fraction > 1:
            out["power_over_limit"] = True
    return out


class GpuTrouble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why nvidia-smi gave no readings, or not those requested.

    `cause` and `severity` are the vocabulary of `ddtop inspect`; `line` is the 1-based line it was read from;
    `fields` holds what the text says (bus id, library version, field name …).
    """

    cause: str
    verdict: str
    severity: str
    text: str
    advice: str
    line: int = 1
    fields: dict[str, Any] = {}
