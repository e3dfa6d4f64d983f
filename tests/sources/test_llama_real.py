"""A real llama.cpp server (xllamacpp 2026.10, SmolLM2-135M as its own draft), recorded: log, metrics, answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.engines import ENGINES
from ddtop.engines.base import AcceptanceCounters
from ddtop.sources.figures.diagnosis import log_metrics
from ddtop.sources.log.diagnosis import diagnose_log, scan_bytes

DATA = Path(__file__).parent / "data"
LLAMA = ENGINES["llamacpp"]


def read(name: str) -> str:
    return (DATA / f"llama-server-{name}").read_text("utf-8")


def test_the_log_is_read() -> None:
    data = read("draft.log").encode()
    got = diagnose_log(data)
    assert (got["verdict"], got["cause"], got["engine"]) == ("ready", "serving", "llamacpp")
    _, scan = scan_bytes(data)
    assert list(scan.phases) == ["launch", "load", "ready", "http", "run"]
    assert "model loaded" in scan.ready_line and scan.facts["http.listening"].values["port"] == 38181


def test_figures_of_both_requests() -> None:
    got = log_metrics(read("draft.log").encode())
    assert (got["gen_tps"], got["accept_len"], got["gen_tokens"]) == ([17.43, 12.31], [4.7, 5.0], [48, 32])
    assert got["accept_len_weighted"] == pytest.approx(4.81, abs=0.01)


def test_counters_say_the_same_as_the_log() -> None:
    counters = LLAMA.acceptance_counters(read("metrics.txt"))
    assert counters is not None
    assert counters.length_since(AcceptanceCounters(0, accepted=0)) == pytest.approx(1 + 61 / 16)


def test_bodies() -> None:
    assert LLAMA.tokens_of_answer(read("ans.json")) == 48
    assert LLAMA.served_model(read("models.json")) == LLAMA.resolved_args(read("props.json"), [])["model"]
    assert LLAMA.version(read("props.json")) == "b0-unknown"
    argv = ["python3", "/opt/real/server.py", "--model", "/other.gguf", "--parallel", "4"]
    assert [
        m.name for m in LLAMA.compare_args(argv, LLAMA.resolved_args(read("props.json"), argv), argv)
    ] == ["model"]
