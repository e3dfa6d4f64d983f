"""What is in a picture: points, their series, what is held still, reference lines, marks, and why there is none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ddtop.charts.kinds import PICTURES
from ddtop.charts.make import Choice, chart
from ddtop.charts.model import Chart
from ddtop.charts.names import names_of
from ddtop.commands.completion import PICTURES as COMPLETED
from ddtop.errors import UsageError
from ddtop.journal.fold.state import State
from ddtop.plan.variables import variables
from tests.charts.made import PLAN, demo, few, real, searching


def xy(made: Chart) -> dict[str, list[tuple[float, float]]]:
    """Series → its points, y in three figures."""
    return {s.name: [(d.x, float(f"{d.y:.3g}")) for d in s.dots] for s in made.series}


def test_throughput_of_a_real_sweep() -> None:
    made = chart(real())
    assert made.title == "Throughput by concurrency · tp1 · mix@256 · 0 ctx"
    assert (made.x.title, made.x.scale, made.y.title) == (
        "concurrency (streams)",
        "log2",
        "throughput (tok/s)",
    )
    assert xy(made) == {
        "plain": [(1, 237), (8, 991), (32, 1850)],
        "draft2": [(1, 140), (8, 522), (32, 807)],
        "draft4": [(1, 161), (8, 505), (32, 758)],
        "draft8": [(1, 155), (8, 470), (32, 618)],
        "tiny": [(1, 764), (8, 2260)],
    }
    assert made.x_ticks(6) == [1, 2, 4, 8, 16, 32] and made.y_ticks(6) == [0, 500, 1000, 1500, 2000, 2500]
    assert {s.name: [d.doubt for d in s.dots] for s in made.series}["draft4"] == [
        "",
        "answers-differ",
        "time-limit",
    ]
    assert "?: SUSPECT" in made.note and "not shown: 2k ctx" in made.note


def test_the_budget_is_the_plans_own_variable_whatever_its_name() -> None:
    made = chart(real(), Choice("budget"))
    assert made.title.startswith("Throughput by n ·")
    assert xy(made)["c8"] == [(2, 522), (4, 505), (8, 470)]
    assert [(level.name, round(level.y)) for level in made.levels] == [
        ("plain c1", 237),
        ("plain c8", 991),
        ("plain c32", 1846),
    ]
    accepted = chart(real(), Choice("acceptance"))
    assert (accepted.y.title, accepted.levels) == ("acceptance length (tokens/step)", ())


def test_a_second_variable_splits_the_series() -> None:
    made = chart(searching(), Choice("budget", where=(("load", "c8"),)))
    assert [s.name for s in made.series] == ["topk 1", "topk 8"]
    assert [d.x for d in made.series[0].dots] == [4, 16, 64] and made.x.scale == "log2"
    (auto,) = made.levels
    assert auto.name == "auto" and auto.low is not None and auto.low < auto.y
    assert [
        s.name for s in chart(searching(), Choice("budget", x="topk", where=(("load", "c8"),))).series
    ] == [
        "draft 4",
        "draft 16",
        "draft 64",
    ]


def test_a_plan_without_variables_is_drawn_by_the_number_in_the_names() -> None:
    state = few({("auto", 1): {"output_tok_s": 10.0}, ("b8", 1): {"output_tok_s": 30.0}})
    made = chart(state, Choice("budget"))
    assert made.title.startswith("Throughput by number in name") and xy(made) == {"all": [(8, 30)]}
    assert "no plan variable" in chart(few({("auto", 1): {"output_tok_s": 1.0}}), Choice("budget")).why_empty


def test_speed_up_has_the_baselines_line_intervals_and_break_evens() -> None:
    made = chart(searching(), Choice("speedup"))
    assert [(level.name, level.y) for level in made.levels] == [("auto = 1", 1.0)]
    assert "auto" not in xy(made) and len(made.series) == 6
    assert all(d.low is not None and d.low < d.y < (d.high or 0) for d in made.dots)
    assert [m.name.split(" ", 1)[0] for m in made.marks] == [s.name for s in made.series]
    assert all(m.low == 8 and 8 < m.x < 16 and m.high == 16 for m in made.marks)
    against = chart(searching(), Choice("speedup"), baseline="t4k1")
    assert against.levels[0].name == "t4k1 = 1" and "auto" in xy(against)


def test_a_break_even_on_doubtful_results_is_marked() -> None:
    state = searching()
    sure = chart(state, Choice("speedup")).marks
    for cell in state.plan_cells:
        if cell.spec.config == sure[0].name.split(" ", 1)[0]:
            cell.validity, cell.reasons = "SUSPECT", ("time-limit",)
    doubted = [mark.name for mark in chart(state, Choice("speedup")).marks]
    assert doubted == [f"{sure[0].name} ?", *(mark.name for mark in sure[1:])]


def test_a_configuration_has_one_tone_in_all_pictures() -> None:
    tones = [
        {s.name: s.tone for s in chart(real(), Choice(what)).series}
        for what in ("throughput", "speedup", "energy")
    ]
    assert tones[0]["draft4"] == tones[1]["draft4"] == tones[2]["draft4"] == 2


def test_a_median_and_its_tail_share_a_tone() -> None:
    made = chart(searching(), Choice("tpot"))
    names = {s.name: (s.tone, s.dashed) for s in made.series}
    assert names["auto p50"] == (0, False) and names["auto p99"] == (0, True)
    assert made.y.title == "TPOT (ms)"


def test_a_tail_of_too_few_requests_is_its_bound() -> None:
    """As everywhere: below 662 requests p99 is `≤ bound`."""
    sure = {"n": 700, "p50": 10.0, "p99": 20.0, "p99_bound": 22.0}
    unsure = {"n": 100, "p50": 10.0, "p99": 20.0, "p99_bound": 31.0}
    state = few(
        {
            ("auto", 1): {"output_tok_s": 1.0, "ttft_ms": sure},
            ("auto", 2): {"output_tok_s": 1.0, "ttft_ms": unsure},
        }
    )
    made = chart(state, Choice("ttft"))
    tail = made.series[1].dots
    assert [(d.y, d.hollow, d.label) for d in tail] == [(20, False, ""), (31, True, "at most")]
    assert "a bound that it is not above" in made.note


def test_the_pareto_front_and_the_points_that_others_beat() -> None:
    made = chart(searching(), Choice("pareto"))
    assert len(made.front) >= 2 and list(made.front) == sorted(made.front)
    for x, y in made.front:
        assert not any(d.x > x and d.y > y for d in made.dots)
    inside = {(d.x, d.y) for d in made.dots if not d.hollow}
    assert inside == set(made.front)
    assert all(d.label.startswith("c") for d in made.dots)


def test_the_front_is_not_drawn_without_gpus_and_says_why() -> None:
    why = chart(real(), Choice("pareto")).why_empty
    assert why.startswith("the GPUs of plain tp1 are not known: no start of it recorded")


def test_a_search_shows_each_load_and_its_knee() -> None:
    made = chart(searching(), Choice("search"))
    assert made.title == "Search for the knee · tp1 · fib@256 · 95% with TTFT ≤ 500 ms"
    assert [(d.x, d.y, d.hollow) for d in made.dots] == [(4, 98, False), (8, 96, False), (16, 20, True)]
    assert [(m.name, m.x) for m in made.marks] == [("knee of t16k8: 8", 8)]
    assert [(level.name, level.y) for level in made.levels] == [("95% wanted", 95)]
    by_speed = chart(searching(), Choice("search", y="output_tok_s"))
    assert [d.y for d in by_speed.dots] == [400, 800, 1600] and by_speed.levels == ()
    (knee,) = chart(searching()).marks
    assert knee.name == "knee of t16k8: 8"
    assert "no search has tried a load" in chart(real(), Choice("search")).why_empty
    with pytest.raises(UsageError, match="nothing named `x`"):
        chart(searching(), Choice("search", y="x"))


def test_what_is_held_still_follows_the_cell_and_the_choice() -> None:
    specs = [cell.spec for cell in demo().plan_cells if cell.state == "done"]
    tokens = {chart(demo(), Choice(), like=spec).title.split(" · ")[2] for spec in specs}
    assert tokens == {"fib@24", "fib@48"}
    asked = chart(demo(), Choice(where=(("workload", "fib@48"),)), like=specs[0])
    assert "fib@48" in asked.title and "not shown: fib@24" in asked.note
    assert chart(real(), Choice(where=(("context", "2048"),))).title.endswith("2k ctx")
    with pytest.raises(UsageError) as refused:
        chart(real(), Choice(where=(("tp", "2"),)))
    assert "tp is one of: tp1" in str(refused.value.do)


def test_loads_at_a_rate_are_drawn_over_the_rate() -> None:
    results = {
        ("auto", n): {"output_tok_s": 10.0 * n, "ttft_ms": {"n": 8, "p50": 5.0 * n}} for n in (1, 2, 4)
    }
    state = few(results)
    for cell in state.cells.values():
        cell.spec = replace(cell.spec, rate=float(cell.spec.concurrency) / 2)
    for what, unit in (("throughput", "tok/s"), ("ttft", "ms")):
        made = chart(state, Choice(what))
        assert made.x.title == "request rate (req/s)" and made.y.unit == unit
        assert [d.x for d in made.dots] == [0.5, 1, 2] and made.x_ticks(6) == [0.5, 1, 2]


def test_any_two_numbers_of_a_result_and_any_split() -> None:
    made = chart(real(), Choice(x="j_per_token", y="ttft_ms.p50", by="load"))
    assert made.title == "TTFT p50 by energy · mix@256 · 0 ctx"
    assert [s.name for s in made.series] == ["c1", "c8", "c32"] and not any(s.joined for s in made.series)
    assert {d.label for d in made.series[0].dots} == {"plain", "draft2", "draft4", "draft8", "tiny"}
    assert chart(real(), Choice(y="dram_active_pct")).series, "also one without a label of its own"


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (Choice("nope"), "throughput, speedup, ttft"),
        (Choice(x="nope"), "x is one of: concurrency, n, output_tok_s"),
        (Choice(y="nope"), "y is one of: output_tok_s, speedup"),
        (Choice(by="nope"), "by is one of: config, tp, workload, context, load, n, none"),
        (Choice(where=(("nope", "1"),)), "name one of: config, tp"),
    ],
)
def test_an_unknown_name_says_which_there_are(choice: Choice, names: str) -> None:
    with pytest.raises(UsageError) as refused:
        chart(real(), choice)
    assert names in f"{refused.value.do}"


def test_every_picture_of_every_recording_has_points_or_a_reason() -> None:
    for state in (real(), demo(), searching(), State()):
        for what in PICTURES:
            made = chart(state, Choice(what))
            assert bool(made.series) != bool(made.why_empty), what
            assert not made.series or all(s.dots for s in made.series)


def test_invalid_results_and_results_that_are_not_done_are_no_points() -> None:
    state = few(
        {
            ("auto", 1): {"output_tok_s": 10.0},
            ("auto", 2): {"output_tok_s": 20.0, "validity": "INVALID"},
            ("auto", 4): {"output_tok_s": 40.0, "validity": "SUSPECT"},
        }
    )
    made = chart(state)
    assert [(d.x, d.doubt) for d in made.dots] == [(1, ""), (4, "few-samples")]


def test_the_names_of_a_recording() -> None:
    names = names_of(real())
    assert names.x[:2] == ("concurrency", "n") and "j_per_token" in names.x
    assert names.by == ("config", "tp", "workload", "context", "load", "n", "none")
    assert "dram_active_pct" in names.others and "ttft_ms.p50" in names.y


def test_completion_offers_the_pictures() -> None:
    assert tuple(PICTURES) == COMPLETED


def test_variables_of_plans() -> None:
    found = variables(PLAN)
    assert found["auto"] == {} and found["t16k8"] == {"draft": 16, "topk": 8} and len(found) == 7
    assert variables("[configs]\nb8 = { set = { budget = 8 } }") == {"b8": {"budget": 8}}
    for broken in (
        None,
        "",
        "configs = 3",
        "[configs]\nx = 3",
        "[[",
        '[configs]\nx = { for = 3, set = "y" }',
    ):
        assert all(not values for values in variables(broken).values())
    huge = "[configs]\n'x{a}{b}' = { for = { a = [" + "1," * 99 + "1], b = [" + "2," * 99 + "2] } }"
    assert variables(huge) == {}
