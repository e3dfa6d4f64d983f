"""Kernel and GPU faults while a host is watched: recorded at once, judged, joined to their cell, raised where no other
alert names them."""

from __future__ import annotations

import asyncio
from typing import Any

from ddtop.events import AlertResolved, KernelFault
from ddtop.sweep.cell.attempts import in_flight
from ddtop.sweep.cell.fault_after_result import doubt_measured_cell
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.kernel_faults import FaultRecord
from ddtop.sweep.tell.alerts import HOST_FAULT, alert_id, host_alert
from ddtop.sweep.tell.raise_alert import raise_alert

JUDGE_EVERY_S = 0.5


def take_kernel_line(ctx: SweepContext, item: dict[str, Any]) -> None:
    """One line of the kernel's log: a fault is recorded at once, with the cell that it hit."""
    faults = ctx.faults
    faults.units = tuple(ctx.sweep.units) if ctx.sweep is not None else ()
    faults.pids = frozenset(
        f.reading.main_pid for f in ctx.feeds.values() if f.reading is not None and f.reading.main_pid
    )
    mono = item.get("mono_us")
    cell = _cell_at(ctx, mono / 1e6 if isinstance(mono, int) and mono else None)
    record = faults.take_line(item, ctx.mono(), cell)
    if record is not None:
        fault = record.fault
        ctx.emit(
            KernelFault,
            kind=fault.fact.what,
            text=fault.fact.text[:500],
            code=fault.fact.code,
            severity=fault.severity,
            advice=fault.advice,
            cell_id=cell,
        )
        ctx.wake()


async def judge_faults(ctx: SweepContext) -> None:
    """Judges faults once the driver was asked after them, doubts the cells they hit, and raises those of the host."""
    while True:
        for record in ctx.faults.settle(ctx.mono()):
            _take_judged(ctx, record)
        record_of_host = ctx.faults.unreported_grave()
        if record_of_host is not None and not _is_busy(ctx):
            _raise(ctx, record_of_host)
        _resolve(ctx)
        await asyncio.sleep(JUDGE_EVERY_S)


def _take_judged(ctx: SweepContext, record: FaultRecord) -> None:
    """Notes what the driver asks for, and doubts a cell whose result is recorded already."""
    fault = record.fault
    if fault.asked is not None:
        ctx.note("info", f"kernel: {fault.text}: {fault.advice}")
    cell = ctx.state.cells.get(_cell_at(ctx, fault.host_mono_s) or record.cell_id or "")
    if cell is not None and fault.severity in ("error", "critical"):
        doubt_measured_cell(ctx, cell, fault)
    ctx.wake()


def _is_busy(ctx: SweepContext) -> bool:
    """Whether the sweep measures or starts a server: then the alert of the cell or start names the fault."""
    return ctx.gpu_watch.chunks is not None or ctx.state.restarting is not None


def _raise(ctx: SweepContext, record: FaultRecord) -> None:
    """The alert for a fault of the host that no alert of a cell or start names."""
    record.reported = True
    fault, units = record.fault, tuple(ctx.feeds)
    fact = fault.fact
    raise_alert(
        ctx,
        alert_id(ctx.run_id, "host-fault", fact.what, str(fact.code), str(fact.bus), str(fault.at_s)),
        host_alert(ctx.host_name, units, fault),
        unit=units[0] if len(units) == 1 else None,
        policy="the next cell is measured only once a probe is clean" if ctx.sweep is not None else None,
    )


def _resolve(ctx: SweepContext) -> None:
    """Resolves alerts of the host since which a cell was measured without a fault."""
    for alert in ctx.state.open_alerts:
        if alert.raised.title == HOST_FAULT and any(
            c.state == "done"
            and c.state_at_s is not None
            and c.state_at_s > alert.at_s
            and "host-fault" not in c.reasons
            for c in ctx.state.cells.values()
        ):
            ctx.emit(
                AlertResolved, alert_id=alert.id, how="a cell was measured without a fault since", by="sweep"
            )


def _cell_at(ctx: SweepContext, host_mono_s: float | None) -> str | None:
    """The cell that was measured at a moment of the host's clock: by the windows of the recorded results, else the one
    in flight."""
    for cell in ctx.state.cells.values():
        window = cell.attempts[-1].window_mono_s if cell.attempts else None
        if window is not None and host_mono_s is not None and window[0] <= host_mono_s <= window[1]:
            return cell.id
    return in_flight(ctx.state)
