"""Silence: how long a start may be quiet now, and the verdict on one that is quiet for longer, or only slow. Pure."""

from __future__ import annotations

from ddtop.events import Evidence
from ddtop.sweep.shared.limits import CPU_FRESH_S, CPU_GRACE_S, HUNG_GPU_S, STOP_SHARE
from ddtop.sweep.shared.verdict import Judgement
from ddtop.sweep.start.evidence.progress import cpu_counts
from ddtop.sweep.start.readings import StartReadings


def quiet_limit_s(r: StartReadings, now: float) -> float:
    """The quiet the present phase may have now. CPU time that counts stretches it to CPU_GRACE_S."""
    limit = r.limits.quiet_limit_s(r.phase)
    if r.phase == "stopping" and r.unit is not None and r.unit.stop_limit_s:
        # A drain may be silent. It is reported while the manager still waits, before it kills.
        limit = max(limit, STOP_SHARE * r.unit.stop_limit_s)
    if r.last_is_nccl and r.gpu is not None and r.gpu.busy_low_since is not None:
        limit = max(
            limit, HUNG_GPU_S
        )  # the rule for a hung collective names the cause, and decides at that time
    return max(limit, CPU_GRACE_S * r.limits.patience) if cpu_counts(r.progress, now) else limit


def is_new(r: StartReadings) -> bool:
    """Whether the unit's reading is of a start after the call."""
    before = r.before.generation if r.before else None
    return r.unit is not None and bool(r.unit.generation) and r.unit.generation != before


def last_words(r: StartReadings, n: int = 3) -> tuple[Evidence, ...]:
    return tuple(Evidence(source="log", text=line[:300]) for line in r.last_lines[-n:])


def hung_gpu(r: StartReadings, now: float) -> Judgement | None:
    g = r.gpu
    if g is None or g.busy_low_since is None or not r.last_is_nccl or not is_new(r):
        return None
    if now - g.busy_low_since < HUNG_GPU_S or r.progress.quiet_s(now) < HUNG_GPU_S:
        return None
    share = f"{100 * g.power_share:.0f}% of the power limit" if g.power_share is not None else "low power"
    why = Evidence(
        source="gpu",
        text=f"utilisation {g.util_pct:.0f}%, {share}, memory flat for {now - g.busy_low_since:.0f} s",
    )
    return Judgement(
        verdict="hung-gpu",
        cause="nccl-init-hang",
        kind="host",
        evidence=(why, *last_words(r, 1)),
        text=f"{r.unit_name} hangs in NCCL: the GPUs are busy and nothing moves",
        advice="set NCCL_P2P_DISABLE=1 (or iommu=off) for this host, then retry",
        signature_id="nccl-hang-p2p",
    )


def stalled(r: StartReadings, now: float) -> Judgement | None:
    if r.unit is None or r.unit.gone:
        return None
    limit = quiet_limit_s(r, now)
    since = max(r.progress.last_at, r.waited_until)
    quiet = now - since
    if quiet < limit:
        return None
    spin = r.progress.cpu_at is not None and now - r.progress.cpu_at <= CPU_FRESH_S
    why = Evidence(
        source="rule",
        text=f"nothing moved for {quiet:.0f} s in phase {r.phase} (limit {limit:.0f} s); last: {r.progress.what}"
        + ("; its processes use CPU but nothing else moves" if spin else "; its processes sleep"),
    )
    slug = "hang-spinning" if spin else "hang-asleep"
    return Judgement(
        verdict="stalled",
        cause=slug,
        kind="transient",
        text=f"{r.unit_name} makes no progress in phase {r.phase}: nothing moved for {quiet:.0f} s (last: {r.progress.what})",
        advice="retry once; wait longer if this host is known to be slow",
        evidence=(why, *last_words(r)),
    )


def slow(r: StartReadings, now: float) -> Judgement | None:
    took = now - r.call.asked_at
    usual = r.limits.slow_note.get(r.phase)
    if r.expected_s is not None and took > 1.5 * r.expected_s + 5.0:
        text = f"{took:.0f} s, longer than the usual {r.expected_s:.0f} s, but moving: {r.progress.what}"
    elif usual is not None and now - r.phase_since > 2.0 * usual + 10.0:
        text = f"{r.phase} takes longer than the usual {usual:.0f} s, but moves: {r.progress.what}"
    else:
        return None
    return Judgement(verdict="slow", cause="slow", kind="slow", text=text)
