"""The matrix on the screen: no number is cut at any width, slices, folding, marks, and whether something is sure."""

from __future__ import annotations

import itertools
import re

import pytest

from ddtop import events as ev
from ddtop.dashboard.draw.columns import layout
from ddtop.dashboard.draw.fields import FORMS, columns_of, gain_role
from ddtop.dashboard.draw.grid import (
    ALL,
    Cursor,
    Shape,
    Sight,
    axes_of,
    fixed_words,
    in_sight,
    moved,
    next_slice,
)
from ddtop.dashboard.draw.metrics import ITL, TPOT, TTFT
from ddtop.dashboard.draw.paint import flow, plain, width_of
from ddtop.dashboard.draw.verdict import detail
from ddtop.dashboard.panels.cell.result import distribution_lines, result_lines
from ddtop.dashboard.panels.results import Sort, results_items, sorted_cells
from ddtop.dashboard.panels.sweep import (
    folded_words,
    header_lines,
    matrix_lines,
    next_config,
    progress_line,
    sweep_title,
)
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.select import comes_in_bursts
from ddtop.journal.results.field import Matrix
from ddtop.journal.results.matrix import matrix
from tests.dashboard import story
from tests.dashboard.conftest import Open, screen_text, session_of, settle
from tests.journal.made import Clock, spec
from tests.journal.test_matrix import made

SHAPES = (
    ALL,
    Shape("load"),
    Shape("context"),
    Shape(swapped=True),
    Shape(second="interval"),
    Shape(unfolded=True),
)


def grid(
    configs: int = 12,
    loads: tuple[int, ...] = (1, 8, 32),
    contexts: tuple[int, ...] = (0, 8192, 32768),
    workloads: tuple[str, ...] = ("code", "chat"),
    tokens: tuple[int, ...] = (256, 1024),
    skipped: tuple[int, ...] = (),
) -> State:
    """A plan of every combination, all of it measured but the contexts in `skipped`."""
    clock = Clock()
    specs = [
        spec(
            f"{c}-{w}-{out}-{ctx}-{n}",
            f"b{c}" if c else "auto",
            workload=w,
            output_tokens=out,
            context=ctx,
            concurrency=n,
            baseline=not c,
            restart_key=f"b{c}",
        )
        for c, w, out, ctx, n in itertools.product(range(configs), workloads, tokens, contexts, loads)
    ]
    out: list[ev.Event] = [ev.CellsPlanned(**clock(), cells=tuple(specs), baseline="auto")]
    for n, one in enumerate(specs):
        if one.context in skipped:
            out.append(ev.CellStateSet(**clock(), cell_id=one.id, state="skipped", reason="time"))
            continue
        figures = {"output_tok_s": 80.0 + 17.3 * n, "ttft_ms": {"p50": 20.0 + n}}
        out += [
            ev.CellMeasured(**clock(), cell_id=one.id, attempt=1, validity="VALID", metrics=figures),
            ev.CellStateSet(**clock(), cell_id=one.id, state="done", attempt=1),
        ]
    return fold(out)


SIZES = {
    1: grid(1, (1,), (0,), ("code",), (256,)),
    6: grid(3, (1, 8), (0,), ("code",), (256,)),
    40: grid(10, (1, 8), (0,), ("code",), (256, 1024)),
    432: grid(),
}
NUMBER = re.compile(r"[\d.,]*\d…|…\d")


