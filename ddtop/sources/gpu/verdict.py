"""One verdict on the GPUs of a host, from their readings. Pure; the most severe finding of all GPUs wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ddtop.sources.gpu.sample import POWER_CAP_REASON, THROTTLE_REASONS, GpuSample


class Finding(NamedTuple):
    """verdict (ok, partial, degraded, down), cause, severity (info, warn, error, critical), advice."""

    verdict: str
    cause: str
    severity: str
    advice: str


def shape(finding: Finding, proof: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The result that all GPU verdicts share, without the fields that are None."""
    out: dict[str, Any] = {
        "verdict": finding.verdict,
        "cause": finding.cause,
        "severity": finding.severity,
        "advice": finding.advice,
        "evidence": proof,
    }
    out.update({k: v for k, v in fields.items() if v is not None})
    return out


RESIDENT_MIB = 1024
"""Below this nothing is loaded: an idle driver reserves up to about 620 MiB (H200)."""

_BUSY_FRACTION = 0.35
"""Of the power limit: an idle H100/H200 draws 10-18%, a busy one 35% or more. Used where utilisation is not reported."""


def is_busy(sample: GpuSample) -> bool | None:
    """Whether a GPU is busy: by utilisation, else power, else clocks; None if none of them is known."""
    idle_bit = "gpu_idle" in (sample.throttle_reasons or ())
    if sample.util_gpu_pct is not None:
        return sample.util_gpu_pct > (5 if idle_bit else 0)
    fraction = sample.power_fraction
    if fraction is not None:
        return fraction >= _BUSY_FRACTION
    if idle_bit:
        return False
    if sample.pstate is not None and sample.pstate[:1] == "P" and sample.pstate[1:].isdigit():
        return int(sample.pstate[1:]) < 5
    return None


_RECOVERY = {
    "gpu reset": ("down", "gpu-requires-reset", "critical"),
    "reset": ("down", "gpu-requires-reset", "critical"),
    "drain and reset": ("down", "gpu-requires-reset", "critical"),
    "node reboot": ("down", "node-reboot-required", "critical"),
    "reboot": ("down", "node-reboot-required", "critical"),
    "system reboot": ("down", "node-reboot-required", "critical"),
    "bus reset": ("down", "gpu-requires-reset", "critical"),
    "drain p2p": ("degraded", "drain-p2p-required", "error"),
}


def _fault(s: GpuSample) -> Finding | None:
    if s.fault == "requires-reset":
        return Finding(
            "down",
            "gpu-requires-reset",
            "critical",
            "The GPU needs a reset, although nvidia-smi exits with 0. Stop the sweep on this host and run `nvidia-smi -r -i N` (where supported), or reboot.",
        )
    if s.fault == "lost":
        return Finding(
            "down",
            "gpu-lost-from-bus",
            "critical",
            "The GPU has fallen off the PCIe bus. Stop the sweep on this host and reboot; power-cycle it if the GPU stays away.",
        )
    failed = set(s.error_fields)
    if {"power_w", "temp_c"} <= failed and s.util_gpu_pct is None:
        return Finding(
            "down",
            "gpu-not-readable",
            "critical",
            "Power, temperature and utilisation of this GPU cannot be read: it has probably failed. Run `journalctl -k -g Xid`, then reset the GPU (`nvidia-smi -r -i N`) or reboot.",
        )
    return None


def _recovery(s: GpuSample) -> Finding | None:
    word = (s.recovery_action or "none").strip("[]").lower()
    if word in {"none", "n/a", ""}:
        return None
    verdict, cause, severity = _RECOVERY.get(word, ("degraded", "recovery-action-required", "error"))
    return Finding(
        verdict, cause, severity, f"The driver asks for: {s.recovery_action}. Do that before you go on."
    )


def _memory_errors(s: GpuSample) -> Finding | None:
    if s.remap_failure:
        return Finding(
            "down", "row-remap-failure", "critical", "A memory row could not be remapped. Replace the GPU."
        )
    if s.ecc_uncorrected:
        return Finding(
            "degraded",
            "ecc-uncorrected",
            "error",
            "Uncorrectable memory errors since boot. Reset the GPU (`nvidia-smi -r -i N`) and watch it.",
        )
    if s.remap_pending:
        return Finding(
            "degraded",
            "row-remap-pending",
            "warn",
            "A row remap is pending. Reset the GPU (`nvidia-smi -r -i N`) when it is idle.",
        )
    return None


