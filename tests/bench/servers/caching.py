"""A server with a prefix cache whose truth is known: it counts hits as vLLM does, and says them in each response.

    python -m tests.bench.servers.caching [--max-len N] [--step-ms MS] [--port P]  # prints "listening on 127.0.0.1:PORT"

SIMULATED: no model runs here. A token is a word, the cache holds blocks of 16 tokens with all that stood before them, and
the answer to a prompt names its last words. What was asked is to be had at /asked: the messages of every request, in order.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BLOCK = 16
METRICS = (
    "vllm:request_success_total {requests}\nvllm:prompt_tokens_total {prompt}\nvllm:generation_tokens_total {tokens}\n"
    "vllm:prefix_cache_queries_total {prompt}\nvllm:prefix_cache_hits_total {hits}\n"
)


class Server(ThreadingHTTPServer):
    """Its cache, its counters, and what was asked."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, limit: int, step_s: float, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.limit, self.step_s = limit, step_s
        self.lock = threading.Lock()
        self.cache: set[int] = set()
        self.counts = dict.fromkeys(("requests", "prompt", "tokens", "hits"), 0)
        self.asked: list[Any] = []

    def look_up(self, words: list[str], asked: Any) -> int:
        """Tokens of the prompt that were in the cache; now all of it is."""
        with self.lock:
            self.asked.append(asked)
            keys = [hash(tuple(words[:end])) for end in range(BLOCK, len(words), BLOCK)]
            hits = BLOCK * next((n for n, key in enumerate(keys) if key not in self.cache), len(keys))
            self.cache.update(keys)
            self.counts["requests"] += 1
            self.counts["prompt"] += len(words)
            self.counts["hits"] += hits
            return hits


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def whole(self, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        server = self.server
        if self.path == "/metrics":
            self.whole(METRICS.format(**server.counts))
        elif self.path == "/asked":
            self.whole(json.dumps(server.asked))
        else:
            self.whole(json.dumps({"data": [{"id": "SIMULATED", "max_model_len": server.limit}]}))

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/reset_prefix_cache":
            server.cache.clear()
            return self.whole("")
        if self.path == "/tokenize":
            return self.whole(json.dumps({"count": len(body["prompt"].split())}))
        messages = body.get("messages") or [{"role": "user", "content": body.get("prompt")}]
        words = " ".join(f"<{one['role']}> {one['content']}" for one in messages).split()
        want = int(body["max_tokens"])
        if len(words) + want > server.limit:
            return self.whole(json.dumps({"error": {"message": "the prompt is too long"}}), 400)
        if not body.get("stream"):
            usage = {"prompt_tokens": len(words), "completion_tokens": 1, "total_tokens": len(words) + 1}
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": "so"},
                "finish_reason": "length",
            }
            return self.whole(json.dumps({"choices": [choice], "usage": usage}))
        hits = server.look_up(words, messages)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        usage = {"prompt_tokens": len(words), "prompt_tokens_details": {"cached_tokens": hits}}
        for count in range(1, want + 1):
            text = f"so{len(messages)} " if count == 1 else f"{words[-1]}{count} "
            choice = {"delta": {"content": text}, "finish_reason": "length" if count == want else None}
            self.event({"choices": [{"index": 0, **choice}], "usage": {**usage, "completion_tokens": count}})
            time.sleep(server.step_s)
        server.counts["tokens"] += want
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return None

    def event(self, value: Any) -> None:
        data = b"data: %s\n\n" % json.dumps(value).encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-len", type=int, default=100_000)
    parser.add_argument("--step-ms", type=float, default=1.0)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    server = Server(options.max_len, options.step_ms / 1e3, options.port)
    print(f"listening on 127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
