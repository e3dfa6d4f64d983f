"""The HTTP side: SGLang's endpoints, each as ready and as useless as the real one.

HTML=200 or 502  every response is a page with that status     HTTP500=1  each completion fails
"""
import json, re, sys, time, zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ddtop_bed import ledger

from . import __version__, scheduler, state
from .load import context_len
from .scheduler import Request, submit, too_long
from .server_args import REAL_KEYS
from .state import COUNTS, DRAINING, FAULTS, READY

TOKEN = re.compile(r"[A-Za-z_]{1,6}|\d{1,3}|\s*[^\sA-Za-z_\d]")
PROGRAM = ("def fibonacci ( n ) : \n    a , b = 0 , 1 \n    for _ in range ( n ) : \n        yield a \n        a , b = b , a + b \n\n"
           "for number in fibonacci ( 50 ) : \n    print ( number ) \n\n").split(" ")


def tokenize(text):
    return [t.strip() for t in TOKEN.findall(text)]


def words(start, count):
    """Tokens `start` … of the one answer this model knows; ANSWER=other goes another way after the 20th, garbage is one word."""
    kind = FAULTS.get("ANSWER")
    if kind == "garbage":
        return " print" * count
    return "".join(" " + PROGRAM[(i + 5 * (kind == "other" and i >= 20)) % len(PROGRAM)] for i in range(start, start + count))


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def log_request(self, code="-", size="-"):
        reason = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}.get(int(code), "")
        state.log(f'INFO:     {self.client_address[0]}:{self.client_address[1]} - "{self.requestline}" {int(code)} {reason}')

    def log_message(self, *_):
        pass

    def reply(self, body, status=200, kind="application/json"):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def error(self, message, status=400):
        self.reply({"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}, status)

    # ---- GET

    def page(self):
        """With HTML=STATUS everything is answered as a proxy or another application would. True: it was."""
        status = FAULTS.get("HTML", 0)
        if status:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.reply("<html><body><h1>Welcome</h1></body></html>", status, "text/html")
        return bool(status)

    def do_GET(self):
        if self.page():
            return
        path, args = self.path.split("?")[0], state.ARGS
        if path == "/ready":
            self.reply("", 200 if READY.is_set() and not DRAINING.is_set() else 503, "text/plain")
        elif path in ("/health", "/health_generate"):
            self.reply("", 200 if self.healthy() else 503, "text/plain")
        elif path in ("/v1/models", "/models"):
            if DRAINING.is_set():
                ledger.stamp("answered-while-draining", path=path)
            self.reply({"object": "list", "data": [{"id": args.served_model_name, "object": "model", "created": int(time.time()), "owned_by": "sglang",
                                                    "root": args.served_model_name, "parent": None, "max_model_len": context_len()}]})
        elif path in ("/get_server_info", "/server_info"):
            self.reply(self.server_info())
        elif path in ("/get_model_info", "/model_info"):
            self.reply({"model_path": args.model_path, "tokenizer_path": args.tokenizer_path, "is_generation": True, "preferred_sampling_params": None,
                        "weight_version": args.weight_version, "model_type": state.MODEL.get("model_type")})
        elif path == "/metrics" and args.enable_metrics:
            self.reply(metrics(), kind="text/plain; version=0.0.4; charset=utf-8")
        elif path == "/flush_cache":
            self.flush_cache()
        else:
            self.reply({"detail": "Not Found"}, 404)

    def healthy(self):
        """As the real one: generates a token and waits for it, at least 1 s of the server's time, at most 20."""
        if DRAINING.is_set():
            state.log("Health check request received during shutdown. Returning 503.")
            return False
        if not READY.is_set():
            return False
        request = submit(Request("", 1, 1, True, quiet=True))
        state.wait(1.0)
        try:
            return request.out.get(timeout=20.0 / FAULTS.speed()) is not None
        except Exception:
            return False

    def server_info(self):
        """All keys of 0.5.23's answer (REAL_KEYS, from a real server) with this server's values, and the schedulers' own account.

        `speculative_dflash_block_size` is there and null, whatever `speculative_num_draft_tokens` says."""
        args = {**REAL_KEYS, **vars(state.ARGS)}
        held = {"weight": state.MODEL.get("simulated_weights_gib", 16) / state.ARGS.tp_size, "kvcache": 32.24, "startup_available": 94.5,
                "token_capacity": 834615, "token_capacity_swa": None, "graph": {"prefill": 0.0, "decode": 1.2}}
        state_of_rank = {**args, "world_size": state.ARGS.tp_size, "effective_max_running_requests_per_dp": state.ARGS.max_running_requests or 2048,
                         "last_gen_throughput": COUNTS["throughput"], "memory_usage": held, "decode_cuda_graph_bs": [1, 2, 4], "decode_cuda_graph_memory_gb": 1.2}
        if state.ARGS.speculative_algorithm and COUNTS["verify"]:
            state_of_rank["avg_spec_accept_length"] = COUNTS["accept"]
        return {**args, "launch_command": " ".join(sys.argv[1:]), "status": "ready" if READY.is_set() else "starting",
                "startup_time": {"load_weight": 2.0, "kv_cache_allocation": 0.5}, "internal_states": [state_of_rank], "version": __version__, "frontend": "python"}

    def flush_cache(self):
        if COUNTS["running"] or COUNTS["queued"]:
            return self.reply("Failed to flush cache. Requests are running or queued.\n", 400, "text/plain")
        scheduler.CACHE.clear()
        state.log("Cache flushed successfully!", 0)
        return self.reply("Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n", kind="text/plain")

    # ---- POST

    def do_POST(self):
        path = self.path.split("?")[0]
        if self.page():
            return None
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        except ValueError:
            return self.error("There was an error parsing the body")
        if path == "/flush_cache":
            return self.flush_cache()
        if path in ("/tokenize", "/v1/tokenize"):
            tokens = [zlib.crc32(t.encode()) % 1000 + 2 for t in tokenize(str(body.get("prompt", "")))]
            return self.reply({"tokens": tokens, "count": len(tokens), "max_model_len": context_len()})
        if FAULTS.get("HTTP500"):
            return self.error("internal server error", 500)
        if path == "/generate":
            return self.generate(body)
        if path in ("/v1/completions", "/v1/chat/completions"):
            return self.openai(body, path)
        return self.reply({"detail": "Not Found"}, 404)

    def ask(self, prompt, limit, ignore_eos, extra=0):
        """Submit; answers 400 and returns None if it does not fit, 503 if the queue is full."""
        tokens = len(prompt) if isinstance(prompt, list) else max(1, len(tokenize(prompt))) + extra
        if message := too_long(tokens, limit):
            self.error(message)
            return None
        request = submit(Request(str(prompt), tokens, limit, ignore_eos, path=self.path, asked_as=self.headers.get("X-Request-Id", "")))
        if request is None:
            self.error("The request queue is full.", 503)
        return request

    def start_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, data):
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def openai(self, body, path):
        chat = path.startswith("/v1/chat")
        if chat and not isinstance(body.get("messages"), list):
            return self.error("messages: Field required")
        prompt = "\n".join(str(m.get("content")) for m in body["messages"]) if chat else body.get("prompt", "")
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 128)
        request = self.ask(prompt, limit, bool(body.get("ignore_eos")), extra=12 if chat else 0)
        if request is None:
            return None
        head = {"id": request.id, "object": "chat.completion" if chat else "text_completion", "created": int(time.time()), "model": body.get("model", state.ARGS.served_model_name)}

        def choice(text, finish=None, key="delta", role=None):
            content = {key: {"role": role or (None if key == "delta" else "assistant"), "content": text, "reasoning_content": None, "tool_calls": None}} if chat else {"text": text}
            return {"index": 0, **content, "logprobs": None, "finish_reason": finish, "matched_stop": 0 if finish == "stop" else None}

        def usage(sent):
            return {"prompt_tokens": request.prompt_tokens, "total_tokens": request.prompt_tokens + sent, "completion_tokens": sent,
                    "prompt_tokens_details": {"cached_tokens": request.cached} if state.ARGS.enable_cache_report else None, "reasoning_tokens": 0}

        if not body.get("stream"):
            text = "".join(words(n, c) for n, c in self.counts(request))
            return self.reply({**head, "choices": [choice(text, request.finish, "message")], "usage": usage(request.sent),
                               "metadata": {"weight_version": "default"}})
        options = body.get("stream_options") or {}
        head["object"] += ".chunk" if chat else ""
        running = bool(options.get("continuous_usage_stats"))
        told = body.get("return_spec_tokens_details") and state.ARGS.speculative_algorithm
        try:
            self.start_stream()
            if chat:
                self.event({**head, "choices": [choice("", role="assistant")], "usage": usage(0) if running else None})
            for at, count in self.counts(request):
                self.event({**head, "choices": [choice(words(at, count))], "usage": usage(at + count) if running else None})
            more = {"sglext": {"spec_tokens_details": {"spec_verify_ct": request.verify}}} if told else {}
            self.event({**head, "choices": [choice("" if not chat else None, request.finish)], "usage": usage(request.sent) if running else None, **more})
            if options.get("include_usage"):
                self.event({**head, "choices": [], "usage": usage(request.sent)})
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            request.gone = True
            request.record()  # it may have left before its first token
        return None

    def counts(self, request):
        """(tokens before, tokens of this piece), and the ledger's line at the end, whether or not the client stays."""
        at = 0
        try:
            for count in iter(request.out.get, None):
                yield at, count
                at += count
        except GeneratorExit:
            request.gone = True
            raise
        finally:
            request.record()

    def generate(self, body):
        params = body.get("sampling_params") or {}
        prompt = body.get("text") if body.get("text") is not None else body.get("input_ids", "")
        request = self.ask(prompt, int(params.get("max_new_tokens", 128)), bool(params.get("ignore_eos")))
        if request is None:
            return None

        def answer(text, sent, done):
            meta = {"id": request.id, "finish_reason": ({"type": "length", "length": sent} if request.finish == "length" else {"type": "stop", "matched": 0}) if done else None,
                    "prompt_tokens": request.prompt_tokens, "weight_version": "default", "completion_tokens": sent, "cached_tokens": request.cached}
            if state.ARGS.speculative_algorithm:
                meta.update(spec_verify_ct=request.verify, spec_accept_length=(sent - 1) / request.verify if request.verify else 0.0)
            if done:
                meta["e2e_latency"] = (time.time_ns() - request.start_ns) / 1e9
            return {"text": text, "output_ids": [i % 1000 + 2 for i in range(sent)], "meta_info": meta}

        if not body.get("stream"):
            text = "".join(words(n, c) for n, c in self.counts(request))
            return self.reply(answer(text, request.sent, True))
        text = ""
        try:
            self.start_stream()
            for at, count in self.counts(request):
                text += words(at, count)
                self.event(answer(text, at + count, at + count >= request.limit))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            request.gone = True
            request.record()  # it may have left before its first token
        return None


