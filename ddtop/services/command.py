"""A server that the user's own script reconfigures and restarts. The script's success proves nothing.

The unit that the script restarts is a systemd unit like any other, so this service is `SystemdService` with its own
`configure`, `start` and `restore`. The script runs as a detached job on the host: when the connection is cut, it runs on,
and it is not run twice.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import Any

from ddtop.agent.jobs.folder import spec_hash
from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import CallResult, Launch, OriginalState
from ddtop.services.systemd import SystemdService
from ddtop.services.unit.systemctl_show import exec_argv

_POLL_S = 0.25
SCRIPT = "-script"
KEEPS = "keeps the arguments that the reconfigure script wrote last"
"""Suffix of the id of a script's job, after the id of the start."""


class CommandService(SystemdService):
    """A systemd unit that is configured and started by the plan's `configure` script."""

    kind = "command"
    stops_itself = True

    async def configure(self, host: Host, launch: Launch, run_id: str, expires_at_s: float) -> str:
        return f"{shlex.join(launch.configure)} will be run"

    async def start(self, host: Host, launch: Launch, job_id: str) -> CallResult:
        """Runs the script and waits for it. Returns its exit code and the end of its output.

        If a script of this run with the same arguments is still running (the connection was cut), waits for that one. One
        with other arguments is ended first: two at once would write the same unit.
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
                return CallResult(rc=None, error=error.what, what=words, by_script=True)
            return CallResult(
                rc=1, error=f"{error.what}\n{error.code.replace('-', ' ')}", what=words, by_script=True
            )
        return script_result(job, str(tail.get("text", "")), words, short)

    async def restore(self, host: Host, original: OriginalState) -> list[str]:
        """Puts back only whether the unit runs. What the script wrote is unknown to ddtop, so it reports what stays."""
        now, left = await self.read(host), []
        if now.running != original.active:
            called = await (self._action(host, "start") if original.active else self.stop(host))
            if called.rc:
                left.append(f"{called.what} failed: {called.error.strip()[-200:]}")
        elif now.active == "failed" and not original.active:
            await self._action(host, "reset-failed")
        if tuple(exec_argv(now.argv)) != original.argv:
            left.append(f"{self.unit} {KEEPS}")
        return left


async def scripts_run(host: Host, run_id: str) -> list[dict[str, Any]]:
    """The jobs of a run's scripts that are running now."""
    return [
        job
        for job in (await host.call("job-list"))["jobs"]
        if (job.get("run"), job.get("kind"), job.get("state")) == (run_id, "exec", "running")
        and str(job["job"]).endswith(SCRIPT)
    ]


async def end_scripts(host: Host, run_id: str, *, but: str = "") -> str | None:
    """Ends the running scripts of a run, except the one with spec hash `but`; returns that one's job id."""
    found = None
    for job in await scripts_run(host, run_id):
        if but and job.get("spec_hash") == but:
            found = str(job["job"])
        else:
            await host.call("job-stop", job=job["job"], timeout_s=60)
    return found


def script_result(job: dict[str, Any], tail: str, words: str, short: str) -> CallResult:
    """The result of a script, from its ended job. `words`: its command line; `short`: its name."""
    state, code = job.get("state"), job.get("exit")
    rc = (
        int(code) if isinstance(code, int) or (isinstance(code, str) and code.lstrip("-").isdigit()) else None
    )
    why = str(job.get("why") or "")
    if state == "done":
        return CallResult(rc=rc or 0, error=tail, what=short, by_script=True)
    timed_out = "time limit" in why or "timeout" in why
    return CallResult(
        rc=None if timed_out else (rc if rc else 1),
        error=(tail + "\n" + why).strip() or words,
        what=short,
        by_script=True,
        timed_out=timed_out,
    )
