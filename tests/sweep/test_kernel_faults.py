"""The kernel's word: joined to the cell it hit, before the log's, and said once; and what limits the GPUs meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ddtop import events as ev
from ddtop.sweep.controller import Controller
from tests.sweep.kernelhost import BUSES, KernelConnector, KernelWorld
from tests.sweep.test_controller import Rig, at_cell, once_each


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A sweep on a host with a kernel log and three GPUs."""
    from tests.sweep import test_controller

    monkeypatch.setattr(test_controller, "FakeConnector", KernelConnector)
    rig = Rig(KernelWorld(cell_s=12.0))
    stamp(rig)
    return rig


def says(rig: Rig, name: str, *, cell: str = "b0", **more: Any) -> None:
    """The kernel says the lines of `name` a second after `cell` has begun."""
    rig.on_event = at_cell(cell, lambda _: rig.world.kernel_says(name, **more))


def kinds(rig: Rig, kind: type[ev.Event]) -> list[Any]:
    return [e for e in rig.events if isinstance(e, kind)]


def sum_up(rig: Rig) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((a.title, a.verdict, a.cause) for a in kinds(rig, ev.AlertRaised)))


def test_a_healthy_kernel_log_is_silent(rig: Rig) -> None:
    says(rig, "healthy.jsonl")
    assert rig.run().word == "done"
    assert kinds(rig, ev.KernelFault) == kinds(rig, ev.AlertRaised) == []
    assert all(
        c.validity != "INVALID" and not set(c.reasons) & {"host-fault", "kernel-fault"}
        for c in rig.state.plan_cells
    )


def test_an_application_fault_kills_the_server_and_names_the_cause(rig: Rig) -> None:
    rig.world.actions = {}
    says(rig, "xid31.jsonl", die=True)
    assert rig.run().word == "done"
    (fault,) = kinds(rig, ev.KernelFault)
    assert fault.cell_id == "b0" and fault.code == 31 and fault.advice
    alert = kinds(rig, ev.AlertRaised)[0]
    assert alert.cause == "gpu-engine-exception" and alert.kind == "bug"
    assert "fake" in alert.cause_text and "s died while it was measured: Xid 31" in alert.cause_text
    assert alert.evidence[0].source == "kernel" and "MMU Fault" in alert.evidence[0].text
    assert alert.unit == "s.service" and alert.cell_ids == ("b0",)
    once_each(rig.events)


def test_a_lost_gpu_stops_the_job_and_waits_for_a_clean_host(rig: Rig) -> None:
    """The server may hang on: what it measures counts for nothing, so the cell is not left to end."""
    rig.world.actions = None
    says(rig, "xid79.jsonl")
    assert rig.run().word == "done"
    (fault,) = kinds(rig, ev.KernelFault)
    assert fault.cell_id == "b0" and fault.severity == "critical"
    alert = next(a for a in kinds(rig, ev.AlertRaised) if a.cause == "gpu-lost-from-bus")
    assert alert.kind == "host" and "reboot" in alert.advice and "clean" in (alert.policy or "")
    assert alert.cell_ids == ("b0",)
    assert rig.world.served.count("b0") == 1, "what was under way did not count; it was measured again"
    assert rig.state.cells["b0"].validity == "VALID" or "host-fault" not in rig.state.cells["b0"].reasons
    assert rig.state.open_alerts == []


@pytest.mark.parametrize(
    ("action", "title", "reason"),
    [("None", None, "kernel-fault"), ("Reset", "HOST FAULT", None), (None, "HOST FAULT", None)],
)
def test_what_the_driver_asks_for_decides(
    rig: Rig, action: str | None, title: str | None, reason: str | None
) -> None:
    """The same double-bit error: the driver that contained it asks for nothing; else nothing here counts any more."""
    rig.world.actions = None if action is None else {BUSES[0]: "None"}

    def act(_: Controller) -> None:
        rig.world.kernel_says("xid48.jsonl")
        if action is not None:
            rig.world.actions = {BUSES[0]: action}
            asyncio.get_running_loop().call_later(8.0, rig.world.actions.update, {BUSES[0]: "None"})

    rig.on_event = at_cell("b0", act)
    assert rig.run().word == "done"
    hit = [a for a in kinds(rig, ev.AlertRaised) if a.cause == "gpu-hardware-error"]
    assert [a.title for a in hit] == ([title] if title else [])
    cell = rig.state.cells["b0"]
    assert (
        (reason in cell.reasons) if reason else cell.validity == "VALID" or "host-fault" not in cell.reasons
    )
    if action == "Reset":
        assert "the driver asks for: Reset" in hit[0].cause_text and "nvidia-smi -r" in hit[0].advice
        assert any("gpu_recovery_action" in e.text for e in hit[0].evidence)
    if reason:
        assert cell.validity == "SUSPECT" and rig.world.served.count("b0") == 1


def test_an_oom_kill_of_the_server_is_its_cause(rig: Rig) -> None:
    says(rig, "oom-ours.jsonl", die=True)
    assert rig.run().word == "done"
    (fault,) = kinds(rig, ev.KernelFault)  # two lines of one kill
    assert fault.kind == "oom-kill" and fault.cell_id == "b0"
    assert ("SERVER DIED", "failed", "killed-by-oom-killer") in sum_up(rig)


def test_an_oom_kill_of_another_unit_doubts_the_cell_only(rig: Rig) -> None:
    says(rig, "oom-other.jsonl")
    assert rig.run().word == "done"
    cell = rig.state.cells["b0"]
    assert "kernel-fault" in cell.reasons and cell.validity == "SUSPECT" and cell.state == "done"
    assert kinds(rig, ev.AlertRaised) == []


