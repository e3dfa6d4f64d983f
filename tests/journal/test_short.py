"""Reading what leaves something in the state alone gives the state that all events give, wherever one stops."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from ddtop import events as ev
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.series import FORM, FigurePoint, FigureSeries, LiveSeries, pack, unpack
from ddtop.journal.fold.state import State
from ddtop.journal.fold.sweep import series_due
from ddtop.journal.read.reader import JournalReader, read_state
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.read.session import LiveSession, fold_batch
from ddtop.journal.short import BULK, reports
from ddtop.journal.tables import kind_of
from ddtop.journal.write.writer import JournalWriter
from tests.journal.made import sweep
from tests.journal.test_session import samples

DATA = Path(__file__).parents[1] / "data"
FEW = 7
"""Samples and lines that are kept in these tests, so that short recordings have something to leave out."""

PLACES = 100
"""Of each recording, by chance: where one may stop."""


@pytest.fixture(autouse=True)
def little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fold.views.GPU_HISTORY", "fold.series.GPU_HISTORY", "short.GPU_HISTORY"):
        monkeypatch.setattr(f"ddtop.journal.{name}", FEW)
    monkeypatch.setattr("ddtop.journal.short.LINES", 3 * FEW)
    monkeypatch.setattr("ddtop.journal.fold.series.MOST", 20)
    monkeypatch.setattr("ddtop.journal.fold.series.KEPT", 5)


def demo() -> list[ev.Event]:
    """The kept run of the demo, with a server that says its figures, and a runner that dies in the middle of a cell."""
    out: list[ev.Event] = []
    dice = random.Random(1)
    started, again = 0, ""
    lines = (DATA / "demo-run" / "events.jsonl").read_text().splitlines()
    first = ev.decode_event(lines[0])
    for line in lines:
        event = ev.decode_event(line)
        if again and getattr(event, "cell_id", "") == again and not isinstance(event, ev.CellProgress):
            event = msgspec.structs.replace(event, attempt=2)  # type: ignore[call-arg]
        out.append(event)
        at = {"at_s": event.at_s, "mono_s": event.mono_s, "host": event.host}
        if isinstance(event, ev.GpuSampled):
            kv_pct = dice.choice([None, 10 * dice.random()])
            out.append(ev.ServerFigures(**at, unit="u", running=1.0 * dice.randrange(9), kv_pct=kv_pct))
        started += isinstance(event, ev.CellStarted)
        if isinstance(event, ev.CellProgress) and started == 3:
            started, again = started + 1, event.cell_id
            away = {**at, "at_s": event.at_s + 600}
            out.append(msgspec.structs.replace(first, segment=1, **away))
            out.append(ev.CellStateSet(**away, cell_id=again, state="interrupted", attempt=1))
            out.append(ev.CellStarted(**away, cell_id=again, attempt=2))
    return out


def as_recorded(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The events as a runner records them today, with the series of each try that is over."""
    state = State()
    for event in events:
        yield event
        apply(state, event)
        if (series := series_due(state, event)) is not None:
            more = ev.CellSeries(at_s=event.at_s, mono_s=event.mono_s, host=event.host, **series)  # type: ignore[arg-type]
            yield more
            apply(state, more)


STORIES = {
    "demo of an older ddtop": demo,
    "demo": lambda: list(as_recorded(demo())),
    "sweep": lambda: list(as_recorded(sweep())),
    "gpus that come and go": lambda: samples(60),
    "a real llama.cpp on an H200": lambda: list(
        map(ev.decode_event, (DATA / "h200-llamacpp" / "events.jsonl").read_text().splitlines())
    ),
}


def as_shown(state: State, first: int) -> dict[str, object]:
    """All of a state, less the log lines before seq `first`."""
    parts = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    tails = {unit: [line for line in tail.lines if line.seq >= first] for unit, tail in state.logs.items()}
    return {**parts, "logs": {unit: lines for unit, lines in tails.items() if lines}}


@pytest.mark.parametrize("story", STORIES)
def test_the_state_is_that_of_all_events_at_any_place(tmp_path: Path, story: str) -> None:
    events = STORIES[story]()
    with JournalWriter.open(tmp_path / "a.ddtop") as journal:
        journal.extend(events)
    whole, read = State(), 0
    places = {*random.Random(2).sample(range(1, len(events) + 1), min(len(events), PLACES)), len(events)}
    with JournalReader(tmp_path / "a.ddtop") as reader:
        for seq, event in enumerate(events, 1):
            apply(whole, event, seq)
            if seq not in places:
                continue
            kept, state = reader.short(seq), State()
            for number, one in kept:
                apply(state, one, number)
            lines = [n for n, one in kept if isinstance(one, ev.LogRead) and one.lines]
            first = min(lines, default=seq + 1)
            assert as_shown(state, first) == as_shown(whole, first), seq
            assert sum(len(t.lines) for t in state.logs.values()) >= min(
                3 * FEW, sum(len(t.lines) for t in whole.logs.values())
            )
            read += len(kept)
        assert not reader.unreadable
    if story in ("demo", "gpus that come and go"):
        assert read < sum(places) * 2 / 3, "little was left out"


