"""Recordings as states: the kept real sweep, and a made one with a search, intervals, rates and two workloads."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ddtop import events as ev
from ddtop.events import decode_event
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from tests.journal.made import NEW, Clock, restart, spec

DATA = Path(__file__).parents[1] / "data"
HOSTILE = '<script>alert("x")</script>&\x1b[31m\x00'


@cache
def real() -> State:
    """A sweep on a real H200: `plain`, `draft2`, `draft4`, `draft8`, `tiny` at 1, 8 and 32 streams. Do not change it."""
    lines = (DATA / "h200-llamacpp" / "events.jsonl").read_text().splitlines()
    return fold([decode_event(line) for line in lines])


@cache
def demo() -> State:
    """The kept run of the demo: SIMULATED, three configurations, two output lengths. Do not change it."""
    lines = (DATA / "demo-run" / "events.jsonl").read_text().splitlines()
    return fold([decode_event(line) for line in lines])


PLAN = """
[configs]
auto = {}
"t{draft}k{topk}" = { for = { draft = [4, 16, 64], topk = [1, 8] }, args = ["{draft}", "{topk}"] }
"""
DRAFTS = tuple((draft, topk) for draft in (4, 16, 64) for topk in (1, 8))
GAIN = {1: 3.0, 2: 2.4, 4: 1.7, 8: 1.1, 16: 0.7}
"""Concurrency → speed-up of every drafted configuration, before its own factor."""


def searching() -> State:
    """`auto` and six drafted configurations at 1 to 16 streams with three starts each, and a search at 8 of t16k8."""
    clock = Clock()
    configs = ["auto", *(f"t{d}k{k}" for d, k in DRAFTS)]
    cells = [
        spec(
            f"{config}-{c}-{start}",
            config,
            concurrency=c,
            start=start,
            restart_key=f"{config}+{start}",
            baseline=config == "auto",
        )
        for config in configs
        for c in GAIN
        for start in range(3)
    ]
    search = ev.Search(by="concurrency", slo={"ttft_ms": 500.0}, most=16.0)
    cells.append(spec("knee", "t16k8", concurrency=0, search=search, restart_key="t16k8"))
    events: list[ev.Event] = [
        ev.RunStarted(
            **clock(), run_id="r", name="made", mode="sweep", segment=0, plan_toml=PLAN, simulated=True
        ),
        ev.CellsPlanned(**clock(), cells=tuple(cells), baseline="auto"),
    ]
    for config in configs:
        events += restart(clock, config, f"at-{config}")
        events.append(ev.StartProvenance(**clock(), attempt_id=f"at-{config}", gpus=(0, 1)))
    for cell in cells[:-1]:
        tok_s = 100.0 * cell.concurrency**0.8 * (1 + 0.01 * (cell.start - 1))
        if cell.config != "auto":
            draft, topk = next((d, k) for d, k in DRAFTS if cell.config == f"t{d}k{k}")
            tok_s *= GAIN[cell.concurrency] * (1 + 0.001 * draft + 0.01 * topk)
        tpot = 1000.0 * cell.concurrency / tok_s
        events += done(clock, cell.id, output_tok_s=tok_s, tpot_ms={"n": 700, "p50": tpot, "p99": 2 * tpot})
    steps = (
        (4.0, "met", 98, 4.0, None, 16.0),
        (16.0, "missed", 20, 4.0, 16.0, 8.0),
        (8.0, "met", 96, 8.0, 16.0, None),
    )
    for number, (tried, verdict, attained, low, high, following) in enumerate(steps):
        events.append(
            ev.SearchStep(
                **clock(),
                parent="knee",
                number=number,
                tried=tried,
                verdict=verdict,  # type: ignore[arg-type]
                low=low,
                high=high,
                next=following,
                metrics={
                    "output_tok_s": 100.0 * tried,
                    "slo": {"attained": attained, "n": 100, "low": attained / 100 - 0.05, "high": 1.0},
                },
            )
        )
    return fold(events)


def done(clock: Clock, cell_id: str, validity: ev.Validity = "VALID", **metrics: Any) -> list[ev.Event]:
    """The events of one result."""
    reasons = () if validity == "VALID" else ("few-samples",)
    return [
        ev.CellStarted(**clock(), cell_id=cell_id, attempt=1, generation=NEW),
        ev.CellMeasured(
            **clock(), cell_id=cell_id, attempt=1, validity=validity, reasons=reasons, metrics=metrics
        ),
        ev.CellStateSet(**clock(), cell_id=cell_id, state="done", attempt=1),
    ]


def few(results: dict[tuple[str, int], dict[str, Any]], **fields: Any) -> State:
    """(configuration, concurrency) → metrics, as a run; the first configuration is the baseline."""
    clock = Clock()
    cells = {key: spec(f"{key[0]}-{key[1]}", key[0], concurrency=key[1], **fields) for key in results}
    events: list[ev.Event] = [
        ev.RunStarted(**clock(), run_id="r", name="few", mode="sweep", segment=0),
        ev.CellsPlanned(**clock(), cells=tuple(cells.values()), baseline=next(iter(results))[0]),
    ]
    for key, metrics in results.items():
        shown = dict(metrics)
        events += done(clock, cells[key].id, shown.pop("validity", "VALID"), **shown)
    return fold(events)
