"""The lease on the host from the sweep's side: taken before anything is touched, renewed, given back at the end.

A host that another run has is refused with that person's name, or waited for in line; it is taken over once that run is
dead, or hands it over. Watching needs no lease.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ddtop.errors import AgentError, HostLostError
from ddtop.events import AlertResolved, AnyCommand, Resume, Wait
from ddtop.hosts.base import Host
from ddtop.sweep.host.client import identity, is_dead
from ddtop.sweep.recovery.restore import former_details
from ddtop.sweep.shared.ask import ask
from ddtop.sweep.shared.context import StopSweepError, SweepContext
from ddtop.sweep.shared.limits import LEASE_GRACE_S
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.tell.alerts import alert_id
from ddtop.sweep.tell.lease_words import person, refusal, taken_alert, wanted_alert
from ddtop.sweep.tell.raise_alert import is_open, raise_alert

RENEW_S = 20.0
LINE_POLL_S = 5.0
DYING_S = 8.0
"""For the agent of a runner that was killed to notice that."""
IfTaken = Literal["refuse", "wait", "take-over"]


def client_name() -> str:
    """Who runs ddtop, as others on the host are told: `anna@laptop`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname().split('.')[0]}"


class HostLease:
    """This run's lease. `held`: it has the host; `unknown`: why no lease could be taken, in words (the run goes on)."""

    def __init__(self, ctx: SweepContext, requests: Requests, host: Callable[[], Host | None]) -> None:
        self.ctx = ctx
        self.requests = requests
        self._host = host
        self.held = False
        self.denied: Mapping[str, Any] | None = None
        """Who has the host instead; None while nobody else is known to."""
        self._wants: bool | None = None
        """In line by a decision, asking for the host or not; kept over cuts until the host is ours."""
        self._noted: set[str] = set()
        self._wanted: set[str] = set()

    async def take(self, host: Host) -> None:
        """Returns once the host is ours. Raises StopSweepError where it is not, HostLostError."""
        found = await self._take_from_the_dead(host, await self._call(host, "take"))
        if found is None or found["held"]:
            self._taken(found)
            return
        self._lost_to(found)
        if self._wants is None:
            self._wants = await self._choose(found)
        if self._wants is None:
            raise StopSweepError("refused", refusal(self.ctx.host_name, found))
        await self._stand_in_line(host, found, self._wants)

    async def renew(self, host: Host) -> bool:
        """Takes the lease again, without waiting. False: another run has the host, as `denied` says."""
        found = await self._call(host, "take")
        if found is None or found["held"]:
            self._taken(found)
        else:
            self._lost_to(found)
        return self.denied is None

    async def keep(self) -> None:
        """Renews the lease while the run goes on. Where another run has the host by now, this one is stopped."""
        while True:
            await asyncio.sleep(RENEW_S)
            host = self._host()
            if host is None or not self.held:
                continue
            try:
                found = await self._call(host, "take")
            except HostLostError:
                continue
            if found is None:
                continue
            if found["held"]:
                self._say_wanted(found["line"])
            else:
                self._lost_to(found)
                self.requests.stopped_by = f"the loss of the host: {person(found)} has taken it over"
                self.ctx.wake()

    async def release(self) -> None:
        """Gives the lease back. One that cannot be is found out to be dead later."""
        host = self._host()
        if host is None or not self.held:
            return
        try:
            await self._call(host, "release")
        except HostLostError:
            return
        self.held = False

    # ---- parts

    async def _take_from_the_dead(self, host: Host, found: dict[str, Any] | None) -> dict[str, Any] | None:
        """Takes the host from a run of this login whose runner ran on this machine and is dead: nobody comes back.

        Its agent may live for a moment longer."""
        until = self.ctx.mono() + DYING_S
        while found is not None and not found["held"]:
            holder = found.get("holder") or {}
            if not is_dead(holder.get("client"), identity()) or self.ctx.mono() > until:
                break
            if holder.get("state") != "live":
                return await self._call(host, "take", dead=[holder.get("run")])
            await asyncio.sleep(0.5)
            found = await self._call(host, "take")
        return found

    async def _call(self, host: Host, action: str, **more: Any) -> dict[str, Any] | None:
        """The agent's answer; None where the host has no place for leases, which is noted once."""
        ctx = self.ctx
        grace_s = min(LEASE_GRACE_S, 60.0 * ctx.policy.host_lost_wait_min)
        args: dict[str, Any] = {
            "run": ctx.run_id,
            "plan": ctx.sweep.name if ctx.sweep else "",
            "who": client_name(),
            "client": identity(),
        }
        try:
            found = await host.call(
                "lease", action=action, grace_s=grace_s, former=former_details(ctx.state), **args, **more
            )
        except AgentError as error:
            self._note(f"no lease on {ctx.host_name}: {error.what}; a second run there would not be seen")
            return None
        if not found.get("shared", True):
            self._note(
                f"{ctx.host_name} has no folder that every login sees: runs of other logins are not seen"
            )
        return found

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.ctx.note("warn", text)

    def _taken(self, found: Mapping[str, Any] | None) -> None:
        self.held, self.denied, self._wants = found is not None, None, None
        before = found.get("before") if found is not None else None
        if before:
            ctx = self.ctx
            self._note(
                f"{ctx.host_name} is taken over from {person({'holder': before})}: {before.get('why')}"
            )
            former = before.get("former")
            ctx.inherited = dict(former) if isinstance(former, dict) else {}
        self._resolve("the host is ours")

    def _lost_to(self, found: Mapping[str, Any]) -> None:
        self.held, self.denied = False, found

    @property
    def _ident(self) -> str:
        return alert_id(self.ctx.run_id, "host-taken", str(self.ctx.state.run.segment))

    def _resolve(self, how: str) -> None:
        if is_open(self.ctx, self._ident):
            self.ctx.emit(AlertResolved, alert_id=self._ident, how=how, by="lease")

    async def _choose(self, found: Mapping[str, Any]) -> bool | None:
        """Whether to wait in line, and to ask for the host (True) or not (False); None: neither."""
        ctx, requests = self.ctx, self.requests
        if requests.if_taken != "refuse":
            return requests.if_taken == "take-over"
        until = requests.answer_by_s(ctx.wall(), ctx.policy.answer_s)
        text = taken_alert(ctx.host_name, found, self._ident)
        raise_alert(ctx, self._ident, text, answer_by_s=until, policy="the run ends; nothing was touched")
        with requests.questions.asked(self._ident):
            command: AnyCommand | None = await ask(
                ctx, requests, lambda: requests.questions.take(self._ident)
            )
        if isinstance(command, Wait):
            return False
        return True if isinstance(command, Resume) else None

    async def _stand_in_line(self, host: Host, found: Mapping[str, Any], wants: bool) -> None:
        """Waits until the host is ours: handed over, given back, or its run dead."""
        ctx, said = self.ctx, ""
        try:
            while not found["held"]:
                line = json.dumps([person(found), [x["run"] for x in found["line"]]])
                if line != said:
                    said = line
                    text = taken_alert(ctx.host_name, found, self._ident)
                    asked = ", and is asked to hand it over" if wants else ""
                    place = f"waits in line: {len(found['line']) + 1}. after {person(found)}{asked}"
                    raise_alert(ctx, self._ident, text, policy=place)
                until = ctx.mono() + LINE_POLL_S
                while ctx.mono() < until:
                    self.requests.check_stop()
                    ctx.check_link()
                    await ctx.wait(1.0)
                answer = await self._call(host, "wait", wants=wants)
                found = answer or found  # no answer frees no host
        except StopSweepError:
            await self._call(host, "leave-line")
            raise
        self._taken(found)

    def _say_wanted(self, line: list[Mapping[str, Any]]) -> None:
        """An alert for each person who asks for the host, until that person leaves the line."""
        ctx = self.ctx
        asking = {str(x["run"]): x for x in line if x.get("wants")}
        for run, entry in asking.items():
            if run not in self._wanted:
                ident = alert_id(ctx.run_id, "host-wanted", run)
                raise_alert(
                    ctx,
                    ident,
                    wanted_alert(ctx.host_name, ctx.run_id, entry),
                    policy="this run goes on; they wait",
                )
        for run in self._wanted - asking.keys():
            ident = alert_id(ctx.run_id, "host-wanted", run)
            if is_open(ctx, ident):
                ctx.emit(AlertResolved, alert_id=ident, how="they no longer wait", by="lease")
        self._wanted = set(asking)
