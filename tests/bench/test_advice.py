"""Which configuration at which concurrency: by recordings made of events, finished or not, with and without a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.bench.worth.advice import Advice
from ddtop.errors import UsageError
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.report import Recording, report_html, report_markdown
from ddtop.report.advice import advice_arguments, advice_json, advice_markdown, advice_of
from tests.journal.made import Clock, spec

Values = Mapping[str, Mapping[int, list[float]]]


def made(
    values: Values, *, baseline: str | None = "auto", more: list[ev.Event] | None = None, **last: Any
) -> State:
    """tok/s of the repeats by configuration and concurrency (none: planned and not measured); `last` changes the last result."""
    clock = Clock()
    cells = [
        (
            spec(
                f"{config}-{c}-{i}",
                config,
                concurrency=c,
                repeat=i,
                baseline=config == baseline,
                aa=config.endswith("~aa"),
            ),
            number,
        )
        for config, row in values.items()
        for c, numbers in row.items()
        for i, number in enumerate(numbers or [None])
    ]
    events: list[ev.Event] = [ev.CellsPlanned(**clock(), cells=tuple(c for c, _ in cells), baseline=baseline)]
    for cell, number in cells:
        if number is None:
            continue
        fields = {"validity": "VALID", **(last if cell is cells[-1][0] else {})}
        metrics = {"output_tok_s": number}
        events += [
            ev.CellMeasured(**clock(), cell_id=cell.id, attempt=1, metrics=metrics, **fields),
            ev.CellStateSet(**clock(), cell_id=cell.id, state="done", attempt=1),
        ]
    return fold([*events, *(more or [])])


def around(value: float) -> list[float]:
    return [value * 0.995, value, value * 1.005]


THREE: Values = {
    "auto": {1: around(100), 4: around(300), 16: around(1000), 64: around(2000)},
    "b32": {1: around(200), 4: around(420), 16: around(800), 64: around(900)},
    "b15": {1: around(160), 4: around(405), 16: around(1020), 64: around(1200)},
}


def one(state: State, baseline: str | None = None) -> Advice:
    (found,) = advice_of(state, baseline)
    return found


def test_the_best_by_concurrency() -> None:
    found = one(made(THREE))
    # b32 2.0, 1.4, 0.8, 0.45; b15 1.6, 1.35, 1.02, 0.6: they cross after 4; b15 is 1 % ahead of auto up to 16
    assert found.words == "c 1–5: b32 · 6–16: b15 · from 17: auto"
    assert [r.shown for r in found.ranges] == [False, True, None]
    by_config = {c.config: c.found for c in found.curves.curves}
    assert by_config["b32"].words == "until c 9.2 [4, 16]"
    assert by_config["b15"].verdict == "until" and by_config["b15"].hi == 64
    assert found.not_measured == ()
    between = "measured at c 1, 4, 16, 64 alone: between them the ranges are interpolated"
    assert between in found.reasons  # c 6 and 17 were not measured
    assert found.reasons[0].startswith(
        "b32: until c 9.2 [4, 16] (shown to gain up to c 4, to lose from c 16); c 1 2.00×"
    )


def test_a_gain_of_less_than_a_hundredth_is_not_advised() -> None:
    found = one(made({"auto": {1: [100.0], 8: [100.0]}, "b8": {1: [100.5], 8: [100.2]}}))
    assert found.words == "c from 1: auto"


def test_one_concurrency_says_so() -> None:
    found = one(made({"auto": {8: [100.0]}, "b8": {8: [140.0]}}))
    assert found.words == "c 8: b8"
    assert found.curves.curves[0].found.verdict == "not known"
    assert found.not_measured == ("c 8 alone is measured: nothing is known of any other concurrency",)


@pytest.mark.parametrize(
    ("baseline", "said"), [(None, "the run has no baseline"), ("auto", "the baseline auto is not measured")]
)
def test_without_a_baseline_nothing_is_said_of_speculation(baseline: str | None, said: str) -> None:
    values: Values = {"auto": {1: [], 4: []}, "b8": {1: [200.0], 4: [300.0]}, "b4": {1: [150.0], 4: [400.0]}}
    found = one(made(values, baseline=baseline))
    assert found.words == "c 1–2: b8 · 3–4: b4"
    assert said in found.not_measured[0]
    assert found.curves.curves[1].found.verdict == "not known"


def test_an_unfinished_run_names_what_is_missing() -> None:
    found = one(made({"auto": {2: [100.0], 8: [200.0]}, "b8": {2: [150.0], 8: []}, "b4": {2: [], 8: []}}))
    assert "b8 at c 8: planned" in found.not_measured and "b4 at c 2, 8: planned" in found.not_measured
    assert "below c 2" in found.not_measured


def test_nothing_measured() -> None:
    found = one(made({"auto": {1: []}, "b8": {1: []}}))
    assert found.words == "not known: nothing is measured under this load"
    assert advice_of(State()) == ()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"validity": "SUSPECT", "reasons": ("acceptance-simulated",)}, "its acceptance is simulated"),
        ({"validity": "INVALID", "reasons": ("garbage-output",)}, "INVALID: garbage-output"),
    ],
)
def test_what_does_not_count(fields: dict[str, Any], why: str) -> None:
    found = one(made({"auto": {1: [100.0], 4: [200.0]}, "b8": {1: [150.0], 4: [900.0]}}, **fields))
    assert f"b8 at c 4: {why}" in found.not_measured
    assert [p.concurrency for p in found.curves.curves[0].found.fit] == [1]


def test_what_the_baseline_differs_from_itself_by_is_no_gain() -> None:
    values: Values = {
        "auto": {1: [100.0], 8: [200.0]},
        "b8": {1: [103.0], 8: [230.0]},
        "auto~aa": {1: [104.0], 8: [199.0]},
    }
    found = one(made(values))
    assert [c.config for c in found.curves.curves] == ["b8"]
    assert found.curves.floor == pytest.approx(0.04)
    assert found.words == "c 1: auto · 2–8: b8"
    assert found.reasons[-1] == "the baseline differs from itself by up to 4.0%: smaller gains do not count"


def test_a_spread_inside_one_start_says_so() -> None:
    assert (
        one(made(THREE)).reasons[-1]
        == "intervals are by the spread inside one start only: starts may differ by more"
    )


def test_another_version_of_the_engine_is_named() -> None:
    found = one(made({"auto": {1: [100.0]}, "b8": {1: [150.0]}}, engine_version="0.5.24"))
    assert found.curves.curves[0].doubts == ()  # the baseline's is not known
    state = made({"auto": {1: [100.0]}, "b8": {1: [150.0]}}, engine_version="0.5.24")
    state.cells["auto-1-0"].engine_version = "0.5.23"
    assert one(state).curves.curves[0].doubts == ("engine 0.5.24, the baseline's is another",)


def test_doubts_are_named() -> None:
    found = one(
        made({"auto": {1: [100.0]}, "b8": {1: [150.0]}}, validity="SUSPECT", reasons=("answers-differ",))
    )
    assert found.reasons[0].endswith("SUSPECT: answers-differ")


def _started(clock: Clock, config: str, engine: str = "sglang", argv: tuple[str, ...] = ()) -> list[ev.Event]:
    generation = ev.Generation(boot="b", id=config)
    return [
        ev.RestartStarted(**clock(), attempt_id=config, config=config, tp=1, unit="u", argv=argv),
        ev.RestartReady(
            **clock(),
            attempt_id=config,
            generation=generation,
            ready_s=3.0,
            engine=engine,
            resolved_args={"speculative_num_draft_tokens": 8},
        ),
    ]


def test_the_four_forms() -> None:
    clock = Clock()
    starts = _started(
        clock, "b32", argv=("python3", "-m", "sglang.launch_server", "--name", "a b")
    ) + _started(clock, "b15")
    recording = Recording("r", made(THREE, more=starts))
    found = advice_of(recording.state)
    text = advice_markdown(recording, found)
    assert "**c 1–5: b32 · 6–16: b15 · from 17: auto**" in text and "The run has not ended." in text
    data = advice_json(recording, found)
    assert (
        data["loads"][0]["ranges"][2]["to"] is None and data["loads"][0]["configs"][0]["verdict"] == "until"
    )
    lines = advice_arguments(recording, found, "sglang").splitlines()
    assert "python3 -m sglang.launch_server --name 'a b'" in lines
    assert "# u was started by its own command; the server said: speculative_num_draft_tokens=8" in lines
    assert "# its start is not in the recording" in lines  # auto's
    assert all(line.startswith(("#", "python3")) for line in lines if line)
    with pytest.raises(UsageError, match="sglang, not vllm"):
        advice_arguments(recording, found, "vllm")


def test_reports_have_it_as_a_section() -> None:
    recording = Recording("r", made(THREE), Path("r.ddtop"))
    for text in (report_markdown([recording]), report_html([recording])):
        assert "What to run, by concurrency" in text and "c 1–5: b32 · 6–16: b15 · from 17: auto" in text
    alone = Recording("r", made({"auto": {1: [100.0]}}))
    assert "What to run" not in report_markdown([alone])


def test_a_baseline_leads_on_only_where_the_others_were_seen_to_fall() -> None:
    slow = {"auto": {1: [100.0], 8: [300.0], 32: [900.0]}, "b8": {1: [90.0], 8: [200.0], 32: [300.0]}}
    both = one(made({**slow, "b32": {1: [200.0], 8: [500.0], 32: []}}))
    assert both.words == "c 1–8: b32 · 9–32: auto"  # nothing is known of b32 above 8: not "from 9"
    assert "above c 32" in both.not_measured
    assert one(made(slow)).words == "c from 1: auto"


def test_doubts_of_the_baseline_are_said() -> None:
    state = made({"b8": {1: [200.0]}, "auto": {1: [100.0]}}, validity="SUSPECT", reasons=("drift-in-start",))
    assert one(state).reasons[0] == "auto: ratios are to it; SUSPECT: drift-in-start"
    data = advice_json(Recording("r", state), advice_of(state))
    assert data["loads"][0]["ratios_to_suspect"] == ["drift-in-start"]


def test_where_nothing_is_measured_each_reason_is_said_once() -> None:
    found = one(made({"auto": {1: []}, "b8": {1: []}}))
    assert found.reasons == () and found.ranges == ()
    assert found.not_measured == ("auto at c 1: planned", "b8 at c 1: planned")


def test_a_winner_with_other_answers_is_not_advised_silently() -> None:
    changed = {"validity": "SUSPECT", "reasons": ("answers-differ",)}
    state = made({"auto": {1: [100.0]}, "tiny": {1: [300.0]}}, **changed)
    found = one(state)
    assert (
        found.words
        == "c 1: auto; better if it holds: tiny at c 1, SUSPECT: the answers differ from the baseline's"
    )
    assert found.reasons[-1].startswith("tiny gives other answers than auto")
    slower = one(made({"auto": {1: [100.0]}, "tiny": {1: [50.0]}}, **changed))
    assert not any("other answers" in line for line in slower.reasons)


def test_a_gain_that_repeats_do_not_show_is_none_to_run_for() -> None:
    """Real n-gram drafts on a busy CPU: 1.13× at one stream, with an interval from 0.8 to 1.5."""
    noisy = {
        "auto": {1: [80.0, 120.0], 4: [250.0, 350.0], 8: [500.0, 700.0]},
        "ngram": {1: [90.0, 136.0], 4: [215.0, 300.0], 8: [450.0, 600.0]},
    }
    assert {r.config for r in one(made(noisy)).ranges} == {"auto"}
    once = {config: {c: numbers[:1] for c, numbers in row.items()} for config, row in noisy.items()}
    assert one(made(once)).ranges[0].config == "ngram", "without repeats the values are all there is"
