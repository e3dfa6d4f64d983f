"""A loss that trying again cannot mend: the run ends at once without a viewer, else after the time a viewer has for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.errors import HostUnreachableError
from ddtop.journal.fold.apply import fold
from ddtop.journal.fold.state import State
from ddtop.sweep.host.link import Link
from ddtop.sweep.shared.context import SweepContext


class Refusing:
    """Reached once (by the test's word), then refused for good."""

    target = "root@ct200"

    async def connect(self) -> Any:
        raise HostUnreachableError(
            "its key changed", means="it showed SHA256:abc", do="ssh-keygen -R ct200", host="ct200"
        )


@pytest.mark.parametrize(
    ("attended", "after_s", "over"), [(False, 0.0, True), (True, 30.0, False), (True, 61.0, True)]
)
async def test_when_it_is_over(attended: bool, after_s: float, over: bool) -> None:
    now = [100.0]
    seen: list[ev.Event] = []
    ctx = SweepContext(
        run_id="r", host_name="ct200", sink=seen.append, state=State(), sweep=None, mono=lambda: now[0]
    )
    link = Link(ctx, Refusing(), ())  # type: ignore[arg-type]  # as much of a connector as a link needs
    assert not link.has_given_up(attended, 60.0)
    with pytest.raises(HostUnreachableError):
        await link.run()  # never reached: the caller reports it

    link._lost("cut")  # it had been reached
    task = asyncio.create_task(link.run())
    await asyncio.sleep(0.05)
    now[0] += after_s
    assert link.has_given_up(attended, 60.0) is over
    task.cancel()
    alerts = [e for e in seen if isinstance(e, ev.AlertRaised)]
    assert len(alerts) == 2 and len({a.alert_id for a in alerts}) == 1, (
        "one loss, one alert, which says more now"
    )
    assert "SHA256:abc" in str(alerts[-1].evidence) and alerts[-1].advice == "ssh-keygen -R ct200"
    assert alerts[-1].policy == "the run ends: trying again cannot help"


def test_a_pause_ends_with_its_runner() -> None:
    started = ev.RunStarted(at_s=1.0, mono_s=1.0, run_id="r", name="x", mode="sweep", segment=0)
    paused = ev.SweepPaused(at_s=2.0, mono_s=2.0, by="anna")
    assert fold([started, paused]).paused is not None
    assert fold([started, paused, started]).paused is None