def _field_error(s: GpuSample) -> Finding | None:
    if not s.error_fields:
        return None
    names = ", ".join(s.error_fields)
    return Finding(
        "degraded",
        "driver-field-read-error",
        "warn",
        f"The driver could not read {names}; the other values are valid. Update the driver if this stays.",
    )


def _throttled(s: GpuSample) -> Finding | None:
    slow = [r for r in s.throttle_reasons or () if r in THROTTLE_REASONS]
    if not slow:
        return None
    names = ", ".join(slow)
    if any("thermal" in r for r in slow):
        return Finding(
            "degraded",
            "thermal-throttling",
            "warn",
            f"Heat lowers the clocks ({names}), so results are too low. Check fans, air flow and the room temperature.",
        )
    if "hw_power_brake_slowdown" in slow:
        return Finding(
            "degraded",
            "power-brake",
            "error",
            f"The power brake lowers the clocks ({names}), so results are far too low. Check the power supplies and their cables.",
        )
    return Finding(
        "degraded",
        "hw-slowdown",
        "error",
        f"The hardware lowers the clocks ({names}), so results are too low. Check cooling and power.",
    )


LOADED_PCT = 80
"""Utilisation from which clocks and power must show the load."""
SPINNING_PCT = 97
_LOW_CLOCK = 0.35
_IDLE_POWER = 0.24
"""Of the power limit. Idle cards draw 10-18%; a kernel that only waits (a hung collective) 17-24%; the lightest real load
seen on an H200 (a 135M model, utilisation below 95%) 20%."""


def _power_state(s: GpuSample) -> int | None:
    word = s.pstate or ""
    return int(word[1:]) if word[:1] == "P" and word[1:].isdigit() else None


def _not_working(s: GpuSample) -> Finding | None:
    """Busy by utilisation, and at rest by power state, clocks or power: results are far too low, or nothing moves."""
    if s.util_gpu_pct is None or s.util_gpu_pct < LOADED_PCT:
        return None
    state, clock, power = _power_state(s), s.clock_fraction, s.power_fraction
    seen = [f"utilisation {s.util_gpu_pct:g}%"]
    if s.pstate:
        seen.append(s.pstate)
    if clock is not None:
        seen.append(f"clock at {100 * clock:.0f}% of its maximum")
    if power is not None:
        seen.append(f"power at {100 * power:.0f}% of its limit")
    name = f"GPU {s.index}: " if s.index is not None else ""
    if (state is not None and state >= 5 and (power is None or power < 0.6)) or (
        clock is not None and clock <= _LOW_CLOCK and (power is None or power < 0.45)
    ):
        set_by = (
            "Clocks are set by a person: `nvidia-smi -rgc -i N` and `nvidia-smi -rac -i N` undo that."
            if "applications_clocks_setting" in (s.throttle_reasons or ())
            else "Look for set clocks (`nvidia-smi -q -d CLOCK,PERFORMANCE`; undo with `nvidia-smi -rgc`), else stop the server and reset the GPU (`nvidia-smi -r -i N`) or reload the driver."
        )
        return Finding(
            "degraded",
            "stuck-in-low-power-state",
            "error",
            f"{name}{', '.join(seen)}: it is stuck in a low power state under load, so results are far too low. {set_by}",
        )
    if power is not None and power < _IDLE_POWER and s.util_gpu_pct >= SPINNING_PCT:
        return Finding(
            "degraded",
            "busy-at-idle-power",
            "error",
            f"{name}{', '.join(seen)}: kernels run but do no work, as a collective does that waits for another rank. Read the "
            "server's log for NCCL and for a rank that ended; if tokens still flow, the load is too small to compare results.",
        )
    return None


