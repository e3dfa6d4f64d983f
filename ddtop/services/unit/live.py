"""What a systemd unit's state means while a restart is under way. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtop.services.causes import cause as cause_row
from ddtop.services.unit.show import UnitProps
from ddtop.services.unit.state import UnitState, refusal, unit_state

NEVER_BEGAN_S = 5.0
"""Seconds after the call returned (or the old process was gone) by which a new process must have come."""


@dataclass(frozen=True, slots=True)
class UnitVerdict:
    """What two readings around a restart mean.

    verdict  word of the readiness gate: ``failed``, ``crash-loop``, ``never-began``, ``refused``, ``stopping``,
             ``starting``, ``wrong-arguments``, ``active``, ``stopped``, ``unknown``
    alarm    whether this is to be announced; a stop in progress is shown calmly (`stopping n of TimeoutStopSec`)
    """

    verdict: str
    slug: str
    severity: str
    alarm: bool
    text: str
    why: tuple[str, ...] = ()
    advice: str = ""


def unit_verdict(
    before: UnitProps | None,
    now: UnitProps,
    call_returned_s: float | None,
    now_s: float,
    *,
    call_rc: int | None = None,
    call_text: str = "",
    old_gone_s: float | None = None,
    stopping_since_s: float | None = None,
    lines: Sequence[str] = (),
) -> UnitVerdict:
    """What a unit's state means while a restart is under way. All times in seconds of one monotonic clock.

    before            the unit just before the restart was asked for, None when it was not read
    call_returned_s   when the restart call returned; None while it still runs
    call_rc           its exit status; its success proves nothing
    old_gone_s        when the old generation was first seen gone, None while it lives or when there was none
    stopping_since_s  when the unit was first seen deactivating
    lines             journal lines of this restart (systemd's own ones decide start limit, condition, OOM)
    """
    refused = refusal(call_text) if call_rc not in (None, 0) else None
    state = unit_state(now, lines, start_asked=call_returned_s is not None)
    old = before.invocation_id if before is not None else None
    same_generation = now.invocation_id is not None and now.invocation_id == old
    if refused is not None:
        return _verdict("refused", refused)
    if state.slug in (
        "unit-masked",
        "unit-not-found",
        "bad-unit-file",
        "condition-not-met",
        "dependency-failed",
    ):
        return _verdict("refused", state)
    if now.active_state == "deactivating":
        limit = f" of {now.timeout_stop_s:.0f} s" if now.timeout_stop_s else ""
        gone = f" {now_s - stopping_since_s:.0f}" if stopping_since_s is not None else ""
        return _verdict("stopping", state, text=f"stopping{gone}{limit}", alarm=False)
    restarts = (now.n_restarts or 0) - (
        (before.n_restarts or 0) if before is not None and same_generation else 0
    )
    if state.slug in ("flapping", "exited-waiting-for-restart") or (
        restarts >= 1 and not same_generation and now.active_state != "failed"
    ):
        slug = state.slug if state.slug in ("flapping", "exited-waiting-for-restart") else "flapping"
        return _verdict("crash-loop", UnitState(slug, state.why or (f"NRestarts={now.n_restarts}",)))
    if now.active_state == "failed":
        if same_generation and before is not None and before.active_state == "failed":
            return _waiting(now, state, call_returned_s, now_s, old_gone_s, call_rc)
        if state.slug in (
            "exec-not-found",
            "working-directory-missing",
            "user-missing",
            "sandbox-setup-failed",
            "start-limit-hit",
        ):
            return _verdict("refused" if state.slug != "start-limit-hit" else "crash-loop", state)
        if state.slug in ("stop-timeout-killed", "stopped-cleanly"):
            return _waiting(now, state, call_returned_s, now_s, old_gone_s, call_rc)
        return _verdict("failed", state)
    if now.active_state in ("active", "activating", "reloading") and not same_generation:
        if now.need_daemon_reload:
            return _verdict("wrong-arguments", UnitState("old-arguments-loaded", ("NeedDaemonReload=yes",)))
        starting = now.active_state == "activating"
        return _verdict("starting" if starting else "active", state, alarm=False)
    return _waiting(now, state, call_returned_s, now_s, old_gone_s, call_rc)


def _waiting(
    now: UnitProps,
    state: UnitState,
    returned_s: float | None,
    now_s: float,
    old_gone_s: float | None,
    rc: int | None,
) -> UnitVerdict:
    """No new generation yet: still time, queued, or it never began."""
    if now.job is not None:
        return _verdict("starting", UnitState("start-job-queued", (f"Job={now.job}",)), alarm=False)
    if returned_s is None:
        return _verdict(
            "starting", UnitState("start-job-running", ("the call has not returned",)), alarm=False
        )
    since = max(returned_s, old_gone_s if old_gone_s is not None else returned_s)
    if rc not in (None, 0) or now_s - since >= NEVER_BEGAN_S:
        why = (f"the restart returned {now_s - returned_s:.0f} s ago, and no new process came", *state.why)
        slug = "restart-not-done" if now.active_state == "active" else "never-began"
        if state.slug not in ("active", "never-started", "stopped-cleanly", "old-arguments-loaded"):
            slug = state.slug
        return _verdict("never-began", UnitState(slug, why))
    return _verdict(
        "starting", UnitState("start-job-running", ("the new process has not come yet",)), alarm=False
    )


def _verdict(verdict: str, state: UnitState, *, text: str = "", alarm: bool = True) -> UnitVerdict:
    row = cause_row(state.slug)
    return UnitVerdict(
        verdict,
        state.slug,
        row.severity if alarm else "info",
        alarm,
        text or row.means,
        state.why,
        row.advice,
    )
