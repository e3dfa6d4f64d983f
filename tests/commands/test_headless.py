"""`connect` without a screen: one probe, a recorded sweep, its end by a person, and what is refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddtop.agent.host.servers import model_of
from ddtop.commands.plans.draft import plan_text
from ddtop.errors import RefusedError
from ddtop.journal.read.reader import read_state
from ddtop.plan import parse_plan
from ddtop.plan.cells import expand
from tests.waiting import HANG_S

from .conftest import Cli, DemoHost

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="hosts are Linux machines")


def wait_for(process: subprocess.Popen[str], words: str, seconds: float) -> list[str]:
    """The lines of stderr up to the one with `words`."""
    assert process.stderr is not None
    lines: list[str] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        line = process.stderr.readline()
        if not line:
            break
        lines.append(line)
        if words in line:
            return lines
    process.kill()
    pytest.fail(f"`{words}` was never said:\n{''.join(lines)}")


def test_the_demo_without_a_screen(tmp_path: Path) -> None:
    """A whole sweep of it, live. (Other tests read a kept one: record_demo.py.)"""
    recording = tmp_path / "demo.ddtop"
    done = Cli(tmp_path / "home", {"TMPDIR": str(tmp_path)})("demo", "--record", recording, seconds=600)
    assert done.rc == 0, done.err
    said = done.err
    assert "SIMULATED" in said
    assert "NOT STARTING?" in said and "model-weights-damaged" in said
    # The host of the tests may be too busy for some results; how many are SUSPECT is not the matter here.
    assert re.search(r"17 done( \(\d+ SUSPECT\))?, 7 skipped\b", said)
    assert "cannot be read" not in said, "a process that was never started is no trouble"
    assert "gate ?" not in said, "an owner that has just gone is not unknown"
    state = read_state(recording)
    assert state.run.simulated
    done_cells = [c for c in state.plan_cells if c.state == "done"]
    assert len(done_cells) == 17 and {c.validity for c in done_cells} <= {"VALID", "SUSPECT"}
    b16 = [c.metrics["acceptance_length"] for c in done_cells if c.spec.config == "b16"]
    assert all(4.5 < value < 5.1 for value in b16), "as the stand-in's drafter accepts"
    knees = [c.metrics["search"] for c in done_cells if c.spec.search]
    assert len(knees) == 1, "how many streams meet the limit: it is searched once"
    (alert,) = state.alerts.values()
    assert alert.resolved is not None and alert.raised.signature_id == "st-truncated"
    assert not list(tmp_path.glob("ddtop-demo-*")), "its folder is gone"


def test_once_on_this_machine(ddtop: Cli) -> None:
    shown = ddtop("connect", "local", "--once")
    assert shown.rc == 0
    assert shown.out.startswith("local (this machine) up ")
    found = json.loads(ddtop("connect", "local", "--once", "--json").out)
    assert found["schema"] == 1 and found["host"] == "local"
    assert found["uptime_s"] > 0 and found["boot"]
    assert None not in found.values(), "what is not known is absent"


def test_once_over_ssh(ddtop: Cli, demo_host: DemoHost) -> None:
    with demo_host.engine() as url:
        shown = ddtop("connect", "demo", "--once", "--ssh-config", demo_host.ssh_config)
        found = ddtop("connect", "demo", "--once", "--json", "--ssh-config", demo_host.ssh_config)
        plan = ddtop("plan", "new", "--from", "demo", "--ssh-config", demo_host.ssh_config)
    port = int(url.rsplit(":", 1)[1])
    assert shown.rc == 0 and "SIMULATED RTX PRO 6000" in shown.out and f"port {port}" in shown.out
    probe = json.loads(found.out)
    assert len(probe["gpus"]) == 8 and probe["gpus"][0]["name"].startswith("SIMULATED")
    mine = [s for s in probe["servers"] if s.get("port") == port]
    assert mine and mine[0]["engine"] == "sglang"
    assert probe["target"].startswith("demo@127.0.0.1")
    assert plan.rc == 0, plan.err
    path = ddtop.home.parent / "new.toml"
    path.write_text(plan.out)
    checked = ddtop("plan", "check", path)
    assert checked.rc == 0, checked.err
    assert "no errors" in checked.out


def test_nothing_serves_there() -> None:
    with pytest.raises(RefusedError, match=r"no SGLang, vLLM or llama\.cpp server runs there"):
        plan_text("box", {"servers": []})


@pytest.mark.parametrize("model", ["/models/Qwen3-8B", "Qwen/Qwen3-8B"])
def test_a_plan_for_a_server_whose_model_is_no_option(model: str) -> None:
    """`vllm serve MODEL`: a folder becomes the plan's model, a name stays in the command for the engine to fetch."""
    words = ["/venv/bin/python3", "/venv/bin/vllm", "serve", model, "--port", "8000"]
    assert model_of(words, "vllm") == model
    server = {"engine": "vllm", "pid": 7, "port": 8000, "cmdline": words, "model": model}
    plan, warnings = parse_plan(plan_text("box", {"servers": [server]}))
    (cell, *_) = expand(plan)
    assert cell.launch.argv == tuple(words) and not warnings
    assert (plan.model.path if plan.model else None) == (model if model.startswith("/") else None)


