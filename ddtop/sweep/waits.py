"""Staging the model, and waiting: for a clean host, for a free port. A person can always say: go on."""

from __future__ import annotations

import asyncio

from ddtop import events as ev
from ddtop.errors import AgentError
from ddtop.hosts.base import Host
from ddtop.services.base import Launch
from ddtop.sweep.alerts import alert_id, stage_alert
from ddtop.sweep.control import Control
from ddtop.sweep.deck import Deck, StopSweepError
from ddtop.sweep.prober import foreign_on_port, is_clean, probe
from ddtop.sweep.stagecause import stage_cause
from ddtop.sweep.stager import end_staging, stage
from ddtop.sweep.sweepplan import ModelWanted

CLEAN_S = 10.0


class Waits:
    """See the module."""

    def __init__(self, deck: Deck, control: Control) -> None:
        self.deck = deck
        self.control = control

    async def stage(self, host: Host) -> bool:
        """Stages the model; asks or obeys the policy where it cannot be. True when it is whole."""
        deck, control = self.deck, self.control
        assert deck.sweep is not None
        model = deck.sweep.model
        if model is None:
            deck.note("warn", "the plan names no model to stage")
            return True
        why = await self._staged(host, model)
        if why is not None and stage_cause(why).kind == "transient":
            deck.note("warn", f"staging was cut off ({why}); it is tried once more")
            why = await self._staged(host, model)
        ident = alert_id(deck.run_id, "stage", model.path)
        if why is None:
            if ident in deck.state.alerts and deck.state.alerts[ident].open:
                deck.emit(ev.AlertResolved, alert_id=ident, how="the model is whole", by="sweep")
            return True
        text = stage_alert(deck.host_name, model.path, why, ident)
        answer_s = deck.sweep.policy.answer_s
        deck.emit(
            ev.AlertRaised, alert_id=ident, title=text.title, verdict=text.verdict, cause=text.cause,
            cause_text=text.cause_text, kind=text.kind, advice=text.advice, evidence=text.evidence, actions=text.actions,
            answer_by_s=control.answer_by_s(deck.wall(), answer_s), policy="the sweep stops",
        )  # fmt: skip
        until = deck.mono() + answer_s
        control.asking.add(ident)
        try:
            while True:
                if isinstance(control.answers.pop(ident, None), ev.Restage | ev.Retry | ev.Resume):
                    return await self.stage(host)
                self._check_stop()
                if not control.attended or deck.mono() >= until:
                    break
                deck.check_link()
                await deck.wait(1.0)
        finally:
            control.asking.discard(ident)
        raise StopSweepError("some-failed", f"the model could not be staged: {why}")

    def _check_stop(self) -> None:
        if self.control.stop is not None:
            raise StopSweepError("stopped", f"stopped by {self.control.stop}")

    async def _staged(self, host: Host, model: ModelWanted) -> str | None:
        """As `stage`; a copy may take an hour, and whoever says stop does not wait for it. What is copied stays."""
        deck, control = self.deck, self.control
        work = asyncio.create_task(stage(deck, host, model))
        work.add_done_callback(lambda _: deck.wake())
        try:
            while not work.done() and control.stop is None:
                await deck.wait(1.0)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        if not work.cancelled():
            return work.result()
        await end_staging(deck, host, model, f"stopped by {control.stop}")
        raise StopSweepError("stopped", f"stopped by {control.stop}")

    async def wait_clean(self, host: Host) -> None:
        """Until a probe shows nothing wrong with the host. A person can go on at once by `resume`."""
        deck, control = self.deck, self.control
        assert deck.sweep is not None
        told = ""
        control.resume, control.waiting = False, True
        try:
            await self._until_clean(host, told)
        finally:
            control.resume = control.waiting = False
        self._check_stop()

    async def _until_clean(self, host: Host, told: str) -> None:
        deck, control = self.deck, self.control
        assert deck.sweep is not None
        while control.stop is None and not control.resume:
            found = await probe(host, deck.sweep)
            deck.emit(ev.ProbeTaken, probe=found)
            wrong = is_clean(found, deck.sweep)
            if not wrong:
                return
            words = "; ".join(wrong)
            if words != told:
                told = words
                deck.note("warn", f"waiting until the host is clean: {words}")
            await deck.wait_until(lambda: control.stop is not None or control.resume, CLEAN_S)

    async def wait_port(self, host: Host, launch: Launch, wait_s: float) -> None:
        """Until nobody else listens on the port; the sweep stops when that takes too long."""
        deck = self.deck
        service = deck.feed(launch.unit).service
        until = deck.mono() + wait_s
        while True:
            self._check_stop()
            try:
                who = foreign_on_port(
                    await host.call("listeners", port=launch.port), service, deck.feed(launch.unit).reading
                )
            except AgentError as error:
                who = error.what
            if who is None:
                return
            if deck.mono() >= until:
                raise StopSweepError(
                    "some-failed", f"port {launch.port} is still taken by {who} after {wait_s / 60:.0f} min"
                )
            await asyncio.sleep(1.0)
