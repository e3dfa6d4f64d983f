"""An agent that fails at something that may pass, such as a full disk of the host: an alert, pauses, and the end of the run."""

from __future__ import annotations

from ddtop.errors import AgentError
from ddtop.events import AlertResolved
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.shared.requests import Requests
from ddtop.sweep.tell.alerts import HOST_TROUBLES, alert_id, trouble_alert
from ddtop.sweep.tell.raise_alert import is_open, raise_alert

AGAIN_AFTER_S = (5.0, 15.0, 45.0)
"""Pauses before the host is looked at anew; counted anew once a cell has a result."""


class Troubles:
    """The agent's failures since the last result."""

    def __init__(self, ctx: SweepContext, requests: Requests) -> None:
        self.ctx = ctx
        self.requests = requests
        self._results, self._tries = self._measured(), 0
        self._since = 0.0
        left = (a for a in ctx.state.open_alerts if a.raised.title in HOST_TROUBLES)
        self._alert: str | None = next((a.id for a in left), None)
        """Of this runner, or of one before it that died meanwhile."""

    async def pause_after(self, error: AgentError) -> None:
        """Before the host is probed and reconciled anew, as after a cut. Raises `error` where that helps no more.

        A full disk is waited for as long as a lost host. The first failure of another kind is a note alone: most pass.
        """
        ctx, results = self.ctx, self._measured()
        if results != self._results:
            self._results, self._tries = results, 0
        if not self._tries:
            self._since = ctx.mono()
        full = error.code == "disk"
        wait_s = 60.0 * ctx.policy.host_lost_wait_min
        over = ctx.mono() - self._since >= wait_s if full else self._tries >= len(AGAIN_AFTER_S)
        if not error.may_pass or over:
            raise error
        pause_s = AGAIN_AFTER_S[min(self._tries, len(AGAIN_AFTER_S) - 1)]
        self._tries += 1
        ctx.note("warn", f"{error.what}; {ctx.host_name} is looked at anew in {pause_s:.0f} s")
        if full or self._tries > 1:
            most = (
                f"for {wait_s / 60:.0f} min at most" if full else f"try {self._tries} of {len(AGAIN_AFTER_S)}"
            )
            self._alert = alert_id(ctx.run_id, "trouble", error.code, str(self._results))
            policy = f"look at the host anew in {pause_s:.0f} s ({most}), then the run ends"
            raise_alert(
                ctx, self._alert, trouble_alert(ctx.host_name, error.what, error.do, full=full), policy=policy
            )
        await ctx.wait_until(lambda: self.requests.stopped_by is not None, pause_s)

    def settle(self) -> None:
        """Resolves the alert once a cell has a result since, or the run is at its end."""
        if self._alert is not None and self._measured() != self._results:
            if is_open(self.ctx, self._alert):
                how = "the host does its work again"
                self.ctx.emit(AlertResolved, alert_id=self._alert, how=how, by="sweep")
            self._alert = None

    def _measured(self) -> int:
        return sum(a.measured_at_s is not None for c in self.ctx.state.plan_cells for a in c.attempts)
