"""A Slurm allocation as values: what is asked for, what squeue says of it, and what a refusal means. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from ddtop.plan.model import SlurmSettings


class Allocation(NamedTuple):
    """What Slurm says of one job."""

    job: str
    state: str
    """Slurm's own word: PENDING, RUNNING, TIMEOUT, PREEMPTED, NODE_FAIL, …; `GONE` where it is no longer known."""
    reason: str = ""
    """Why it waits, by Slurm: Resources, Priority, …"""
    start_in_s: float | None = None
    """Seconds until Slurm expects it to begin, by the clock of the login node."""
    left_s: float | None = None
    """Seconds until its walltime is over; None while it waits, or where there is no limit."""
    nodes: tuple[str, ...] = ()
    account: str = ""
    partition: str = ""

    @property
    def live(self) -> bool:
        """Whether it runs, or may come to run."""
        return self.state in LIVE

    @property
    def runs(self) -> bool:
        return self.state in ("RUNNING", "SUSPENDED", "RESIZING") and bool(self.nodes)


LIVE = frozenset(
    (
        *("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "RESIZING", "STOPPED", "SIGNALING", "STAGE_OUT"),
        *("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"),
    )
)
ENDS = {
    "TIMEOUT": "its walltime is over",
    "PREEMPTED": "a job of higher priority took its nodes (preempted)",
    "NODE_FAIL": "one of its nodes failed",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "its deadline has passed",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "BOOT_FAIL": "a node did not boot",
    "REVOKED": "it was revoked",
    "FAILED": "it failed",
    "COMPLETED": "it ended",
    "COMPLETING": "how is not known yet",
    "GONE": "Slurm does not know it any more, so why it ended is unknown",
}
"""How an allocation ended, in words."""
NEVER = {
    "PartitionTimeLimit": "asks for more time than the partition allows",
    "PartitionNodeLimit": "asks for more nodes than the partition has or allows",
    "PartitionInactive": "waits for a partition that is inactive",
    "BadConstraints": "asks for what no node has",
    "InvalidAccount": "names an account that may not be used",
    "InvalidQOS": "names a quality of service that may not be used",
    "QOSNotAllowed": "names a quality of service that this partition or account does not allow",
    "AccountNotAllowed": "names an account that this partition does not allow",
    "QOSMaxWallDurationPerJobLimit": "asks for more time than its quality of service allows",
    "AssocMaxWallDurationPerJobLimit": "asks for more time than its account allows",
    "JobHeldAdmin": "is held by an administrator",
}
"""Reasons of a waiting job for which it would wait for ever."""
FORMAT = "%i|%T|%r|%S|%e|%N|%a|%P"
ASK = 'date +%s; SLURM_TIME_FORMAT=%s exec squeue "$@"'
"""For `sh -c`: the login node's clock, then squeue with times as Unix seconds."""

_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def job_name(owner: str) -> str:
    """The name by which a run finds its own allocation again, and no other's: `owner` is the run's id."""
    return "ddtop-" + _NAME.sub("_", owner)


def salloc_words(wanted: SlurmSettings, name: str) -> list[str]:
    """The command that asks for the allocation. It ends once that is granted."""
    words = ["salloc", "--no-shell", f"--job-name={name}", f"--nodes={max(1, wanted.nodes)}"]
    if wanted.gpus:
        words.append(f"--gpus-per-node={wanted.gpus}")
    named = ("partition", "time", "account", "qos", "constraint")
    options = [f"--{name}={value}" for name in named if (value := getattr(wanted, name))]
    return [*words, *options, *wanted.extra]


def srun_words(job: str, node: str) -> list[str]:
    """The words before a command that make it a step of the allocation on one node, beside other steps."""
    return ["srun", f"--jobid={job}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1"]


def read_squeue(text: str) -> list[Allocation]:
    """What ASK printed, with FORMAT.

    >>> read_squeue("100\\n7|RUNNING|None|40|220|n[1-2]|(null)|gpu")[0].left_s
    120.0
    >>> read_squeue("100\\n8|PENDING|Resources|400|N/A||bench|gpu")[0].start_in_s
    300.0
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    now = next((float(line) for line in lines if line.isdigit()), None)
    found = []
    for line in lines:
        fields = line.split("|")
        if len(fields) != 8 or not fields[0][:1].isdigit():
            continue
        job, state, reason, start, end, nodes, account, partition = fields
        waits = state == "PENDING"
        found.append(
            Allocation(
                job=job,
                state=state,
                reason="" if reason == "None" else reason,
                start_in_s=_until(start, now) if waits else None,
                left_s=None if waits or state not in LIVE else _until(end, now),
                nodes=node_names(nodes),
                account="" if account == "(null)" else account,
                partition=partition,
            )
        )
    return found


def _until(at: str, now: float | None) -> float | None:
    return float(at) - now if at.isdigit() and now is not None else None


def node_names(text: str) -> tuple[str, ...]:
    """Slurm's short form of node names written out.

    >>> node_names("n[1-2,07-08],login1"), node_names("")
    (('n1', 'n2', 'n07', 'n08', 'login1'), ())
    """
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)?", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if match is None:
            found.append(part)
            continue
        head, spans, tail = match.groups()
        for span in spans.split(","):
            first, _, last = span.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            found.extend(f"{head}{number:0{len(first)}d}{tail}" for number in numbers)
    return tuple(found)


class Refusal(NamedTuple):
    """Why no allocation came of it, and what to do."""

    what: str
    do: str


_REFUSALS = (
    (r"invalid partition", "there is no partition {partition}", "sinfo lists the partitions"),
    (r"invalid account|account/partition", "Slurm refuses the account {account}", "sacctmgr show assoc user=$USER lists yours"),
    (r"time limit|time specification", "Slurm refuses the walltime {time}", "sinfo -o '%P %l' shows each partition's limit"),
    (r"invalid feature|constraint", "no node has the feature {constraint}", "sinfo -o '%N %f' lists the features of nodes"),
    (r"invalid qos", "Slurm refuses the quality of service {qos}", "sacctmgr show qos lists them"),
    (r"node configuration is not available|invalid generic resource|gres", "no node of the partition has what is asked for ({gpus} GPUs on each of {nodes} nodes)", "sinfo -o '%P %N %G' shows what nodes have"),
    (r"not found|no such file", "there is no salloc on the login node", "name the cluster's login node: [hosts.{host}] via = \"NODE\""),
    (r"unrecognized option|invalid option", "salloc does not know an option of `extra`", "correct extra"),
    (r"unable to contact slurm controller|connection refused|timed out", "Slurm's controller does not answer", "sinfo shows whether it is up; try again later"),
)  # fmt: skip


def refusal(text: str, wanted: SlurmSettings, host: str) -> Refusal:
    """What salloc's output means."""
    said = " ".join(
        line.removeprefix("salloc: ").removeprefix("error: ") for line in text.split("\n") if line.strip()
    )
    values = {name: getattr(wanted, name) or "(none)" for name in SlurmSettings.__struct_fields__}
    for pattern, what, do in _REFUSALS:
        if re.search(pattern, text, re.IGNORECASE):
            return Refusal(what.format(host=host, **values), do.format(host=host, **values))
    return Refusal(
        f"salloc gave no allocation: {said[-400:] or 'it printed nothing'}", "run salloc there by hand"
    )


def never(allocation: Allocation) -> str:
    """Why a waiting job would wait for ever; "" where it may begin."""
    if allocation.state != "PENDING":
        return ""
    return NEVER.get(allocation.reason.strip("()"), "")


def ended_words(allocation: Allocation) -> str:
    """`allocation 12 is over: its walltime is over`."""
    why = ENDS.get(allocation.state.split(" ")[0], f"Slurm says {allocation.state}")
    return f"allocation {allocation.job} ended: {why}"
