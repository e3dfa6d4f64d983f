"""Real event streams: of a vLLM that was killed (an error and [DONE] inside HTTP 200 are no success), and whole ones."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.response.glance import spec_counts, spec_said
from ddtop.bench.judge.cell import judge_cell
from ddtop.sweep.cell.results import has_cut_requests, has_dying_requests

DATA = Path(__file__).parent.parent / "data"


def recorded(name: str) -> bytes:
    """A stream of tests/data/streams, or a whole one of tests/data/engines."""
    whole = DATA / f"engines/{name}.stream.sse.gz"
    return (
        gzip.decompress(whole.read_bytes()) if whole.exists() else (DATA / f"streams/{name}.sse").read_bytes()
    )


class Replay(BaseHTTPRequestHandler):
    """Answers POST /NAME/v1/chat/completions with a recorded stream, in pieces of an odd size."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        data = recorded(self.path.split("/")[1])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(data), 1777):
            piece = data[at : at + 1777]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture(scope="module")
def replay() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Replay)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def measured(url: str, name: str) -> dict[str, Any]:
    return run_cell(
        {
            "url": url,
            "endpoint": f"/{name}/v1/chat/completions",
            "model": "tiny",
            "requests": 2,
            "concurrency": 2,
            "output_tokens": 911,
            "exact_tokens": False,
            "gpus": "none",
        }
    )


@pytest.mark.parametrize(("name", "tokens"), [("kill-core", 189), ("kill-worker", 67), ("sigterm", 144)])
def test_a_stream_of_a_killed_engine_is_no_success(replay: str, name: str, tokens: int) -> None:
    raw = measured(replay, name)
    for one in raw["requests"]:
        assert (one["class"], one["http"], one["tokens"]) == ("in-band error", 200, tokens)
        assert "EngineCore encountered an issue" in one["why"]
    judged = judge_cell(raw)
    assert judged.validity == "INVALID" and "output_tok_s" not in judged.metrics
    assert has_dying_requests(raw) and not has_cut_requests(raw)


def test_a_drained_stream_is_one(replay: str) -> None:
    raw = measured(replay, "sigterm-drain")
    assert {one["class"] for one in raw["requests"]} == {"ok"} and not has_dying_requests(raw)


@pytest.mark.parametrize("name", ["vllm-0.32.0", "vllm-0.32.0-ngram", "sglang-0.5.23-ngram"])
def test_a_whole_stream_of_either_engine_is_read_to_its_last_token(replay: str, name: str) -> None:
    """Several tokens in a chunk under speculation; SGLang's last chunk has a reason and no content."""
    for one in measured(replay, name)["requests"]:
        assert (one["class"], one["tokens"], one["source"], one["finish"]) == ("ok", 800, "usage", "length")
        assert one["prompt_tokens"] == 107
        assert (one["chunks"] < 400) is ("ngram" in name), one["chunks"]


def test_a_vllm_that_says_each_answers_steps_agrees_with_its_own_counters(replay: str) -> None:
    """Of 70 tokens 63 came from the 31 steps with a draft, 32 of them accepted; `/metrics` had the same 31, 32 and 70."""
    judged = judge_cell(raw := measured(replay, "vllm-0.32.0-each-length"))
    assert {(one["class"], one["tokens"], one["finish"]) for one in raw["requests"]} == {("ok", 70, "length")}
    found = judged.metrics["acceptance"]
    assert (found["source"], found["tokens"], found["steps"]) == ("vllm per request", 2 * 63, 2 * 31)
    assert found["histogram"] == [28, 4, 30]
    assert found["drafted_share"] == pytest.approx(63 / 70)
    assert found["overall_length"] == pytest.approx(70 / (70 - 32))
    events = re.findall(rb"data: .*\n\n", recorded("vllm-0.32.0-each-length"))
    assert spec_counts(70, spec_said(events)) == (63, 31), "at a glance too"


def test_an_answer_that_ended_by_itself_before_any_draft_has_no_acceptance(replay: str) -> None:
    """`mean_acceptance_length` is 1.0 then, of no step at all."""
    judged = judge_cell(raw := measured(replay, "vllm-0.32.0-each-stop"))
    assert {(one["class"], one["tokens"], one["finish"]) for one in raw["requests"]} == {("ok", 13, "stop")}
    assert {one["spec"]["num_spec_steps"] for one in raw["requests"]} == {0}
    assert "acceptance_length" not in judged.metrics and "speculation-inactive" not in judged.reasons
