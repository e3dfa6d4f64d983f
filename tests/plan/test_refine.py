"""`refine = "break-even"` in a plan: which cells it may add, under which ids, and plans that ask for nothing."""

from __future__ import annotations

import re

import pytest

from ddtop.plan import Plan, expand, show
from ddtop.plan.refine import further, gaps, steps_between
from ddtop.sweep.setup.from_plan import sweep_from
from tests.plan.test_plan import SMALL, faults, small


def asked(text: str) -> Plan:
    return small(SMALL, **{"[matrix]\n": f"[matrix]\n{text}\n"})


@pytest.mark.parametrize(
    ("low", "high", "steps"),
    [
        (1, 2, ()),
        (1, 3, (2,)),
        (1, 8, (2, 3, 5)),
        (8, 32, (11, 16, 23)),
        (31, 33, (32,)),
        (1, 4096, (8, 64, 512)),
    ],
)
def test_steps(low: int, high: int, steps: tuple[int, ...]) -> None:
    assert steps_between(low, high) == steps


def test_a_plan_without_it_is_as_it_was() -> None:
    assert further(small()) == () and sweep_from(small()).further == ()


def test_its_cells_are_those_of_a_plan_that_names_the_concurrencies() -> None:
    base = small()
    assert base.matrix.concurrency, "the small plan names concurrencies"
    plan = asked('refine = "break-even"')
    assert expand(plan) == expand(base)
    found = further(plan)
    steps = {c for steps in gaps(plan.matrix).values() for c in steps}
    assert found and {c.spec.concurrency for c in found} == steps
    listed = ", ".join(str(c) for c in sorted(steps | set(plan.matrix.concurrency)))
    was = f"concurrency = [{', '.join(str(c) for c in base.matrix.concurrency)}]"
    named = small(SMALL, **{was: f"concurrency = [{listed}]"})
    assert {c.spec.id for c in found} == {c.spec.id for c in expand(named)} - {
        c.spec.id for c in expand(base)
    }
    assert all(
        c.spec.refines is not None and c.spec.refines[0] < c.spec.concurrency < c.spec.refines[1]
        for c in found
    )
    sweep = sweep_from(plan)
    assert {c.id for c in sweep.further} <= set(sweep.bench.cells)
    assert {c.restart_key for c in sweep.further} <= set(sweep.launches)
    assert "refined where a speed-up crosses 1" in show(plan)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('refine = "knee"', "break-even"),
        ('refine = "break-even"\nrace = true', "race"),
    ],
)
def test_what_cannot_be(text: str, says: str) -> None:
    found = faults(SMALL.replace("[matrix]\n", f"[matrix]\n{text}\n"))
    assert any("refine" in line and says in line for line in found), found


@pytest.mark.parametrize("concurrency", ["[8]", "[1, 2]"])
def test_concurrencies_without_room(concurrency: str) -> None:
    text = re.sub(r"concurrency = \[[^\]]*\]", f"concurrency = {concurrency}", SMALL)
    found = faults(text.replace("[matrix]\n", '[matrix]\nrefine = "break-even"\n'))
    assert any("matrix.refine" in line for line in found), found
