#!/usr/bin/env python3
"""A small benchmark, as a user would write it: streams at once, tokens from usage, one JSON file at the very end.

  bench_ddtree_matrix.py --context N --concurrency N [--out FILE] [--tokens 256] [--requests 2] [--port 30000]
Results: {"results": [{"workload": …, "context": …, "concurrency": …, "tok_s": …, "ttft_ms": …, "tokens": …}]}
"""
import argparse, json, os, sys, threading, time, urllib.request

WORKLOADS = {"fib": "Write a Python program that prints the first 50 Fibonacci numbers.",
             "json": "Write a JSON object that describes a small library with five books."}


def ask(port, prompt, tokens, out):
    body = {"model": "default", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    start, first, got = time.monotonic(), None, 0
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if first is None and event.get("choices") and event["choices"][0]["delta"].get("content"):
                        first = time.monotonic()
                    got = (event.get("usage") or {}).get("completion_tokens", got)
    except OSError as error:
        print(f"request failed: {error}", file=sys.stderr)
    out.append((start, first, time.monotonic(), got))


def cell(a, name):
    prompt, rows = "lorem ipsum dolor sit amet " * (a.context // 5) + WORKLOADS[name], []
    begin = time.monotonic()
    for _ in range(a.requests):
        threads = [threading.Thread(target=ask, args=(a.port, prompt, a.tokens, rows)) for _ in range(a.concurrency)]
        [t.start() for t in threads], [t.join() for t in threads]
    wall, ttft = time.monotonic() - begin, [f - s for s, f, _, _ in rows if f]
    return {"workload": name, "context": a.context, "concurrency": a.concurrency, "requests": len(rows), "tokens": sum(r[3] for r in rows),
            "tok_s": sum(r[3] for r in rows) / wall, "ttft_ms": 1000 * sum(ttft) / len(ttft) if ttft else None}


ap = argparse.ArgumentParser()
for flag, default in (("--context", 0), ("--concurrency", 1), ("--tokens", 256), ("--requests", 1), ("--port", 30000)):
    ap.add_argument(flag, type=int, default=default)
ap.add_argument("--out", default="/root/results/ddtree_matrix.json")
a = ap.parse_args()
results = []
for name in WORKLOADS:
    results.append(cell(a, name))
    print(f"{name:6} context {a.context:6} concurrency {a.concurrency:3}: {results[-1]['tok_s']:8.1f} tok/s", flush=True)
os.makedirs(os.path.dirname(os.path.abspath(a.out)), exist_ok=True)
with open(a.out, "w") as f:
    json.dump({"results": results}, f, indent=1)
