"""Cells as a detached job runs them: committed one by one, resumed, over TLS, from a zip on the oldest Python."""

from __future__ import annotations

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.loadgen.cells import run_cells
from ddtop.agent.loadgen.machine.gpu import GpuSampler
from ddtop.agent.loadgen.measure import other_batch, run_cell
from ddtop.agent.loadgen.records import unpack
from ddtop.agent.loadgen.spec import SpecError
from tests.agent.helpers import oldest_python

PACKAGE = Path(__file__).parent.parent.parent / "ddtop" / "agent" / "loadgen"
OLD_PYTHON = Path(oldest_python())
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "box",
    "with",
    "jolly",
    "quick",
    "gnomes",
]


class Engine(http.server.BaseHTTPRequestHandler):
    """SIMULATED: a small threaded engine with counters, a cache to flush and a tokenizer (one word, one token)."""

    protocol_version = "HTTP/1.1"
    tokens = 0
    flushed = 0
    seen: list[dict[str, Any]] = []  # noqa: RUF012 (shared by all handlers on purpose)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/metrics":
            steps = Engine.tokens / 3
            self.answer(
                f"sglang:generation_tokens_total {Engine.tokens}\nsglang:spec_verify_calls_total {steps}\n"
            )
        elif self.path == "/v1/models":
            self.answer(json.dumps({"data": [{"id": "SIMULATED-engine"}]}))
        else:
            self.answer("", 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/flush_cache":
            Engine.flushed += 1
            self.answer("Cache flushed.\nPlease check backend logs for more details.")
            return
        if self.path == "/tokenize":
            self.answer(json.dumps({"count": len(body["prompt"].split())}))
            return
        Engine.seen.append({"body": body, "auth": self.headers.get("Authorization")})
        prompt = len(body["messages"][0]["content"].split())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        n = body["max_tokens"]
        for count in range(1, n + 1):
            choice = {"index": 0, "delta": {"content": WORDS[count * 7 % len(WORDS)] + " "}}
            choice["finish_reason"] = "length" if count == n else None
            self.event({"choices": [choice], "usage": {"completion_tokens": count, "prompt_tokens": prompt}})
        Engine.tokens += n
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def job(url: str, **more: Any) -> dict[str, Any]:
    defaults = {"url": url, "output_tokens": 8, "requests": 4, "concurrency": 2, "gpus": "none", **more}
    return {
        "schema": 1,
        "defaults": defaults,
        "cells": [{"id": "a"}, {"id": "b", "endpoint": "wrong"}, {"id": "c"}],
    }


def test_each_cell_is_committed_and_the_next_goes_on(engine: str, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    summary = run_cells(job(engine), str(tmp_path), told.append)
    assert summary == {"done": ["a", "c"], "failed": ["b"], "kept": []}
    assert json.loads((tmp_path / "cell-b.json").read_text())["error_kind"] == "spec"
    result = unpack(json.loads((tmp_path / "cell-a.json").read_text()))
    assert [one["class"] for one in result["requests"]] == ["ok"] * 4
    assert result["model"] == "SIMULATED-engine" and "prompts" not in result["spec"]
    assert json.loads((tmp_path / "progress.json").read_text())["phase"] == "committed"
    assert {"preparing", "running", "committed"} <= {one["phase"] for one in told}
    assert not list(tmp_path.glob("*.tmp*"))


def test_a_finished_cell_is_never_run_again(engine: str, tmp_path: Path) -> None:
    (tmp_path / "cell-a.json").write_text('{"kept": true}')
    summary = run_cells(job(engine), str(tmp_path))
    assert summary["kept"] == ["a"] and json.loads((tmp_path / "cell-a.json").read_text()) == {"kept": True}


def test_killed_in_the_middle_costs_only_the_cell_in_flight(engine: str, tmp_path: Path) -> None:
    cells = [
        {"id": f"c{i}", "requests": 60 if i == 1 else 2, "output_tokens": 64 if i == 1 else 4}
        for i in range(3)
    ]
    spec = tmp_path / "job.json"
    spec.write_text(json.dumps({**job(engine), "cells": cells}))
    argv = [sys.executable, "-m", "ddtop.agent.loadgen", str(spec), str(tmp_path / "out")]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=PACKAGE.parent.parent.parent)
    while not (tmp_path / "out" / "cell-c0.json").exists():
        assert child.poll() is None
    child.kill()
    child.wait(5)
    first = (tmp_path / "out" / "cell-c0.json").read_bytes()
    assert not (tmp_path / "out" / "cell-c2.json").exists()
    done = subprocess.run(argv, capture_output=True, text=True, cwd=PACKAGE.parent.parent.parent, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["kept"][0] == "c0"
    assert (tmp_path / "out" / "cell-c0.json").read_bytes() == first


@pytest.mark.parametrize(
    "bad", [{}, {"cells": []}, {"cells": [{"id": "../x"}]}, {"cells": [{"id": "a"}, {"id": "a"}]}]
)
def test_a_wrong_job_is_refused(bad: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        run_cells(bad, str(tmp_path))


def test_what_stands_around_the_window(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTOP_TEST_KEY", "secret-key")
    Engine.seen.clear()
    result = run_cell(
        {
            "url": engine,
            "engine": "sglang",
            "api_key_env": "DDTOP_TEST_KEY",
            "flush_cache": True,
            "warmup": 3,
            "context": 700,
            "nonce": "n",
            "requests": 6,
            "concurrency": 2,
            "output_tokens": 9,
            "gpus": "none",
            "keep_texts": True,
            "server_pids": [os.getpid()],
        }
    )
    assert not result.get("error"), result
    assert result["flush"]["ok"] and Engine.flushed == 1
    assert result["context"]["by"] == "tokenize" and abs(result["context"]["tokens"] - 700) <= 7
    assert result["warmup"] == {"requests": 3, "classes": {"ok": 3}}
    values = [
        result["counters"][when]["values"]["sglang:generation_tokens_total"] for when in ("before", "after")
    ]
    assert values[1] - values[0] == 6 * 9
    assert len(Engine.seen) == 9 and {one["auth"] for one in Engine.seen} == {"Bearer secret-key"}
    assert "secret-key" not in json.dumps(result)
    assert all(one["prompt_tokens"] > 700 for one in result["requests"])
    nonces = [one["body"]["messages"][0]["content"][:18] for one in Engine.seen]
    assert len(set(nonces)) == 9 and all(text.startswith("[run ") for text in nonces)
    assert result["texts"]["0"][0].split()[0] == WORDS[7]
    assert 0 <= result["pressure"]["server_wait_share"] < 5


def test_the_first_requests_are_asked_again(engine: str) -> None:
    Engine.seen.clear()
    result = run_cell(
        {
            "url": engine,
            "nonce": "n",
            "requests": 5,
            "concurrency": 2,
            "output_tokens": 6,
            "gpus": "none",
            "keep_texts": True,
            "again": 3,
        }
    )
    assert sorted(result["texts"]) == list("01234") and sorted(result["texts_again"]) == list("012")
    assert all(result["texts_again"][i] == result["texts"][i] for i in "012")
    prompts = [one["body"]["messages"][0]["content"] for one in Engine.seen]
    assert len(prompts) == 8 and len(set(prompts)) == 5, "the same prompts with the same nonces"
    assert len(result["requests"]) == 5, "apart from the result"


@pytest.mark.parametrize(("streams", "at_once"), [(1, 2), (2, 1), (4, 2), (8, 4), (32, 16)])
def test_asked_again_in_a_batch_of_another_size_and_no_larger(streams: int, at_once: int) -> None:
    assert other_batch(streams) == at_once


def test_a_missing_key_is_named(engine: str) -> None:
    result = run_cell({"url": engine, "api_key_env": "DDTOP_NO_SUCH_KEY"})
    assert "DDTOP_NO_SUCH_KEY" in result["error"] and result["error_kind"] == "spec"


def test_an_unknown_host_is_an_error_of_the_cell() -> None:
    result = run_cell({"url": "http://no-such-host.invalid:1", "model": "m", "gpus": "none"})
    assert (result["error"] and "requests" in result) or "no-such-host" in result["error"]


@pytest.fixture(scope="module")
def tls_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tls")
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        [*argv, "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("connections", ["keep-alive", "fresh", "cold", "cold-start"])
def test_tls_has_kernel_stamps_too(tls_engine: str, connections: str) -> None:
    spec = {
        "url": tls_engine,
        "tls_verify": False,
        "requests": 6,
        "concurrency": 2,
        "output_tokens": 30,
        "gpus": "none",
    }
    result = run_cell({**spec, "connections": connections})
    assert [one["class"] for one in result["requests"]] == ["ok"] * 6, result["requests"][0]
    assert result["clients"][0]["clock"] in ("kernel", "mixed") or not sys.platform.startswith("linux")


def test_an_untrusted_certificate_is_refused_with_the_reason(tls_engine: str) -> None:
    result = run_cell({"url": tls_engine, "requests": 2, "model": "m", "gpus": "none"})
    assert {one["class"] for one in result["requests"]} == {"refused"}
    assert "CERTIFICATE_VERIFY_FAILED" in result["requests"][0]["why"]


def test_from_a_zip_on_the_oldest_python(engine: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "agent.zip", "w") as out:
        out.writestr("agent/__init__.py", "")
        for file in PACKAGE.rglob("*"):
            if file.suffix in (".py", ".txt"):
                out.write(file, f"agent/loadgen/{file.relative_to(PACKAGE)}")
    (tmp_path / "job.json").write_text(json.dumps(job(engine, context=50)))
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); from agent.loadgen.cells import run_cells;"
        " print(json.dumps(run_cells(json.load(open(sys.argv[2])), sys.argv[3])))"
    )
    argv = [
        str(OLD_PYTHON),
        "-I",
        "-S",
        "-c",
        code,
        str(tmp_path / "agent.zip"),
        str(tmp_path / "job.json"),
        str(tmp_path / "out"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == ["a", "c"]


FAKE_SMI = """#!/bin/sh
# SIMULATED nvidia-smi
case "$*" in
  *power.draw.instant*event_reasons*) [ -n "$OLD" ] && { echo 'Field "power.draw.instant" is not a valid field to query.'; exit 2; } ;;
esac
row() { case "$*" in
  *driver_version*) echo "0, GPU-x, SIMULATED GPU, 580.1, 97887, 600.00" ;;
  *power.draw.instant*) echo "0, 300.5, 299.0, 98, 40, 1000, 50, 1980, 2619, 0x4, 600.00" ;;
  *) echo "0, 299.0, 98, 40, 1000, 50, 1980, 2619, 0x4, 600.00" ;;
esac; }
case "$*" in *-lms*) while :; do row "$@"; sleep 0.05; done ;; *) row "$@" ;; esac
"""


def test_gpu_sampling_in_the_window(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(FAKE_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    result = run_cell({"url": engine, "requests": 60, "concurrency": 2, "output_tokens": 64})
    assert result["gpu"]["gpus"][0]["name"] == "SIMULATED GPU" and "error" not in result["gpu"]
    samples = result["gpu_samples"]
    assert len(samples) >= 3 and samples[0]["power_instant_w"] == 300.5 and samples[0]["event_reasons"] == 4
    monkeypatch.setenv("OLD", "1")
    sampler = GpuSampler()
    sampler.start()
    sampler.stop()
    assert sampler.error == "" and sampler.static


def test_no_gpu_tool_is_said(engine: str) -> None:
    sampler = GpuSampler(binary="/no/such/nvidia-smi")
    sampler.start()
    assert "no nvidia-smi" in sampler.error
