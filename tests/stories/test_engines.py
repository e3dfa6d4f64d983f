"""Real vLLM and real SGLang on this machine's CPU, under ddtop: what it says beside what is right.

`make engines` builds them; `make stories-engines` runs this alone. The service is of the kind `process` on the local host:
a layer of the bed for each would cost 5 GB more and proves nothing of the engine. One server at a time; a start takes 25 s
on a quiet machine with two cores, two minutes on a busy one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ddtop.events import AlertRaised, CellMeasured
from ddtop.journal.fold.apply import fold
from tests.bed.client import Bed
from tests.bed.engines.install import ENGINES, NAMES, built
from tests.bed.engines.model import models
from tests.stories.harness import Runner, took

pytestmark = [pytest.mark.stories, pytest.mark.process]

PORT = 8941
QUIET = "HF_HUB_OFFLINE = '1', TRANSFORMERS_OFFLINE = '1'"
SERVICE = {
    "vllm": f"""command = ["{ENGINES}/vllm/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "{{m}}", "--served-model-name", "known",
  "--host", "127.0.0.1", "--port", "{{port}}", "--enforce-eager", "--max-model-len", "{{len}}"]
env = {{ VLLM_CPU_KVCACHE_SPACE = "1", VLLM_NO_USAGE_STATS = "1", {QUIET} }}""",
    "sglang": f"""command = ["{ENGINES}/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "{{m}}", "--served-model-name", "known",
  "--host", "127.0.0.1", "--port", "{{port}}", "--device", "cpu", "--attention-backend", "torch_native", "--context-length", "{{len}}",
  "--max-total-tokens", "8192", "--mem-fraction-static", "0.3", "--max-running-requests", "8", "--enable-metrics"]
env = {{ SGLANG_USE_CPU_ENGINE = "1", SGLANG_CPU_OMP_THREADS_BIND = "0", OMP_NUM_THREADS = "1", CUDA_VISIBLE_DEVICES = "", {QUIET} }}""",
}
CORE = {"vllm": b"VLLM::EngineCore", "sglang": b"sglang::scheduler"}
"""How the process begins that holds the model."""


def speculation(engine: str, drafted: int) -> list[str]:
    if engine == "sglang":
        return ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(drafted)]
    about = {"method": "ngram", "num_speculative_tokens": drafted}
    return ["--speculative-config", json.dumps({**about, "prompt_lookup_max": 3, "prompt_lookup_min": 1})]


def config(
    name: str,
    args: list[str] | None = None,
    model: str = "known",
    length: int = 1024,
    env: dict[str, str] | None = None,
) -> str:
    """One line of [configs]."""
    path = models()[model] if model in models() else Path(model)
    more = ", ".join(f'{key} = "{value}"' for key, value in (env or {}).items())
    words = json.dumps(args or [])
    return f'{name} = {{ set = {{ m = "{path}", len = {length} }}, args = {words}, env = {{ {more} }} }}\n'


def plan(
    engine: str,
    configs: str,
    *,
    concurrency: str = "[1]",
    tokens: int = 96,
    requests: int = 6,
    policy: str = "",
) -> str:
    return f"""name = "real-{engine}"
host = "local"
[service]
kind = "process"
engine = "{engine}"
port = {PORT}
{SERVICE[engine]}
[configs]
{configs}
[matrix]
concurrency = {concurrency}
[[workload]]
name = "cycle"
output_tokens = {tokens}
prompts = ["Tell me about clocks.", "Go on: abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:-abcdefghij"]
[bench]
requests_per_stream = {requests}
warmup = 1
[policy]
answer_s = 1
{policy}
"""


@pytest.fixture(params=NAMES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not built(name):
        pytest.skip(f"{name} is not built: make engines")
    return name


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts runs on the local host, with a lease of their own; whatever a run left is ended."""
    monkeypatch.setenv("DDTOP_LEASE_DIR", str(tmp_path))

    def start(text: str) -> Runner:
        nowhere = cast(Bed, SimpleNamespace(ssh_config="/dev/null"))
        return Runner(nowhere, text, tmp_path / "run.ddtop", tmp_path / "home")

    yield start
    for pid in servers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def servers() -> list[int]:
    """Servers of these stories and their children: by the port on the command line."""
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    mark = f"\0--port\0{PORT}\0".encode()
    mains = {p for p in pids if mark in words_of(p) and b"ddtop" not in words_of(p)}
    return [p for p in pids if p in mains or parent_of(p) in mains]