def metrics():
    """The Prometheus text of the counters and gauges that matter here, with 0.5.23's names and labels: request counters by
    `is_streaming`, gauges by rank."""
    everywhere = f'engine_type="unified",model_name="{state.ARGS.served_model_name}"'
    rank = everywhere + ',moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    spec = bool(state.ARGS.speculative_algorithm)
    out = []
    for name, kind, labels, value in (
        *((f"{name}_total", "counter", 'engine_type="unified",is_streaming="%s",model_name="%s"' % (stream, state.ARGS.served_model_name), value)
          for name, key in (("prompt_tokens", "prompt"), ("generation_tokens", "generated"), ("num_requests", "requests"))
          for stream, value in (("false", 0), ("true", COUNTS[key]))),
        *([("spec_verify_calls_total", "counter", everywhere, COUNTS["verify"])] if spec else []),
        ("gen_throughput", "gauge", rank, COUNTS["throughput"]), ("num_running_reqs", "gauge", rank, COUNTS["running"]),
        ("num_queue_reqs", "gauge", rank, COUNTS["queued"]), ("spec_accept_length", "gauge", rank, COUNTS["accept"] if spec else 0.0),
        ("spec_num_draft_tokens", "gauge", rank, (state.ARGS.speculative_num_draft_tokens or 0) if spec else 0),
        ("token_usage", "gauge", rank, 0.01 if COUNTS["running"] else 0.0), ("max_total_num_tokens", "gauge", rank, 834615),
    ):
        head = f"# HELP sglang:{name} {name}\n# TYPE sglang:{name} {kind}\n"
        out.append(("" if head in out[-1:] else head) + f"sglang:{name}{{{labels}}} {float(value)}\n")
    return "".join(out)


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size, allow_reuse_address = True, 256, True

    def handle_error(self, *_):
        pass
