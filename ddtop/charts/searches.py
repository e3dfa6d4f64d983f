"""The chart of searches for the knee: every load tried, which of them were too high, and where each search ended. Pure."""

from __future__ import annotations

from collections import Counter

from ddtop.charts.axes import METRICS, axis_of
from ddtop.charts.fields import field_of
from ddtop.charts.kinds import SEARCH, Picture
from ddtop.charts.marks import knees
from ddtop.charts.model import Axis, Chart, Dot, Level, Series
from ddtop.errors import UsageError
from ddtop.events import CellSpec, SearchStep
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.ladder import Rung, rungs
from ddtop.journal.read.select import metric_value

SHARE = "share"
OTHERS = ("output_tok_s", "ttft_ms.p50", "tpot_ms.p50", "requests_s")
"""What else the loads of a search can be drawn by."""


def search_chart(state: State, picture: Picture, y: str | None, like: CellSpec | None) -> Chart:
    """The searches of one objective, TP, workload and context: those of `like`, else those most searched.

    Without limits there is no share that meets them, and the throughput is drawn. Raises UsageError for an unknown `y`."""
    if y not in (None, SHARE, *OTHERS):
        raise UsageError(
            f"the loads of a search have nothing named `{y}`",
            do=f"y is one of: {', '.join((SHARE, *OTHERS))}",
        )
    cells = [cell for cell in state.plan_cells if cell.ladder and cell.spec.search is not None]
    if not cells:
        why = "no search has tried a load (a plan asks for one by `search` in [matrix] load)"
        return Chart(
            SEARCH,
            picture.title,
            Axis("load"),
            Axis("share"),
            why_empty=why,
            drawn_by=("load", SHARE, "config"),
        )
    kept = Counter(_alike(cell.spec) for cell in cells)
    wanted = _alike(like) if like is not None and kept.get(_alike(like)) else kept.most_common(1)[0][0]
    cells = [cell for cell in cells if _alike(cell.spec) == wanted]
    search = cells[0].spec.search
    assert search is not None
    name = y or (SHARE if search.slo else "output_tok_s")
    configs = list(dict.fromkeys(cell.spec.config for cell in state.plan_cells))
    series = tuple(
        Series(
            _name(cell.spec),
            dots,
            configs.index(cell.spec.config),
        )
        for cell in cells
        if (dots := _dots(cell, name))
    )
    xs, ys = [d.x for s in series for d in s.dots], [d.y for s in series for d in s.dots]
    place = field_of(cells[0].spec)
    return Chart(
        SEARCH,
        " · ".join([picture.title, place.where("tp"), place.where("workload"), search.limits]),
        axis_of(search.by, xs),
        Axis("requests within the limits", "%", zero=True) if name == SHARE else axis_of(name, ys),
        series,
        (Level(f"{100 * search.share:g}% wanted", 100 * search.share),) if name == SHARE else (),
        tuple(knees(cells, configs)),
        drawn_by=(search.by, name, "config"),
        note=picture.note + ("; bars: 99% intervals" if name == SHARE else ""),
        why_empty=""
        if series
        else f"no load of the search has {METRICS[name].label if name in METRICS else name}",
    )


def _alike(spec: CellSpec) -> tuple[object, ...]:
    objective = spec.search.short if spec.search is not None else ""
    return (spec.tp, spec.workload, spec.output_tokens, spec.context, objective)


def _name(spec: CellSpec) -> str:
    """As in the list of results: the first is the configuration's, others say which start and repeat they are of."""
    again = (f" s{spec.start + 1}" if spec.start else "") + (f" r{spec.repeat}" if spec.repeat else "")
    return spec.config + again


def _dots(cell: CellView, name: str) -> tuple[Dot, ...]:
    found = [_dot(step, rung, name) for step, rung in zip(cell.ladder, rungs(cell), strict=True)]
    return tuple(sorted((d for d in found if d is not None), key=lambda d: (d.x, d.y)))


def _dot(step: SearchStep, rung: Rung, name: str) -> Dot | None:
    label = rung.verdict
    doubt = ", ".join(step.reasons) if step.validity != "VALID" else ""
    if name == SHARE:
        if rung.attained is None or not rung.n:
            return None
        low, high = (100 * v if v is not None else None for v in (rung.share_low, rung.share_high))
        return Dot(step.tried, 100 * rung.attained / rung.n, low, high, label, doubt, not rung.met)
    value = metric_value(step.metrics, name)
    return (
        Dot(step.tried, value, label=label, doubt=doubt, hollow=not rung.met) if value is not None else None
    )
