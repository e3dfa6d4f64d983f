"""NOT STARTING? The verdict on a start under way, from readings. Pure: time is an argument.

The checks are in the order in which their sources are trusted: the process's manager, then who listens on the port, then
what the server reports of itself, then silence. A verdict of None means: go on waiting. A start that takes longer than
usual but moves is `slow`: it is shown as such and raises no alert.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ddtop.events import CauseKind, Evidence, Verdict
from ddtop.sweep.shared.limits import DOOMED_S, NEVER_BEGAN_S, SETTLE_S
from ddtop.sweep.shared.verdict import Judgement
from ddtop.sweep.start.answers import elsewhere, reachable, refused
from ddtop.sweep.start.exits import (
    BAD_LOADS,
    OPEN,
    container_refusal,
    exit_kind,
    exit_state,
    exit_words,
    refused_step,
)
from ddtop.sweep.start.readings import StartReadings
from ddtop.sweep.start.silence import hung_gpu, is_new, last_words, slow, stalled

WAIT = Judgement(verdict=None)


def judge(r: StartReadings, now: float) -> Judgement:
    """The verdict on a start at `now` (runner's monotonic clock)."""
    for rule in RULES:
        found = rule(r, now)
        if found is not None:
            return found
    return WAIT


def _told_by(r: StartReadings) -> str:
    """The source that evidence on the manager's own words names."""
    u = r.unit or r.before
    return u.told_by if u is not None else "systemctl"


def _with_cause(
    r: StartReadings, verdict: Verdict, why: Evidence, fallback: tuple[str, CauseKind, str]
) -> Judgement:
    """A judgement whose cause is the log's where it names one, else `fallback` (slug, kind, sentence)."""
    c = r.cause
    taken = _taken(r)
    if c is not None and c.fatal and taken.verdict is not None and c.slug == taken.cause:
        # The log says that the port is taken, the host by whom: one cause, whichever was read first.
        return replace(
            taken,
            verdict=taken.verdict if verdict == "failed" else verdict,
            signature_id=c.signature_id,
            evidence=(*taken.evidence, *c.evidence, why),
        )
    if c is not None and c.fatal:
        return Judgement(
            verdict=verdict,
            cause=c.slug,
            kind=c.kind,
            text=c.text,
            advice=c.advice,
            signature_id=c.signature_id,
            evidence=(*c.evidence, why),
        )
    slug, kind, text = fallback
    return Judgement(verdict=verdict, cause=slug, kind=kind, text=text, evidence=(why, *last_words(r)))


def _refused(r: StartReadings, now: float) -> Judgement | None:
    u = r.unit
    if u is None:
        return None
    if u.load in BAD_LOADS and not u.running and r.call.returned_at is not None:
        if u.kind == "docker" and r.call.rc not in (0, None):
            return None  # there is no container because docker refused it: its own words tell why
        slug, text = BAD_LOADS[u.load]
        why = Evidence(source=u.told_by, text=f"LoadState={u.load} {u.load_error or ''}".strip())
        return Judgement(
            verdict="refused", cause=slug, kind="config", text=f"{r.unit_name}: {text}", evidence=(why,)
        )
    if is_new(r) and u.gone and (step := refused_step(u)) is not None:
        slug, text = step
        line = next((x for x in reversed(r.last_lines) if "Failed at step" in x or "Failed to" in x), "")
        why = Evidence(source=u.told_by, text=f"{u.active}, Result={u.result}, {u.exit_code} {line}".strip())
        return Judgement(
            verdict="refused", cause=slug, kind="config", text=f"{r.unit_name} {text}", evidence=(why,)
        )
    stamp_before = r.before.condition_stamp if r.before else None
    unmet = u.condition_ok is False and u.condition_stamp and u.condition_stamp != stamp_before
    if (unmet or r.skipped) and not u.running and not u.job and not is_new(r):
        line = r.skipped or next((x for x in reversed(r.last_lines) if "ondition" in x or "ssert" in x), "")
        why = Evidence(
            source="log" if line else u.told_by,
            text=f"{u.active}/{u.sub}, ConditionResult=no. {line}".strip(),
        )
        return Judgement(
            verdict="refused",
            cause="condition-not-met",
            kind="host",
            text=f"{r.unit_name} was not started: a Condition of the unit is not met"
            + (f" ({line.strip()[:160]})" if line else ""),
            advice="re-stage the model if the condition checks it, else fix the unit",
            evidence=(why,),
        )
    return None


def _call_failed(r: StartReadings, now: float) -> Judgement | None:
    c = r.call
    if c.returned_at is None or c.rc in (0, None):
        if c.timed_out:
            late = f"{c.what} did not return in its time limit"
            why = Evidence(source="job", text=f"{late}. {c.error[-300:]}".strip())
            return _with_cause(r, "never-began", why, ("reconfigure-timeout", "unknown", late))
        return None
    text = c.error.strip().splitlines()[-1][:300] if c.error.strip() else f"exit code {c.rc}"
    why = Evidence(
        source="job" if c.by_script else _told_by(r), text=f"exit code {c.rc}: {c.error.strip()[-300:]}"
    )
    if c.refused is not None:
        return Judgement(
            verdict="refused",
            cause=c.refused,
            kind="config",
            text=f"{r.unit_name} was not started: {text}",
            advice=c.do,
            evidence=(why,),
        )
    low = c.error.lower()
    if any(word in low for word in ("access denied", "authentication", "permission denied", "not permitted")):
        first = c.error.strip().splitlines()[0][:300]
        return Judgement(
            verdict="refused",
            cause="not-permitted",
            kind="config",
            evidence=(why,),
            text=f"this login may not restart {r.unit_name}: {first}",
            advice=c.do or "log in as root, or allow `sudo -n systemctl` for this user",
        )
    if "too quickly" in low or "start-limit" in low or r.start_limit_hit:
        return None
    if r.unit is not None and r.unit.kind == "docker":
        slug, kind, line = container_refusal(c.error)
        text = f"{c.what} failed: {line[:300] or text}"
        return Judgement(verdict="refused", cause=slug, kind=kind, text=text, evidence=(why,))
    slug = "reconfigure-failed" if c.by_script else "never-began"
    return Judgement(
        verdict="never-began",
        cause=slug,
        kind="config" if c.by_script else "bug",
        text=f"{c.what} failed: {text}",
        evidence=(why,),
    )


def _crash_loop(r: StartReadings, now: float) -> Judgement | None:
    u = r.unit
    if u is None:
        return None
    rising = (u.n_restarts or 0) > r.base_restarts and (is_new(r) or r.seen_new)
    waiting = u.sub == "auto-restart" and (is_new(r) or r.seen_new)
    limit = r.start_limit_hit or u.result == "start-limit-hit"
    if not (rising or waiting or limit):
        return None
    n = u.n_restarts or 0
    words = "systemd gave up: Start request repeated too quickly" if limit else f"restart counter at {n}"
    why = Evidence(source=u.told_by, text=f"{u.active}/{u.sub}, NRestarts={n}, {words}")
    return _with_cause(
        r,
        "crash-loop",
        why,
        (
            "start-limit-hit" if limit else "exited-waiting-for-restart",
            "bug",
            f"{r.unit_name} exits and is restarted again and again: {words}",
        ),
    )


def _failed(r: StartReadings, now: float) -> Judgement | None:
    u = r.unit
    if u is None or not u.gone or u.job:
        return None
    if not (is_new(r) or r.seen_new):
        return None
    if r.gone_since is not None and now - r.gone_since < SETTLE_S:
        return None
    if r.phase in ("stopping", "stopped") and r.call.returned_at is None:
        return None
    how = f"{u.active}/{u.sub}, Result={u.result}, {u.exit_code or 'no exit code'}"
    why = Evidence(source=u.told_by, text=how)
    state = exit_state(u, r.last_lines)
    text = f"{r.unit_name} {exit_words(u, r.last_lines)}"
    if r.cause is not None and r.cause.slug in OPEN:
        r = replace(r, cause=None)  # of the end, the log has systemd's line alone
    found = _with_cause(r, "failed", why, (state.slug, exit_kind(state.slug), text))
    if found.cause == state.slug and not found.advice and state.advice:
        return replace(found, advice=state.advice)
    return found


def _doomed(r: StartReadings, now: float) -> Judgement | None:
    """The log has named why it cannot start, and nothing moves any more, though the process still lives.

    A dead scheduler takes its server with it 6 to 120 s later; until then only the log knows. Not told from an exception
    that is in no table, nor from a transient trouble: engines try downloads and connections again by themselves.
    """
    c = r.cause
    if c is not None and (c.signature_id is None or c.kind in ("transient", "unknown", "slow")):
        return None
    if (
        c is None
        or not (c.fatal and c.final)  # a traceback that was caught, and a part that starts anew, end nothing
        or r.cause_at is None
        or r.unit is None
        or not r.unit.running
        or not is_new(r)
    ):
        return None
    if (
        r.phase in ("answering", "ready")
        or now - max(r.cause_at, r.progress.last_at, r.waited_until) < DOOMED_S
    ):
        return None
    quiet = now - r.progress.last_at
    why = Evidence(
        source="rule",
        text=f"{r.unit_name} still runs; nothing has moved for {quiet:.0f} s since its log named this",
    )
    return _with_cause(r, "failed", why, (c.slug, c.kind, c.text))


def _never_began(r: StartReadings, now: float) -> Judgement | None:
    u, c = r.unit, r.call
    if c.returned_at is None or u is None or u.job or is_new(r) or r.seen_new:
        return None
    if u.active == "deactivating":
        return None
    if u.running:
        if now - c.returned_at < NEVER_BEGAN_S:
            return None
        who = "the script returned success and did nothing" if c.by_script else "the call returned"
        why = Evidence(
            source=u.told_by,
            text=f"{u.active}/{u.sub}, still start {(u.generation or '')[:12]}, no job queued",
        )
        return Judgement(
            verdict="never-began",
            cause="restart-not-done",
            kind="bug",
            evidence=(why,),
            text=f"{r.unit_name} was not restarted: {who}, and the old process still runs",
        )
    told = next(
        (x for x in reversed(r.last_lines) if "Dependency failed for" in x or "'dependency'" in x), ""
    )
    since = max(r.old_gone_at if r.old_gone_at is not None else c.returned_at, c.asked_at)
    if now - since < NEVER_BEGAN_S and not (told and u.failed_needs):
        return None
    if u.failed_needs:
        return Judgement(
            verdict="never-began",
            cause="dependency-failed",
            kind="host",
            text=f"{r.unit_name} was not started: it requires {u.failed_needs}, which failed",
            advice=f"run `systemctl status {u.failed_needs.replace(',', '')}`, repair it, then retry",
            evidence=(
                Evidence(source=u.told_by, text=f"{u.active}/{u.sub}; failed: {u.failed_needs}"),
                *([Evidence(source="log", text=told[:300])] if told else []),
            ),
        )
    why = Evidence(
        source=u.told_by, text=f"{u.active}/{u.sub}, Result={u.result}, no new start, no job queued"
    )
    return _with_cause(
        r,
        "never-began",
        why,
        (
            "never-began",
            "unknown",
            f"{r.unit_name} is {u.active}: the old process is gone and no new one was started",
        ),
    )


def _port(r: StartReadings, now: float) -> Judgement | None:
    """Another process listens on the port. The old process may while it is being stopped: that is no alarm."""
    u = r.unit
    if u is not None and (u.active == "deactivating" or u.job):
        return None
    if u is not None and u.gone and r.seen_new:
        return None  # it exited: that is the cause, not that its container still listens
    old = r.port_owner is not None and r.port_owner.owner == "old"
    if old and is_new(r) and r.port_owner is not None:
        why = Evidence(source="http", text=f"port {r.port} belongs to {r.port_owner.who}")
        return Judgement(
            verdict="old-server",
            cause="old-process-answered",
            kind="transient",
            evidence=(why,),
            text=f"the old server still listens on port {r.port} beside the new one: {r.port_owner.who}",
            advice="stop the old process, then restart",
        )
    taken = _taken(r)
    return taken if taken.verdict and (is_new(r) or r.call.returned_at is not None) else None


def _taken(r: StartReadings) -> Judgement:
    """The foreign process on the port; WAIT where there is none, or it cannot be seen."""
    foreign = [item for item in r.listeners if item.owned is False]
    if not foreign:
        return WAIT
    why = Evidence(source="ss", text=f"{foreign[0].addr}:{foreign[0].port} belongs to {foreign[0].who}")
    return Judgement(
        verdict="foreign",
        cause="port-in-use",
        kind="host",
        evidence=(why,),
        text=f"port {r.port} is taken by {foreign[0].who}, which is not {r.unit_name}",
        advice=f"stop {foreign[0].who}, then retry",
    )


def _arguments(r: StartReadings, now: float) -> Judgement | None:
    if r.unit is not None and r.unit.need_reload and r.unit.running and is_new(r):
        why = Evidence(source=r.unit.told_by, text="NeedDaemonReload=yes")
        return Judgement(
            verdict="wrong-arguments",
            cause="old-arguments-loaded",
            kind="bug",
            evidence=(why,),
            text=f"{r.unit_name} runs its old arguments: the changed unit file was never loaded",
            advice="systemctl daemon-reload, then restart",
        )
    a = r.args
    if a is None or not (a.wrong or a.tied is False) or not is_new(r):
        return None
    text = "; ".join(a.wrong) if a.wrong else "another server responded (its random_seed is not this start's)"
    why = Evidence(source=a.source, text=text)
    return Judgement(
        verdict="wrong-arguments",
        cause="wrong-arguments",
        kind="config",
        evidence=(why,),
        text=f"{r.unit_name} runs with other arguments than the cell's: {text}",
        advice="fix what sets the arguments (drop-in, script), then retry",
    )


def _elsewhere(r: StartReadings, now: float) -> Judgement | None:
    """The server listens, but not where the plan's requests go."""
    if not is_new(r):
        return None
    own = tuple(item for item in r.listeners if item.owned)
    if own and len(own) == len(r.listeners) and not reachable(own):
        return elsewhere(r.unit_name, r.port, own)
    return elsewhere(r.unit_name, r.port, r.elsewhere) if r.elsewhere and not r.listeners else None


def _refuses(r: StartReadings, now: float) -> Judgement | None:
    return refused(r.unit_name, r.port, r.refusals, now) if r.refusals is not None and is_new(r) else None


def _no_tokens(r: StartReadings, now: float) -> Judgement | None:
    t = r.token
    if t is None or not is_new(r):
        return None
    if t.error is None and t.tokens is not None and t.tokens <= 0:
        why = Evidence(source="http", text=f"HTTP {t.status}, 0 tokens")
        return Judgement(
            verdict="no-tokens",
            cause="zero-tokens",
            kind="bug",
            evidence=(why,),
            text=f"{r.unit_name} is ready by all signs and generates nothing: 0 tokens from a real request",
            advice="restart it and retry once; a second time means the configuration is broken",
        )
    return None


Rule = Callable[[StartReadings, float], Judgement | None]
RULES: tuple[Rule, ...] = (
    _refused,
    _call_failed,
    _crash_loop,
    _failed,
    _port,
    _arguments,
    _elsewhere,
    _refuses,
    _no_tokens,
    _never_began,
    _doomed,
    hung_gpu,
    stalled,
    slow,
)