def test_a_line_that_comes_after_the_result_doubts_it_all_the_same(rig: Rig) -> None:
    """The link was cut while the kernel spoke: its line is read after the reconnect, and the job had gone on."""
    rig.world.actions = None

    def act(_: Controller) -> None:
        loop = asyncio.get_running_loop()
        rig.world.link_up = False
        rig.world.drop()
        loop.call_later(2.0, rig.world.kernel_says, "xid48.jsonl")
        loop.call_later(30.0, setattr, rig.world, "link_up", True)

    rig.on_event = at_cell("b0", act)
    rig.run()
    (fault,) = kinds(rig, ev.KernelFault)
    assert fault.cell_id == "b0"
    measured = [e for e in kinds(rig, ev.CellMeasured) if e.cell_id == "b0"]
    assert "host-fault" in measured[0].reasons + measured[1].reasons
    assert measured[-1].validity != "INVALID" and rig.state.cells["b0"].state == "done"


def stamp(rig: Rig) -> None:
    """Results carry the moment at which their window began, on the host's monotonic clock."""
    world = rig.world
    plain: Callable[..., None] = world._cell_done

    def done(job: Any, name: str) -> None:
        plain(job, name)
        raw = job.results.get(name)
        if raw is not None:
            raw["window"] = {
                **raw["window"],
                "zero_mono_ns": int((world.now() - world.cell_s) * 1e9),
                "wall_s": world.cell_s,
            }

    world._cell_done = done  # type: ignore[method-assign]


def test_a_fault_while_nothing_is_measured_is_an_alert_of_its_own(rig: Rig) -> None:
    rig.world.actions = {}

    def see(event: ev.Event, controller: Controller) -> None:
        if isinstance(event, ev.CellStarted) and event.cell_id == "a0":
            controller.requests.paused_by = "me"
        elif isinstance(event, ev.CellMeasured) and event.cell_id == "a0":
            asyncio.get_running_loop().call_later(5.0, rig.world.kernel_says, "xid79.jsonl")
            asyncio.get_running_loop().call_later(20.0, setattr, controller.requests, "paused_by", None)

    rig.on_event = see
    rig.run()
    alert = next(a for a in kinds(rig, ev.AlertRaised) if a.title == "HOST FAULT")
    assert rig.state.open_alerts == [], "it is over once a cell was measured without a fault"
    assert (
        alert.cause == "gpu-lost-from-bus"
        and "fake" in alert.cause_text
        and "(served there: s)" in alert.cause_text
    )


def test_a_gpu_that_asks_for_a_reset_without_a_line_in_the_log(rig: Rig) -> None:
    """The login may not read the kernel's log: the driver's own word is enough."""

    def act(_: Controller) -> None:
        rig.world.actions = {BUSES[1]: "Reset"}
        asyncio.get_running_loop().call_later(8.0, rig.world.actions.clear)

    rig.on_event = at_cell("b0", act)
    assert rig.run().word == "done"
    alert = next(a for a in kinds(rig, ev.AlertRaised))
    assert (
        alert.cause == "recovery-action-required" and "GPU 1: the driver asks for Reset" in alert.cause_text
    )


def test_the_bound_is_reported_on_change_and_stands_with_each_cell(rig: Rig) -> None:
    rig.on_event = at_cell("b0", lambda _: setattr(rig.world, "gpm", (93, 40, 90, 30)))
    assert rig.run().word == "done"
    told = kinds(rig, ev.BoundDiagnosed)
    working = [b for b in told if "starting" not in b.meaning]
    assert {b.verdict for b in working} == {"memory-bound", "compute-bound"}
    assert all(b.strength == "strong" and "DRAM" in b.why and b.meaning for b in told)
    gaps = [b.mono_s - a.mono_s for a, b in itertools.pairwise(told)]
    assert min(gaps) >= 1.9, "at most one in 2 s"
    same = [
        g
        for g, (a, b) in zip(gaps, itertools.pairwise(told), strict=True)
        if (a.verdict, a.meaning) == (b.verdict, b.meaning)
    ]
    assert all(g >= 29.9 for g in same), "the same verdict again only after 30 s"
    cells = rig.state.cells
    assert (
        cells["a0"].metrics["bound"] == "memory-bound" and cells["a0"].metrics["bound_strength"] == "strong"
    )
    assert "nearly free" in cells["a0"].metrics["bound_meaning"]
    assert cells["c1"].metrics["bound"] == "compute-bound"
    reading = kinds(rig, ev.GpuSampled)[-1].gpus[0]
    assert (reading.dram_active_pct, reading.tensor_active_pct) == (30, 90)


def test_without_gpm_the_verdict_is_weak_or_none(rig: Rig) -> None:
    rig.world.gpm = None
    assert rig.run().word == "done"
    assert {b.strength for b in kinds(rig, ev.BoundDiagnosed)} <= {"weak", "none"}
    assert {c.metrics["bound_strength"] for c in rig.state.plan_cells} <= {"weak", "none"}


def test_a_kernel_log_that_cannot_be_read_is_noted_once(rig: Rig) -> None:
    from tests.sweep.fakehost import FakeConnector

    rig.world.gpm = None
    plain = Rig(rig.world)
    from tests.sweep import test_controller

    test_controller.FakeConnector = FakeConnector
    assert plain.run().word == "done"
    said = [n.text for n in kinds(plain, ev.Note) if "kernel's log" in n.text]
    assert len(said) == 1 and "are not detected" in said[0]
