"""What `ddtop plan show` prints: the cells, the starts they need, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ddtop.events import CellSpec
from ddtop.plan.cells import expand
from ddtop.plan.launch import PlannedCell
from ddtop.plan.model import Plan
from ddtop.plan.refine import gaps
from ddtop.stats.spread import Spread
from ddtop.words import many


class Estimate(Protocol):
    """What earlier runs taught; `ddtop.journal.read.eta.Prior` is one. Seconds, None where not known."""

    def cell_s(self, spec: CellSpec, /) -> float | None: ...

    def restart_s(self, config: str, tp: int, /) -> float | None: ...

    @property
    def spread(self) -> Spread: ...


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
        *_datasets(plan),
        f"  time: {_time(to_run, history)}",
        *_rounds(plan, to_run, history),
        *_refined(plan),
        "",
    ]
    first = [c for c in cells if not c.spec.start]
    for number, key in enumerate(dict.fromkeys(c.spec.restart_key for c in first), start=1):
        lines += _group(number, [c for c in first if c.spec.restart_key == key])
    for start in range(1, plan.matrix.starts):
        mine = {c.spec.restart_key: f"{c.spec.config} tp{c.spec.tp}" for c in to_run if c.spec.start == start}
        lines.append(f"start {start + 1}: {', '.join(mine.values())}")
    return "\n".join(lines).rstrip() + "\n"


def _datasets(plan: Plan) -> list[str]:
    """What the workloads take of datasets, and under which licence."""
    prompts: dict[str, dict[str, int]] = {}
    uses = {w.base: w.dataset for w in plan.workloads if w.dataset is not None}
    for workload in plan.workloads:
        for prompt in workload.prompts if workload.dataset is not None else ():
            counts = prompts.setdefault(workload.base, {})
            counts[prompt["group"]] = counts.get(prompt["group"], 0) + 1
    out = []
    for name, counts in prompts.items():
        use = uses[name]
        licence = plan.datasets.get(use.name, {}).get("licence") or "of your own"
        each = ", ".join(f"{group} {count}" for group, count in counts.items())
        out.append(f"  {name}: {many(sum(counts.values()), 'prompt')} of {use.name} ({each}), {licence}")
    return out


def _refined(plan: Plan) -> list[str]:
    """What may be measured beside the cells listed."""
    if plan.matrix.refine is None:
        return []
    where = " · ".join(
        f"c {low}–{high}: {', '.join(str(c) for c in steps)}"
        for (low, high), steps in gaps(plan.matrix).items()
    )
    base = "; the baseline then starts once more" if plan.matrix.starts == 1 else ""
    return [f"  refined where a speed-up crosses 1: {where}{base}"]


def _group(number: int, group: Sequence[PlannedCell]) -> list[str]:
    first = group[0]
    launch = first.launch
    head = f"{number:3}. {launch.config} · tp{launch.tp} · {launch.unit}"
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
        repeat += f" · {spec.shape}" if spec.shape else ""
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


def _rounds(plan: Plan, to_run: Sequence[PlannedCell], history: Estimate | None) -> list[str]:
    """How often everything is started, what one more round costs, and what it would show."""
    matrix = plan.matrix
    last = [c for c in to_run if c.spec.start == matrix.starts - 1]
    servers = {c.spec.tp: len({x.spec.server for x in to_run if x.spec.tp == c.spec.tp}) for c in last}
    round_s = estimate_s(last, history)
    each = f", {_duration(round_s)} for each" if round_s is not None else ""
    most = "at most " if matrix.rounds is not None else ""
    until = {
        "race": ", fewer of those that lose the race",
        "precision": ", fewer once values are precise enough",
    }
    stops = until[matrix.rounds.rule] if matrix.rounds is not None else ""
    out = [f"  starts: {most}{matrix.starts} of every configuration{stops}{each}"]
    if not servers or history is None or history.spread.basis is None:
        return out if matrix.starts > 1 else []
    sd, count = history.spread.sd, max(servers.values())
    out.append(
        f"  spread between starts here: {100 * sd:.1f}%, from earlier runs; "
        + _shows(sd, matrix.starts, count)
    )
    more = f" ({_duration(round_s)} more)" if round_s is not None else ""
    out.append(f"  one start more of each{more}: {_shows(sd, matrix.starts + 1, count)}")
    return out


def _shows(sd: float, starts: int, configurations: int) -> str:
    """What two values of so many starts each must differ by to be told apart; the spread is pooled over configurations."""
    half = Spread("starts", sd, configurations * (starts - 1)).half_width(starts) if starts > 1 else None
    if half is None:
        return "one start each shows no difference for sure"
    return f"{starts} starts each show differences from {100 * half * 2**0.5:.1f}%"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
