"""The generator's own error on this machine, at a planned load, against a stamping server whose truth is known.

python -m …loadgen.selftest '{"streams": 64, "dt_ms": 20}'       # one JSON object on standard output
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from .engine_calls import ask
from .measure import run_cell

TTFT_MS = 100


def self_test(options: dict[str, Any], server_argv: list[str] | None = None) -> dict[str, Any]:
    """Run `streams` streams of chunks every `dt_ms`, `tokens_per_chunk` tokens each, `tokens` tokens a request, `rounds`
    requests a stream, all in step if `aligned`; compare with the server's stamps. `server_argv`: another server of the
    same arguments (the C one). Returns the figures, see `score`; raises OSError if the server does not start.
    """
    streams = int(options.get("streams", 16))
    dt_ms = float(options.get("dt_ms", 20))
    per_chunk = int(options.get("tokens_per_chunk", 1))
    tokens = int(options.get("tokens", 100))
    rounds = int(options.get("rounds", 2))
    aligned = bool(options.get("aligned", True))
    argv = list(server_argv or [sys.executable, "-m", __package__ + ".stampserver"])
    argv += ["--port", "0", "--ttft-us", str(TTFT_MS * 1000), "--dt-us", str(int(dt_ms * 1000))]
    argv += ["--k", str(per_chunk), "--step", str(int(aligned))]
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # a child of a zip finds the zip
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env)
    try:
        assert child.stdout is not None
        line = child.stdout.readline().decode()
        if not line.startswith("listening on "):
            raise OSError("the stamping server did not start: %s" % " ".join(argv))
        url = "http://" + line.split()[-1]
        spec = {
            "id": "selftest",
            "url": url,
            "model": "SIMULATED",
            "prompts": ["word " * 200],
            "concurrency": streams,
            "requests": streams * rounds,
            "output_tokens": tokens,
            "gpus": "none",
            "processes": int(options.get("processes", 0)),
            "connections": str(options.get("connections", "keep-alive")),
        }
        result = run_cell(spec)
        _, dump = ask(url + "/dump", timeout_s=60.0, limit=1 << 30)
    finally:
        child.terminate()
        child.wait(5)
        if child.stdout is not None:
            child.stdout.close()
    truth = [json.loads(one) for one in dump.decode().splitlines() if one.strip()]
    out = score(result, truth)
    steps = 1 + -(-(tokens - 1) // per_chunk)
    round_s = TTFT_MS / 1e3 + (dt_ms / 1e3 / 2 if aligned else 0) + (steps - 1) * dt_ms / 1e3
    out["delivered_share"] = min(1.0, rounds * round_s / out["wall_s"]) if out.get("wall_s") else None
    out["load"] = {
        "streams": streams,
        "dt_ms": dt_ms,
        "tokens_per_chunk": per_chunk,
        "chunks_s": streams * 1e3 / dt_ms,
        "aligned": aligned,
        "server": "stampd (C)" if server_argv else "stampserver (Python)",
    }
    return out


def score(result: dict[str, Any], truth: list[dict[str, Any]]) -> dict[str, Any]:
    """Client against truth. TTFT error: the client's TTFT less (first send − arrival of the request in the server's
    kernel). ITL error: |gap between chunks − gap between the server's stamps|, without the chunks that shared a read."""
    zero = (result.get("window") or {}).get("zero_mono_ns", 0)
    stamped = {one["id"]: one for one in truth}
    ttft: list[float] = []
    itl: list[float] = []
    wrong_tokens = wrong_chunks = chunks = shared = 0
    for record in result.get("requests") or []:
        true = stamped.get("selftest-%d" % record["i"])
        if true is None or record["class"] != "ok":
            wrong_chunks += 1
            continue
        times, stamps = record.get("t") or [], true["stamps"]
        wrong_tokens += record.get("tokens") != true["tokens"]
        if len(times) != len(stamps):
            wrong_chunks += 1
            continue
        chunks += len(times)
        shared += record.get("shared", 0)
        ttft.append((zero + times[0] - (zero + record["start"]) - (stamps[0] - true["arrive_ns"])) / 1e6)
        doubtful = set(record.get("shared_at") or [])
        for place in range(1, len(times)):
            if place not in doubtful and place - 1 not in doubtful:
                itl.append(abs(times[place] - (stamps[place] - stamps[place - 1])) / 1e3)
    clients = result.get("clients") or []
    cpu_s = sum(client["cpu_s"] for client in clients)
    return {
        "requests": len(result.get("requests") or []),
        "chunks": chunks,
        "ttft_error_ms": _spread(ttft),
        "itl_error_us": _spread(itl),
        "token_mismatches": wrong_tokens,
        "chunk_mismatches": wrong_chunks,
        "coalesced_share": shared / chunks if chunks else None,
        "clock": clients[0]["clock"] if clients else "none",
        "utilisation": max([client["utilisation"] for client in clients], default=None),
        "cpu_us_per_chunk": cpu_s * 1e6 / chunks if chunks else None,
        "max_rss_mib": sum(client["max_rss_mib"] or 0 for client in clients) or None,
        "wall_s": (result.get("window") or {}).get("wall_s"),
        "error": result.get("error"),
    }


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {name: ordered[int(last * share)] for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(self_test(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})) + "\n")
