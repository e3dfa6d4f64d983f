"""A server that the user's own script reconfigures and restarts. The script's success proves nothing.

The unit it rewrites is watched like any other; only configuring and starting are the script's. It runs as a detached
job on the host, so that a cut neither stops it half-way nor makes it run twice.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

from ddtop.agent.jobs.folder import spec_hash
from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import Called, Launch, OriginalState
from ddtop.services.systemd import SystemdService, exec_argv

_POLL_S = 0.25
SCRIPT = "-script"
"""End of the name of a script's job; what stands before it is the start it belongs to."""


class CommandService(SystemdService):
    """See the module."""

    kind = "command"
    stops_itself = True

    async def configure(self, host: Host, launch: Launch, run_id: str, expires_at_s: float) -> str:
        return f"{shlex.join(launch.configure)} will be run"

    async def start(self, host: Host, launch: Launch, job_id: str) -> Called:
        """Runs the script and waits for it. Its exit code and last words come back.

        One of this run that still runs with the same words (the link was cut meanwhile) is waited for instead; one with
        other words is ended first: two at once would write the same unit.
        """
        words = shlex.join(launch.configure)
        short = launch.configure[0].rsplit("/", 1)[-1] if launch.configure else "the script"
        spec: dict[str, Any] = {"argv": list(launch.configure), "cwd": launch.cwd or "/"}
        run_id = job_id.partition("-")[0]
        try:
            job_id = await end_scripts(host, run_id, but=spec_hash("exec", spec)) or job_id
            job = await host.call(
                "job-start",
                job=job_id,
                kind="exec",
                spec=spec,
                limit_s=launch.timeout_s,
                env=dict(launch.env),
                run=run_id,
            )
            while True:
                job = await host.call("job-show", job=job_id)
                if job.get("state") != "running":
                    break
                await asyncio.sleep(_POLL_S)
            tail = (
                await host.call("file-read", path=f"{job['dir']}/log", offset=-2000, max_b=2000)
                if job.get("dir")
                else {}
            )
        except AgentError as error:
            if error.code == "not-found" and "job" in error.what:
                return Called(rc=None, error=error.what, what=words, by_script=True)
            return Called(
                rc=1, error=f"{error.what}\n{error.code.replace('-', ' ')}", what=words, by_script=True
            )
        return script_result(job, str(tail.get("text", "")), words, short)

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        """The script wrote what it wrote: only whether the unit runs can be put back, and the rest be said."""
        now, left = await self.read(host), []
        if now.running != original.active:
            called = await (self._action(host, "start") if original.active else self.stop(host))
            if called.rc:
                left.append(f"{called.what} failed: {called.error.strip()[-200:]}")
        elif now.active == "failed" and not original.active:
            await self._action(host, "reset-failed")
        if tuple(exec_argv(now.argv)) != original.argv:
            left.append(f"{self.unit} keeps the arguments that the reconfigure script wrote last")
        return left


async def scripts_run(host: Host, run_id: str) -> list[dict[str, Any]]:
    """The scripts of a run that run now, as jobs."""
    return [
        job
        for job in (await host.call("job-list"))["jobs"]
        if (job.get("run"), job.get("kind"), job.get("state")) == (run_id, "exec", "running")
        and str(job["job"]).endswith(SCRIPT)
    ]


async def end_scripts(host: Host, run_id: str, *, but: str = "") -> str | None:
    """Ends the scripts of a run that still run; returns the job of the one with the spec hash `but`, which is left to run."""
    found = None
    for job in await scripts_run(host, run_id):
        if but and job.get("spec_hash") == but:
            found = str(job["job"])
        else:
            await host.call("job-stop", job=job["job"], timeout_s=60)
    return found


def script_result(job: dict[str, Any], tail: str, words: str, short: str) -> Called:
    """What an ended job says of the script it ran."""
    state, code = job.get("state"), job.get("exit")
    rc = (
        int(code) if isinstance(code, int) or (isinstance(code, str) and code.lstrip("-").isdigit()) else None
    )
    why = str(job.get("why") or "")
    if state == "done":
        return Called(rc=rc or 0, error=tail, what=short, by_script=True)
    timed_out = "time limit" in why or "timeout" in why
    return Called(
        rc=None if timed_out else (rc if rc else 1),
        error=(tail + "\n" + why).strip() or words,
        what=short,
        by_script=True,
        timed_out=timed_out,
    )
