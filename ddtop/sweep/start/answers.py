"""What a server's own answers and sockets prove against it, before any clock: another port, another address, an error,
something that is no inference server. Pure.

A single error proves little: a server that has just become ready may refuse its first request. REFUSALS in a row do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ddtop.events import CauseKind, Evidence
from ddtop.services.readings import ListenerReading
from ddtop.sweep.shared.verdict import Judgement

REFUSALS, REFUSED_S = 3, 2.0
"""So many failed trial requests in a row, over so many seconds, are no accident."""
ELSEWHERE_S = 1.0
"""A server that says it is ready has opened its port by then."""
BUSY = (408, 425, 429, 503)
"""HTTP statuses that mean: not now. They are a sign of life."""
LOOPBACK = re.compile(r"^(?:127\.|0\.0\.0\.0$|::$|::ffff:(?:127\.|0\.0\.0\.0$))")
"""Addresses at which a request to 127.0.0.1 arrives."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusals:
    """Trial requests that failed in a row."""

    count: int
    since: float
    status: int | None
    error: str
    kind: str = ""
    """Content-Type of the response."""
    server: str = ""
    """Its `Server` header."""


def next_refusal(
    before: Refusals | None, *, at: float, status: int | None, error: str, kind: str = "", server: str = ""
) -> Refusals:
    """`before` and one more. A status that means `not now` begins the count anew."""
    goes_on = before is not None and before.status == status
    return Refusals(
        count=before.count + 1 if goes_on and before is not None else 1,
        since=before.since if goes_on and before is not None else at,
        status=status,
        error=error,
        kind=kind,
        server=server,
    )


def reachable(listeners: tuple[ListenerReading, ...]) -> bool:
    """Whether a request to 127.0.0.1 reaches one of them. A container's port is published or it is not there at all."""
    return any(item.container or LOOPBACK.match(item.addr) for item in listeners)


def behind_router(words: Iterable[str], found: tuple[ListenerReading, ...]) -> bool:
    """Whether what listens on other ports may be the workers of a router, whose own port opens after theirs. `words`: the
    service's command.

    >>> behind_router(["python", "-m", "sglang_router.launch_server", "--dp-size", "2"], ())
    True
    """
    return any("router" in word for word in words) or len({item.port for item in found}) > 1


def elsewhere(unit: str, port: int, found: tuple[ListenerReading, ...]) -> Judgement:
    """The server listens, but not where it is to."""
    where = ", ".join(dict.fromkeys(f"{item.addr}:{item.port}" for item in found))
    same_port = any(item.port == port for item in found)
    wanted = f"127.0.0.1:{port}"
    word = "address" if same_port else "port"
    return Judgement(
        verdict="wrong-arguments",
        cause="listens-elsewhere",
        kind="config",
        text=f"{unit} listens on {where}, another {word} than {wanted}, where the plan's requests go",
        advice=f"set --host 0.0.0.0 and --port {port} in its command, or the plan's port to the server's",
        evidence=(Evidence(source="ss", text=f"{where} belongs to {found[0].who}; nothing at {wanted}"),),
    )


def refused(unit: str, port: int, r: Refusals, now: float) -> Judgement | None:
    """The verdict on a server that answers each trial request with an error; None: wait."""
    if r.count < REFUSALS or now - r.since < REFUSED_S or r.status in BUSY:
        return None
    if r.status is None and r.error not in ("refused", "reset"):
        return None  # no response in time: silence is judged by its limit
    cause, kind, text, advice = _meaning(r, port)
    told = f"HTTP {r.status}" if r.status is not None else f"connection {r.error}"
    extra = " ".join(w for w in (r.kind, f"Server: {r.server}" if r.server else "") if w)
    why = f"{r.count} trial requests in a row: {told} {extra}: {_short(r.error)}"
    return Judgement(
        verdict="no-tokens",
        cause=cause,
        kind=kind,
        text=f"{unit}: {text}",
        advice=advice,
        evidence=(Evidence(source="http", text=re.sub(r"\s+", " ", why)[:400]),),
    )


def _meaning(r: Refusals, port: int) -> tuple[str, CauseKind, str, str]:
    """(cause, kind, sentence, advice) of a failed request."""
    html = "html" in r.kind or r.error.lstrip()[:200].lower().find("<html") >= 0
    proxy = re.search(
        r"nginx|haproxy|envoy|traefik|caddy|apache|cloudflare|openresty", r.server + r.error, re.I
    )
    what = _short(r.error)
    if r.status is None:
        return (
            "connection-refused",
            "config",
            f"its port {port} is open and refuses connections ({r.error})",
            "look which address and protocol it listens on: plain HTTP on 127.0.0.1 is expected",
        )
    if r.status in (502, 504) or (proxy and html):
        who = proxy[0] if proxy else "a proxy"
        return (
            "proxy-in-front",
            "config",
            f"{who} answers on port {port} with HTTP {r.status}; the server behind it is not reached",
            "give the plan the server's own port, or repair the proxy's upstream",
        )
    if html or r.status == 200:
        return (
            "not-an-inference-server",
            "config",
            f"what answers on port {port} is no inference server: HTTP {r.status}, {r.kind or 'no JSON'}",
            "look what listens there; give the plan the port of the server's API",
        )
    if r.status in (401, 403):
        return (
            "api-key-wanted",
            "config",
            f"the server wants an API key: HTTP {r.status}",
            "start it without --api-key, or give the plan the key",
        )
    if r.status in (404, 405):
        model = "model" in r.error.lower()
        return (
            "wrong-model-name" if model else "not-an-inference-server",
            "config",
            f"{'it serves another model name' if model else 'it has no such endpoint'}: HTTP {r.status} {what}",
            "compare /v1/models with the plan's model and endpoint",
        )
    if 400 <= r.status < 500:
        return ("request-refused", "config", f"it refuses a plain request: HTTP {r.status} {what}", "")
    return (
        "server-error",
        "bug",
        f"it is ready by all signs, and each request fails: HTTP {r.status} {what}",
        "read its log at the time of the request; restart once, a second time means the configuration is broken",
    )


def _short(error: str) -> str:
    """The message of an error body, else its beginning without tags."""
    start = error.find("{")
    if start >= 0:
        try:
            body = json.loads(error[start:])
        except ValueError:
            body = None
        if isinstance(body, dict):
            found = body.get("error", body.get("message", body.get("detail")))
            found = found.get("message", found) if isinstance(found, dict) else found
            if found:
                return str(found)[:160]
    return re.sub(r"<[^>]*>|\s+", " ", error).strip()[:160]
