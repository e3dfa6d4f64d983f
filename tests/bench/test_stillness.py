"""A server that stood still during a cell: made cells whose silences are known, and what the judge makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.agent.loadgen.records import slim, token_bins
from ddtop.bench.figures.requests import read_request
from ddtop.bench.judge.cell import judge_cell
from ddtop.bench.judge.stillness import stood_still

from .test_judge import CLIENT
from .test_metrics import record

S = 1000
"""A second in ms, the unit of `record`."""


def still(raw: dict[str, Any]) -> str:
    requests = [read_request(one) for one in raw["requests"]]
    found = stood_still(requests, raw.get("bins"), raw["window"]["wall_s"])
    return found[0] if found else ""


def made(wall_s: float, *requests: dict[str, Any]) -> dict[str, Any]:
    return {
        "spec": {"concurrency": 2},
        "window": {"wall_s": wall_s, "stopped": ""},
        "requests": list(requests),
        "clients": [dict(CLIENT)],
        "gpu": {"error": "not asked"},
    }


def cut(i: int, start: float, end: float, cls: str = "timeout") -> dict[str, Any]:
    """A request that got nothing from start to end, in ms."""
    return {"i": i, "class": cls, "start": int(start * 1e6), "end": int(end * 1e6), "chunks": 0}


def quick(*starts: float) -> list[dict[str, Any]]:
    """Answers with a first token after 50 ms, 15 tokens each."""
    return [record(i, at, at + 50, [10] * 14, 1) for i, at in enumerate(starts)]


STOPPED = made(60, *quick(0, 200, 400, 600), cut(4, 800, 30 * S), cut(5, 30 * S, 60 * S, "unfinished"))
MID_STREAM = made(60, *quick(0, 200, 400), record(9, 600, 650, [10] * 7 + [40 * S] + [10] * 7, 1))
CASES = [
    ("stopped for 59 of 60 s; requests time out and others take their place", STOPPED, "server-stood-still"),
    ("stopped in the middle of an answer, and continued", MID_STREAM, "server-stood-still"),
    ("stopped for 5 of 20 s", made(20, *quick(0, 200), record(9, 600, 650, [10] * 7 + [5 * S], 1)), "server-paused"),
    ("stopped for 1.2 of 1.7 s", made(1.7, *quick(0, 100), record(9, 300, 350, [10] * 7 + [1200], 1)), "server-paused"),
    ("stopped for 5 of 60 s", made(60, *quick(*range(0, 54000, 200)), record(999, 54600, 54650, [10] * 7 + [5 * S], 1)), ""),
    ("its first answer compiled for 3 s", made(8, record(0, 0, 3 * S, [10] * 14, 1), *quick(*range(3200, 8000, 200))), "server-paused"),
    ("a step takes a second", made(20, *[record(i, i * 10 * S, i * 10 * S + 1100, [1100] * 7, 1) for i in range(2)]), ""),
    ("a long prefill, each the same", made(200, *[record(i, i * 60 * S, (i + 1) * 60 * S - 200, [10] * 14, 1) for i in range(3)]), ""),
    ("one wave of long prefills, nothing to compare with", made(130, *[record(i, 0, 120 * S + i, [10] * 14, 1) for i in range(4)]), ""),
    ("a prefill that stops the streams beside it", made(100, *[record(i, i * 25 * S, i * 25 * S + 20 * S, [10] * 14, 1) for i in range(4)]), ""),
    ("nobody asked for a while (open loop)", made(100, *quick(0, 200, 80 * S, 90 * S)), ""),
    ("all refused for a minute: no silence of an open request", made(60, *[cut(i, i * S, i * S + 1, "refused") for i in range(60)]), ""),
    ("errors all the time: it answers", made(60, *[{**cut(i, i * S, i * S + 900, "http 500")} for i in range(60)]), ""),
    ("one document: no stamp within", made(60, {**record(0, 0, 50 * S, [10], 1), "not_streamed": True}), ""),
    ("no request", made(60), ""),
]  # fmt: skip


@pytest.mark.parametrize(("what", "raw", "found"), CASES, ids=[case[0] for case in CASES])
def test_a_silence_that_stands_out(what: str, raw: dict[str, Any], found: str) -> None:
    assert still(raw) == found


def test_chunks_that_were_not_kept_show_in_the_bins() -> None:
    raw = made(60, *[{k: v for k, v in one.items() if k != "t"} for one in STOPPED["requests"]])
    alive = {"bin_ns": 10_000_000, "start": 0, "tokens": [1] * 6000}
    assert still({**raw, "bins": alive}) == ""


def test_a_pause_is_said_and_the_cell_kept() -> None:
    judged = judge_cell(next(raw for what, raw, _ in CASES if what.startswith("stopped for 1.2")))
    assert "server-paused" in judged.reasons and judged.state == "done"
    assert judged.details["server-paused"].startswith("no byte came for 1.2 of 1.7 s while 1 requests")


def test_such_a_cell_is_not_kept() -> None:
    judged = judge_cell(STOPPED)
    assert judged.validity == "INVALID" and "server-stood-still" in judged.reasons
    assert judged.state == "rerun", "it may have been anybody: measured again, at most twice"
    assert judged.details["server-stood-still"].startswith("no byte came for 59.2 of 60.0 s while 2 requests")


def test_a_first_token_after_an_hour_in_a_cell_of_seconds_is_no_time() -> None:
    raw = made(3, *quick(0, 200, 400, 600, 800), record(9, 1000, 3600 * S, [10] * 14, 1))
    judged = judge_cell(raw)
    assert "impossible-times" in judged.reasons and judged.validity != "VALID"


def test_chunk_times_that_were_let_go_are_no_silence() -> None:
    """Of very long answers only the first and last chunk are kept for some; without counts no bin shows the others."""
    whole = [
        {"i": n, "class": "ok", "start": n * 62 * 10**9, "end": (n * 62 + 61) * 10**9, "tokens": 600, "chunks": 600,
         "t": [(n * 62 + 1) * 10**9] + [10**8] * 599}
        for n in range(3)
    ]  # fmt: skip
    thin = [whole[0], slim(whole[1]), whole[2]]
    assert still({**made(186.0, *whole), "bins": token_bins(whole)}) == ""
    assert still({**made(186.0, *thin), "bins": token_bins(whole)}) == ""
    counted = token_bins([{**one, "k": 1} for one in whole])
    assert still({**made(186.0, *thin), "bins": counted}) == "", "the bins show them"