@pytest.mark.parametrize("cells", SIZES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_number_is_cut_at_any_width(cells: int, shape: Shape) -> None:
    state = SIZES[cells]
    assert len(state.plan_cells) == cells
    shown = matrix(state)
    last = Cursor(len(shown.rows) - 1, len(shown.columns) - 1, len(shown.columns) - 1)
    for width, cursor in itertools.product(range(40, 221, 12), (Cursor(), last)):
        lines = matrix_lines(shown, cursor, width, 16, 0.0, None, shape, shown if shape.second else None)
        assert len(lines) <= 16
        for row in lines:
            text = plain(row)
            assert width_of(row) <= width, (width, text)
            assert not NUMBER.search(text), (width, text)
        view = layout(shown, width, cursor, shape)
        at = cursor.row if shape.swapped else cursor.column
        assert at in view.columns, "the cursor's column is always in sight"
        fields = columns_of(shown, view.form, shape.swapped)
        for place, size in zip(view.columns, view.widths, strict=True):
            assert fields[place].width < size, "a field has its own width and a blank"


def test_a_form_with_fewer_parts_shows_all_columns_before_any_is_left_out() -> None:
    shown = matrix(SIZES[6])
    widths = {width: layout(shown, width, Cursor()) for width in (80, 31, 22)}
    assert widths[80].form == FORMS[0] and len(widths[80].columns) == 2
    assert widths[31].form in FORMS[2:] and len(widths[31].columns) == 2
    assert len(widths[22].columns) == 1 and widths[22].right
    assert plain(header_lines(shown, widths[22], ALL)[0]).rstrip().endswith("›")


def test_one_digit_is_only_shown_where_it_hides_no_difference() -> None:
    near = matrix(made(("auto", 0, 100.0, {}), ("b15", 0, 551.0, {}), ("b16", 0, 546.0, {})))
    (column,) = columns_of(near, FORMS[3], False)
    assert [t.gain[0] for t in column.texts] == ["", "△5.51×", "△5.46×"]
    far = matrix(made(("auto", 0, 100.0, {}), ("b15", 0, 551.0, {}), ("b16", 0, 302.0, {})))
    (column,) = columns_of(far, FORMS[3], False)
    assert [t.gain[0] for t in column.texts] == ["", "△5.5×", "△3.0×"]


# ------------------------------------------------------------------------------------------ what is sure


def over_starts(**values: float) -> Matrix:
    """Two starts of each configuration, 0.4 % apart."""
    return matrix(
        made(
            *((config, n, v * (1 + 0.002 * (-1) ** n), {}) for n in range(2) for config, v in values.items())
        )
    )


VALUES = (("auto", 100.0), ("b15", 150.0), ("x", 180.0))


def words(shown: Matrix, config: str) -> str:
    row = next(n for n, row in enumerate(shown.rows) if row.config == config)
    return " · ".join(text for text, _ in detail(shown, Cursor(row, 0)))


def field(shown: Matrix, config: str) -> str:
    row = next(n for n, row in enumerate(shown.rows) if row.config == config)
    (column,) = columns_of(shown, FORMS[1], False)
    return plain(column.line(row, column.width, "")).strip()


def test_a_sure_difference_and_a_sure_best_are_filled() -> None:
    shown = over_starts(auto=100.0, b15=130.0, b16=150.0, b8=80.0)
    assert field(shown, "b16") == "150.0 ▲1.50×★" and field(shown, "b15") == "130.0 ▲1.30×"
    assert field(shown, "b8").endswith("▼0.80×")
    assert "1.50× auto [1." in words(shown, "b16") and "better, sure" in words(shown, "b16")
    assert "★ best, sure" in words(shown, "b16") and "2 starts" in words(shown, "b16")
    assert "worse, sure" in words(shown, "b8")


def test_what_cannot_be_told_apart_says_so_and_how_many_starts_would_tell() -> None:
    shown = over_starts(auto=100.0, b15=150.0, b16=150.4)
    assert field(shown, "b15").endswith("☆") and field(shown, "b16").endswith("☆")
    assert "no clear difference from b15" in words(shown, "b16")
    same = matrix(
        made(
            *(
                (c, n, v * (1 + 0.02 * (-1) ** n), {})
                for n in range(2)
                for c, v in (("auto", 100.0), ("b15", 103.0))
            )
        )
    )
    assert field(same, "b15") == "103.0 ≈1.03×☆"
    assert re.search(
        r"no clear difference from auto: about \d+ more starts of each would show it", words(same, "b15")
    )


def test_one_measurement_each_is_not_sure() -> None:
    shown = matrix(made(("auto", 0, 100.0, {}), ("b15", 0, 150.0, {})))
    assert field(shown, "b15") == "150.0 △1.50×☆"
    assert "not sure: one measurement each" in words(shown, "b15")


def test_a_doubtful_baseline_makes_the_speed_ups_doubtful() -> None:
    shown = matrix(
        made(("auto", 0, 100.0, {"validity": "SUSPECT", "reasons": ("time-limit",)}), ("b15", 0, 150.0, {}))
    )
    cell = shown.rows[1].cells[0]
    assert cell is not None and gain_role(cell) == "warn"
    assert field(shown, "b15") == "150.0  △1.50×?☆"
    assert "doubtful: auto is SUSPECT there (the time limit ended the cell)" in words(shown, "b15")


def test_a_suspect_result_says_why_in_words_and_is_not_the_best() -> None:
    doubt = {"validity": "SUSPECT", "reasons": ("answers-differ", "cache-hits")}
    cells = [
        (c, n, v, doubt if c == "b15" else {}) for n in range(2) for c, v in (("auto", 100.0), ("b15", 150.0))
    ]
    shown = matrix(made(*((c, n, v * (1 + 0.001 * n), more) for c, n, v, more in cells)))
    assert field(shown, "b15") == "150.1? ▲1.50×", "what is in doubt is not the best"
    assert (
        "better, doubtful: it is SUSPECT (the answers differ from the baseline's and 1 more reason)"
        in words(shown, "b15")
    )
    assert "better than auto if it holds" in words(shown, "b15") and field(shown, "auto").endswith("☆")
    assert ", sure" not in words(shown, "b15")


def test_a_suspect_result_that_reads_better_leaves_no_best_for_sure() -> None:
    cells = [(c, n, v, {"validity": "SUSPECT"} if c == "x" else {}) for n in range(2) for c, v in VALUES]
    shown = matrix(made(*((c, n, v * (1 + 0.001 * n), more) for c, n, v, more in cells)))
    assert field(shown, "b15").endswith("☆") and not field(shown, "x").endswith(("☆", "★"))


def test_less_is_better_the_right_way_round() -> None:
    """1.2 ms against 4.1 ms was 0.3× in red."""
    state = made(("auto", 0, 1.0, {}), ("b15", 0, 1.0, {}))
    for cell, ms in zip(state.plan_cells, (4.1, 1.2), strict=True):
        cell.metrics["tpot_ms"] = {"p50": ms}
    shown = matrix(state, metric=TPOT.key, lower_is_better=True)
    cell = shown.rows[1].cells[0]
    assert cell is not None and cell.speedup == pytest.approx(4.1 / 1.2) and cell.rank == "maybe"
    assert gain_role(cell) == "gain"
    assert "3.42× better than auto" in words(shown, "b15")
    assert "less is better" in sweep_title(shown, state, [1])
    one = matrix(state).rows[1].cells[0]
    assert one is not None and one.speedup == 1.0


def test_unlike_answers_are_said_beside_the_speed_up() -> None:
    state = made(("auto", 0, 100.0, {}), ("b15", 0, 150.0, {}), ("b16", 0, 150.0, {}))
    for cell, tokens in zip(state.plan_cells, (8 * 256, 8 * 100, 8 * 250), strict=True):
        cell.metrics |= {"output_tokens": tokens, "requests_ok": 8}
    shown = matrix(state)
    assert field(shown, "b15").startswith("150.0 ~△1.50×") and "~" not in field(shown, "b16")
    assert "doubtful: unlike work (its answers have 100 tokens, the baseline's 256)" in words(shown, "b15")


def test_bursts_of_chunks_give_no_time_between_tokens() -> None:
    draft = {"itl_ms": {"p50": 0.0}, "tpot_ms": {"p50": 37.6}}
    plain_ = {"itl_ms": {"p50": 15.2}, "tpot_ms": {"p50": 15.3}}
    assert comes_in_bursts(draft) and not comes_in_bursts(plain_) and not comes_in_bursts({})
    assert ITL.value(draft) is None and ITL.shown(draft) == "–" and TPOT.shown(draft) == "37.60"
    assert ITL.value(plain_) == 15.2 and TTFT.value(draft) is None
    shown = "\n".join(
        plain(row) for row in distribution_lines({**draft, "ttft_ms": {"p50": 1.0, "p90": 2.0}}, 100)
    )
    assert "ITL · not shown: the tokens of a step come in a burst" in shown


def test_the_cell_says_whether_its_speed_up_is_sure() -> None:
    state = made(*((c, n, v * (1 + 0.002 * (-1) ** n), {}) for n in range(2) for c, v in VALUES))
    shown = [plain(row) for row in result_lines(state.plan_cells[1], matrix(state), ())]
    at = next(n for n, row in enumerate(shown) if row.startswith("  speed-up"))
    assert re.match(r"  speed-up    1\.50× auto \[1\.4\d–1\.5\d\] in tok/s", shown[at])
    assert shown[at + 1].strip() == "better, sure"


# ------------------------------------------------------------------------------- slices, folding, swapping


def test_a_slice_holds_still_what_is_under_the_cursor_and_says_it() -> None:
    shown = matrix(SIZES[432])
    assert axes_of(shown) == ("all", "load", "context", "workload", "tokens")
    cursor = Cursor(2, 13, 13)
    here = shown.columns[13]
    for axis, differs in (("load", "concurrency"), ("context", "context"), ("workload", "workload")):
        shape = Shape(axis)  # type: ignore[arg-type]
        columns = [shown.columns[n] for n in in_sight(shown, cursor, shape).columns]
        assert here in columns and len({getattr(c, differs) for c in columns}) == len(columns) > 1
        assert {c._replace(**{differs: None}) for c in columns} == {here._replace(**{differs: None})}
    assert fixed_words(shown, cursor, Shape("load")) == "code · 1024 tok · 8k ctx"
    turned = next_slice(shown, cursor, Shape("load"), 1)
    assert shown.columns[turned.column].concurrency == here.concurrency
    assert fixed_words(shown, turned, Shape("load")) != fixed_words(shown, cursor, Shape("load"))
    round_ = cursor
    for _ in range(12):
        round_ = next_slice(shown, round_, Shape("load"), 1)
    assert shown.columns[round_.column] == here, "after all slices it is the first again"


def test_a_plan_that_varies_one_key_has_nothing_to_slice() -> None:
    assert axes_of(matrix(SIZES[6])) == ("all",)


def test_what_is_skipped_throughout_is_folded_away_but_never_the_cursor() -> None:
    state = grid(3, skipped=(8192,))
    shown = matrix(state)
    sight = in_sight(shown, Cursor(), ALL)
    assert sight.folded_columns == 12 and all(shown.columns[n].context != 8192 for n in sight.columns)
    assert "12 skipped columns (z)" in sweep_title(shown, state, [1])
    both = Sight((0,), (0,), folded_rows=1, folded_columns=2)
    assert folded_words(both) == "2 skipped columns, 1 skipped row (z)"
    assert folded_words(both, brief=True) == "3 skipped (z)"
    hidden = next(n for n, c in enumerate(shown.columns) if c.context == 8192)
    assert hidden in in_sight(shown, Cursor(0, hidden, hidden), ALL).columns
    assert in_sight(shown, Cursor(), Shape(unfolded=True)).folded_columns == 0
    everything = matrix(grid(2, skipped=(0, 8192, 32768)))
    assert len(in_sight(everything, Cursor(), ALL).columns) == len(everything.columns)


def test_a_narrow_title_keeps_what_the_columns_do_not_say() -> None:
    state = grid(3, skipped=(8192,))
    shown = matrix(state, metric=TTFT.key, lower_is_better=True)
    cursor, shape = Cursor(1, 0, 0), Shape("load")
    titles = [sweep_title(shown, state, [1, 2], cursor, shape, width) for width in (120, 70, 60, 40)]
    assert titles == [
        "Sweep · tp1 of 1,2 · TTFT p50, less is better (× auto) · by load · code · 256 tok · no ctx",
        "tp1 of 1,2 · TTFT p50 ↓ (× auto) · code · 256 tok · no ctx",
        "tp1 of 1,2 · TTFT p50 ↓ (× auto) · code · 256 tok · no ctx",
        "TTFT p50 ↓ (× auto) · code · 256 tok · no ctx",
    ]
    assert (
        sweep_title(shown, state, [1], Cursor(), ALL, 50)
        == "Sweep · tp1 · TTFT p50 ↓ (× auto) · 12 skipped (z)"
    )


def test_a_slice_is_entered_where_something_was_measured() -> None:
    shown = matrix(grid(2, loads=(1, 8), workloads=("code",), tokens=(256,), contexts=(0, 8192)))
    state = grid(2, loads=(1, 8), workloads=("code",), tokens=(256,), contexts=(0, 8192))
    for cell in state.plan_cells:
        if (cell.spec.concurrency, cell.spec.context) == (1, 8192):
            cell.state = "skipped"
    turned = next_slice(matrix(state), Cursor(0, 0, 0), Shape("load"), 1)
    assert shown.columns[turned.column].concurrency == 8 and shown.columns[turned.column].context == 8192


def test_moves_go_over_what_is_hidden_and_turn_with_the_matrix() -> None:
    shown = matrix(grid(3, loads=(1,), workloads=("code",), tokens=(256,), skipped=(8192,)))
    assert [c.context for c in shown.columns] == [0, 8192, 32768]
    assert moved(shown, Cursor(0, 0), ALL, 0, 1) == Cursor(0, 2, 2)
    assert moved(shown, Cursor(0, 0), ALL, 0, -1) == Cursor(0, -1, 0)
    assert moved(shown, Cursor(0, 0), Shape(swapped=True), 0, 1) == Cursor(1, 0, 0)
    assert moved(shown, Cursor(0, 0), Shape(swapped=True), 1, 0) == Cursor(0, 2, 2)


def test_the_next_configuration_and_the_best_so_far_are_named() -> None:
    state = fold(story.running().out)
    assert next_config(state) == "b16"
    shown = plain(progress_line(state, matrix(state), Cursor(4, 0)))
    assert shown == "best at fib@256 c1: b15 143.6 ☆ · next: b16"
    assert next_config(fold(story.finished().out)) == ""


def test_phrases_flow_over_lines_and_end_between_words() -> None:
    rows = [plain(row) for row in flow([("b16 fib@256", "value"), ("146.7 tok/s", "text")], 14, 3)]
    assert rows == ["b16 fib@256", "146.7 tok/s"]
    (cut,) = (plain(row) for row in flow([("b16 fib@256", "value"), ("146.7 tok/s", "text")], 18, 1))
    assert cut == "b16 fib@256 …"


# --------------------------------------------------------------------------------------------------- list


def rows_of(state: State, sort: Sort) -> list[str]:
    return [plain(item.line).rstrip() for item in results_items(state, sort, "auto", 120)]


def test_the_list_follows_the_same_rules_as_the_matrix() -> None:
    sure = made(
        *(
            (c, n, v * (1 + 0.002 * (-1) ** n), {})
            for n in range(2)
            for c, v in (("auto", 100.0), ("b15", 130.0))
        )
    )
    assert [row.split()[-1] for row in rows_of(sure, Sort())][1::2] == ["▲1.30×★", "▲1.30×★"]
    doubted = made(("auto", 0, 100.0, {"validity": "SUSPECT"}), ("b15", 0, 130.0, {}))
    assert rows_of(doubted, Sort())[1].endswith("△1.30×?☆")


def test_what_counts_for_nothing_is_never_first_in_the_list() -> None:
    state = made(("auto", 0, 100.0, {}), ("b15", 0, 900.0, {"validity": "INVALID"}), ("b16", 0, 130.0, {}))
    assert [cell.spec.config for cell in sorted_cells(state, Sort("output_tok_s"), {})] == [
        "b16",
        "auto",
        "b15",
    ]


# --------------------------------------------------------------------------------------------------- keys


async def test_each_key_of_the_matrix(open_app: Open) -> None:
    session, now = session_of(story.running())
    async with open_app(session, now=now, size=(150, 40)) as (app, pilot):

        async def after(key: str) -> str:
            await pilot.press(key)
            await settle(pilot)
            return screen_text(app)

        assert "TTFT p50, less is better (× auto)" in await after("m") + await after("m")
        for _ in range(5):
            await pilot.press("m")
        assert " ± n" in await after("M") or app.here.shape.second == "interval"
        assert "accept" in await after("M")
        for _ in range(4):
            await pilot.press("M")
        assert app.here.shape.second == ""
        assert "by load · code · 512 tok" not in screen_text(app)
        assert "by load" in await after("c")
        first = fixed_words(app.here.matrix(), app.here.cursor(app.here.matrix()), app.here.shape)
        await after("full_stop")
        second = fixed_words(app.here.matrix(), app.here.cursor(app.here.matrix()), app.here.shape)
        assert first != second and second in screen_text(app)
        await after("comma")
        assert fixed_words(app.here.matrix(), app.here.cursor(app.here.matrix()), app.here.shape) == first
        shown = await after("C")
        assert re.search(r"auto +linear +b8 +b12 +.*b15", shown)
        await after("C")
        await after("z")
        assert not app.here.shape.unfolded
        assert any("Nothing is folded away" in note.message for note in app._notifications)


async def test_whether_a_configuration_is_better_is_four_keys_away(open_app: Open) -> None:
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=(80, 24)) as (app, pilot):
        await pilot.press("down", "down", "down", "down")
        await settle(pilot)
        shown = " ".join(row[36:].strip() for row in screen_text(app).splitlines())
        assert "b15 fib@256 c1 · 143.6 tok/s · 5.50× auto not sure: one measurement each" in shown


async def test_no_color_and_a_terminals_own_colours_leave_the_signs(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for theme in ("mono", "deuteranopia", "ansi-dark"):
        session, now = session_of(story.finished())
        async with open_app(session, now=now, size=(120, 40), theme=theme) as (app, _):
            shown = screen_text(app)
            assert "△5.5" in shown and "☆" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    session, now = session_of(story.finished())
    async with open_app(session, now=now, size=(120, 40), no_color=True) as (app, _):
        assert "△" in screen_text(app) and "☆" in screen_text(app)
