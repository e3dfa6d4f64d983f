"""Real vLLM and real SGLang as units of the bed's systemd, over SSH: a sweep, and what their owner does to them meanwhile.

The hosts see what `make engines` built as /opt/engines; `make stories-engines` runs this too. The GPUs are SIMULATED and the
engines run on the CPU, as the plan says. A start takes 30 s on a quiet machine with two cores, and five minutes at load 15."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ddtop.events import AlertRaised, CellMeasured, CellStarted, RestartStarted
from ddtop.journal.fold.apply import fold
from tests.bed.config import ENGINES
from tests.bed.engines.host import install
from tests.bed.engines.install import NAMES, built
from tests.stories.harness import Runner, took
from tests.stories.test_engines import config, plan, said, speculation

pytestmark = [pytest.mark.stories, pytest.mark.process]


@pytest.fixture(params=NAMES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not built(name):
        pytest.skip(f"{name} is not built: make engines")
    return name


def unit_plan(engine: str, unit: str, configs: str, **more: Any) -> str:
    """The plan of `test_engines`, for the unit on ct200."""
    text = plan(engine, configs, **more).replace('host = "local"', 'host = "ct200"')
    text = text.replace('kind = "process"', f'kind = "systemd"\nunit = "{unit}"')
    text = text.replace(f"{ENGINES}/{engine}/bin/python", f"/opt/real-{engine}/bin/python")
    text = text.replace(f"{ENGINES}/models", "/opt/engines/models")
    return text.replace("env = { VLLM", 'env = { CUDA_VISIBLE_DEVICES = "", VLLM')


def test_a_sweep_under_systemd(engine: str, ct200: Any, tmp_path: Path) -> None:
    """No speculation, n-gram 2 and 4, one and four streams; each token is one of the server's own counters."""
    unit = install(ct200.bed, ct200.name, engine)
    configs = config("none") + "".join(config(f"n{k}", speculation(engine, k)) for k in (2, 4))
    began = time.monotonic()
    text = unit_plan(engine, unit, configs, concurrency="[1, 4]")
    with Runner(ct200.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        assert runner.wait(2400) == 0, runner.text()[-4000:]
        events = runner.events()
    took("real engines under systemd", f"{engine}: sweep of 6 cells, 3 starts", time.monotonic() - began)
    assert [c.state for c in fold(events).plan_cells] == ["done"] * 6 and said(runner) == []
    for event in events:
        if isinstance(event, CellMeasured):
            assert event.metrics["output_tokens"] == event.metrics["server_output_tokens"]
    assert ct200.sh(f"systemctl show {unit} -P ActiveState").strip() == "inactive"


def test_its_owner_stops_it_under_a_cell_and_restarts_it_under_the_next(
    engine: str, ct200: Any, tmp_path: Path
) -> None:
    """Both are named as what they are within seconds of the unit's end: no death, no lack of tokens, nothing broken."""
    unit = install(ct200.bed, ct200.name, engine)
    text = unit_plan(engine, unit, config("none"), tokens=900, requests=20)
    with Runner(ct200.bed, text, tmp_path / "run.ddtop", tmp_path / "home") as runner:
        for number, verb in enumerate(("stop", "restart"), 1):
            runner.until(
                lambda es, n=number: sum(isinstance(e, CellStarted) for e in es) >= n, 900, f"cell {number}"
            )
            time.sleep(3)
            began = time.monotonic()
            ct200.sh(f"systemctl {verb} {unit}", timeout_s=200)
            ended = time.monotonic()
            took("real engines under systemd", f"{engine}: systemctl {verb} under a cell", ended - began)
            runner.until(
                lambda es, n=number: sum(isinstance(e, AlertRaised) for e in es) >= n, 120, f"alert {number}"
            )
            took("real engines under systemd", f"{engine}: to the alert of it", time.monotonic() - ended)
        runner.wait(200)
    told = [(e.verdict, e.cause) for e in runner.events() if isinstance(e, AlertRaised)]
    assert told == [("failed", "stopped-by-request")] * 2, told
    assert not {"broken", "done"} & {c.state for c in runner.state().plan_cells}


def test_its_owner_stops_it_while_it_starts(engine: str, ct200: Any, tmp_path: Path) -> None:
    """With little time to stop (TimeoutStopSec=3): systemd may have to kill it; it is started again."""
    unit = install(ct200.bed, ct200.name, engine, "TimeoutStopSec=3")
    with Runner(
        ct200.bed, unit_plan(engine, unit, config("none")), tmp_path / "run.ddtop", tmp_path / "home"
    ) as runner:
        runner.until(lambda es: any(isinstance(e, RestartStarted) for e in es), 60, "a start")
        time.sleep(8)
        ct200.sh(f"systemctl stop {unit}", timeout_s=200)
        began = time.monotonic()
        alert = runner.until_alert(60)
        took("real engines under systemd", f"{engine}: stopped while it starts", time.monotonic() - began)
        assert (alert.verdict, alert.cause) == ("failed", "stopped-by-request"), alert
        runner.until(lambda es: sum(isinstance(e, RestartStarted) for e in es) == 2, 60, "the next start")
