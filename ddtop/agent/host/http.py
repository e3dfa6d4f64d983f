"""HTTP requests to servers on this host, and no other: bounded in time and size."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from typing import Any, Dict, Optional, Tuple
from urllib.parse import urlsplit

from ..context import Context
from ..errors import OpError

MAX_B = 500_000


def check_local(host: str, port: int) -> str:
    """The address to ask. Raises OpError unless it is loopback or one of this host's own."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OpError("not-found", f"{host}: {error}") from error
    for family, kind, proto, _, address in found:
        with socket.socket(family, kind, proto) as sock:
            try:  # an address that can be bound is ours
                sock.bind((address[0], 0, *address[2:]))
            except OSError:
                continue
            return str(address[0])
    raise OpError("bad-request", f"{host} is not this host: the agent only asks servers on its own host")


def bearer(key_env: Optional[str]) -> Dict[str, str]:
    """The Authorization header with the key in an environment variable of this host."""
    if not key_env:
        return {}
    key = os.environ.get(key_env, "")
    if not key:
        raise OpError(
            "not-found", f"the environment variable {key_env} is not set for this login on this host"
        )
    return {"Authorization": "Bearer " + key}


def ask(
    method: str, url: str, headers: Dict[str, str], body: Optional[bytes], timeout_s: float, max_b: int
) -> Dict[str, Any]:
    """One exchange, blocking. {"status", "headers", "body", "elapsed_ms", "truncated"} or {"error": word, "what"}."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OpError("bad-request", f"{url!r} is not an http URL")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = check_local(parts.hostname, port)
    until = time.monotonic() + timeout_s
    began = time.monotonic()
    if parts.scheme == "https":
        secure = ssl.create_default_context()
        secure.check_hostname = False  # it is this host; certificates there are self-signed as a rule
        secure.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address, port, timeout=timeout_s, context=secure
        )
    else:
        connection = http.client.HTTPConnection(address, port, timeout=timeout_s)
    try:
        path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        sent = {
            "Host": parts.netloc.rpartition("@")[2],
            "Connection": "close",
            "User-Agent": "ddtop",
            **headers,
        }
        connection.request(method, path, body=body, headers=sent)
        response = connection.getresponse()
        data, truncated = _read(connection, response, until, max_b)
    except socket.timeout:
        return {"error": "timeout", "elapsed_ms": (time.monotonic() - began) * 1000}
    except ConnectionRefusedError:
        return {"error": "refused", "elapsed_ms": (time.monotonic() - began) * 1000}
    except (ConnectionError, http.client.RemoteDisconnected) as error:
        return {"error": "reset", "what": str(error), "elapsed_ms": (time.monotonic() - began) * 1000}
    except (http.client.HTTPException, ssl.SSLError, OSError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        return {"error": "bad-answer", "what": what, "elapsed_ms": (time.monotonic() - began) * 1000}
    finally:
        connection.close()
    return {
        "status": response.status,
        "headers": {key.lower(): value for key, value in response.getheaders()},
        "body": data.decode("utf-8", "replace"),
        "elapsed_ms": (time.monotonic() - began) * 1000,
        "truncated": truncated,
    }


def _read(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse, until: float, max_b: int
) -> Tuple[bytes, bool]:
    data = b""
    while len(data) <= max_b:
        left = until - time.monotonic()
        if left <= 0:
            raise socket.timeout
        if connection.sock is not None:
            connection.sock.settimeout(left)
        chunk = response.read1(65536)
        if not chunk:
            if response.length:  # the connection ended before the answer did
                raise http.client.IncompleteRead(data, response.length)
            return data, False
        data += chunk
    return data[:max_b], True


async def http_op(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `http`."""
    timeout_s = float(args.get("timeout_s", 5))
    headers = {str(k): str(v) for k, v in (args.get("headers") or {}).items()}
    headers.update(bearer(args.get("key_env")))
    body = args.get("body")
    raw = str(body).encode() if body is not None else None
    if raw is not None and not any(key.lower() == "content-type" for key in headers):
        headers["Content-Type"] = "application/json"
    max_b = max(0, min(int(args.get("max_b", MAX_B)), MAX_B))
    return await context.thread(
        ask, str(args.get("method", "GET")).upper(), args["url"], headers, raw, timeout_s, max_b
    )


def tokenize_url(url: str) -> str:
    """The tokenize endpoint of a server's base URL; a whole one is kept.

    >>> tokenize_url("http://127.0.0.1:30000/v1"), tokenize_url("http://[::1]:8080")
    ('http://127.0.0.1:30000/tokenize', 'http://[::1]:8080/tokenize')
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path in ("", "/v1"):
        return f"{parts.scheme}://{parts.netloc}/tokenize"
    return url


async def tokens(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `tokens`: how many tokens a text has by the server's own tokenizer (SGLang, vLLM and llama.cpp)."""
    text = str(args["text"])
    # SGLang and vLLM take "prompt" and answer "count"; llama.cpp takes "content" and answers "tokens".
    body = json.dumps({"prompt": text, "content": text}).encode()
    headers = {"Content-Type": "application/json", **bearer(args.get("key_env"))}
    url = tokenize_url(args["url"])
    answer = await context.thread(ask, "POST", url, headers, body, float(args.get("timeout_s", 10)), 64 << 20)
    if answer.get("status") != 200:
        said = answer.get("error") or "status %s: %s" % (answer.get("status"), answer.get("body", "")[:500])
        raise OpError("failed", f"{url}: {said}")
    try:
        reply = json.loads(answer["body"])
        count = reply["count"] if "count" in reply else len(reply["tokens"])
    except (ValueError, KeyError, TypeError) as error:
        raise OpError("failed", f"{url}: no count in {answer['body'][:300]!r}") from error
    return {"count": int(count)}
