"""Figures by group: what a server counted for each of its responses, added up by the group of their prompts."""

from __future__ import annotations

import http.server
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from ddtop.agent.loadgen.cells import run_cells, with_prompts
from ddtop.agent.loadgen.measure import run_cell
from ddtop.agent.loadgen.spec import SpecError
from ddtop.bench.figures.acceptance import Acceptance
from ddtop.bench.figures.groups import by_group
from ddtop.bench.figures.requests import read_request
from ddtop.bench.judge.cell import judge_cell
from ddtop.sweep.cell.measure import PROMPTS_PLAIN, packed_prompts

MEANS = {"code": 3.7, "prose": 1.6, "math": 2.9}
COUNTED: dict[str, list[int]] = defaultdict(lambda: [0, 0])
"""Group → tokens and steps, by the server."""


class Engine(http.server.BaseHTTPRequestHandler):
    """SIMULATED: answers in steps of as many tokens as the prompt's first word brings on average."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        tokens, steps = (sum(one[place] for one in COUNTED.values()) for place in (0, 1))
        text = f"sglang:generation_tokens_total {tokens}\nsglang:spec_verify_calls_total {steps}\n"
        if self.path == "/v1/models":
            text = json.dumps({"data": [{"id": "SIMULATED"}]})
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, limit = body["messages"][0]["content"], body["max_tokens"]
        group = next(name for name in MEANS if name in prompt)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = steps = 0
        carry = len(prompt) % 7 / 7  # requests of one group differ
        while sent < limit:
            carry += MEANS[group]
            got = min(int(carry), limit - sent)
            carry -= int(carry)
            sent, steps = sent + got, steps + 1
            choice = {"index": 0, "delta": {"content": "word " * got}, "finish_reason": None}
            self.event({"choices": [choice], "usage": {"completion_tokens": sent, "prompt_tokens": 9}})
        end: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
        if body.get("return_spec_tokens_details"):
            end["sglext"] = {"spec_tokens_details": {"spec_verify_ct": steps}}
        COUNTED[group][0] += sent
        COUNTED[group][1] += steps
        self.event({**end, "usage": {"completion_tokens": sent, "prompt_tokens": 9}})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, value: Any) -> None:
        data = f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


@pytest.fixture
def engine() -> Iterator[str]:
    COUNTED.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def prompts(count: int = 4) -> list[dict[str, str]]:
    return [{"prompt": f"{g} {'x' * n}", "group": g} for n in range(count) for g in MEANS]


def load(url: str, **more: Any) -> dict[str, Any]:
    fixed = {
        "url": url,
        "engine": "sglang",
        "output_tokens": 60,
        "concurrency": 3,
        "gpus": "none",
        "requests": 12,
    }
    return {**fixed, "prompts": prompts(), "nonce": "n", **more}


def test_acceptance_by_group_in_one_cell_is_the_servers_own(engine: str) -> None:
    judged = judge_cell(run_cell(load(engine)))
    found = judged.metrics["by_group"]
    assert set(found) == set(MEANS)
    for group, (tokens, steps) in COUNTED.items():
        assert found[group]["n"] == 4
        assert found[group]["acceptance_length"] == pytest.approx(tokens / steps, rel=1e-9)
        assert found[group]["output_tokens"] == tokens
    whole = [sum(one[place] for one in COUNTED.values()) for place in (0, 1)]
    assert judged.metrics["acceptance_length"] == pytest.approx(whole[0] / whole[1], rel=1e-9)


def test_a_group_of_its_own_has_the_cells_global_counters(engine: str) -> None:
    code = [p for p in prompts() if p["group"] == "code"]
    raw = run_cell(load(engine, prompts=code, requests=4, extra_body={"return_spec_tokens_details": False}))
    (found,) = judge_cell(raw).metrics["by_group"].values()
    assert found["acceptance_source"] == "sglang counters"
    assert found["acceptance_length"] == pytest.approx(COUNTED["code"][0] / COUNTED["code"][1], rel=1e-9)


def test_without_counters_of_its_own_a_group_has_no_acceptance(engine: str) -> None:
    raw = run_cell(load(engine, extra_body={"return_spec_tokens_details": False}))
    metrics = judge_cell(raw).metrics
    assert "acceptance_length" in metrics
    assert all(g["n"] == 4 and "acceptance_length" not in g for g in metrics["by_group"].values())


def test_cells_that_share_their_prompts_carry_them_once(engine: str, tmp_path: Any) -> None:
    big = [{"prompt": f"code {n} {'word ' * 5000}", "group": "code"} for n in range(8)]
    spec = {"id": "a", **load(engine, prompts=big, requests=2)}
    cells = [dict(spec), {**spec, "id": "b"}, {**spec, "id": "c", "prompts": big[:7]}]
    job = packed_prompts([dict(cell) for cell in cells])
    assert len(json.dumps(job)) < PROMPTS_PLAIN < len(json.dumps(cells))
    assert len(job["prompts_z"]) == 2
    assert [with_prompts(cell, job["prompts_z"]) for cell in job["cells"]] == cells
    assert run_cells({"schema": 1, **job}, str(tmp_path)) == {
        "done": ["a", "b", "c"],
        "failed": [],
        "kept": [],
    }
    assert packed_prompts([{"prompts": ["short"]}]) == {"cells": [{"prompts": ["short"]}]}
    with pytest.raises(SpecError, match="prompts: those named 'no'"):
        with_prompts({"prompts": "no"}, {})


def record(index: int, group: str | None, steps: int, **more: Any) -> dict[str, Any]:
    named = {"group": group} if group else {}
    return {
        "i": index, "class": "ok", "start": 0, "end": 10**9, "tokens": 40, "first": 10**8, "last": 9 * 10**8,
        "k_first": 1, "chunks": 10, "spec": {"spec_verify_ct": steps}, **named, **more,
    }  # fmt: skip


def figures(
    records: list[dict[str, Any]], n: int, whole: Acceptance | None = None
) -> dict[str, dict[str, Any]]:
    return by_group(records, [read_request(r) for r in records], n, whole)


def test_only_whole_passes_through_the_prompts_count() -> None:
    """A fast configuration sends more before its window is full: its first prompts would weigh more."""
    records = [record(0, "a", 10), record(1, "b", 20), record(2, "a", 40)]
    assert figures(records, 2)["a"]["acceptance_length"] == 4.0
    assert figures(records, 4)["a"]["acceptance_length"] == pytest.approx(80 / 50), (
        "not one pass is whole: all count"
    )


def test_what_failed_is_in_no_figure_and_a_group_of_failures_has_none() -> None:
    records = [record(0, "a", 10), record(1, "b", 20, **{"class": "short"}), record(2, None, 5)]
    found = figures(records, 3)
    assert found["b"] == {"n": 0} and set(found) == {"a", "b"}
    assert found["a"]["decode_tok_s"]["mean"] == pytest.approx(39 / 0.8)
    assert found["a"]["tpot_ms"]["mean"] == pytest.approx(800 / 39)
    assert figures([record(0, None, 5)], 1) == {}
    plain = {key: value for key, value in record(0, "a", 0).items() if key != "spec"}
    assert figures([plain], 1, Acceptance(2.5, "vllm counters", True))["a"]["acceptance_length"] == 2.5
    two = [plain, {**plain, "i": 1, "group": "b"}]
    assert "acceptance_length" not in figures(two, 2, Acceptance(2.5, "vllm counters", True))["a"]


def test_vllm_and_llamacpp_say_it_by_response_too() -> None:
    vllm = record(0, "a", 0, spec={"num_spec_steps": 10, "num_accepted_draft_tokens": 25})
    llama = record(1, "b", 0, spec=None, timings={"predicted_n": 41, "draft_n": 60, "draft_n_accepted": 30})
    found = figures([vllm, llama], 2)
    assert found["a"]["acceptance_length"] == 3.5
    assert found["b"]["acceptance_length"] == 4.0


def test_a_group_says_how_many_of_its_tokens_came_from_steps_with_a_draft() -> None:
    """n-grams on a real vLLM: code was drafted more often than prose. Answers without any draft count as tokens too."""
    rows = [("a", 10, 20), ("a", 4, 6), ("b", 5, 5), ("b", 0, 0)]
    spec = [{"num_spec_steps": steps, "num_accepted_draft_tokens": got} for _, steps, got in rows]
    records = [
        record(i, group, 0, spec=said) for i, ((group, _, _), said) in enumerate(zip(rows, spec, strict=True))
    ]
    found = figures(records, 4)
    assert found["a"]["drafted_share"] == pytest.approx(40 / 80)
    assert found["a"]["overall_length"] == pytest.approx(80 / 54)
    assert found["b"]["acceptance_length"] == 2.0 and found["b"]["drafted_share"] == pytest.approx(10 / 80)