def core_of(engine: str) -> int:
    found = [p for p in servers() if words_of(p).startswith(CORE[engine])]
    assert found, [words_of(p)[:60] for p in servers()]
    return found[0]


def said(runner: Runner) -> list[tuple[str, str, str]]:
    """(configuration, verdict, cause) of each alert, in order."""
    events = runner.events()
    by_attempt = {r.attempt_id: r.config for r in fold(events).restarts}
    return [
        (by_attempt.get(e.attempt_id or "", ""), e.verdict, e.cause)
        for e in events
        if isinstance(e, AlertRaised)
    ]


def test_sweep(engine: str, run: Any) -> None:
    """No speculation, n-gram 2 and 4, one and four streams: all tokens are those of the server's counters."""
    configs = config("none") + "".join(config(f"n{k}", speculation(engine, k)) for k in (2, 4))
    began = time.monotonic()
    with run(plan(engine, configs, concurrency="[1, 4]")) as runner:
        assert runner.wait(900) == 0, runner.text()[-4000:]
        events = runner.events()
    took("real engines", f"{engine}: sweep of 6 cells, 3 starts", time.monotonic() - began)
    cells = fold(events).plan_cells
    assert [c.state for c in cells] == ["done"] * 6 and said(runner) == []
    for event in events:
        if isinstance(event, CellMeasured):
            assert event.metrics["output_tokens"] == event.metrics["server_output_tokens"]
            assert event.metrics["output_tokens"] in (6 * 96, 24 * 96)
    for cell in cells:
        assert "arguments-overridden" not in str(cell.reasons), cell.reasons
        if cell.spec.config == "none":
            assert "acceptance_length" not in cell.metrics
        else:
            assert cell.metrics["acceptance"]["exact"], cell.metrics["acceptance"]
            assert 1 <= cell.metrics["acceptance_length"] <= int(cell.spec.config[1:]) + 1
    assert servers() == [], "nothing is left after the run"


BAD_JSON = '{"method":"ngram",}'
FAILING: dict[str, dict[str, tuple[str, set[str]]]] = {
    "vllm": {
        "bad_json": (config("bad_json", ["--speculative-config", BAD_JSON]), {"bad-argument"}),
        "path_missing": (config("path_missing", model="/nowhere/Nope-7B"), {"model-path-missing"}),
        "bad_flag": (config("bad_flag", ["--no-such-flag", "3"]), {"bad-argument"}),
        "bad_int": (config("bad_int", ["--max-num-seqs", "many"]), {"bad-argument"}),
        "bad_choice": (config("bad_choice", ["--dtype", "float7"]), {"bad-argument"}),
        "too_long": (config("too_long", length=8192), {"context-length-too-large"}),
        "spec_without_k": (
            config("spec_without_k", ["--speculative-config", '{"method":"ngram"}']),
            {"bad-argument"},
        ),
        "no_config": (config("no_config", model="no-config"), {"model-path-missing"}),
        "cut_config": (config("cut_config", model="cut-config"), {"model-config-damaged"}),
        "truncated": (config("truncated", model="truncated"), {"model-weights-damaged"}),
        "kv_too_big": (
            config("kv_too_big", env={"VLLM_CPU_KVCACHE_SPACE": "100"}),
            {"host-memory-exhausted", "kv-cache-too-large"},
        ),
        "no_tokenizer": (config("no_tokenizer", model="no-tokenizer"), {"tokenizer-missing"}),
        "bad_shape": (config("bad_shape", model="bad-shape"), {"checkpoint-mismatch"}),
        "bad_architecture": (
            config("bad_architecture", model="bad-architecture"),
            {"model-architecture-unsupported"},
        ),
    },
    "sglang": {
        "path_missing": (config("path_missing", model="/nowhere/Nope-7B"), {"model-path-missing"}),
        "bad_flag": (config("bad_flag", ["--no-such-flag", "3"]), {"bad-argument"}),
        "bad_int": (config("bad_int", ["--chunked-prefill-size", "many"]), {"bad-argument"}),
        "bad_choice": (config("bad_choice", ["--dtype", "float7"]), {"bad-argument"}),
        "bad_spec": (
            config("bad_spec", ["--speculative-algorithm", "NGRAMM"]),
            {"speculative-algorithm-unknown", "bad-argument"},
        ),
        "too_long": (config("too_long", length=8192), {"context-length-too-large"}),
        "no_config": (config("no_config", model="no-config"), {"model-path-missing"}),
        "cut_config": (config("cut_config", model="cut-config"), {"model-config-damaged"}),
        "truncated": (config("truncated", model="truncated"), {"model-weights-damaged"}),
        "no_tokenizer": (config("no_tokenizer", model="no-tokenizer"), {"tokenizer-missing"}),
        "bad_architecture": (
            config("bad_architecture", model="bad-architecture"),
            {"model-architecture-unsupported"},
        ),
    },
}
"""Engine → configuration → (its line of the plan, the causes that are right)."""


