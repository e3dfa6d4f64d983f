"""The best of a load and the counts of a run are the same wherever they are said: every screen, command and form of report."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.bench.worth.advice import advise
from ddtop.bench.worth.curves import all_curves
from ddtop.bench.worth.sure import compared, standing_of
from ddtop.commands.live import status as room
from ddtop.dashboard.draw.fields import GAIN_GLYPH, kind_of
from ddtop.dashboard.draw.grid import Cursor
from ddtop.dashboard.draw.paint import plain
from ddtop.dashboard.draw.verdict import detail
from ddtop.dashboard.panels import header, hosts, plan, sweep
from ddtop.dashboard.panels.moment.ended import ended_lines
from ddtop.errors import UsageError
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import counts, tps
from ddtop.journal.results.matrix import bests, matrix
from ddtop.journal.write.writer import JournalWriter
from ddtop.report import Recording, report_html, report_json, report_markdown, report_text
from ddtop.report.conclusion import conclude
from ddtop.report.conclusion.best import best_lines, best_rows
from ddtop.report.conclusion.changes import change_text
from ddtop.report.conclusion.words import tally
from ddtop.report.recording import counts_words, outcome_words
from ddtop.report.text import table
from tests.commands.record_demo import PICTURES
from tests.journal.made import Clock, measured, spec
from tests.report.test_conclusion import Result, made

H200 = Path(__file__).parents[1] / "data" / "h200-llamacpp" / "events.jsonl"
"""A kept run on a real H200, whose fastest configuration is SUSPECT."""
CONFIGS = ("auto", "b8", "b15", "b16", "tiny")


def drawn(seed: int) -> State:
    """SIMULATED: a sweep with results near to each other and far apart, of one start and of several, some in doubt."""
    draw = random.Random(f"one best {seed}")
    results: list[Result] = []
    by_rate = draw.random() < 0.3
    for c in (1, 8, 32)[: draw.randint(1, 3)]:
        noise, starts = draw.choice((0.001, 0.01, 0.05)), draw.randint(1, 3)
        for config in CONFIGS[: draw.randint(2, 5)]:
            more: dict[str, Any] = {}
            if draw.random() < 0.35:
                more = {
                    "validity": draw.choice(("SUSPECT", "SUSPECT", "INVALID")),
                    "reasons": draw.choice((("answers-differ",), ("time-limit", "thermal-cap"), ())),
                }
            if draw.random() < 0.1:
                more["reasons"] = ("acceptance-simulated",)
            value = 100.0 * c * draw.choice((0.5, 0.99, 1.0, 1.02, 2.0, 3.0))
            ran = starts if draw.random() < 0.8 else 1
            many = tuple(value * (1 + draw.uniform(-noise, noise)) for _ in range(ran))
            if draw.random() < 0.1:
                more |= {"state": "failed", "reason": "CUDA error"}
            served = draw.choice((0.4, 1.0, 1.0, 1.0))
            more["metrics"] = {"requests_ok": 100, "output_tokens": 100 * 256 * served}
            if by_rate and c == 8:  # judged by latency: the fastest in tok/s is another
                more["rate"] = 4.0
                more["metrics"]["e2e_ms"] = {"p50": draw.choice((700.0, 710.0, 900.0))}
            results.append((config, c, many, more))
    return made(*results)


SEEDS = range(60)


@pytest.fixture(scope="module", params=["h200", *SEEDS], ids=str)
def state(request: pytest.FixtureRequest) -> State:
    if request.param == "h200":
        return fold(ev.decode_event(line) for line in H200.read_text().splitlines())
    return drawn(request.param)


def test_one_winner_everywhere(state: State) -> None:
    found = bests(state)
    named = [(one.config, one.star if one.verdict != "alone" else "") for one in found]
    by_load = {(one.place, one.load): one for one in found}
    places = [one.place for one in found]

    assert [(o.place, o.load, o.config) for o in conclude(state).best] == [
        (o.place, o.load, o.config) for o in found
    ]
    winners = [row for row in ended_rows(state) if row[0] in (*CONFIGS, "plain")]
    assert winners == named, "the panel at the end of a run"
    lines = best_lines(found, None, most=99)
    assert [re.search(r": (\S+)( [★☆])? ", line)[1] for line in lines] == [n for n, _ in named]  # type: ignore[index]
    if rows := best_rows(found):
        at = rows[0].index("best")
        assert [row[at].removeprefix("★ ").removeprefix("☆ ") for row in rows[1:]] == [n for n, _ in named]
    for tp in tps(state):
        view = matrix(state, tp)
        text = table(view)
        for c, load in enumerate(view.columns):
            best = view.bests[c]
            marked = {
                row.config: row.cells[c].rank for row in view.rows if row.cells[c] and row.cells[c].rank
            }  # type: ignore[union-attr]
            if best is None or best.verdict == "alone":
                assert not marked
                continue
            assert by_load[best.place, load].config == best.config
            assert marked == {
                **dict.fromkeys(best.alike, "maybe"),
                best.config: "best" if best.sure else "maybe",
            }
            assert plain(sweep.progress_line(state, view, Cursor(0, c, c))).startswith("best")
            assert f"{best.config} " in plain(sweep.progress_line(state, view, Cursor(0, c, c)))
            stars = {
                row[0].removesuffix(" (baseline)"): row[c + 1][0]
                for row in text[1:]
                if row[c + 1][:1] in ("★", "☆")
            }
            assert stars == {name: "★" if rank == "best" else "☆" for name, rank in marked.items()}
    assert places == [one.place for one in conclude(state).best]


def ended_rows(state: State) -> Iterator[tuple[str, str]]:
    for row in (plain(line) for line in ended_lines(state, 0.0, 400, 200)):
        if found := re.match(
            r"(?:best   |       ).*? (\S+) [\d,.]+\?? (?:tok/s|ms|at most)(?: [~△▲▼▽≈][^ ]*)?(?: ([★☆]))?(?:  |$)",
            row,
        ):
            yield found[1], found[2] or ""


def test_advice_names_the_winner_or_one_not_told_apart_from_it(state: State) -> None:
    for curves in all_curves(state):
        found = advise(curves)
        for c, best in curves.bests:
            ranges = [one for one in found.ranges if one.first <= c and (one.last is None or c <= one.last)]
            for one in ranges:
                allowed = {best.config, *best.alike}
                if best.verdict == "not shown":
                    allowed.add(state.run.baseline or "")
                assert one.config in allowed, (curves.load, c, one, best)
                if one.shown:
                    assert best.verdict == "gain"
            for other in best.doubted:
                assert f"better if it holds: {other.config} at c " in found.words or not found.ranges


def test_nothing_is_sure_that_is_doubtful_or_was_measured_once(state: State) -> None:
    for tp in tps(state):
        view = matrix(state, tp)
        for r, row in enumerate(view.rows):
            for c, cell in enumerate(row.cells):
                if cell is None:
                    continue
                words = " · ".join(text for text, _ in detail(view, Cursor(r, c, c)))
                said = compared(cell, view.baseline)
                sure = [s for s in ("not sure", "doubtful", ", sure") if said is not None and s in said.words]
                assert len(sure) <= 1
                if said is not None and not row.baseline and cell.n:
                    assert said.words in words
                if said is not None and said.sure == "sure":
                    assert cell.n > 1 and cell.differs and not cell.base_reasons and cell.validity == "VALID"
                if (kind := kind_of(cell)) is not None and GAIN_GLYPH[kind] in "▲▼":
                    assert cell.n > 1, "a filled sign says that repeats show it"
        for best in view.bests:
            if best is not None and best.sure:
                assert (
                    best.field.validity == "VALID" and not best.doubted and standing_of(best).sure == "sure"
                )


# ------------------------------------------------------------------------------------- counts of every state


def every_state(*, ended: bool) -> list[ev.Event]:
    """One cell and more of every state: measured, in doubt, counting for nothing, repeated, failed, broken, skipped by the
    plan and by a person, interrupted, under way, never begun."""
    clock = Clock()
    begin = ev.RunStarted(**clock(), run_id="r1", name="all", mode="sweep", segment=0)
    names = ("ok", "rep", "sus", "inv", "fail", "broke", "skip", "plan", "intr", "open", "go")
    cells = [spec(n, "auto" if n in ("ok", "rep") else n, baseline=n in ("ok", "rep")) for n in names]
    cells[1] = spec("rep", "auto", baseline=True, repeat=1)
    cells[7] = spec("plan", "plan", skip_reason="too long")
    out: list[ev.Event] = [
        begin,
        ev.HostConnected(**clock(), agent="a", python="3", uid=0, user="u"),
        ev.CellsPlanned(**clock(), cells=tuple(cells), baseline="auto"),
    ]
    out += [*measured(clock, "ok", 100.0), *measured(clock, "rep", 101.0)]
    for ident, validity, reason in (("sus", "SUSPECT", "time-limit"), ("inv", "INVALID", "client-bound")):
        out += [
            ev.CellMeasured(
                **clock(),
                cell_id=ident,
                attempt=1,
                validity=validity,
                reasons=(reason,),
                metrics={"output_tok_s": 90.0},  # type: ignore[arg-type]
            ),
            ev.CellStateSet(**clock(), cell_id=ident, state="done", attempt=1),
        ]
    for ident, state, why in (
        ("fail", "failed", "CUDA error"),
        ("broke", "broken", "0 tok/s twice"),
        ("skip", "skipped", "time"),
        ("intr", "interrupted", "the host was lost"),
    ):
        out.append(ev.CellStateSet(**clock(), cell_id=ident, state=state, reason=why))  # type: ignore[arg-type]
    if ended:
        return [*out, ev.RunEnded(**clock(), outcome="stopped", exit_code=130)]
    return [*out, ev.CellStateSet(**clock(), cell_id="go", state="running", attempt=1)]


@pytest.mark.parametrize("ended", [True, False])
def test_every_place_counts_the_same_cells(
    ended: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = every_state(ended=ended)
    state = fold(events)
    now_s = events[-1].at_s + 1
    left = "3 not measured" if ended else "3 open"
    whole = f"4 done (1 SUSPECT, 1 INVALID), 1 failed, 1 broken, 2 skipped, {left}"
    share = f"4 of 11 cells done (1 SUSPECT, 1 INVALID), 1 failed, 1 broken, 2 skipped, {left}"
    assert counts(state.plan_cells).in_words(ended=ended) == whole

    path = tmp_path / "all.ddtop"
    with JournalWriter.open(path, host="ct200") as writer:
        for event in events:
            writer.append(event)
    assert share in room.status(str(path), json_out=False)
    facts = json.loads(room.status(str(path), json_out=True))["cells"]
    assert facts == {
        "total": 11, "done": 4, "suspect": 1, "invalid": 1, "failed": 1, "broken": 1, "skipped": 2, "remaining": 3
    }  # fmt: skip
    listed = json.loads(room.cells(str(path), [], json_out=True))["cells"]
    assert len(listed) == 11 and sum(row["state"] == "done" for row in listed) == 4
    assert sum(row.get("validity") == "SUSPECT" for row in listed) == 1

    assert counts_words(state) == whole and share in outcome_words(state)
    recording = Recording("all", state)
    for text in (
        report_text([recording]),
        report_markdown([recording]).replace("\\", ""),
        report_html([recording]),
    ):
        assert whole in text or share in text
    assert report_json([recording])["cells"] and len(report_json([recording])["cells"]) == 11
    doubt = conclude(state).sentences[2]
    assert "7 of 11 cells have no result" in doubt
    assert "1 of 4 results is SUSPECT" in doubt and "1 of 4 results is INVALID" in doubt
    assert tally(state.plan_cells) == (
        "1 failed: CUDA error; 1 broken: 0 tok/s twice; 2 skipped: time and too long; 3 not measured"
    )
    told = change_text(state, events[0].at_s - 1, now_s, live=not ended)
    assert "4 cells done: 4 of 11 now" in told and "1 of them SUSPECT" in told and "1 of them INVALID" in told

    head = plain(header.header_line(state, now_s, 240, header.Recording(live=True, size_b=1)))
    assert "4 of 11 measured · 2 skipped · ✗ 2 failed or broken" in head
    assert "4 of 11 measured · 2 skipped · ✗ 2 failed or broken" in plain(hosts._sweep(state, now_s))
    shown = plain(plan.plan_head(state, now_s)[0])
    assert shown.startswith("11 cells") and "4 done" in shown and "1 failed" in shown and "2 skipped" in shown
    if ended:
        assert f"Stopped: {whole}" in plain(ended_lines(state, now_s, 200, 40)[0])


def test_status_says_what_changed_since_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "all.ddtop"
    with JournalWriter.open(path, host="ct200") as writer:
        for event in every_state(ended=True):
            writer.append(event)
    whole = room.status(str(path), json_out=False, since="1h")
    assert "4 cells done: 4 of 11 now" in whole and "It ended at" in whole
    assert "0 cells done: 4 of 11 now" in room.status(str(path), json_out=False, since="0.1s")
    with pytest.raises(UsageError, match="`soon` is no time"):
        room.status(str(path), json_out=False, since="soon")
    with pytest.raises(UsageError, match="--since is for people"):
        room.status(str(path), json_out=True, since="1h")


@pytest.mark.parametrize("width", range(34, 130, 8))
def test_the_panel_at_the_end_cuts_no_figure(width: int) -> None:
    state = fold(ev.decode_event(line) for line in PICTURES.read_text().splitlines())
    found = bests(state)
    assert {one.metric for one in found} == {"output_tok_s", "knee"} and len(found) == 3
    rows = [plain(line) for line in ended_lines(state, 0.0, width, 30)]
    (searched,) = [line for line in best_lines(found, "auto") if " knee " in line]
    assert re.search(r": \S+ at most \d+ within the limits; the only one measured", searched)
    for one in found:
        value = f"{one.field.value:g}" if one.metric == "knee" else f"{one.field.value:,.1f}"
        (row,) = [row for row in rows if re.search(rf" {one.config} {re.escape(value)}\??(?: |$)", row)]
        assert len(row) <= width
        assert row.rstrip().endswith(("×?", one.star, "at most", "SUSPECT", "×", value, value + "?"))
        ratio = re.search(r"[△▲▼▽≈]\S*", row)
        assert ratio is None or "×" in ratio[0]
    if width >= 70:
        assert "fib@24 knee c tpot≤8 80%" in "\n".join(rows)
