"""The checklist: a run that has all, and each point lost by the one thing that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from ddtop.events import Generation, Search, StartProvenance
from ddtop.journal.fold.views import CellView, RestartView
from ddtop.journal.read.select import Column
from ddtop.journal.results.field import Matrix, MatrixCell, Row
from ddtop.plan import parse_plan
from ddtop.report.bundle.checklist import RULES, checklist, checklist_json
from ddtop.report.bundle.seen import Seen
from ddtop.stats.differ import Comparison
from tests.journal.made import spec
from tests.plan.test_plan import SMALL

FACTS: dict[str, Any] = {
    "command": ["sglang", "serve"],
    "environment": {"CUDA_VISIBLE_DEVICES": "0"},
    "packages": {"sglang": {"version": "0.5.23"}},
    "image": {"digest": "lmsysorg/sglang@sha256:abc", "image_id": "sha256:abc"},
    "gpu": {
        "gpus": [
            {
                "name": "NVIDIA H200",
                "driver_version": "580.1",
                "power.limit": "700.00 W",
                "ecc.mode.current": "Enabled",
                "clocks.max.sm": "1980 MHz",
            }
        ],
        "cuda": "13.0",
        "topology": "GPU0 X",
    },
    "machine": {"numa_nodes": {"node0": "0-15"}, "server_cpus": "0-15"},
    "model": {"path": "/m", "revision": "a" * 40, "sha256": "b" * 64, "covers": "all"},
}
METRICS: dict[str, Any] = {
    "burst": {"by": "settled"},
    "ttft_ms": {"n": 700, "p99": 50.0},
    "wall_s": 60.0,
    "output_tokens": 1000,
    "energy_source": "energy counter",
}


def cell(config: str, *, start: int = 0, **fields: Any) -> CellView:
    metrics = {**METRICS, **fields.pop("metrics", {})}
    if config != "auto":
        metrics = {"accuracy": {"compared": 16}, **metrics}
    made = spec(f"{config}-{start}", config, start=start, baseline=config == "auto", **fields)
    view = CellView(made, state="done", validity="VALID", metrics=metrics)
    view.generation = Generation(boot="b", id=f"g-{config}-{start}")
    return view


def start_of(config: str, number: int, **facts: Any) -> RestartView:
    view = RestartView(f"at-{config}-{number}", config, 1, engine="sglang", engine_version="0.5.23")
    view.acceptance_simulated = ""
    view.outcome, view.generation = "ready", Generation(boot="b", id=f"g-{config}-{number}")
    view.provenance = StartProvenance(
        at_s=0.0, mono_s=0.0, attempt_id=view.attempt_id, gpus=(0,), facts={**FACTS, **facts}
    )
    return view


COLUMN = Column("fib", 256, 0, 1)


def field(config: str, **fields: Any) -> MatrixCell:
    against = Comparison(None if config == "auto" else True, 1.0 if config == "auto" else 1.5)
    values: dict[str, Any] = {
        "value": 100.0,
        "low": 99.0,
        "high": 101.0,
        "n": 3,
        "starts": 3,
        "basis": "starts",
    }
    return MatrixCell((f"{config}-0",), "done", against=against, **{**values, **fields})


def ideal() -> Seen:
    """A run that meets every point."""
    text = SMALL.replace('prompts = ["Fibonacci"]', 'prompts = ["Fibonacci"]\nlicense = "CC0-1.0"')
    cells = [cell(c, start=n) for c in ("auto", "b15") for n in range(3)]
    cells.append(cell("b15", concurrency=0, rate=4.0))
    rows = tuple(Row(c, c == "auto", (field(c),)) for c in ("auto", "b15"))
    plan, _ = parse_plan(text)
    plan = with_fields(plan, workloads=tuple(with_fields(w, name="fib") for w in plan.workloads[:1]))
    return Seen(
        simulated=False,
        ended="done: 7 cells of 7 done",
        left=0,
        cells=tuple(cells),
        specs={c.id: {"prompts_sha256": "f" * 64} for c in cells},
        sentinels=(cell("auto", sentinel=True), cell("b15", sentinel=True)),
        matrices=(Matrix(1, "output_tok_s", "auto", (COLUMN,), rows, Comparison(False, 1.012)),),
        starts=tuple(start_of(c, n) for c in ("auto", "b15") for n in range(3)),
        baseline="auto",
        plan=plan,
        selftest={
            "fit": True,
            "problems": [],
            "itl_error_us": {"p50": 4.0},
            "ttft_error_ms": {"p50": 0.1},
            "load": {"streams": 64},
        },
    )


def test_a_run_that_has_all_meets_all() -> None:
    checks = checklist(ideal())
    assert [(c.id, c.why) for c in checks if c.met != "met"] == []
    assert checklist_json(checks)["met"] == len(RULES)
    assert next(c.why for c in checks if c.id == "aa-floor") == (
        "the baseline differs from itself by 1.2%: no smaller difference is claimed"
    )


def changed(seen: Seen, index: int, **fields: Any) -> Seen:
    """`seen` with one cell changed: its metrics, or its reasons of doubt."""
    cells = list(seen.cells)
    one = cell(cells[index].spec.config, start=cells[index].spec.start)
    one.metrics = {**cells[index].metrics, **fields.get("metrics", {})}
    for key in fields.get("without", ()):
        one.metrics.pop(key, None)
    if reasons := fields.get("reasons"):
        one.reasons, one.validity = reasons, "SUSPECT"
    cells[index] = one
    return replace(seen, cells=tuple(cells))


def with_field(seen: Seen, config: str, **fields: Any) -> Seen:
    (view,) = seen.matrices
    rows = tuple(
        Row(r.config, r.baseline, (field(r.config, **fields),) if r.config == config else r.cells)
        for r in view.rows
    )
    return replace(seen, matrices=(replace(view, rows=rows),))


def with_facts(seen: Seen, **facts: Any) -> Seen:
    return replace(seen, starts=(start_of("auto", 0, **facts), *seen.starts[1:]))


def without_section(seen: Seen, section: str, why: str) -> Seen:
    first = start_of("auto", 0)
    assert first.provenance is not None
    facts = {k: v for k, v in first.provenance.facts.items() if k != section}
    first.provenance = with_fields(first.provenance, facts=facts, unknown={section: why})
    return replace(seen, starts=(first, *seen.starts[1:]))


def unasked(start: RestartView) -> RestartView:
    """A start of which nothing says whether its acceptance is simulated."""
    return replace(start, acceptance_simulated=None)


LOST: list[tuple[str, Callable[[Seen], Seen], str]] = [
    ("real", lambda s: replace(s, simulated=True), "SIMULATED"),
    ("complete", lambda s: replace(s, left=2), "2 cells of the plan without a result"),
    ("complete", lambda s: replace(s, ended=""), "has not ended"),
    ("steady-state", lambda s: changed(s, 0, without=("burst",)), "not handed over"),
    ("certified-tails", lambda s: changed(s, 0, metrics={"ttft_ms": {"n": 100}}), "least 100"),
    ("certified-tails", lambda s: changed(s, 0, metrics={"ttft_ms": {"n": 20}}), "p90 neither (< 64): auto"),
    ("starts", lambda s: with_field(s, "b15", starts=1, basis="inside"), "least 1"),
    ("starts", lambda s: with_field(s, "b15", basis="inside"), "no interval by the spread between starts"),
    ("drift", lambda s: replace(s, sentinels=()), "measured again"),
    ("drift", lambda s: replace(s, sentinels=s.sentinels[:1]), "the end of these starts: b15 start 1"),
    ("acceptance", lambda s: replace(s, starts=(unasked(s.starts[0]), *s.starts[1:])), "could not be read"),
    ("window", lambda s: changed(s, 0, metrics={"wall_s": 3.0}), "shorter than 10 s: auto"),
    ("aa-floor", lambda s: replace(s, matrices=(replace(s.matrices[0], aa=None),)), "against itself"),
    ("open-loop", lambda s: replace(s, cells=s.cells[:-1]), "closed loop only"),
    (
        "prompts",
        lambda s: replace(s, specs={**s.specs, s.cells[0].id: {"prompts_sha256": "e" * 64}}),
        "not the same",
    ),
    ("prompts", lambda s: replace(s, specs={}), "no hash"),
    ("prompts", lambda s: replace(s, plan=None), "no licence named"),
    ("token-counts", lambda s: changed(s, 0, without=("output_tokens",)), "not the server's own count"),
    ("client-error", lambda s: replace(s, selftest=None), "no selftest"),
    ("client-error", lambda s: replace(s, selftest={"fit": False, "problems": ["too slow"]}), "too slow"),
    (
        "client-error",
        lambda s: replace(
            replace(s, cells=(*s.cells, cell("auto", concurrency=256))),
            specs={**s.specs, "auto-0": {"prompts_sha256": "f" * 64}},
        ),
        "up to 256",
    ),
    ("lossless", lambda s: changed(s, 3, without=("accuracy",)), "not compared"),
    ("command", lambda s: without_section(s, "command", "gone"), "command not known (gone): auto tp1"),
    (
        "command",
        lambda s: without_section(s, "environment", "not yours"),
        "environment not known (not yours)",
    ),
    ("image", lambda s: with_facts(s, image={"container": "abc"}), "no digest"),
    ("gpus", lambda s: without_section(s, "gpu", "nvidia-smi hangs"), "nvidia-smi hangs: auto tp1"),
    ("topology", lambda s: with_facts(s, machine={}), "NUMA nodes, CPUs of the server"),
    ("model", lambda s: with_facts(s, model={**FACTS["model"], "revision": None}), "revision not known"),
    (
        "energy",
        lambda s: changed(s, 0, metrics={"energy_source": "integral of averaged power"}),
        "integral of averaged",
    ),
    ("comparison", lambda s: replace(s, baseline=None), "no baseline"),
    ("comparison", lambda s: with_field(s, "b15", mixed_versions=True), "another version"),
]
LOST_WITH_VALIDITY: list[tuple[str, int, str]] = [
    ("steady-state", 0, "not-settled"),
    ("drift", 0, "drift-in-start"),
    ("token-counts", 0, "no-usage"),
    ("lossless", 3, "answers-differ"),
    ("acceptance", 3, "acceptance-simulated"),
]


def unmet(seen: Seen) -> dict[str, str]:
    return {c.id: c.why for c in checklist(seen) if c.met == "not met"}


@pytest.mark.parametrize(("ident", "lose", "why"), LOST, ids=[f"{i}-{n}" for n, (i, _, _) in enumerate(LOST)])
def test_one_thing_that_is_not_there_loses_its_point_alone(
    ident: str, lose: Callable[[Seen], Seen], why: str
) -> None:
    found = unmet(lose(ideal()))
    gpu_too = {"topology"} if ident == "gpus" else set()  # the topology is nvidia-smi's too
    assert set(found) == {ident} | gpu_too, found
    assert why in found[ident]


@pytest.mark.parametrize(("ident", "index", "reason"), LOST_WITH_VALIDITY)
def test_a_doubt_loses_its_own_point_and_that_of_validity(ident: str, index: int, reason: str) -> None:
    found = unmet(changed(ideal(), index, reasons=(reason,)))
    assert set(found) == {ident, "validity"}
    assert reason in found["validity"]


def test_every_rule_is_lost_somewhere_here() -> None:
    lost = (
        {ident for ident, _, _ in LOST}
        | {ident for ident, _, _ in LOST_WITH_VALIDITY}
        | {"validity", "engine"}
    )
    assert lost == {ident for ident, _, _ in RULES}


@pytest.mark.parametrize(
    ("version", "package", "met"),
    [
        ("0.5.23", {}, "met"),
        ("0.5.23.post1", {}, "met"),
        ("0.11.1rc2.dev12+gabc1234", {}, "met"),
        ("0.5.24.dev3", {"revision": "a" * 40}, "met"),
        ("0.5.24.dev3", {}, "not met"),
        ("0.5.23+SIMULATED", {}, "not met"),
    ],
)
def test_an_engines_revision(version: str, package: dict[str, str], met: str) -> None:
    seen = ideal()
    starts = [start_of(r.config, n, packages={"sglang": package}) for n, r in enumerate(seen.starts)]
    for one in starts:
        one.engine_version = version
    assert next(c.met for c in checklist(replace(seen, starts=tuple(starts))) if c.id == "engine") == met


def test_no_container_is_no_fault() -> None:
    seen = ideal()
    bare = tuple(start_of(r.config, n, image={}) for n, r in enumerate(seen.starts))
    checks = {c.id: c for c in checklist(replace(seen, starts=bare))}
    assert checks["image"].met == "n/a"
    assert checklist_json(list(checks.values()))["of"] == len(RULES) - 1


def test_a_search_by_rate_is_an_open_loop_and_has_no_window_of_its_own() -> None:
    seen = ideal()
    knee = cell("b15", concurrency=0, search=Search(by="rate", slo={"ttft_ms": 500.0}))
    knee.metrics = {"knee": 4.0}
    cells = (*seen.cells[:-1], knee)
    seen = replace(
        seen,
        cells=cells,
        searches=frozenset({knee.id}),
        specs={c.id: {"prompts_sha256": "f" * 64} for c in cells},
    )
    assert "open-loop" not in unmet(seen)
    assert "window" not in unmet(seen)


def test_a_run_with_nothing_meets_little_and_says_why() -> None:
    empty = Seen(False, "", 3, (), {}, (), (), (), None)
    found = unmet(empty)
    assert found["validity"] == "no result counts"
    assert found["command"] == "no start of a server with a result is recorded"
