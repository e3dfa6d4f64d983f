"""A measurement under way on the screen: every width and height, old recordings, gaps, searches; and the series behind it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.dashboard.draw.paint import plain, width_of
from ddtop.dashboard.draw.series import axis, histogram, slots, strip, tall_strip, words_strip
from ddtop.dashboard.panels.cell.live import live_lines, search_line
from ddtop.dashboard.panels.cell.page import cell_lines
from ddtop.dashboard.panels.measuring import measuring_lines, measuring_title
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.series import KEPT, MOST, LiveSeries
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import CellView
from ddtop.journal.read.select import running_cell
from ddtop.journal.results.matrix import matrix
from tests.dashboard import story
from tests.journal.made import Clock, spec

SIZES = [(w, h) for w in (30, 38, 41, 50, 68, 78, 86, 110, 150) for h in (1, 2, 3, 4, 7, 8, 9, 14, 20)]


def texts(lines: Any) -> list[str]:
    return [plain(row).rstrip() for row in lines]


def now(state: State) -> CellView:
    cell = running_cell(state)
    assert cell is not None
    return cell


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_fits_everywhere_and_cuts_no_number(width: int, height: int) -> None:
    """Every number that is shown stands in the widest and tallest picture too."""
    state = fold(story.running().out)
    whole = " ".join(texts(live_lines(state, now(state), state.at_s, 400, 60)))
    whole += " ".join(texts(live_lines(state, now(state), state.at_s, 400, 3)))
    rows = measuring_lines(state, state.at_s, width, height)
    assert 1 <= len(rows) <= height
    assert all(width_of(row) <= width for row in rows)
    for row in texts(rows):
        assert "…" not in row
        if re.fullmatch(r"[\d\sms]*", row):
            continue  # the time axis has marks of its own at each width
        for number in re.findall(r"\d[\d.,]*\d|\d", row):
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]*\d)", whole), (number, row)


def test_three_lines_say_the_most() -> None:
    state = fold(story.running().out)
    assert measuring_title(state) == f"Measuring · {now(state).spec.label}"
    assert texts(measuring_lines(state, state.at_s, 90, 3)) == [
        "▶ 129.3 tok/s now · 138.2 so far · 62% · 14s left · settled",
        "5 of 8 requests · 1 in flight · 0 failed · server 1 running, 0 queued, KV 9%",
        "TTFT p50 212 ms, max 262 ms · TPOT p50 6.84 ms, max 7.41 ms · accept 4.57 · 685 W",
    ]


def test_strips_have_the_same_seconds_under_each_other() -> None:
    state = fold(story.running().out)
    rows = texts(measuring_lines(state, state.at_s, 86, 20))
    strips = {row[:9].strip(): row[9:] for row in rows if row[:9].strip() in ("tok/s", "running", "power")}
    assert set(strips) == {"tok/s", "running", "power"}
    # the first report with tokens came after 6 s; requests and power were there before
    started = len(strips["tok/s"]) - len(strips["tok/s"].lstrip())
    assert started > len(strips["running"]) - len(strips["running"].lstrip()) + 2
    assert rows[-1].split() == ["0s", "10s", "20s", "30s"]
    assert any(row.startswith("bound") and row.endswith("memory-bound") for row in rows)


def moments(*progress: dict[str, Any], cell: str = "a1", **search: Any) -> State:
    clock = Clock()
    out: list[ev.Event] = [
        ev.CellsPlanned(**clock(), cells=(spec(cell, **search),)),
        ev.CellStateSet(**clock(), cell_id=cell, state="running", attempt=1),
        ev.CellStarted(**clock(0), cell_id=cell, attempt=1),
    ]
    out += [ev.CellProgress(**clock(fields.pop("after", 1.0)), cell_id=cell, **fields) for fields in progress]
    return fold(out)


def test_an_old_recording_shows_what_it_knows() -> None:
    state = moments({"requests_done": 3, "requests_total": 8, "pct": 37.5})
    assert texts(measuring_lines(state, state.at_s, 60, 9)) == ["▶ measuring · 38%", "3 of 8 requests"]
    assert texts(measuring_lines(moments(), 0.0, 60, 9)) == ["▶ measuring"]
    assert texts(measuring_lines(fold([]), 0.0, 60, 9)) == ["No cell is measured now."]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"phase": "context"}, "▶ fitting the context to its length"),
        (
            {"phase": "settling", "burst": (5, 24), "in_flight": 8},
            "5 of at most 24 requests before the window",
        ),
        ({"phase": "settling", "burst": (5, 24), "tok_s": 90.0}, "▶ 90.0 tok/s so far · settling"),
        ({"phase": "window", "settled": "time", "tok_s": 9.0}, "not settled in time"),
        ({"phase": "window", "tok_s": 9.0, "about": True}, "▶ ~9.0 tok/s so far"),
        ({"phase": "draining", "tok_s": 9.0, "settled": "settled"}, "last responses come in"),
        ({"phase": "window", "failed": 3}, "✗ 3 failed"),
        ({"phase": "settling", "tok_s": 0.0, "now_tok_s": 0.0, "tokens": 0}, "▶ no token yet · settling"),
        ({"phase": "asking again"}, "▶ accuracy guard asks again"),
    ],
)
def test_where_it_is_is_said_in_words(fields: dict[str, Any], says: str) -> None:
    state = moments(fields)
    assert says in " ".join(texts(measuring_lines(state, state.at_s, 100, 9)))


def test_a_cut_link_leaves_a_gap_and_the_counts_stay_right() -> None:
    report = {"phase": "window", "tok_s": 100.0, "now_tok_s": 100.0, "failed": 0}
    before = [{**report, "requests_done": n, "tokens": 100 * n} for n in range(1, 11)]
    after = [{**report, "requests_done": n, "tokens": 100 * n} for n in range(31, 41)]
    after[0]["after"] = 21.0
    state = moments(*before, *after)
    attempt = now(state).attempts[-1]
    drawn = strip(attempt.live.points("tok_s"), state.at_s - 40, state.at_s, 40)
    assert drawn.strip("█ ") == "" and 16 <= drawn.strip().count(" ") <= 20
    assert now(state).progress.requests_done == 40  # type: ignore[union-attr]
    silent = state.at_s + 12.0
    assert "! no report for 12s" in texts(measuring_lines(state, silent, 80, 3))[0]


def test_latencies_of_the_burst_are_not_those_of_the_window() -> None:
    slow = ev.LatencySeen(8, 900.0, None, None, 1800.0, 32, 90, (4, 4))
    state = moments(
        {"phase": "settling", "ttft": slow},
        {"phase": "settling"},  # unchanged: not recorded again
    )
    assert now(state).attempts[-1].ttft == slow
    state = moments({"phase": "settling", "ttft": slow}, {"phase": "window"})
    assert now(state).attempts[-1].ttft is None


def test_acceptance_now_is_that_since_the_last_report() -> None:
    state = moments(
        {"phase": "settling", "spec_tokens": 400, "spec_steps": 200},
        {"phase": "window", "spec_tokens": 30, "spec_steps": 10},  # counted anew from the window's zero
        {"phase": "window", "spec_tokens": 70, "spec_steps": 20},
        {"phase": "window", "spec_tokens": 70, "spec_steps": 20},
    )
    assert [v for _, v in now(state).attempts[-1].live.points("accept")] == [2.0, 3.0, 4.0, None]
    assert "accept 3.50 · now 4.00" in " ".join(texts(measuring_lines(state, state.at_s, 90, 9)))


def test_a_search_shows_its_loads_in_little_room() -> None:
    search = ev.Search(by="concurrency", slo={"ttft_ms": 500.0})
    clock = Clock()
    out: list[ev.Event] = [
        ev.CellsPlanned(**clock(), cells=(spec("s", search=search, concurrency=0),)),
        ev.CellStateSet(**clock(), cell_id="s", state="running", attempt=1),
        ev.CellStarted(**clock(0), cell_id="s", attempt=1),
    ]
    for number, (tried, verdict, low, high, after) in enumerate(
        [(1.0, "met", 1.0, None, 2.0), (2.0, "met", 2.0, None, 4.0), (4.0, "missed", 2.0, 4.0, 3.0)]
    ):
        out.append(
            ev.SearchStep(
                **clock(),
                parent="s",
                number=number,
                tried=tried,
                verdict=verdict,
                low=low,
                high=high,
                next=after,
            )
        )
    out.append(ev.CellProgress(**clock(), cell_id="s", phase="window", requests_done=7, tok_s=80.0))
    state = fold(out)
    whole = plain(search_line(now(state), 100))
    assert whole == "search · c1 ✓ · c2 ✓ · c4 ✗ · c3 ▶ · at least c2, below c4"
    assert plain(search_line(now(state), 50)) == "search · c4 ✗ · c3 ▶ · at least c2, below c4"
    assert whole in texts(measuring_lines(state, state.at_s, 78, 4))
    tall = texts(measuring_lines(state, state.at_s, 110, 20))
    assert any(row.startswith("  c4 ") and "missed" in row for row in tall), tall


# ---- the cell's screen


def test_the_cell_screen_shows_the_same_while_it_runs_and_the_series_after() -> None:
    script = story.running()
    state = fold(script.out)
    cell = now(state)
    during = texts(cell_lines(state, cell, matrix(state), 100))
    assert "Measuring" in during and any("129.3 tok/s now" in row for row in during)
    script.add(
        ev.CellMeasured,
        cell_id=cell.id,
        attempt=1,
        validity="VALID",
        metrics={"output_tok_s": 139.0},
    )
    script.add(ev.CellStateSet, cell_id=cell.id, state="done", attempt=1)
    state = fold(script.out)
    after = texts(cell_lines(state, state.cells[cell.id], matrix(state), 100))
    assert "Measuring" not in after and "Result" in after
    head = next(at for at, row in enumerate(after) if row.startswith("Over the cell · "))
    names = [row.split()[0] for row in after[head + 1 : head + 8]]
    assert names == ["tok/s", "running", "queued", "KV", "acceptance", "power", "bound"]
    assert "mean" in after[head + 1] and after[head + 7].endswith("memory-bound")
    assert after[head + 8].split()[0] == "0s"


# ---- the series


def test_a_series_stays_small_and_keeps_its_mean() -> None:
    series = LiveSeries()
    for second in range(20_000):
        series.add(float(second), "memory-bound", tok_s=float(second % 2), in_flight=None)
    assert MOST // 4 <= len(series.at_s) <= MOST
    gaps = [after - before for before, after in pairwise(series.at_s)]
    assert series.at_s[0] < 200 and max(gaps) < 3 * 20_000 / len(gaps), "evenly over all of the time"
    values = [value for _, value in series.points("tok_s")]
    assert sum(v for v in values if v is not None) / len(values) == pytest.approx(0.5, abs=0.02)
    assert [v for _, v in series.points("in_flight")] == [None] * len(series.at_s)
    assert list(series.at_s) == sorted(series.at_s) and series.at_s[-1] == 19_999
    series.thin()
    assert KEPT // 2 <= len(series.at_s) <= KEPT and len(series.bound) == len(series.at_s)


def test_an_ended_cell_is_thinned() -> None:
    clock = Clock()
    events: list[ev.Event] = [ev.CellsPlanned(**clock(), cells=(spec("a1"),))]
    events.append(ev.CellStarted(**clock(), cell_id="a1", attempt=1))
    events += [ev.CellProgress(**clock(), cell_id="a1", now_tok_s=1.0) for _ in range(400)]
    state = fold(events)
    assert len(state.cells["a1"].attempts[-1].live.at_s) == 400
    fold([ev.CellMeasured(**clock(), cell_id="a1", attempt=1, validity="VALID")], state)
    assert len(state.cells["a1"].attempts[-1].live.at_s) <= KEPT


# ---- drawing


def test_slots_hold_a_value_for_a_moment_and_a_silence_is_a_gap() -> None:
    points = [(0.0, 1.0), (1.0, 3.0), (8.0, 5.0)]
    assert slots(points, 0.0, 10.0, 10) == [1.0, 3.0, 3.0, 3.0, None, None, None, None, 5.0, 5.0]
    assert slots(points, 0.0, 10.0, 2) == [2.0, 5.0]
    assert slots([], 0.0, 10.0, 3) == [None, None, None]
    assert strip([(1.0, None)], 0.0, 2.0, 4) == ""


def test_words_over_time() -> None:
    words = [(0.0, "memory-bound"), (1.0, "memory-bound"), (2.0, "idle"), (7.0, "")]
    assert words_strip(words, 0.0, 8.0, 8, {"memory-bound": "m"}) == "mmiii   "


@pytest.mark.parametrize(
    ("length_s", "width", "marks"),
    [
        (10.0, 50, "0s 2s 4s 6s 8s"),
        (60.0, 40, "0s 20s 40s"),
        (3600.0, 40, "0s 20m00s 40m00s"),
        (0.5, 20, "0s"),
    ],
)
def test_an_axis_has_round_times(length_s: float, width: int, marks: str) -> None:
    drawn = axis(length_s, width)
    assert len(drawn) == width and drawn.split() == marks.split()


def test_a_histogram_adds_neighbours_up_where_it_is_narrow() -> None:
    assert histogram([1, 0, 4], 10) == "▂ █"
    assert histogram([1, 1, 2, 0, 0, 0], 3) == "██ "
    assert histogram([], 5) == ""


def test_a_tall_strip_stacks_eighths_and_keeps_gaps() -> None:
    assert tall_strip([0.0, 4.0, None, 8.0], 8.0, 2) == ["   █", "▁█ █"]
    assert tall_strip([6.0], 8.0, 1) == ["▆"] or tall_strip([6.0], 8.0, 1) == ["▅"]
    assert tall_strip([0.0], 0.0, 2) == [" ", "▁"]


def test_where_responses_say_no_acceptance_the_servers_counters_do() -> None:
    clock = Clock()
    out: list[ev.Event] = [
        ev.CellsPlanned(**clock(), cells=(spec("a1"),)),
        ev.CellStateSet(**clock(), cell_id="a1", state="running", attempt=1),
        ev.CellStarted(**clock(0), cell_id="a1", attempt=1),
        ev.ServerFigures(**clock(), unit="u", spec_tokens=90.0, spec_steps=90.0),  # before the window
    ]
    for second in range(1, 11):
        tokens = 30.0 if second < 8 else 40.0
        out.append(ev.ServerFigures(**clock(0.5), unit="u", running=1.0, spec_tokens=tokens, spec_steps=10.0))
        out.append(
            ev.CellProgress(**clock(0.5), cell_id="a1", phase="window", tokens=100 * second, tok_s=100.0)
        )
    state = fold(out)
    shown = " ".join(texts(measuring_lines(state, state.at_s, 100, 14)))
    assert "accept 3.30 · now 3.60" in shown, shown
