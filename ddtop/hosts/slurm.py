"""An allocation of a Slurm cluster as a host: asked for on the login node over SSH, and the agent a step in it.

The login node keeps nothing of ours but one srun while connected, and salloc while the job waits. Which allocation is
ours says its name, which holds the run's id: it is found again by that, whatever became of whoever asked for it.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Callable, Sequence

import asyncssh

from ddtop.errors import HostLostError, HostUnreachableError
from ddtop.hosts import allocation as slurm
from ddtop.hosts.agent_zip import agent_zip, start_command
from ddtop.hosts.allocation import Allocation
from ddtop.hosts.base import Host
from ddtop.hosts.ssh.connection import SshConnector, SshPipe, close_all, open_connections
from ddtop.hosts.ssh.diagnosis import explain_ssh_error
from ddtop.hosts.ssh.target import SshTarget
from ddtop.hosts.start import new_nonce, open_host
from ddtop.plan.model import SlurmSettings

QUEUE_POLL_S = 5.0
"""Between two looks at a job that waits."""
ASK_S = 20.0
"""For one command on the login node."""
START_S = 60.0
"""For the agent as a step: the node's slurmd may be slow to begin one."""
COMPLETING_S = 30.0
"""How long an ended job may show as COMPLETING before its end is called unknown."""
STATE = "~/.local/state/ddtop"
"""Where the agent keeps its state; a folder in it for each run."""
GONE_S = 60.0
"""For a cancelled allocation to be over."""
FORGET = 'cd && rm -rf -- "$1" && rmdir -p -- "$(dirname -- "$1")" 2>/dev/null; true'
_GRANTED = re.compile(r"(?:Granted|Pending) job allocation (\d+)")
KILLS = "some login nodes end long processes: ask for one where srun and salloc may run on"


