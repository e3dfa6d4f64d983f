"""Several hosts on one screen: link, service, sweep, power and what asks for an answer, one block a host."""

from __future__ import annotations

from ddtop.dashboard.draw.paint import Line, join, line
from ddtop.dashboard.draw.text import bar, duration, gib
from ddtop.dashboard.panels.gpus import history_spark
from ddtop.dashboard.panels.header import allocation_role, host_part, service_part, uptime_s
from ddtop.dashboard.panels.moment.found import place_lines, server_lines, unknown_lines
from ddtop.journal.act.allocation import short_words
from ddtop.journal.fold.state import State
from ddtop.journal.read.eta import sweep_eta
from ddtop.journal.read.select import advised_alert, counts, running_cell


def host_lines(state: State, now_s: float, number: int, error: str | None, width: int) -> list[Line]:
    """The block of one host."""
    uptime = uptime_s(state, now_s)
    facts = [f"up {duration(uptime)}"] if uptime is not None else []
    if state.host.rtt_ms is not None:
        facts.append(f"rtt {state.host.rtt_ms:.0f} ms")
    unit, how = service_part(state, now_s)
    service = line(*unit, " ", *how) if unit else ()
    head = join([host_part(state, now_s, number), line((" · ".join(facts), "dim")), service], "   ")
    out = [head]
    if error:
        out.append(line(("   ✗ ", "bad"), (error.splitlines()[0], "bad")))
    if state.host.state == "lost" and (state.host.error or state.host.means):
        out.append(line(("   ", "dim"), (f"{state.host.error or ''} {state.host.means}".strip(), "warn")))
    if words := short_words(state, now_s):
        out.append(line(("   ", "dim"), (words, allocation_role(state, now_s))))
    out.append(_gpus(state, now_s, width))
    out.append(_sweep(state, now_s))
    if not state.plan_cells:
        out.extend(line("   ", *row) for row in server_lines(state))
    out.extend(line("   ", *row) for row in (*place_lines(state), *unknown_lines(state)))
    alert = advised_alert(state)
    if alert is not None:
        out.append(line((f"   ! {alert.raised.title} ", "bad"), (alert.raised.cause_text, "text")))
    return [*out, ()]


def _gpus(state: State, now_s: float, width: int) -> Line:
    views = list(state.gpus.values())
    if not views:
        return line(("   no GPU reading", "dim"))
    power = [v.reading.power_w for v in views if v.reading.power_w is not None]
    limit = [v.reading.power_limit_w for v in views if v.reading.power_limit_w is not None]
    used = [v.reading.mem_used_mib for v in views if v.reading.mem_used_mib is not None]
    total = [v.reading.mem_total_mib for v in views if v.reading.mem_total_mib is not None]
    share = sum(power) / sum(limit) if power and limit else None
    filled, empty = bar(share, 12)
    age = now_s - max(view.at_s for view in views)
    name = (views[0].reading.name or "GPU").removeprefix("NVIDIA ")
    spark = history_spark(
        views[0].history, now_s, min(30, max(0, width - 80)), views[0].reading.power_limit_w
    )
    return line(
        ("   ", "dim"),
        (f"{len(views)} × {name} ", "label"),
        (filled, "bar"),
        (empty, "track"),
        (f" {sum(power):.0f}/{sum(limit):.0f} W" if power else " – W", "value"),
        (f" {gib(sum(used))}/{gib(sum(total))} G" if used and total else "", "text"),
        (f" {spark}" if spark else "", "spark"),
        (f"  {duration(age)} ago" if age > 5 else "", "warn"),
    )


def _sweep(state: State, now_s: float) -> Line:
    if not state.plan_cells:
        return line(("   no plan: only watched", "dim"))
    tally = counts(state.plan_cells)
    filled, empty = bar(tally.ended / tally.total if tally.total else None, 12)
    eta = sweep_eta(state, now_s)
    running = running_cell(state)
    work = f"{running.spec.config} {running.spec.workload}@{running.spec.output_tokens}" if running else ""
    if state.run.ended is not None:
        work = f"ended: {state.run.ended.outcome}"
    elif state.paused is not None:
        work = "‖ PAUSED"
    return line(
        ("   ", "dim"),
        (f"{state.run.name or 'sweep'} ", "label"),
        (filled, "bar"),
        (empty, "track"),
        (f" {tally.done} of {tally.total} measured", "value"),
        (f" · {tally.skipped} skipped" if tally.skipped else "", "dim"),
        (f" · ✗ {bad}" if (bad := tally.bad) else "", "bad"),
        (
            f" · ETA {eta.words}" if eta.high_s is not None and tally.remaining else "",
            "dim",
        ),
        (f"  {work}" if work else "", "run"),
    )
