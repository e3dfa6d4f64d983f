"""`[matrix] load`: rates beside concurrencies."""

from __future__ import annotations

import pytest

from ddtop.journal.read.select import Column
from ddtop.plan import expand, show
from tests.plan.test_plan import SMALL, faults, small

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


def test_a_benchmark_of_ones_own_is_given_the_rate() -> None:
    text = with_load("{ concurrency = 4 }, { rate = 4.0 }")
    text += '[bench]\nkind = "command"\nargv = ["b", "-c", "{concurrency}", "-r", "{rate}", "{result}"]\n'
    argv = [c.bench.argv[1:5] for c in expand(small(text)) if c.spec.baseline]
    assert argv == [("-c", "4", "-r", "inf"), ("-c", "4096", "-r", "4.0")]
    without = text.replace("{ concurrency = 4 }", "{ rate = 2.0 }").replace('"-r", "{rate}", ', "")
    assert any("does not use {rate}" in fault for fault in faults(without))


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
]


@pytest.mark.parametrize(("load", "said"), WRONG, ids=[load for load, _ in WRONG])
def test_what_is_wrong_gets_a_sentence_with_its_place(load: str, said: str) -> None:
    found = faults(with_load(load))
    assert any(said in fault for fault in found), found
    assert all("line 14: " in fault for fault in found if "matrix.load" in fault), found