class SlurmConnector:
    """Reaches one allocation, and asks for it where there is none. `owner` makes its name: the run's id."""

    def __init__(
        self,
        name: str,
        login: SshConnector,
        wanted: SlurmSettings,
        *,
        owner: str,
        host_dir: str | None = None,
        python: str = "python3",
    ) -> None:
        self.name = name
        self.login = login
        self.wanted = wanted
        self.job_name = slurm.job_name(owner)
        self.target = f"Slurm on {login.target}"
        self.seen: Callable[[Allocation], None] = lambda _allocation: None
        """Called when Slurm says something new of the allocation."""
        self.last: Allocation | None = None
        """What was last known of it."""
        self.may_ask = True
        """Whether an allocation may be asked for where there is none."""
        self.requeue = True
        """Whether another one may be asked for once one of this run has ended."""
        self.poll_s = QUEUE_POLL_S
        # A home is shared by all nodes: what two runs keep there must not be taken for one another's.
        self._host_dir = f"{host_dir or STATE}/{self.job_name}"
        self._python = python
        self._connection: asyncssh.SSHClientConnection | None = None
        self._user = ""
        self._given_up = ""
        self._had = False

    async def connect(self) -> Host:
        """See base.Connector.connect. Waits for as long as the allocation is queued."""
        zip_, nonce = agent_zip(), new_nonce()
        connections, target = await self._open()
        try:
            found = await self._allocated(connections[0])
            words = shlex.join(slurm.srun_words(found.job, found.nodes[0]))
            try:
                command = f"{words} {start_command(zip_, nonce, self._host_dir, self._python)}"
            except ValueError as error:
                raise HostUnreachableError(
                    f"host_dir or python cannot be used: {error}", host=self.name
                ) from error
            process = await connections[0].create_process(command, encoding=None, request_pty=False)
        except (asyncssh.Error, OSError) as error:
            await close_all(connections)
            raise explain_ssh_error(error, target) from error
        except BaseException:
            await close_all(connections)
            raise
        try:
            host = await open_host(
                self.name, SshPipe(process, connections, program="srun"), zip_, nonce, timeout_s=START_S
            )
        except HostUnreachableError as error:
            # The allocation may have ended in this moment: that is for the next try to find out.
            if any(word in str(error) for word in ("srun: ", "slurmstepd: ", "Slurm")):
                raise HostLostError(error.what, means=error.means, host=self.name) from error
            raise
        self._connection = connections[0]
        return host

    async def look(self) -> Allocation | None:
        """What Slurm says of the allocation now, over the connection that is there; None without an answer."""
        if self._connection is None or self.last is None:
            return None
        try:
            found = await self._job(self._connection, self.last.job)
            return self._take(found) if found.state != "COMPLETING" else None
        except (asyncssh.Error, OSError, HostLostError):
            return None

    async def give_up(self) -> None:
        """Cancels the allocation that runs, for another one. Raises HostLostError."""
        if self._connection is not None and self.last is not None:
            self._given_up = self.last.job
            await self._run(self._connection, ["scancel", self.last.job])

    async def release(self, *, forget: bool = False) -> str:
        """Cancels the run's allocation, by its name and no other's. Returns why it could not, "" where it is gone.

        `forget`: the agent's state folder is deleted too, as nothing of the run is to be collected any more.
        """
        self.may_ask = False
        try:
            connections, _target = await self._open()
        except (HostLostError, HostUnreachableError) as error:
            return error.what
        try:
            connection = connections[0]
            await self._run(connection, ["scancel", f"--user={self._user}", f"--name={self.job_name}"])
            until = time.monotonic() + GONE_S
            while await self._mine(connection) is not None:
                if time.monotonic() > until:
                    return f"it still runs {GONE_S:.0f} s after scancel"
                await asyncio.sleep(0.5)
            if forget:
                words = ["sh", "-c", FORGET, "sh", self._host_dir.removeprefix("~/")]
                await self._run(connection, words)
            if self.last is not None and self.last.live:
                self._take(await self._ended(connection, self.last.job))
            return ""
        except (asyncssh.Error, OSError, HostLostError) as error:
            return str(error) or type(error).__name__
        finally:
            await close_all(connections)

    # ---- parts

    async def _open(self) -> tuple[list[asyncssh.SSHClientConnection], SshTarget]:
        target = await self.login.resolve()
        self.target, self._user = f"Slurm on {target.shown}", target.user
        return await open_connections(target), target

    def _take(self, found: Allocation) -> Allocation:
        if self.last is None or self.last != found:
            self.last = found
            self.seen(found)
        return found

    async def _allocated(self, connection: asyncssh.SSHClientConnection) -> Allocation:
        """The run's allocation, running. Raises HostUnreachableError where there is none and none comes."""
        salloc: asyncio.Task[None] | None = None
        try:
            found = await self._mine(connection)
            if found is None:
                await self._look_back(connection)
                salloc = asyncio.create_task(self._ask(connection))
            while found is None or not found.runs:
                if salloc is not None and salloc.done():
                    salloc.result()  # raises why it was refused
                    if found is None and await self._mine(connection) is None:
                        raise HostLostError("the allocation was gone before it was seen", host=self.name)
                    salloc = None
                pause = asyncio.sleep(0.2 if found is None else self.poll_s)
                if salloc is None:
                    await pause
                else:
                    waiter = asyncio.ensure_future(pause)
                    await asyncio.wait({waiter, salloc}, return_when=asyncio.FIRST_COMPLETED)
                    waiter.cancel()
                now = await self._mine(connection)
                if now is None and found is not None:
                    raise HostLostError(
                        slurm.ended_words(self._take(await self._ended(connection, found.job))),
                        host=self.name,
                    )
                found = now
                if found is not None:
                    self._take(found)
                    await self._check_it_can_begin(connection, found)
            self._had = True
            return self._take(found)
        finally:
            if salloc is not None:
                salloc.cancel()
                await asyncio.gather(salloc, return_exceptions=True)

    async def _look_back(self, connection: asyncssh.SSHClientConnection) -> None:
        """Before one is asked for: how this run's last one ended, and whether there may be another."""
        if self.last is not None:
            if self.last.live:
                self._take(await self._ended(connection, self.last.job))
            cancelled = self.last.state.startswith("CANCELLED") and self.last.job != self._given_up
            if self._had and (cancelled or not self.requeue):
                raise HostUnreachableError(
                    slurm.ended_words(self.last),
                    means="whoever cancelled it wants it ended"
                    if cancelled
                    else '[policy] allocation is "stop"',
                    do="ddtop connect goes on with the run in a new allocation",
                    host=self.name,
                )
        if not self.may_ask:
            raise HostUnreachableError("this run has no allocation any more", host=self.name)

    async def _check_it_can_begin(self, connection: asyncssh.SSHClientConnection, found: Allocation) -> None:
        if why := slurm.never(found):
            await self._run(connection, ["scancel", found.job])
            self._take(found._replace(state="CANCELLED"))
            raise HostUnreachableError(
                f"the allocation {why} (Slurm: {found.reason})",
                means=f"job {found.job} would wait for ever; it was cancelled",
                do=f"correct [hosts.{self.name}.slurm], or the plan's [slurm]",
                host=self.name,
            )

    async def _ask(self, connection: asyncssh.SSHClientConnection) -> None:
        """Runs salloc until the allocation is granted. Raises HostUnreachableError with what it says otherwise."""
        words = slurm.salloc_words(self.wanted, self.job_name)
        done = await connection.run(shlex.join(words), encoding="utf-8", errors="replace", check=False)
        text = "\n".join(str(part) for part in (done.stdout, done.stderr) if part)
        if done.exit_status == 0:
            return
        if done.exit_signal is not None or 128 < (done.exit_status or 0) < 255:
            signal = (
                f"SIG{done.exit_signal[0]}" if done.exit_signal else f"signal {(done.exit_status or 0) - 128}"
            )
            raise HostUnreachableError(
                f"salloc on the login node was killed by {signal}", means=KILLS, host=self.name
            )
        if _GRANTED.search(text):  # it was queued, and has been cancelled since: squeue says how
            return
        why = slurm.refusal(text, self.wanted, self.name)
        raise HostUnreachableError(why.what, means=" ".join(text.split())[-300:], do=why.do, host=self.name)

    async def _mine(self, connection: asyncssh.SSHClientConnection) -> Allocation | None:
        """The run's allocation while it lives, found by its name."""
        args = [f"--user={self._user}", f"--name={self.job_name}", "--noheader", f"--format={slurm.FORMAT}"]
        live = [a for a in await self._squeue(connection, args) if a.live]
        return max(live, key=lambda a: int(a.job)) if live else None

    async def _job(self, connection: asyncssh.SSHClientConnection, job: str) -> Allocation:
        """One job, also after its end; state `GONE` where Slurm has forgotten it."""
        args = [f"--jobs={job}", "--states=all", "--noheader", f"--format={slurm.FORMAT}"]
        found = await self._squeue(connection, args)
        if found:
            return found[0]
        before = (
            self.last if self.last is not None and self.last.job == job else Allocation(job=job, state="")
        )
        return before._replace(state="GONE", reason="", start_in_s=None, left_s=None)

    async def _ended(self, connection: asyncssh.SSHClientConnection, job: str) -> Allocation:
        """A job that is over: while its nodes are still cleaned, Slurm does not say how it ended."""
        until = time.monotonic() + COMPLETING_S
        while True:
            found = await self._job(connection, job)
            if found.state != "COMPLETING" or time.monotonic() > until:
                return found
            await asyncio.sleep(0.5)

    async def _squeue(
        self, connection: asyncssh.SSHClientConnection, args: Sequence[str]
    ) -> list[Allocation]:
        text = await self._run(connection, ["sh", "-c", slurm.ASK, "sh", *args])
        return slurm.read_squeue(text)

    async def _run(self, connection: asyncssh.SSHClientConnection, words: Sequence[str]) -> str:
        """One command on the login node; what it printed. Raises HostLostError, HostUnreachableError."""
        try:
            async with asyncio.timeout(ASK_S):
                done = await connection.run(
                    shlex.join(words), encoding="utf-8", errors="replace", check=False
                )
        except TimeoutError:
            raise HostLostError(
                f"the login node did not answer `{words[0]}` within {ASK_S:.0f} s", host=self.name
            ) from None
        except (asyncssh.Error, OSError) as error:
            raise HostLostError(f"the link to the login node was lost ({error})", host=self.name) from error
        said = str(done.stderr or "")
        if done.exit_status not in (0, None) and "Invalid job id" not in said:
            if done.exit_status == 127 or "not found" in said:
                why = slurm.refusal("not found", self.wanted, self.name)
                raise HostUnreachableError(
                    why.what, means=" ".join(said.split())[-300:], do=why.do, host=self.name
                )
            raise HostLostError(f"Slurm does not answer: {' '.join(said.split())[-300:]}", host=self.name)
        return str(done.stdout or "")
