"""A step of a Slurm job: it ends with the process that it began with, and then all that runs in it is killed."""

from __future__ import annotations

import ctypes
import os
from typing import Optional, Tuple

PR_SET_CHILD_SUBREAPER = 36


def slurm_step() -> Optional[Tuple[str, str]]:
    """(job, node) of the Slurm step that this process belongs to; None outside of one."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or not os.environ.get("SLURM_STEP_ID"):
        return None
    return job, os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def hold_step() -> None:
    """Returns in a child that serves; this process stays until that one and all that it leaves behind have ended.

    Servers and jobs are started detached, and outlive the agent whose connection is lost. They become children of this
    process, so the step lives for as long as one of them does, and its end is the step's end.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    agent = os.fork()
    if agent == 0:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    code = 0
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            os._exit(code)
        if pid == agent:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
