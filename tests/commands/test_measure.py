"""`bench URL` and `selftest`: against the demo's engine, servers that lie, and nothing at all."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ddtop.commands.measure.bench import parse_slo
from ddtop.commands.measure.endpoint import ask_endpoint, read_models
from ddtop.errors import UsageError
from tests.waiting import HANG_S

from .conftest import Cli, DemoHost, free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lying() -> Iterator[str]:
    """The conformance servers, one behaviour a path."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.servers.lying"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    port = int(child.stdout.readline().split()[-1].rsplit(":", 1)[-1].rstrip("/"))
    yield f"http://127.0.0.1:{port}"
    child.terminate()
    child.wait(HANG_S)
    child.stdout.close()


def test_an_engine_with_speculation(ddtop: Cli, demo_host: DemoHost) -> None:
    with demo_host.engine("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "16") as url:
        done = ddtop(
            "bench", url, "-c", 2, "-n", 8, "--output-tokens", 48, "--slo", "ttft=5s,tpot=1s", "--json"
        )
    found = json.loads(done.out)
    assert found["validity"] in ("VALID", "SUSPECT"), found
    assert done.rc == (0 if found["validity"] == "VALID" else 10)
    assert found["metrics"]["requests_ok"] == 8
    # The window may begin and end within requests of both streams; counted by chunks it would be 82.
    assert abs(found["metrics"]["output_tokens"] - 8 * 48) < 2 * 48, "tokens are counted by the server"
    assert found["metrics"]["goodput_share"] == 1.0
    assert 4.3 < found["metrics"]["acceptance_length"] < 5.1, "the engine was known by its own word"
    assert found["client"]["clock"] in ("kernel", "read")


def test_a_server_that_lies(ddtop: Cli, lying: str) -> None:
    done = ddtop("bench", f"{lying}/b/empty", "-n", 4)
    assert done.rc == 10
    assert "INVALID" in done.out and "0 tok/s is not a result" in done.out


def test_nobody_there(ddtop: Cli) -> None:
    done = ddtop("bench", f"http://127.0.0.1:{free_port()}", "-n", 1)
    assert done.rc == 10 and "INVALID" in done.out
    assert "no answer" in done.err and "refused" in done.err.lower()


def test_a_name_nobody_knows(ddtop: Cli) -> None:
    done = ddtop("bench", "http://no-such-host.invalid:1", "-n", 1)
    assert done.rc == 11 and "does not resolve" in done.err and "do:" in done.err


class Loading(BaseHTTPRequestHandler):
    """A server whose model still loads: it lists it, and answers 503."""

    def do_GET(self) -> None:
        body = b'{"data": [{"id": "m1", "owned_by": "vllm"}]}' if self.path == "/v1/models" else b"loading"
        self.send_response(200 if self.path == "/v1/models" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


def test_what_an_endpoint_says_of_itself() -> None:
    server = HTTPServer(("127.0.0.1", 0), Loading)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        found = ask_endpoint(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
    assert (found.health, found.models, found.engine) == (503, ("m1",), "vllm")
    assert "still be loading" in found.notes("")[0]
    assert "it serves m1, not m2" in found.notes("m2")


@pytest.mark.parametrize("body", [None, [], {}, {"data": 3}, {"data": [3, {}]}, {"data": [{"id": "x"}]}, "x"])
def test_odd_lists_of_models(body: object) -> None:
    names, engine = read_models(body)
    assert engine == "" and all(isinstance(name, str) for name in names)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["notaurl::"], "not the URL"),
        (["ftp://x/"], "not the URL"),
        (["http://:80"], "not the URL"),
        (["http://h:99999"], "not the URL"),
        (["127.0.0.1", "-c", "0"], "--concurrency"),
        (["127.0.0.1", "-n", "-1"], "--requests"),
        (["127.0.0.1", "--endpoint", "tea"], "--endpoint"),
        (["127.0.0.1", "--time-limit", "0"], "--time-limit"),
        (["127.0.0.1", "--slo", "speed=3"], "--slo"),
        (["127.0.0.1", "--slo", "ttft=1.2.3"], "--slo"),
        (["127.0.0.1", "--prompt", "a", "--prompt-file", "b"], "both given"),
        (["127.0.0.1", "--prompt-file", "/no/such/file"], "--prompt-file"),
        (["127.0.0.1", "--api-key-env", "NO_SUCH_KEY_HERE"], "NO_SUCH_KEY_HERE"),
        (["127.0.0.1", "-c", "many"], "integer"),
    ],
)
def test_wrong_options(ddtop: Cli, words: list[str], says: str) -> None:
    done = ddtop("bench", *words)
    assert done.rc == 2 and says in done.err, done


def test_prompt_files(ddtop: Cli, tmp_path: Path) -> None:
    for name, text in (("empty.txt", "\n\n"), ("bad.jsonl", "{"), ("odd.jsonl", '{"text": 1}')):
        path = tmp_path / name
        path.write_text(text)
        done = ddtop("bench", "127.0.0.1", "--prompt-file", path)
        assert done.rc == 2 and name in done.err
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe")
    assert ddtop("bench", "127.0.0.1", "--prompt-file", tmp_path / "latin.txt").rc == 2


def test_slo() -> None:
    limits = parse_slo("ttft=0.5s, tpot=30ms")
    assert limits is not None and (limits.ttft_ms, limits.tpot_ms) == (500.0, 30.0)
    assert parse_slo(None) is None
    with pytest.raises(UsageError):
        parse_slo("ttft")


def test_selftest(ddtop: Cli) -> None:
    done = ddtop("selftest", "-c", 4, "--chunk-ms", 20, "--json")
    found = json.loads(done.out)
    assert done.rc == (0 if found["fit"] else 10)
    assert found["token_mismatches"] == 0 and "itl_error_us" in found
    assert ddtop("selftest", "-c", 0).rc == 2
    assert ddtop("selftest", "--chunk-ms", 0).rc == 2
