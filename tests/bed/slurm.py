"""A Slurm cluster in the bed: one login node and two compute nodes, brought up only by tests that ask for it.

**Real**: slurmctld, slurmd, munge and the commands (Debian's packages), queueing, time limits, preemption, node failure.
**SIMULATED**: the GPUs, as on the bed's other hosts. Which accounts may be used is asked of `job_submit.lua`, since no
slurmdbd runs; it refuses with Slurm's own error.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .config import BASE, CLUSTER, KEYS, SHARED_HOME, SLURM_LAYER
from .shell import remove, write

if TYPE_CHECKING:
    from .client import Bed

PACKAGES = "slurmctld,slurmd,slurm-client,munge"
LOGIN = next(iter(CLUSTER))
NODES = tuple(n for n in CLUSTER if n != LOGIN)
GPUS = 4

# `linuxproc`: a step's processes are found by their parents, as no cgroup controller is to be had in these containers.
CONF = f"""
ClusterName=bed
SlurmctldHost={LOGIN}
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobSubmitPlugins=lua
MpiDefault=none
SwitchType=switch/none
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=2
MinJobAge=300
InactiveLimit=0
NodeName={",".join(NODES)} CPUs=8 RealMemory=1000 Gres=gpu:{GPUS} State=UNKNOWN
PartitionName=gpu Nodes={",".join(NODES)} Default=YES MaxTime=120 PriorityTier=1 PreemptMode=CANCEL
PartitionName=urgent Nodes={",".join(NODES)} MaxTime=120 PriorityTier=10 PreemptMode=OFF
"""
LUA = """
function slurm_job_submit(job, partitions, uid)
  if job.account ~= nil and job.account ~= "bench" then return 2045 end  -- ESLURM_INVALID_ACCOUNT
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
slurm.log_info("initialized")
return slurm.SUCCESS
"""


def build_slurm() -> None:
    """The layer with Slurm's packages, once: installed over the base, in a mount namespace of its own."""
    made_of = SLURM_LAYER.with_suffix(".packages")
    if SLURM_LAYER.exists() and made_of.exists() and made_of.read_text() == PACKAGES:
        return
    new = SLURM_LAYER.with_suffix(".new")
    remove(SLURM_LAYER, new)
    new.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=new.parent) as scratch:
        root, work = Path(scratch, "root"), Path(scratch, "work")
        root.mkdir(), work.mkdir()
        apt = f"chroot {root} env DEBIAN_FRONTEND=noninteractive apt-get -qq"
        script = (
            f"mount -t overlay overlay -o lowerdir={BASE},upperdir={new},workdir={work} {root} && "
            f"printf '#!/bin/sh\\nexit 101\\n' > {root}/usr/sbin/policy-rc.d && chmod 755 {root}/usr/sbin/policy-rc.d && "
            f"{apt} update && {apt} install -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "
            f"{PACKAGES.replace(',', ' ')} && rm {root}/usr/sbin/policy-rc.d && {apt} clean"
        )
        subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script],
            check=True,
            capture_output=True,
        )
    made_of.write_text(PACKAGES)
    new.rename(SLURM_LAYER)


def passwd_of(layer: Path, name: str) -> int:
    """The numeric id of an account of the packages."""
    line = next(x for x in (layer / "etc/passwd").read_text().splitlines() if x.startswith(name + ":"))
    return int(line.split(":")[2])


def configure(name: str, layer: Path) -> None:
    """A node's part of the cluster: the key, slurm.conf, its GPUs as files, and the units that it runs."""
    munge, slurm = passwd_of(SLURM_LAYER, "munge"), passwd_of(SLURM_LAYER, "slurm")
    key = KEYS / "munge.key"
    if not key.exists():
        write(key, secrets.token_bytes(128), 0o600)
    write(layer / "etc/munge/munge.key", key.read_bytes(), 0o400, munge)
    os.chown(layer / "etc/munge", munge, munge)
    (layer / "etc/munge").chmod(0o700)
    write(layer / "etc/slurm/slurm.conf", CONF)
    write(layer / "etc/slurm/job_submit.lua", LUA)
    # Not asked which cgroups there are: with v1 and v2 side by side, as here, slurmd would refuse to start.
    write(layer / "etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    devices = "/etc/ddtop-bed/gpu"
    nodes = ",".join(NODES)
    write(layer / "etc/slurm/gres.conf", f"NodeName={nodes} Name=gpu File={devices}[0-{GPUS - 1}]\n")
    if name != LOGIN:
        for n in range(GPUS):
            write(layer / f"{devices.lstrip('/')}{n}", "")
    for place in ("slurmctld", "slurmd"):
        folder = layer / "var/lib/slurm" / place
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, slurm, slurm)
    write(layer / "var/log/slurmctld.log", "", 0o644, slurm)
    away = "slurmd" if name == LOGIN else "slurmctld"
    units = layer / "etc/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    (units / f"{away}.service").symlink_to("/dev/null")


class Cluster:
    """The cluster for tests: bench's commands on its login node, and what is left there."""

    login, nodes = LOGIN, NODES

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    def slurm(self, command: str, *, check: bool = True, timeout_s: float = 60) -> str:
        """Runs a line of shell on the login node as bench."""
        words = (
            "setpriv",
            "--reuid=1000",
            "--regid=1000",
            "--init-groups",
            "env",
            "HOME=/home/bench",
            "USER=bench",
        )
        line = f"cd; {command}"
        return self.bed.sh(self.login, *words, "sh", "-c", line, check=check, timeout_s=timeout_s)

    def jobs(self) -> list[str]:
        """Every job that is not over, as `ID NAME STATE`."""
        return self.slurm("squeue -h -o '%i %j %T'").splitlines()

    def left(self, timeout_s: float = 20) -> list[str]:
        """Jobs that are not over, and processes of bench on any node; what is still going down is waited for."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.jobs()
            hosts = self.bed.status()["hosts"]
            for node in (n for n in CLUSTER if hosts[n]["state"] == "on"):
                out = self.bed.sh(node, "ps -u bench -o args= || true")
                found += [f"{node}: {x}" for x in out.splitlines() if not x.startswith(_SESSION)]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.3)

    def restore(self) -> None:
        """As it was shipped: no jobs, all nodes idle, no faults."""
        self.slurm("scancel --user=bench --signal=KILL --full; scancel --user=bench", check=False)
        for node in CLUSTER:
            self.bed.restore(node)
        remove(SHARED_HOME / ".local")
        deadline = time.monotonic() + 60
        while set(self.slurm("sinfo -h -p gpu -N -o %T").split()) != {"idle"} or self.jobs():
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster is not idle:\n" + self.slurm("sinfo -N; squeue"))
            time.sleep(0.2)


_SESSION = ("(sd-pam)", "/lib/systemd/systemd --user", "sshd:")
