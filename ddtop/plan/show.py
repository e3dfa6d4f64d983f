"""What `ddtop plan show` prints: the cells, the starts they need, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ddtop.events import CellSpec
from ddtop.plan.cells import expand
from ddtop.plan.launch import PlannedCell
from ddtop.plan.model import Plan
from ddtop.words import many


class Estimate(Protocol):
    """What earlier runs taught; `ddtop.journal.read.eta.Prior` is one. Seconds, None where not known."""

    def cell_s(self, spec: CellSpec, /) -> float | None: ...

    def restart_s(self, config: str, tp: int, /) -> float | None: ...


def show(plan: Plan, history: Estimate | None = None) -> str:
    """`plan` in words for a terminal. `history` gives the estimated time."""
    cells = expand(plan)
    to_run = [c for c in cells if c.spec.skip_reason is None]
    starts = list(dict.fromkeys(c.spec.restart_key for c in to_run))
    lines = [
        f"{plan.name}" + (f" on {plan.host}" if plan.host else ""),
        f"  {many(len(to_run), 'cell')} to run, {many(len(starts), 'server start')}"
        + (f", {len(cells) - len(to_run)} skipped" if len(cells) > len(to_run) else ""),
        f"  {plan.service.kind} · {plan.service.engine} · port {plan.service.port}"
        + (f" · model {plan.model.name or plan.model.path}" if plan.model else ""),
        f"  baseline {plan.matrix.baseline}" + (", measured against itself too" if plan.matrix.aa else ""),
        f"  time: {_time(to_run, history)}",
        "",
    ]
    for number, key in enumerate(dict.fromkeys(c.spec.restart_key for c in cells), start=1):
        lines += _group(number, [c for c in cells if c.spec.restart_key == key])
    return "\n".join(lines).rstrip() + "\n"


def _group(number: int, group: Sequence[PlannedCell]) -> list[str]:
    first = group[0]
    launch = first.launch
    round_ = f" · start {first.spec.start + 1}" if first.spec.start else ""
    head = f"{number:3}. {launch.config} · tp{launch.tp} · {launch.unit}{round_}"
    how = launch.configure or launch.argv
    reasons = {c.spec.skip_reason for c in group}
    if reasons == {first.spec.skip_reason} and first.spec.skip_reason is not None:
        return [f"{head} · skipped: {first.spec.skip_reason} ({many(len(group), 'cell')})"]
    out = [f"{head} · {many(len(group), 'cell')}"]
    if how:
        out.append(f"     {_shorten(' '.join(how), 200)}")
    for cell in group:
        spec = cell.spec
        name = f"{spec.workload}@{spec.output_tokens}" if spec.output_tokens else spec.workload
        repeat = f" · repeat {spec.repeat + 1}" if spec.repeat else ""
        repeat += " · sentinel: the first load again" if spec.sentinel else ""
        skip = f" · skipped: {spec.skip_reason}" if spec.skip_reason is not None else ""
        out.append(f"     {spec.id}  {name} · context {spec.context} · {load_words(spec)}{repeat}{skip}")
    return out


def load_words(spec: CellSpec) -> str:
    """A cell's load as `plan show` prints it."""
    if spec.search is not None:
        most = f"{spec.search.most:g} {spec.search.unit}"
        return f"search for the knee up to {most}: {spec.search.limits}"
    return f"rate {spec.rate:g} requests/s" if spec.rate is not None else f"concurrency {spec.concurrency}"


def estimate_s(to_run: Iterable[PlannedCell], history: Estimate | None) -> float | None:
    """Seconds that the cells and their starts will take; None where history does not know all of them."""
    if history is None:
        return None
    total = 0.0
    seen: set[str] = set()
    for cell in to_run:
        each = history.cell_s(cell.spec)
        if each is None:
            return None
        total += each
        if cell.spec.restart_key not in seen:
            seen.add(cell.spec.restart_key)
            start = history.restart_s(cell.spec.config, cell.spec.tp)
            if start is None:
                return None
            total += start
    return total


def _time(to_run: Sequence[PlannedCell], history: Estimate | None) -> str:
    known = estimate_s(to_run, history)
    if known is not None:
        return f"about {_duration(known)}, from earlier runs"
    limit = sum(c.bench.time_limit_s for c in to_run)
    return f"unknown until the first cells are measured; at most {_duration(limit)} of measuring, plus the starts"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