def test_ctrl_c_ends_a_sweep_and_the_host_is_as_it_was(
    ddtop: Cli, demo_host: DemoHost, tmp_path: Path
) -> None:
    ddtop.env["DDTOP_DEMO_DIR"] = str(demo_host.world.root)
    file = tmp_path / "run.ddtop"
    words = ("connect", "demo", "--ssh-config", demo_host.ssh_config, "--plan", demo_host.plan(tmp_path))
    run = ddtop.begin(*words, "--record", file)
    wait_for(run, "[1 done", HANG_S)
    assert demo_host.engines(), "it runs the plan's server"
    run.send_signal(signal.SIGINT)
    _, rest = run.communicate(timeout=HANG_S)
    assert run.returncode == 130, rest
    assert "put sglang-demo back" in rest and "Traceback" not in rest
    assert not demo_host.engines(), "the server that was not running before is stopped"
    state = read_state(file)
    assert state.run.ended is not None and not state.run.ended.left_behind
    finished = [c.spec.label for c in state.plan_cells if c.state == "done"]
    done = len(finished)
    assert done >= 1

    # The same words go on with it; `ddtop stop` ends it, as cleanly.
    again = ddtop.begin(*words, "--record", file)
    said = "".join(wait_for(again, "begins", HANG_S))
    assert not [x for x in finished if f"{x} begins" in said], "what is done is not run again"
    stopped = ddtop("stop", file)
    _, rest = again.communicate(timeout=HANG_S)
    assert stopped.rc == 0 and "as it was found" in stopped.out
    assert again.returncode == 130, rest
    assert not demo_host.engines()
    assert sum(c.state == "done" for c in read_state(file).plan_cells) >= done
    assert ddtop("stop", file).rc == 12, "nobody is alive to be stopped"


def test_stop_puts_the_host_of_a_dead_run_back(ddtop: Cli, demo_host: DemoHost, tmp_path: Path) -> None:
    ddtop.env["DDTOP_DEMO_DIR"] = str(demo_host.world.root)
    file = tmp_path / "run.ddtop"
    words = ("connect", "demo", "--ssh-config", demo_host.ssh_config, "--plan", demo_host.plan(tmp_path))
    run = ddtop.begin(*words, "--record", file)
    wait_for(run, "ready in", HANG_S)
    run.kill()
    run.communicate(timeout=HANG_S)
    assert demo_host.engines(), "nobody was left to stop the server"
    plan = read_state(file).run.plan_toml

    kept = ddtop("stop", file, "--leave-running", "--ssh-config", demo_host.ssh_config)
    assert kept.rc == 12 and "died" in kept.err
    done = ddtop("stop", file, "--ssh-config", demo_host.ssh_config)
    assert done.rc == 0 and "as it was found" in done.out, done.err
    assert not demo_host.engines()
    state = read_state(file)
    assert state.run.ended is not None and state.run.ended.outcome == "stopped"
    assert state.run.plan_toml == plan, "it can still be taken up again"
    assert ddtop("stop", file).rc == 12


def test_events_as_json_lines(ddtop: Cli, tmp_path: Path) -> None:
    run = ddtop.begin("connect", "local", "--record", tmp_path / "watch.ddtop", "--json")
    wait_for(run, "connected", HANG_S)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=HANG_S)
    assert run.returncode == 130, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0]["type"] == "run-started" and rows[-1]["type"] == "run-ended"
    assert all(row["host"] == "local" for row in rows)


def test_a_file_of_someone_else_is_refused(ddtop: Cli, tmp_path: Path, recording: Path) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("my notes")
    done = ddtop("connect", "local", "--record", foreign)
    assert done.rc == 12 and "not a ddtop recording" in done.err
    assert foreign.read_text() == "my notes"
    other = ddtop("connect", "local", "--record", recording)
    assert other.rc == 12 and "demo" in other.err, "a recording of another host"
