"""Short ways for the bed's own tests."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any


def get(ip: str, path: str, port: int = 30000, timeout_s: float = 3) -> tuple[int, str]:
    """Status and body; status 0 when nobody answers."""
    try:
        conn = http.client.HTTPConnection(ip, port, timeout=timeout_s)
        conn.request("GET", path)
        answer = conn.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""


def post(
    ip: str, path: str, body: dict[str, Any], port: int = 30000, timeout_s: float = 20
) -> dict[str, Any]:
    """The JSON answer of a POST; OSError or HTTPException where it breaks off."""
    conn = http.client.HTTPConnection(ip, port, timeout=timeout_s)
    conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer: dict[str, Any] = json.loads(conn.getresponse().read())
    return answer


def stream(ip: str, body: dict[str, Any], timeout_s: float = 20) -> list[dict[str, Any]]:
    """The events of a streamed chat completion."""
    conn = http.client.HTTPConnection(ip, 30000, timeout=timeout_s)
    request = {"messages": [{"role": "user", "content": "count"}], "stream": True, **body}
    conn.request("POST", "/v1/chat/completions", json.dumps(request), {"Content-Type": "application/json"})
    lines = [line[6:] for line in conn.getresponse() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def until(true: Callable[[], Any], timeout_s: float = 20) -> Any:
    """The first truth of `true()`; AssertionError if there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.05)
    return value


def logged(host: Any, unit: str, words: str, since_ns: int = 0) -> str:
    """Wait until the unit's log has the words, and return all of it: what a process wrote last reaches the journal
    a little after its end, and after systemd's own line about it."""
    since = f"--since=@{since_ns / 1e9:.6f}" if since_ns else ""
    read = f"journalctl -u {unit} -o cat -a --no-pager {since}"
    return str(until(lambda: (text := host.sh(read)) and words in text and text))
