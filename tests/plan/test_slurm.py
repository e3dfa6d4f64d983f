"""`[slurm]` of a plan, and the plan that is drafted from a login node."""

from __future__ import annotations

import pytest

from ddtop.commands.plans.draft import partitions, slurm_plan_text
from ddtop.errors import PlanError
from ddtop.plan import parse_plan
from ddtop.plan.model import SlurmSettings
from ddtop.sweep.setup.from_plan import sweep_from

SINFO = "cpu*|infinite|(null)|4\ngpu|4:00:00|gpu:h200:8(S:0-1)|2\nold|1-00:00:00|gpu:4|9\n"


def drafted(more: str = "", sinfo: str = SINFO) -> str:
    return slurm_plan_text("login1", sinfo).replace("[slurm]", f"[slurm]\n{more}")


def test_a_draft_is_a_plan() -> None:
    """Of the partition with GPUs; the others are named, and so is the limit of the walltime."""
    plan, _ = parse_plan(drafted())
    assert plan.host == "login1" and plan.service.kind == "process" and plan.matrix.tp == (8,)
    assert plan.slurm == SlurmSettings(partition="gpu", gpus="h200:8", time="1:00:00")
    assert "at most 4:00:00" in drafted() and "old (4 GPUs, 1-00:00:00), cpu (no GPUs, infinite)" in drafted()
    assert sweep_from(plan).slurm == plan.slurm


@pytest.mark.parametrize("sinfo", ["cpu*|infinite|(null)|4\n", "x*|UNLIMITED|gpu:2|1"])
def test_a_draft_of_any_cluster_is_a_plan(sinfo: str) -> None:
    plan, _ = parse_plan(drafted(sinfo=sinfo))
    assert plan.slurm is not None and plan.slurm.partition == sinfo.split("|", maxsplit=1)[0].rstrip("*")


def test_the_default_partition_with_gpus_is_first() -> None:
    assert [p.name for p in partitions("a|1:00|gpu:8|1\nb*|1:00|gpu:4|1\nc|1:00|(null)|1\nnonsense\n")] == [
        "b",
        "a",
        "c",
    ]


def test_every_key_is_read() -> None:
    text = 'account = "a"\nqos = "q"\nconstraint = "c"\nnodes = 2\nextra = ["--mem=0"]'
    plan, _ = parse_plan(drafted(text).replace('gpus = "h200:8"', "gpus = 4").replace('"1:00:00"', "90"))
    assert plan.slurm == SlurmSettings(
        partition="gpu", gpus=4, time=90, account="a", qos="q", constraint="c", nodes=2, extra=("--mem=0",)
    )
    assert plan.slurm.gpus_in_all == 8


def test_it_changes_no_cell() -> None:
    one, two = (sweep_from(parse_plan(drafted(more))[0]) for more in ("", 'account = "other"'))
    assert [c.id for c in one.cells] == [c.id for c in two.cells]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("acount = 'x'", ["slurm.acount", "account"]),
        ("nodes = 0", ["slurm.nodes", "from 1"]),
        ("qos = 3", ["slurm.qos", "a string"]),
        ("extra = '--mem=0'", ["slurm.extra", "a list"]),
    ],
)
def test_wrong_keys_are_named(text: str, words: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(drafted(text))
    for word in words:
        assert word in str(caught.value)


def test_the_policy_of_an_allocation() -> None:
    plan, _ = parse_plan(drafted() + '\n[policy]\nallocation = "stop"\n')
    assert sweep_from(plan).policy.allocation == "stop"
    with pytest.raises(PlanError, match="requeue-and-resume, stop"):
        parse_plan(drafted() + '\n[policy]\nallocation = "retry"\n')
