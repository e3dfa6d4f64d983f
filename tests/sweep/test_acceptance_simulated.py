"""A server that simulates its acceptance, on a SIMULATED host in virtual time: every result of it is SUSPECT."""

from __future__ import annotations

import dataclasses

import pytest

from ddtop import events as ev
from tests.sweep.test_controller import Dead, Rig

NAME = "SGLANG_SIMULATE_ACC_LEN"


def reasons(run: Rig) -> dict[str, set[str]]:
    """Configuration → the reasons of its results."""
    found: dict[str, set[str]] = {}
    for cell in run.state.plan_cells:
        found.setdefault(cell.spec.config, set()).update(cell.reasons)
    return found


def test_by_the_environment_of_the_launch() -> None:
    run = Rig()
    launches = dict(run.sweep.launches)
    launches["key-b"] = dataclasses.replace(launches["key-b"], env={NAME: "3.6"})
    run.sweep = dataclasses.replace(run.sweep, launches=launches)
    assert run.run().word == "done"
    found = reasons(run)
    assert "acceptance-simulated" in found["b"] and "acceptance-simulated" not in found["a"] | found["c"]
    assert {c.validity for c in run.state.plan_cells if c.spec.config == "b"} == {"SUSPECT"}
    assert [r.acceptance_simulated for r in run.state.restarts] == ["", f"{NAME}=3.6", ""]


def test_by_what_a_wrapper_exports() -> None:
    run = Rig()
    run.world.environment = {NAME: "2.5", "TOKEN": "x"}
    assert run.run().word == "done"
    assert all("acceptance-simulated" in words for words in reasons(run).values())
    said = run.state.restarts[0].acceptance_simulated
    assert said is not None and said.startswith(f"{NAME}=2.5 in the environment of process ")


def test_an_environment_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("tests.sweep.fakehost.FakeHost.op_ticket")
    run = Rig()
    assert run.run().word == "done"
    assert {r.acceptance_simulated for r in run.state.restarts} == {None}
    assert not any("acceptance-simulated" in words for words in reasons(run).values())


def test_another_runner_knows_it_from_the_recording() -> None:
    """The runner dies after the server became ready; the one that goes on did not start it."""
    run = Rig()
    run.world.environment = {NAME: "2.5"}
    whole = Rig(run.world)
    whole.run()
    ready = next(n for n, e in enumerate(whole.events) if isinstance(e, ev.RestartReady))
    run = Rig()
    run.world.environment = {NAME: "2.5"}
    run.die_after = ready + 2
    with pytest.raises(Dead):
        run.run()
    run.world.environment = {}
    assert run.run().word == "done"
    assert "acceptance-simulated" in reasons(run)["a"]
