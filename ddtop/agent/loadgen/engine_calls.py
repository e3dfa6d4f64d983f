"""Questions to the engine around a cell, never within: Prometheus counters, cache flush, tokenizer. One small blocking
HTTP client on sockets of its own, so that nothing but the standard library's socket and ssl is needed.
"""

from __future__ import annotations

import json
import math
import re
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from .http.http1 import HttpError, ResponseReader
from .window.connection import tls_context

LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})?\s+(\S+)")
KEEP = re.compile(r"^(sglang|vllm|llamacpp)[:_]")
METRICS_PATH = {"sglang": "/metrics", "vllm": "/metrics", "llamacpp": "/metrics"}
# engine → (method, path, what a good response says)
FLUSH = {
    "sglang": ("POST", "/flush_cache", "flushed"),
    "vllm": ("POST", "/reset_prefix_cache", ""),
}


class AskError(Exception):
    """A request got no usable response; the text names the URL and what happened."""


def ask(
    url: str,
    method: str = "GET",
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    timeout_s: float = 10.0,
    verify: bool = True,
    limit: int = 32 << 20,
) -> tuple[int, bytes]:
    """One request, one response: (status, body). Raises AskError. Not for timed use."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    data = b"" if body is None else json.dumps(body).encode()
    host = parts.hostname or ""
    lines = [
        "%s %s HTTP/1.1" % (method, (parts.path or "/") + ("?" + parts.query if parts.query else "")),
        "Host: %s" % parts.netloc.rpartition("@")[2],
        "Connection: close",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Content-Length: %d" % len(data),
    ]
    if data:
        lines.append("Content-Type: application/json")
    lines += ["%s: %s" % item for item in (headers or {}).items()]
    deadline = time.monotonic() + timeout_s
    reader = ResponseReader()
    out: list[bytes] = []
    size = 0
    try:
        with socket.create_connection((host, parts.port or (443 if tls else 80)), timeout=timeout_s) as plain:
            sock: socket.socket = plain
            if tls:
                sock = tls_context(verify).wrap_socket(plain, server_hostname=host)
            sock.sendall("\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + data)
            while not reader.complete:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AskError("%s %s: no whole response in %.0f s" % (method, url, timeout_s))
                sock.settimeout(left)
                piece = sock.recv(1 << 16)
                if not piece:
                    out.append(reader.eof())
                    break
                out.append(reader.feed(piece))
                size += len(out[-1])
                if size > limit:
                    raise AskError("%s %s: the response is longer than %d MiB" % (method, url, limit >> 20))
    except (OSError, HttpError) as error:
        raise AskError("%s %s: %s" % (method, url, error or type(error).__name__)) from None
    if not reader.head_done:
        raise AskError("%s %s: the connection closed before any response" % (method, url))
    return reader.status, b"".join(out)


def parse_prometheus(text: str) -> dict[str, float]:
    """Exposition text → {name{labels}: value} of the engines' own families, histogram buckets left out; no NaN."""
    out: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not KEEP.match(line):
            continue
        found = LINE.match(line)
        if found is None or found.group(1).endswith(("_bucket", "_created")):
            continue
        try:
            value = float(found.group(3))
        except ValueError:
            continue
        if math.isfinite(value):
            out[found.group(1) + (found.group(2) or "")] = value
    return out


def read_counters(base: str, path: str, headers: dict[str, str], verify: bool) -> dict[str, Any]:
    """{"at_ns", "values"} or {"error"}."""
    try:
        status, body = ask(base + path, headers=headers, verify=verify, timeout_s=5.0)
    except AskError as error:
        return {"error": str(error)}
    if status != 200:
        return {"error": "GET %s%s: HTTP %d" % (base, path, status)}
    return {"at_ns": time.monotonic_ns(), "values": parse_prometheus(body.decode("utf-8", "replace"))}


def flush_cache(
    engine: str, base: str, headers: dict[str, str], verify: bool, wait_s: float = 10.0
) -> dict[str, Any]:
    """Flush the prefix cache and check the response: {"asked", "ok", "status", "text"}. SGLang refuses while requests
    run (400), so it is asked again for up to `wait_s`."""
    if engine not in FLUSH:
        return {
            "asked": False,
            "ok": False,
            "text": "no known way to flush the cache of %r" % (engine or "this engine"),
        }
    method, path, mark = FLUSH[engine]
    deadline = time.monotonic() + wait_s
    while True:
        try:
            status, body = ask(base + path, method, headers=headers, verify=verify)
        except AskError as error:
            return {"asked": True, "ok": False, "text": str(error)}
        text = body.decode("utf-8", "replace").strip()[:300]
        good = status == 200 and (not mark or mark in text.lower())
        if good or status != 400 or time.monotonic() > deadline:
            return {"asked": True, "ok": good, "status": status, "text": text}
        time.sleep(0.5)


def context_limit(base: str, engine: str, headers: dict[str, str], verify: bool) -> int | None:
    """Tokens that a request and its answer may have together, by the server's own word; None where it does not say.
    (SGLang and vLLM: `max_model_len` of /v1/models; llama.cpp: `n_ctx` of a slot in /props.)"""
    path = "/props" if engine == "llamacpp" else "/v1/models"
    try:
        status, raw = ask(base + path, headers=headers, verify=verify)
        answer = json.loads(raw.decode("utf-8", "replace"))
        if engine == "llamacpp":
            found = answer["default_generation_settings"]["n_ctx"]
        else:
            found = answer["data"][0]["max_model_len"]
    except (AskError, ValueError, LookupError, TypeError):
        return None
    good = status == 200 and isinstance(found, int) and not isinstance(found, bool) and found > 0
    return found if good else None


def count_tokens(
    base: str, engine: str, model: str, text: str, headers: dict[str, str], verify: bool
) -> int | None:
    """Tokens of a text by the server's own /tokenize; None where it has none. (SGLang and vLLM: {"prompt"}, "count";
    llama.cpp: {"content"}, a list.)"""
    if engine == "llamacpp":
        bodies: list[dict[str, Any]] = [{"content": text}]
    else:
        bodies = [{"model": model, "prompt": text, "add_special_tokens": False}, {"content": text}]
    for body in bodies:
        try:
            status, raw = ask(
                base + "/tokenize", "POST", body, headers=headers, verify=verify, timeout_s=30.0
            )
            answer = json.loads(raw.decode("utf-8", "replace"))
        except (AskError, ValueError):
            return None
        if status == 200 and isinstance(answer, dict):
            count = answer.get("count")
            if isinstance(count, int) and not isinstance(count, bool):
                return count
            tokens = answer.get("tokens")
            if isinstance(tokens, list) and (tokens or not text):
                return len(tokens)
    return None
