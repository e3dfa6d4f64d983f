"""Slurm's words: what is asked for, what squeue says, and what a refusal means."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from ddtop.errors import HostLostError, UsageError
from ddtop.hosts import allocation as slurm
from ddtop.hosts.allocation import Allocation
from ddtop.hosts.inventory import connector_for
from ddtop.hosts.slurm import SlurmConnector
from ddtop.plan.model import SlurmSettings


def test_salloc_is_asked_for_what_the_settings_say() -> None:
    wanted = SlurmSettings(
        partition="gpu",
        gpus="h200:8",
        time="4:00:00",
        account="a",
        qos="q",
        constraint="x&y",
        extra=("--mem=0",),
    )
    assert slurm.salloc_words(wanted, "ddtop-1") == [
        *(
            "salloc",
            "--no-shell",
            "--job-name=ddtop-1",
            "--nodes=1",
            "--gpus-per-node=h200:8",
            "--partition=gpu",
        ),
        *("--time=4:00:00", "--account=a", "--qos=q", "--constraint=x&y", "--mem=0"),
    ]
    assert slurm.salloc_words(SlurmSettings(), "n") == ["salloc", "--no-shell", "--job-name=n", "--nodes=1"]


def test_the_plan_wins_over_the_settings_of_the_host() -> None:
    plan, host = SlurmSettings(gpus=4, time=30), SlurmSettings(partition="gpu", gpus=8, account="a")
    assert plan.over(host) == SlurmSettings(partition="gpu", gpus=4, time=30, account="a")
    assert plan.over(None) is plan


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("1000\n", []),
        (
            "1000\n7|RUNNING|None|900|1600|n1|bench|gpu\n",
            [Allocation("7", "RUNNING", left_s=600.0, nodes=("n1",), account="bench", partition="gpu")],
        ),
        (
            "1000\n8|PENDING|Resources|1900|3700||(null)|gpu\n",
            [Allocation("8", "PENDING", "Resources", start_in_s=900.0, partition="gpu")],
        ),
        ("1000\n8|PENDING|Priority|N/A|N/A||(null)|gpu\n", [Allocation("8", "PENDING", "Priority", partition="gpu")]),
        (
            "Last login: never\n1000\n9|TIMEOUT|TimeLimit|900|990|n[1-2]|a|gpu\n",
            [Allocation("9", "TIMEOUT", "TimeLimit", nodes=("n1", "n2"), account="a", partition="gpu")],
        ),
        ("1000\n9|RUNNING|None|900|Unknown|n1|a|gpu\n", [Allocation("9", "RUNNING", nodes=("n1",), account="a", partition="gpu")]),
    ],
)  # fmt: skip
def test_squeue_is_read(text: str, found: list[Allocation]) -> None:
    assert slurm.read_squeue(text) == found


def test_an_allocation_runs_only_once_it_has_nodes() -> None:
    assert not Allocation("1", "CONFIGURING", nodes=("n1",)).runs
    assert not Allocation("1", "RUNNING").runs
    assert Allocation("1", "RUNNING", nodes=("n1",)).runs
    assert not Allocation("1", "COMPLETING", nodes=("n1",)).live


@pytest.mark.parametrize(
    ("said", "what"),
    [
        # As Slurm 22.05 prints them.
        ("salloc: error: invalid partition specified: nope\nsalloc: error: Job submit/allocate failed: Invalid partition name specified", "there is no partition p1"),
        ("salloc: error: Job submit/allocate failed: Invalid account or account/partition combination specified", "Slurm refuses the account a1"),
        ("salloc: error: Job submit/allocate failed: Requested time limit is invalid (missing or exceeds some limit)", "Slurm refuses the walltime 99"),
        ("salloc: error: Invalid --time specification", "Slurm refuses the walltime 99"),
        ("salloc: error: Job submit/allocate failed: Requested node configuration is not available", "no node of the partition has what is asked for (8 GPUs on each of 1 nodes)"),
        ("salloc: error: Job submit/allocate failed: Invalid feature specification", "no node has the feature (none)"),
        ("salloc: error: Job submit/allocate failed: Invalid qos specification", "Slurm refuses the quality of service q1"),
        ("bash: line 1: salloc: command not found", "there is no salloc on the login node"),
        ("salloc: unrecognized option '--bogus'", "salloc does not know an option of `extra`"),
        ("salloc: error: Unable to contact slurm controller (connect failure)", "Slurm's controller does not answer"),
        ("salloc: error: something new", "salloc gave no allocation: something new"),
        ("", "salloc gave no allocation: it printed nothing"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_sentence(said: str, what: str) -> None:
    wanted = SlurmSettings(partition="p1", account="a1", time=99, gpus=8, qos="q1")
    found = slurm.refusal(said, wanted, "h200")
    assert found.what == what and found.do and "{" not in found.do


def test_what_never_begins_is_known() -> None:
    assert slurm.never(Allocation("1", "PENDING", "PartitionTimeLimit"))
    assert not slurm.never(Allocation("1", "PENDING", "Resources"))
    assert not slurm.never(Allocation("1", "RUNNING", "PartitionTimeLimit"))


@pytest.mark.parametrize("state", sorted(slurm.ENDS))
def test_each_end_is_told_apart(state: str) -> None:
    words = slurm.ended_words(Allocation("5", state))
    assert words == f"allocation 5 ended: {slurm.ENDS[state]}"
    assert state not in slurm.LIVE


def test_an_end_that_is_not_known_is_said_in_slurms_words() -> None:
    assert slurm.ended_words(Allocation("5", "LAUNCH_FAILED")).endswith("Slurm says LAUNCH_FAILED")


def test_a_host_by_way_of_a_login_node_is_an_allocation(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[hosts.h200]\nvia = "me@login1"\n[hosts.h200.slurm]\npartition = "gpu"\ngpus = 8\n')
    one = connector_for("h200", config_paths=[path], owner="ab12")
    other = connector_for("h200", config_paths=[path], owner="cd34", slurm=SlurmSettings(gpus=4))
    assert isinstance(one, SlurmConnector) and isinstance(other, SlurmConnector)
    assert (one.job_name, other.job_name) == ("ddtop-ab12", "ddtop-cd34")
    assert (one.wanted.gpus, other.wanted.gpus, other.wanted.partition) == (8, 4, "gpu")
    assert one.login.target == "me@login1"
    assert one._host_dir != other._host_dir, "a home is shared by all nodes"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[hosts.a]\nvia = "login1"\n', "no Slurm settings"),
        ('[hosts.a]\nvia = "login1"\n[hosts.a.slurm]\nparition = "x"\n', "parition"),
        ('[hosts.a]\nvia = "login1"\n[hosts.a.slurm]\nnodes = "two"\n', "nodes"),
    ],
)
def test_wrong_settings_are_sentences(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        connector_for("a", config_paths=[path])
    assert words in str(caught.value)


def test_a_command_over_a_link_that_is_gone_is_a_lost_host() -> None:
    """As when the walltime ends in the moment in which the allocation is given back."""

    class Gone:
        async def run(self, *_: object, **__: object) -> None:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "SSH connection closed")

    one: Any = connector_for("login1", slurm=SlurmSettings())
    one.last, one._connection = Allocation("7", "RUNNING", nodes=("n1",)), Gone()
    with pytest.raises(HostLostError, match="the link to the login node was lost"):
        asyncio.run(one.give_up())
    assert asyncio.run(one.look()) is None
