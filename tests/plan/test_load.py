"""`[matrix] load`: rates and searches beside concurrencies."""

from __future__ import annotations

import pytest

from ddtop.events import Search
from ddtop.journal.read.select import Column
from ddtop.plan import expand, parse_plan, show
from tests.plan.test_plan import SMALL, faults, small

LIMITED = '{ search = "concurrency", slo = { ttft_ms = 500 } }'
ONE = SMALL.replace("tp = [1, 2]", "tp = [1]").replace("[256, 1024]", "256")


def with_load(load: str, text: str = ONE) -> str:
    return text.replace("concurrency = [1, 8]", f"load = [{load}]")


def test_a_rate_is_an_open_loop_for_a_time() -> None:
    cells = [c for c in expand(small(with_load("{ rate = 2.5, duration_s = 30 }"))) if c.spec.baseline]
    (cell,) = cells
    load = cell.bench.load
    assert (load["mode"], load["rate"], load["requests"], load["seed"]) == ("open", 2.5, 75, 0)
    assert "concurrency" not in load
    assert (cell.spec.rate, cell.spec.concurrency) == (2.5, 0)
    assert cell.spec.label == "b16 fib@256 tp1 2.5 req/s"
    assert "rate 2.5 requests/s" in show(small(with_load("{ rate = 2.5 }")))


def test_a_rate_that_gives_no_sound_result_is_warned_of() -> None:
    def warned(load: str, more: str = "") -> list[str]:
        _, warnings = parse_plan(with_load(load) + more)
        return [str(w) for w in warnings if w.key.startswith("matrix")]

    assert warned("{ rate = 0.1, duration_s = 50 }") == []
    (few,) = warned("{ rate = 0.01, duration_s = 60 }")
    assert "sends 1 request in 60 s" in few and "few-samples" in few
    (long,) = warned("{ rate = 4.0, duration_s = 3600 }")
    assert "lasts 3600 s, and bench.time_limit_s is 600" in long
    assert warned("{ rate = 4.0, duration_s = 3600 }", "[bench]\ntime_limit_s = 4000\n") == []
    (confirmed,) = warned(LIMITED, "[bench]\ntime_limit_s = 60\n")
    assert "matrix.load[0].search: lasts 60 s, and bench.time_limit_s is 60" in confirmed


def test_each_repeat_has_arrivals_of_its_own_and_each_configuration_the_same() -> None:
    cells = expand(small(with_load("{ rate = 4.0 }").replace("baseline", "repeats = 2\nbaseline")))
    assert {(c.spec.repeat, c.bench.load["seed"]) for c in cells} == {(0, 0), (1, 1)}
    assert len({c.spec.id for c in cells}) == len(cells) == 6


def test_a_concurrency_is_the_same_cell_however_it_is_written() -> None:
    plain = {c.spec.id for c in expand(small(ONE))}
    assert {c.spec.id for c in expand(small(with_load("{ concurrency = 1 }, { concurrency = 8 }")))} == plain
    both = ONE.replace("concurrency = [1, 8]", "concurrency = 1\nload = [{ concurrency = 8 }]")
    assert {c.spec.id for c in expand(small(both))} == plain


def test_rates_are_columns_of_their_own() -> None:
    cells = expand(small(with_load("{ concurrency = 4 }, { rate = 4.0 }, { rate = 0.5 }")))
    columns = list(dict.fromkeys(Column.of(c.spec) for c in cells))
    assert [c.label(columns) for c in columns] == ["fib@256 c4", "fib@256 4 req/s", "fib@256 0.5 req/s"]


def test_a_rate_can_be_skipped() -> None:
    text = with_load("{ rate = 4.0 }, { rate = 8.0 }")
    text = text.replace("baseline", 'skip = [{ rate = 8.0, config = "b8", reason = "too slow" }]\nbaseline')
    skipped = [c.spec for c in expand(small(text)) if c.spec.skip_reason]
    assert [(s.config, s.rate) for s in skipped] == [("b8", 8.0)]


def test_one_repeat_can_be_skipped() -> None:
    text = with_load("{ rate = 4.0 }").replace(
        "baseline", 'repeats = 3\nskip = [{ repeat = [2, 3], config = "b8", reason = "once" }]\nbaseline', 1
    )
    skipped = [c.spec for c in expand(small(text)) if c.spec.skip_reason]
    assert [(s.config, s.repeat) for s in skipped] == [("b8", 1), ("b8", 2)]


def test_a_benchmark_of_ones_own_is_given_the_rate() -> None:
    text = with_load("{ concurrency = 4 }, { rate = 4.0 }")
    text += '[bench]\nkind = "command"\nargv = ["b", "-c", "{concurrency}", "-r", "{rate}", "{result}"]\n'
    argv = [c.bench.argv[1:5] for c in expand(small(text)) if c.spec.baseline]
    assert argv == [("-c", "4", "-r", "inf"), ("-c", "4096", "-r", "4.0")]
    without = text.replace("{ concurrency = 4 }", "{ rate = 2.0 }").replace('"-r", "{rate}", ', "")
    assert any("does not use {rate}" in fault for fault in faults(without))