def test_configurations_that_cannot_start(engine: str, run: Any) -> None:
    """Each ends in an alert `failed` with the right cause, at every try; nothing is measured, nothing is left."""
    table = FAILING[engine]
    began = time.monotonic()
    with run(
        plan(engine, "".join(line for line, _ in table.values()), policy='bug = "fail-and-go-on"')
    ) as runner:
        runner.wait(1500)
        told = said(runner)
        events = runner.events()
    took("real engines", f"{engine}: {len(table)} failing configurations", time.monotonic() - began)
    wrong = [t for t in told if t[1] != "failed" or t[2] not in table[t[0]][1]]
    assert not wrong and {t[0] for t in told} == set(table), (wrong, set(table) - {t[0] for t in told})
    assert not any(isinstance(e, CellMeasured) for e in events) and servers() == []


def test_the_core_is_killed_under_a_cell(engine: str, run: Any) -> None:
    """The process that holds the model dies; the API server lives on for seconds. It is told, and measured anew."""
    with run(plan(engine, config("none"), tokens=900, requests=40)) as runner:
        runner.until_measuring("none", 240)
        time.sleep(2)
        os.kill(core_of(engine), signal.SIGKILL)
        began = time.monotonic()
        alert = runner.until_alert(120)
        took("real engines", f"{engine}: core killed, to the alert", time.monotonic() - began)
        assert alert.verdict in ("failed", "degraded"), (alert.verdict, alert.cause)
        told = f"{alert.cause} {alert}".lower()
        assert any(w in told for w in ("kill", "died", "dead", "signal")), alert
        runner.until(
            lambda es: sum(1 for r in fold(es).restarts if r.outcome == "ready") >= 2, 400, "second ready"
        )


def test_the_port_is_taken_while_it_starts(engine: str, run: Any) -> None:
    """A stranger binds the port after the start has begun: named, never measured."""
    stranger = "import socket,sys,time; s=socket.socket(); s.setsockopt(1,2,1); s.bind(('127.0.0.1',int(sys.argv[1]))); s.listen(); time.sleep(600)"
    with run(plan(engine, config("none"), policy='bug = "fail-and-go-on"')) as runner:
        runner.until(lambda es: bool(servers()), 120, "a server process")
        other = subprocess.Popen([sys.executable, "-c", stranger, str(PORT)])
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
                    break
                time.sleep(0.1)
            began = time.monotonic()
            alert = runner.until_alert(300)
            took("real engines", f"{engine}: port taken, to the alert", time.monotonic() - began)
            assert "port" in alert.cause, (alert.verdict, alert.cause)
            assert not any(isinstance(e, CellMeasured) for e in runner.events())
        finally:
            other.kill()
            other.wait()