def _no_util(s: GpuSample) -> Finding | None:
    if not ({"util_gpu_pct"} & {*s.absent_fields, *s.denied_fields}):
        return None
    if s.mig:
        severity = "warn" if is_busy(s) else "info"
        return Finding(
            "partial",
            "mig-enabled-util-unavailable",
            severity,
            "With MIG enabled the driver does not report utilisation: it is unknown, not 0%. Use power, or DCGM per instance. Rules for idle and stalled GPUs that need it do not apply.",
        )
    return Finding(
        "partial",
        "utilisation-unavailable",
        "info",
        "The driver does not report utilisation here: it is unknown.",
    )


def _no_memory(s: GpuSample) -> Finding | None:
    if "mem_used_mib" in s.absent_fields or "mem_total_mib" in s.absent_fields:
        return Finding(
            "partial",
            "unified-memory-no-framebuffer-counters",
            "info",
            "The GPU shares the host's memory and has no memory counters: read /proc/meminfo. Rules on “0 MiB used” do not apply.",
        )
    return None


def _no_limit(s: GpuSample) -> Finding | None:
    if "power_limit_w" in s.absent_fields:
        return Finding(
            "partial",
            "power-limits-unsupported",
            "info",
            "The driver does not report the power limit, so the share of it is unknown. Use DRAM and tensor activity instead.",
        )
    if "power_w" in s.absent_fields and s.power_w is None:
        return Finding(
            "partial",
            "power-reading-unsupported",
            "info",
            "The driver does not report power here: it is unknown.",
        )
    return None


def _fabric(s: GpuSample) -> Finding | None:
    if (s.fabric_state or "").lower() not in {"in progress", "not started"}:
        return None
    return Finding(
        "degraded",
        "fabric-not-ready",
        "error",
        f"The NVLink fabric is {s.fabric_state!r}, and CUDA does not start (error 802). Run `systemctl start "
        "nvidia-fabricmanager` (its version must equal the driver's) and wait for Completed.",
    )


def _denied(s: GpuSample) -> Finding | None:
    if not s.denied_fields:
        return None
    return Finding(
        "partial",
        "insufficient-permissions",
        "warn",
        f"This login may not read {', '.join(s.denied_fields)}: unknown, not 0. Run nvidia-smi as root.",
    )


_RULES: tuple[Callable[[GpuSample], Finding | None], ...] = (
    _fault,
    _recovery,
    _memory_errors,
    _fabric,
    _throttled,
    _not_working,
    _field_error,
    _no_memory,
    _no_util,
    _no_limit,
    _denied,
)
_RANK = {"down": 0, "degraded": 1, "partial": 2, "ok": 3}


def judge_samples(samples: Sequence[GpuSample]) -> Finding:
    """One verdict for all GPUs: faults first, then throttling, failed reads, missing counters, then busy or idle."""
    if not samples:
        return Finding(
            "down",
            "no-devices-found",
            "error",
            "No GPU was reported. Check the driver and `lspci | grep -i nvidia`.",
        )
    found = [(rank, f) for s in samples for rank, rule in enumerate(_RULES) if (f := rule(s)) is not None]
    if found:
        return min(found, key=lambda item: (_RANK[item[1].verdict], item[0]))[1]
    if any(POWER_CAP_REASON in (s.throttle_reasons or ()) for s in samples):
        return Finding(
            "ok",
            "power-capped",
            "info",
            "Busy at the power limit: the driver lowers the clocks to stay within it, as designed.",
        )
    busy = [is_busy(s) for s in samples]
    if any(busy):
        return Finding("ok", "busy", "info", "The GPUs are busy.")
    if all(b is None for b in busy) and all(s.mem_used_mib is None for s in samples):
        return Finding(
            "ok",
            "readings-present",
            "info",
            "The GPUs respond; these fields do not show whether they are busy.",
        )
    memory = [s.mem_used_mib for s in samples]
    if all(m is not None and m < RESIDENT_MIB for m in memory):
        return Finding(
            "ok",
            "idle-no-model-loaded",
            "info",
            "The driver is healthy and nothing is loaded. If a server should be running, look at its unit (`systemctl status UNIT`).",
        )
    if all(b is None for b in busy):
        return Finding(
            "ok",
            "model-loaded",
            "info",
            "Memory is in use; these fields do not show whether the GPUs are busy.",
        )
    return Finding("ok", "idle", "info", "The GPUs are idle.")
