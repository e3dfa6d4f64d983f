"""What ends a measurement: the server failed, hangs, or the host has a fault. The cause is read, never guessed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ddtop.errors import AgentError
from ddtop.events import Evidence, Generation
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.services.readings import UnitReading
from ddtop.sweep.cell.life.ended import EndedProcess
from ddtop.sweep.cell.life.server_watch import ServerLog
from ddtop.sweep.cell.life.silence import Silence, life_words
from ddtop.sweep.cell.outcome import Committed
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.limits import FAULT_LOOKBACK_S, KERNEL_LINE_S
from ddtop.sweep.shared.log_lines import drain_log
from ddtop.sweep.shared.verdict import CauseReading, Judgement
from ddtop.sweep.start.exits import OPEN, STOPPED, exit_state, exit_words
from ddtop.sweep.tell.alerts import fault_judgement
from ddtop.words import many

GONE_POLL_S = 0.5

EndKind = Literal["ended", "restart", "server-failed", "replan"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureEnd:
    """Why measuring ended: the job is over, the server must be restarted or failed, or a viewer changed something."""

    kind: EndKind
    judgement: Judgement | None = None
    cell_id: str | None = None
    fault_seen_s: float | None = None
    results: int = 0
    invalid: Committed | None = None
    """The invalid result for which the server is restarted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The server that is measured."""

    launch: Launch
    generation: Generation
    engine_version: str | None = None
    model: str = ""
    main_pid: int | None = None
    overridden: tuple[str, ...] = ()


def is_gone(ctx: SweepContext, subject: Subject) -> bool:
    """Whether the unit, as last read, no longer runs the start that is measured."""
    u = ctx.feed(subject.launch.unit).reading
    if u is None or u.active is None:
        return False
    return u.gone or (u.generation is not None and u.generation != subject.generation.id)


async def is_gone_now(ctx: SweepContext, host: Host, subject: Subject) -> bool:
    """As `is_gone`, read anew from the host, twice: it may know half a second later than the server's clients."""
    for pause_s in (0.0, GONE_POLL_S):
        await asyncio.sleep(pause_s)
        ctx.take_reading(await ctx.feed(subject.launch.unit).service.read(host))
        if is_gone(ctx, subject):
            return True
    return False


async def why_failed(
    ctx: SweepContext, host: Host, subject: Subject, log: ServerLog, ended: Sequence[EndedProcess] = ()
) -> tuple[Judgement, float | None]:
    """(why a server that is gone failed, seconds since the host's first sign of it).

    The kernel's cause goes before the log's, the log's before the exit code. `ended`: its processes that ended first.
    """
    feed, unit = ctx.feed(subject.launch.unit), subject.launch.unit
    await drain_log(ctx, host, feed)
    with contextlib.suppress(AgentError):  # then by the last reading: an end that was found is never lost
        ctx.take_reading(await feed.service.read(host))
    u = feed.reading
    logged = log.cause()
    if logged is None or not logged.fatal:  # it may have died before its log was followed for the cell
        logged = await _cause_in_history(ctx, host, subject) or logged
    j = failure_judgement(unit, u, logged, ended, log.stop_line)
    if "journal" in host.hello.can:  # the kernel's line may come half a second after the exit it explains
        await ctx.wait_until(
            lambda: ctx.faults.cause_since(ctx.mono() - FAULT_LOOKBACK_S) is not None, KERNEL_LINE_S
        )
    record = ctx.faults.cause_since(ctx.mono() - FAULT_LOOKBACK_S)
    if record is not None:
        record.reported = True
        j = fault_judgement(record.fault, unit, "died while it was measured", j.evidence)
    return j, ctx.since_fault_s(u.changed_mono_s) if u else None


async def _cause_in_history(ctx: SweepContext, host: Host, subject: Subject) -> CauseReading | None:
    """The end that the whole log of the start names; None where it names none, or cannot be read."""
    log = ServerLog(ctx, subject.launch, subject.generation.id)
    try:
        for line in await ctx.feed(subject.launch.unit).service.history(host, subject.generation.id):
            log.take(line)
    except AgentError:
        return None
    return log.cause() if log.names_its_end() else None


def failure_judgement(
    unit: str,
    u: UnitReading | None,
    logged: CauseReading | None,
    ended: Sequence[EndedProcess] = (),
    stop_line: str = "",
) -> Judgement:
    """Why a server failed while it was measured: by its log where that names a fatal cause, else by its exit.

    stop_line  systemd's word that it was asked to stop the unit, where nothing was wrong before it
    """
    how = f"{u.active}/{u.sub}, Result={u.result}, {u.exit_code or 'no exit code'}" if u else "not read"
    why = Evidence(source=u.told_by if u else "systemctl", text=how)
    first = tuple(Evidence(source="probe", text=one.words) for one in ended[:3])
    by = f" ({ended[0].words})" if ended else ""
    over = u is not None and (u.gone or u.active == "deactivating")
    if over and stop_line:
        # A stop that ran out of time, and words of processes that were told to end, are of the stop too.
        return Judgement(
            verdict="failed",
            cause=STOPPED,
            kind="transient",  # it says nothing of the configuration: never broken by it
            text=f"{unit} was stopped on request while it was measured: by `systemctl stop`, or with the host",
            evidence=(Evidence(source="log", text=stop_line), *first, why),
            advice="ask who stopped it; to leave it stopped, end the run (`ddtop stop`)",
        )
    if logged is not None and logged.fatal and logged.slug not in OPEN:
        return Judgement(
            verdict="failed",
            cause=logged.slug,
            kind=logged.kind,
            advice=logged.advice,
            signature_id=logged.signature_id,
            text=f"{unit} died while it was measured: {logged.text}{by}",
            evidence=(*first, *logged.evidence, why),
        )
    if u is not None and not over:
        text = f"{unit} was restarted by another user or process while it was measured{by}"
        advice = "ask who restarted it: what is measured on their server is not this configuration"
        return Judgement(
            verdict="failed",
            cause=STOPPED,
            kind="transient",
            text=text,
            evidence=(*first, why),
            advice=advice,
        )
    words, slug = (exit_words(u), exit_state(u).slug) if u else ("ended", "process-exited")
    return Judgement(
        verdict="failed",
        cause=slug,
        kind="bug",
        text=f"{unit} {words} while it was measured{by}",
        evidence=(*first, why),
    )


def hang_judgement(unit: str, job: str, silence: Silence, requests: int) -> Judgement:
    """A server that gives no byte while requests run, for longer than it may."""
    asked = many(requests, "request")
    needs = f"; it was seen to need {silence.expected_s:.0f} s at most" if silence.expected_s >= 1 else ""
    return Judgement(
        verdict="stalled",
        cause="engine-hung-zero-throughput",
        kind="bug",
        text=f"{unit} has given no byte for {silence.quiet_s:.0f} s while it had {asked} to answer{needs}",
        evidence=(
            Evidence(
                source="job", text=f"{job}: no byte on any stream for {silence.quiet_s:.0f} s, {asked} open"
            ),
            Evidence(source="probe", text=life_words(silence.life)),
        ),
        advice="restart once; a second time means it is broken",
    )
