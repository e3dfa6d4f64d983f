"""Charts from a recording: what is asked for as axes and series, what is held still, what cannot be drawn and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddtop.charts.axes import METRICS, PLACES, axis_of, measured, set_axis
from ddtop.charts.fields import Field, Figure, everywhere, fields, variables_of
from ddtop.charts.held import NONE, free_of, held_still, label_of, split_of
from ddtop.charts.kinds import LOADS, PICTURES, SEARCH, VARIABLE, Picture
from ddtop.charts.marks import break_evens, knees_beside
from ddtop.charts.model import Axis, Chart, Dot, Level, Mark, Series
from ddtop.charts.names import check_choice, names_of
from ddtop.charts.searches import search_chart
from ddtop.errors import UsageError
from ddtop.events import CellSpec
from ddtop.journal.fold.state import State
from ddtop.journal.results.per_gpu import unknown_configs


@dataclass(frozen=True, slots=True)
class Choice:
    """What to draw. None: as the picture has it."""

    what: str = "throughput"
    x: str | None = None
    y: str | None = None
    by: str | None = None
    where: tuple[tuple[str, str], ...] = ()
    """(name of SPLITS, value) of what is held still."""


def chart(
    state: State, choice: Choice = Choice(), baseline: str | None = None, like: CellSpec | None = None
) -> Chart:
    """The picture chosen. What neither axis nor series shows is held still: as in the cell `like`, else where most results are.

    A chart without series says why in `why_empty`. Raises UsageError for a name that this recording does not have.
    """
    picture = PICTURES.get(choice.what)
    if picture is None:
        raise UsageError(f"there is no picture `{choice.what}`", do=f"choose one of: {', '.join(PICTURES)}")
    if choice.what == SEARCH and choice.x is None:
        return search_chart(state, picture, choice.y, like)
    if choice != Choice(choice.what):
        check_choice(names_of(state), choice.x, choice.y, choice.by, [name for name, _ in choice.where])
    ys = (choice.y,) if choice.y is not None else picture.y
    own = variables_of(state)
    xs = [own[0] if name == VARIABLE else name for name in picture.x if name != VARIABLE or own]
    if choice.x is not None:
        xs = [choice.x]
    if not xs:
        why = "no plan variable (`for`) and no number in the configurations' names"
        axes = (Axis("variable"), axis_of(ys[0], ()))
        return Chart(
            choice.what, picture.title, *axes, why_empty=why, drawn_by=("", ys[0], choice.by or NONE)
        )
    first = _drawn(state, choice, picture, xs[0], ys, baseline, like)
    others = (_drawn(state, choice, picture, x, ys, baseline, like) for x in xs[1:])
    return first if first.series else next((one for one in others if one.series), first)


def _drawn(
    state: State,
    choice: Choice,
    picture: Picture,
    x: str,
    ys: Sequence[str],
    baseline: str | None,
    like: CellSpec | None,
) -> Chart:
    own = variables_of(state)
    placed = x in PLACES or x in own
    everything = {y: fields(state, [y] if placed else [x, y], baseline) for y in ys}
    present = [y for y in ys if everything[y]] or ys[:1]
    if placed:  # what a search found has a place of its own: the picture of searches
        everything = {y: [f for f in found if not f.load.search] for y, found in everything.items()}
    main = [f for f in everything[present[0]] if not placed or f.number(x) is not None]
    title = _title(choice, picture, x, ys)
    if not main:
        why = _why_not(state, [present[0]] if placed else [x, present[0]], x if placed else "")
        shown_by = (x, present[0], choice.by or "config")
        return Chart(choice.what, title, axis_of(x, ()), axis_of(ys[0], ()), why_empty=why, drawn_by=shown_by)
    asked = dict(choice.where)
    others = [name for name in own if x in own and name != x]
    by = choice.by or ("config" if x not in own else NONE if others else split_of(main, asked))
    free = free_of(x, by, own, placed)
    held = held_still(main, free, like, asked)
    shown = {
        y: [f for f in found if f.fits(held) and (not placed or f.number(x) is not None)]
        for y, found in everything.items()
    }
    inner = [name for name in others if name != by]
    tones = list(dict.fromkeys(label_of(f, by, inner) for f in everywhere(state)))
    several = {n for n in ("config", "tp", "load") if len({f.where(n) for f in shown[present[0]]}) > 1}
    unsaid = [name for name in ("config", "tp", "load") if name in several and name != by]
    named: dict[tuple[str, str], list[Field]] = {}
    for y in present:
        for field in shown[y]:
            named.setdefault((label_of(field, by, inner), y), []).append(field)
    series = tuple(
        Series(
            label + (f" {_short(y)}" if len(present) > 1 else ""),
            _dots(named[label, y], x, y, placed, unsaid),
            tone,
            joined=placed,
            dashed=number > 0,
        )
        for tone, label in enumerate(tones)
        for number, y in enumerate(present)
        if (label, y) in named
    )
    xs = [dot.x for one in series for dot in one.dots]
    y_values = [dot.y for one in series for dot in one.dots]
    levels, marks = _beside(state, choice, x, present[0], by, everything[present[0]], held, baseline, tones)
    said = " · ".join(v for v in held.values() if v)
    return Chart(
        choice.what,
        f"{title} · {said}" if said else title,
        set_axis(x, xs) if x in own else axis_of(x, xs),
        axis_of(present[0], y_values) if len(present) == 1 else _shared(present, y_values),
        series,
        levels,
        marks,
        _front(series, shown[present[0]], x, present[0]),
        _note(picture, choice, main, held, series),
        drawn_by=(x, present[0], by),
    )


def _why_not(state: State, wanted: Sequence[str], place: str) -> str:
    """Why no field has what a picture needs."""
    if not measured(state):
        return "no cell has a result that counts"
    if "tok_s_gpu" in wanted and (unknown := unknown_configs(state)):
        config, why = next(iter(unknown.items()))
        return f"the GPUs of {config} are not known: {why}"
    words = f"no result has {' and '.join(_name(name) for name in wanted)}"
    return f"{words} at a {_name(place)}" if place else words


def _title(choice: Choice, picture: Picture, x: str, ys: Sequence[str]) -> str:
    usual = choice.y is None and (choice.x is None or choice.x in picture.x)
    what = picture.title if usual else _name(ys[0])
    what = what[:1].upper() + what[1:]
    return what if x in METRICS and usual else f"{what} by {_name(x)}"


def _name(name: str) -> str:
    kind = METRICS.get(name) or PLACES.get(name)
    return kind.label if kind is not None else name.replace("_", " ")


def _short(name: str) -> str:
    return name.rpartition(".")[2] or name


def _shared(ys: Sequence[str], values: Iterable[float]) -> Axis:
    """The axis of several y: a median and its tail."""
    axis = axis_of(ys[0], values)
    return Axis(axis.label.removesuffix(f" {_short(ys[0])}"), axis.unit, axis.scale, axis.zero)


def _said(field: Field, name: str) -> str:
    return "knee" if name == "load" and field.load.search else field.where(name)


def _dots(found: Sequence[Field], x: str, y: str, placed: bool, unsaid: Sequence[str]) -> tuple[Dot, ...]:
    dots: list[Dot] = []
    for field in found:
        figure: Figure = field.figures[y]
        at = field.number(x) if placed else field.figures[x].value
        if at is None:
            continue
        tail = [] if placed else [_said(field, n) for n in unsaid]
        dots.append(
            Dot(
                at,
                figure.value,
                figure.low,
                figure.high,
                " ".join(["at most" if figure.bound else "", *tail]).strip(),
                field.doubt,
                hollow=figure.bound or bool(field.dominated_by),
            )
        )
    return tuple(sorted(dots, key=lambda d: (d.x, d.y)))


def _beside(
    state: State,
    choice: Choice,
    x: str,
    y: str,
    by: str,
    everything: Sequence[Field],
    held: dict[str, str],
    baseline: str | None,
    tones: Sequence[str],
) -> tuple[tuple[Level, ...], tuple[Mark, ...]]:
    """Reference lines and marks: the baseline, configurations without the variable, knees and break-evens."""
    levels: list[Level] = []
    marks: list[Mark] = []
    if y == "speedup":
        levels.append(Level(f"{baseline or state.run.baseline or 'baseline'} = 1", 1.0))
        if x == "concurrency" and by == "config":
            marks = break_evens(state, held, baseline, tones)
    elif x in variables_of(state):
        fixed = [f for f in everything if f.number(x) is None and f.fits(held)]
        labels = dict.fromkeys(label_of(f, by, ()) for f in fixed)
        if len(labels) > 1:  # of each curve its own, so of the baseline alone
            fixed = [f for f in fixed if f.config == (baseline or state.run.baseline)]
        for f in fixed:
            label, figure = label_of(f, by, ()), f.figures[y]
            own = tones.index(label) if len(labels) > 1 and label in tones else None
            name = f"{f.config} {label}" if own is not None else f.config
            levels.append(Level(name, figure.value, figure.low, figure.high, own))
    elif x in LOADS and by == "config":
        marks = knees_beside(state, x, held, tones)
    return tuple(levels), tuple(marks)


def _front(
    series: Sequence[Series], found: Sequence[Field], x: str, y: str
) -> tuple[tuple[float, float], ...]:
    if (x, y) != ("tok_s_user", "tok_s_gpu") or not series:
        return ()
    return tuple(sorted((f.figures[x].value, f.figures[y].value) for f in found if f.front))


def _note(
    picture: Picture, choice: Choice, main: Sequence[Field], held: dict[str, str], series: Sequence[Series]
) -> str:
    """How to read it, and what was measured and is not in it."""
    words = [picture.note] if picture.note and choice.x is None and choice.y is None else []
    dots = [dot for one in series for dot in one.dots]
    if any(d.low is not None for d in dots):
        words.append("bars: 95% intervals")
    if any(d.hollow and d.label.startswith("at most") for d in dots):
        words.append("hollow: too few requests for this percentile, so a bound that it is not above")
    if any(d.doubt for d in dots):
        words.append("?: SUSPECT")
    others = [v for n, w in held.items() if w for v in dict.fromkeys(f.where(n) for f in main) if v != w]
    if others:
        words.append(f"not shown: {', '.join(others[:4])}{' …' if len(others) > 4 else ''}")
    return "; ".join(words)
