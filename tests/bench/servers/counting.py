"""A server that counts as its engine does: exact counters of requests and tokens at /metrics, one token a chunk.

    python -m tests.bench.servers.counting --engine vllm|sglang|llamacpp [--step S] [--prefill S] [--idle-prefill S]

SIMULATED: no model runs here; the counters' names and labels are those of vLLM 0.32, SGLang 0.5.23 and llama.cpp. The
prefill burns CPU as a real one does, `--idle-prefill` waits as a lock does. Prints "listening on 127.0.0.1:PORT".
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

METRICS = {
    "vllm": 'vllm:request_success_total{{engine="0",finished_reason="length",model_name="tiny"}} {requests}\n'
    'vllm:request_success_total{{engine="0",finished_reason="abort",model_name="tiny"}} {aborted}\n'
    'vllm:prompt_tokens_total{{engine="0",model_name="tiny"}} {prompt}\n'
    'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {tokens}\n'
    'vllm:num_preemptions_total{{engine="0",model_name="tiny"}} 0.0\n',
    "sglang": 'sglang:num_requests_total{{engine_type="unified",is_streaming="true",model_name="tiny"}} {requests}\n'
    'sglang:num_requests_total{{engine_type="unified",is_streaming="false",model_name="tiny"}} 1.0\n'
    'sglang:http_requests_total{{endpoint="/metrics",method="GET"}} {asked}\n'
    'sglang:prompt_tokens_total{{engine_type="unified",is_streaming="true",model_name="tiny"}} {prompt}\n'
    'sglang:generation_tokens_total{{engine_type="unified",is_streaming="true",model_name="tiny"}} {tokens}\n',
    "llamacpp": "llamacpp:prompt_tokens_total {prompt}\nllamacpp:tokens_predicted_total {tokens}\n"
    "llamacpp:requests_processing 0\n",
}


class Server(ThreadingHTTPServer):
    """Its counters, and how it answers."""

    daemon_threads = True
    engine = "vllm"
    step_s = prefill_s = idle_s = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.counts = dict.fromkeys(("requests", "aborted", "prompt", "tokens", "asked"), 0)

    def count(self, **more: int) -> None:
        with self.lock:
            for name, value in more.items():
                self.counts[name] += value


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self.server.count(asked=1)
        data = METRICS[self.server.engine].format(**self.server.counts).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = len(json.dumps(body["messages"]).split())
        until = time.monotonic() + server.prefill_s
        while time.monotonic() < until:
            pass
        time.sleep(server.idle_s)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        server.count(prompt=prompt)
        want = int(body.get("max_tokens") or 16)
        try:
            for n in range(1, want + 1):
                time.sleep(server.step_s)
                server.count(tokens=1)  # counted before it is sent, as the engines do
                last = "length" if n == want else None
                choice = {"index": 0, "delta": {"content": f" w{n}"}, "finish_reason": last}
                usage = {"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}
                if n == want:
                    server.count(requests=1)
                self._event(json.dumps({"choices": [choice], "usage": usage}))
            self._event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            server.count(aborted=1)
            self.close_connection = True

    def _event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="vllm", choices=sorted(METRICS))
    for name in ("--step", "--prefill", "--idle-prefill"):
        parser.add_argument(name, type=float, default=0.0)
    asked = parser.parse_args()
    server = Server()
    server.engine, server.step_s = asked.engine, asked.step
    server.prefill_s, server.idle_s = asked.prefill, asked.idle_prefill
    print(f"listening on 127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