def test_a_search_is_one_cell_that_names_no_load() -> None:
    cells = [c for c in expand(small(with_load(LIMITED))) if c.spec.baseline]
    (cell,) = cells
    assert cell.spec.search == Search(by="concurrency", slo={"ttft_ms": 500.0})
    assert cell.spec.label == "b16 fib@256 tp1 knee c ttft≤500" and cell.spec.concurrency == 0
    load = cell.bench.load
    assert load["mode"] == "closed" and not {"concurrency", "requests", "slo"} & load.keys()
    assert cell.bench.time_limit_s == 12 * 60 + 600, "doublings, halvings and the confirmation"
    assert "search for the knee up to 256 streams: 95% with TTFT ≤ 500 ms" in show(small(with_load(LIMITED)))


def test_other_limits_are_another_cell() -> None:
    loads = ["ttft_ms = 500", "ttft_ms = 400", "ttft_ms = 500, tpot_ms = 30"]
    entries = [f'{{ search = "concurrency", slo = {{ {limits} }} }}' for limits in loads]
    ids = {c.spec.id for entry in entries for c in expand(small(with_load(entry)))}
    assert len(ids) == 3 * 3
    assert len({Column.of(c.spec) for c in expand(small(with_load(", ".join(entries))))}) == 3


def test_a_search_needs_ddtops_own_load_generator_and_times_that_exist() -> None:
    command = '[bench]\nkind = "command"\nslo = { ttft_ms = 500 }\nargv = ["b", "-c", "{concurrency}", "{result}"]\n'
    (fault,) = faults(with_load(LIMITED) + command)
    assert fault.startswith("line 14: matrix.load[0].search: needs ddtop's own load generator"), fault
    text = with_load('{ search = "rate", slo = { tpot_ms = 30 } }').replace(
        "output_tokens = 256", "output_tokens = 1"
    )
    (fault,) = faults(text)
    assert 'matrix.load[0].slo: limits tpot_ms, but workload "fib" asks for 1 output token' in fault


WRONG = [
    (
        "{ rate = 0 }",
        "line 14: matrix.load[0].rate: found 0; allowed: a number from 0.001 to 100000 requests/s",
    ),
    ("{ rate = -1.0 }", "matrix.load[0].rate: found -1.0"),
    ("{ rate = nan }", "matrix.load[0].rate: found NaN"),
    ("{ rate = 100000, duration_s = 100 }", "at most 1,000,000 requests in all"),
    ("{ rate = 1, duration_s = 0 }", "matrix.load[0].duration_s: found 0"),
    ("{}", "matrix.load[0]: names no load; exactly one of concurrency, rate"),
    ("{ rate = 1, concurrency = 2 }", "matrix.load[0]: has concurrency and rate; exactly one of"),
    ("{ concurrency = 0 }", "matrix.load[0].concurrency: found 0"),
    ("{ rate = 1 }, { rate = 1.0 }", "matrix.load[1]: is listed twice"),
    ("{ rat = 1 }", "matrix.load[0]: names no load"),
    (
        "{ rate = 1, duration = 5 }",
        "matrix.load[0].duration: is not a key ddtop knows; did you mean `duration_s`?",
    ),
    ("5", "matrix.load[0]: found 5; allowed: a table"),
    (
        '{ search = "rate" }',
        "line 14: matrix.load[0].slo: is missing; what the knee must meet, such as slo =",
    ),
    (
        '{ search = "speed", slo = { ttft_ms = 5 } }',
        'matrix.load[0].search: found "speed"; allowed: concurrency, rate',
    ),
    ('{ search = "rate", slo = {} }', "matrix.load[0].slo: has no limit; at least one"),
    ('{ search = "rate", slo = { ttft_ms = 0 } }', "matrix.load[0].slo.ttft_ms: found 0"),
    (
        '{ search = "rate", slo = { ttft = 5 } }',
        "matrix.load[0].slo.ttft: is not a key ddtop knows; did you mean",
    ),
    (
        '{ search = "rate", slo = { ttft_ms = 500, e2e_ms = 100 } }',
        "matrix.load[0].slo.e2e_ms: found 100.0; allowed: at least ttft_ms (500)",
    ),
    (LIMITED.replace("} }", "}, max = 0.5 }"), "matrix.load[0].max: found 0.5; allowed: a number from 1 to"),
    (
        LIMITED.replace("} }", "}, max = 8.5 }"),
        "matrix.load[0].max: found 8.5; allowed: a whole number of streams",
    ),
    (
        LIMITED.replace("} }", "}, start = 8, max = 4 }"),
        "matrix.load[0].max: found 4.0; allowed: at least start (8)",
    ),
    (
        LIMITED.replace("} }", "}, share = 1.0 }"),
        "matrix.load[0].share: found 1.0; allowed: a number from 0.5 to 0.999",
    ),
    (LIMITED.replace("} }", "}, rate = 4 }"), "matrix.load[0]: has rate and search; exactly one of"),
    (f"{LIMITED}, {LIMITED.replace('} }', '}, max = 8 }')}", "matrix.load[1]: is listed twice"),
]


@pytest.mark.parametrize(("load", "said"), WRONG, ids=[load for load, _ in WRONG])
def test_what_is_wrong_gets_a_sentence_with_its_place(load: str, said: str) -> None:
    found = faults(with_load(load))
    assert any(said in fault for fault in found), found
    assert all("line 14: " in fault for fault in found if "matrix.load" in fault), found


def test_the_limits_of_the_bench_are_those_of_a_search_without_its_own() -> None:
    text = with_load('{ search = "rate" }') + "[bench]\nslo = { ttft_ms = 70 }\n"
    assert {c.spec.search.slo["ttft_ms"] for c in expand(small(text)) if c.spec.search} == {70.0}
