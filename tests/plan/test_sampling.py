"""`[[sampling]]`: variants as an axis of every workload."""

from __future__ import annotations

from collections import Counter

from ddtop.plan import expand, parse_plan, show
from ddtop.plan.check import count_cells
from tests.plan.test_dataset import ONE
from tests.plan.test_plan import faults

TWO = """
[[sampling]]
name = "greedy"
[[sampling]]
name = "card"
temperature = 0.6
extra_body = { top_p = 0.95, chat_template_kwargs = { enable_thinking = false } }
"""


def test_variants_are_cells_of_one_start_with_prompts_of_their_own_nonce() -> None:
    plan, _ = parse_plan(ONE + TWO)
    cells = expand(plan)
    assert len(cells) == 6 == count_cells(plan)
    assert Counter(c.launch.restart_key for c in cells) == dict.fromkeys(
        {c.launch.restart_key for c in cells}, 2
    )
    greedy, card = cells[:2]
    assert (greedy.spec.workload, greedy.spec.sampling) == ("fib/greedy", "greedy")
    assert (card.spec.workload, card.spec.sampling) == ("fib/card", "card")
    assert card.bench.load["temperature"] == 0.6
    assert card.bench.load["extra_body"]["chat_template_kwargs"] == {"enable_thinking": False}
    assert greedy.bench.load["nonce"] != card.bench.load["nonce"], (
        "or the second would find its prompts in the cache"
    )
    assert cells[2].bench.load["nonce"] == greedy.bench.load["nonce"], "the same for every configuration"
    assert "fib/card@256" in show(plan)


def test_one_table_stays_as_it_was() -> None:
    assert [c.spec.id for c in expand(parse_plan(ONE + "[sampling]\ntemperature = 0\n")[0])] == [
        c.spec.id for c in expand(parse_plan(ONE)[0])
    ]


def test_variants_are_skipped_by_name_and_workloads_by_theirs() -> None:
    def skipped(rule: str) -> list[str]:
        text = ONE.replace("[matrix]", f'[matrix]\nskip = [{{ {rule}, reason = "x" }}]') + TWO
        return [c.spec.workload for c in expand(parse_plan(text)[0]) if c.spec.skip_reason == "x"]

    assert skipped('sampling = "card"') == ["fib/card"] * 3
    assert skipped('workload = "fib", config = "b8"') == ["fib/greedy", "fib/card"]


def test_what_is_wrong_is_named() -> None:
    assert any(
        "sampling[0].name: is missing" in one for one in faults(ONE + "[[sampling]]\ntemperature = 0\n")
    )
    assert any("is used twice" in one for one in faults(ONE + TWO.replace("card", "greedy")))
    assert any(
        "sampling[1].top_p" in one for one in faults(ONE + TWO.replace("extra_body", "top_p = 1\nextra_body"))
    )
    assert any("sampling" in one for one in faults(ONE.replace("[model]", "sampling = []\n[model]", 1)))
