"""From a plan to a sweep: whose servers must be down, and what runs them."""

from __future__ import annotations

import pytest

from ddtop.plan import parse_plan
from ddtop.sweep.recovery.probe import is_outside_systemd, probe_args
from ddtop.sweep.setup.from_plan import sweep_from
from ddtop.sweep.shared.context import State, SweepContext

TWO = """
name = "two"
host = "h"
[service]
kind = "KIND"
unit = "one"
engine = "sglang"
port = 30000
command = ["python3", "-m", "sglang.launch_server", "--port", "{port}", "--tp", "{tp}"]
stop_units = ["other"]
[configs]
a = {}
b = { unit = "two", args = ["--context-length", "8192"] }
[matrix]
tp = [1, 2]
concurrency = [1]
context = [0]
[[workload]]
name = "w"
prompts = ["x"]
output_tokens = [8]
"""


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_two_servers_that_are_no_units_make_way_for_each_other_as_what_they_are(kind: str) -> None:
    sweep = sweep_from(parse_plan(TWO.replace("KIND", kind))[0])
    assert set(sweep.units) == {"one", "two", "other.service"}
    rivals = {x.unit: sweep.rivals(x) for x in sweep.launches.values()}
    assert rivals == {"one": ("other.service", "two"), "two": ("other.service", "one")}
    ctx = SweepContext(run_id="r", host_name="h", sink=lambda e: None, state=State(), sweep=sweep)
    assert {u: ctx.feed(u).service.kind for u in sweep.units} == {
        "one": kind,
        "two": kind,
        "other.service": "systemd",
    }
    assert is_outside_systemd(sweep, "two") and probe_args(sweep)["units"] == ["other.service"]
