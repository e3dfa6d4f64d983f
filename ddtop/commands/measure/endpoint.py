"""Asks an endpoint for its health, models and engine before it is measured. Uses httpx; not in the timed path."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ddtop.errors import HostUnreachableError, UsageError

LIMIT_S = 5.0
ENGINES = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "llamacpp", "llama.cpp": "llamacpp"}
"""`owned_by` of `/v1/models` → ddtop's name of the engine."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """What the endpoint said of itself; what it did not say is empty."""

    health: int | None = None
    """Status of `/health`; None: not reached, or no such path."""
    models: tuple[str, ...] = ()
    engine: str = ""
    """Known engines have `/metrics` with the exact counters of speculation."""
    trouble: str = ""
    """Why it could not be reached."""

    def notes(self, model: str) -> list[str]:
        """Warnings to print before the figures."""
        found = []
        if self.trouble:
            found.append(f"no answer: {self.trouble}")
        if self.health is not None and self.health >= 500:
            found.append(f"/health returns HTTP {self.health}: the server may still be loading")
        if model and self.models and model not in self.models:
            found.append(f"it serves {', '.join(self.models)}, not {model}")
        return found


def check_url(url: str, api_key_env: str) -> None:
    """Raises UsageError where `url` cannot be one or the key's variable is not set, HostUnreachableError where its name
    does not resolve."""
    whole = url if "://" in url else "http://" + url
    try:
        parts = urlsplit(whole)
        ok = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        ok = False
    if not ok:
        raise UsageError(
            f"`{url}` is not the URL of an endpoint", do="write http://HOST:PORT or https://HOST[:PORT]"
        )
    if api_key_env and not os.environ.get(api_key_env):
        raise UsageError(
            f"--api-key-env {api_key_env}: this environment variable is not set",
            do=f"set it first: export {api_key_env}=… (a key on the command line would be visible to others)",
        )
    name = parts.hostname or ""
    try:
        socket.getaddrinfo(name, parts.port or 80, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostUnreachableError(
            f"the name {name} does not resolve ({error})",
            host=name,
            means="no connection can be made",
            do="correct the name, or bring up the VPN that knows it",
        ) from error


def ask_endpoint(base: str, api_key_env: str = "") -> Endpoint:
    """Asks `/health` and `/v1/models` of `base`. Never raises for what the endpoint does."""
    import httpx

    key = os.environ.get(api_key_env, "") if api_key_env else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    health: int | None = None
    try:
        with httpx.Client(base_url=base, headers=headers, timeout=LIMIT_S) as client:
            answer = client.get("/health")
            health = None if answer.status_code == 404 else answer.status_code
            listed = client.get("/v1/models")
            models, engine = read_models(listed.json() if listed.status_code == 200 else None)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return Endpoint(health=health, trouble=in_words(error))
    return Endpoint(health=health, models=models, engine=engine)


def in_words(error: Exception) -> str:
    """A connection error in words.

    >>> in_words(OSError("[Errno 111] Connection refused"))
    'nothing listens there (connection refused)'
    """
    text = str(error)
    if "refused" in text.lower():
        return "nothing listens there (connection refused)"
    if "WRONG_VERSION_NUMBER" in text:
        return "the server does not speak TLS: write http:// instead of https://"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is not trusted here ({text})"
    return f"{type(error).__name__}: {text}".rstrip(": ")


def read_models(body: Any) -> tuple[tuple[str, ...], str]:
    """Names and engine from the answer of `/v1/models`; empty where it is something else.

    >>> read_models({"data": [{"id": "Qwen", "owned_by": "sglang"}]})
    (('Qwen',), 'sglang')
    """
    rows = body.get("data") if isinstance(body, dict) else None
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = tuple(str(row["id"]) for row in rows if row.get("id"))
    owners = {ENGINES.get(str(row.get("owned_by", "")).lower(), "") for row in rows}
    return names, owners.pop() if len(owners) == 1 else ""