def test_the_reports_of_a_cell_that_is_over_are_not_read_again(tmp_path: Path) -> None:
    events = list(as_recorded(demo()))
    with JournalWriter.open(tmp_path / "a.ddtop") as journal:
        journal.extend(events)
    with JournalReader(tmp_path / "a.ddtop") as reader:
        kept = [kind_of(event) for _, event in reader.short()]
    assert kept.count("cell-progress") == 1, (
        "that before the second runner: when the first one was last there"
    )
    assert sum(isinstance(e, ev.CellProgress) for e in events) > 30
    assert kept.count("cell-series") == sum(isinstance(e, ev.CellSeries) for e in events) == 7
    assert {k for k in kept if k not in BULK} == {kind_of(e) for e in events} - set(BULK)


def test_a_series_nobody_can_use_is_no_series() -> None:
    """A recording may be anybody's: what is no series is passed over, and the reports themselves are read."""
    state = fold(demo())
    cell = next(c for c in state.cells.values() if c.attempts)
    one = cell.attempts[0]
    good = ev.CellSeries(at_s=1.0, mono_s=1.0, **pack(cell.id, 1, one.figures, one.live, one.ttft, one.tpot))  # type: ignore[arg-type]
    assert unpack(good) == (one.figures, one.live)
    nan, eight = b"\0\0\0\0\0\0\xf8\x7f", b"\0" * 8
    bad: list[dict[str, object]] = [
        {"form": FORM + 1},
        {"figures": {"at_s": b"123"}},
        {"figures": {"at_s": eight, "running": eight * 2}},
        {"figures": {"running": eight}},
        {"figures": {"at_s": nan}},
        {"figures": {"at_s": eight, "__class__": eight}},
        {"figures": {"at_s": eight * (FEW + 1)}},
        {"live": {"tok_s": eight}},
        {"live": {**good.live, "tok_s": b""}},
        {"live": {}},
        {"bound": ((10**12, "compute"),)},
        {"bound": ((-5, "x"),)},
        {"weight": 0},
        {"step_s": -1.0},
    ]
    started = ev.CellStarted(at_s=1.0, mono_s=1.0, cell_id=cell.id, attempt=1)
    for fields in bad:
        event = msgspec.structs.replace(good, **fields)
        assert unpack(event) is None, fields
        assert reports([(5, started), (9, event)], 20) == [(5, 20)], fields
        figures = one.figures
        apply(state, event)
        assert one.figures is figures, fields
    assert reports([(5, started), (9, good)], 20) == []


def test_readings_as_columns_are_those_that_were_put_in() -> None:
    dice, series, kept = random.Random(1), FigureSeries(), list[FigurePoint]()
    for n in range(5 * FEW):
        values = [dice.choice([None, 0.0, dice.gauss(0, 1e9)]) for _ in FigurePoint._fields[1:-1]]
        point = FigurePoint(float(n), *values, None)  # type: ignore[arg-type]
        series.append(point)
        kept = [*kept, point][-FEW:]
        assert list(series) == kept == series[:] and len(series) == len(kept)
        assert series[-1] == kept[-1] and series[0] == kept[0]
        assert series.points("kv_pct") == [(p.at_s, p.kv_pct) for p in kept]
        assert series.column("spec_steps") == [None] * len(kept)
        copy = FigureSeries.of(series.columns())
        assert copy == series and copy != FigureSeries()
    assert unpack(ev.CellSeries(at_s=1.0, mono_s=1.0, cell_id="x", attempt=1, form=FORM)) == (
        FigureSeries(),
        LiveSeries(),
    )


async def test_a_far_seek_and_a_late_viewer_show_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddtop.journal.read.reader.LEAP", 50)
    monkeypatch.setattr("ddtop.journal.read.replay.LEAP", 50)
    path, events = tmp_path / "a.ddtop", list(as_recorded(demo()))
    with JournalWriter.open(path) as journal:
        journal.extend(events)
    session, state = ReplaySession(path), State()
    session.step(len(events))
    async for batch in session.events():
        state = fold_batch(state, batch)
        assert len(batch) < len(events)
        if session.shown == len(events):
            session.close()
    live, late = LiveSession(path, "v"), State()
    async for batch in live.events():
        late = fold_batch(late, batch)
        if late.seq == len(events):
            live.close()
    whole = fold(events)
    for one in (state, late, read_state(path)):
        first = min(line.seq for tail in one.logs.values() for line in tail.lines)
        assert as_shown(one, first) == as_shown(whole, first)
