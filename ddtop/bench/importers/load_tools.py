"""Reports of general HTTP load tools, told by their form. They count requests, not tokens, so they are no result of a
language model's server, however good they look. Pure."""

from __future__ import annotations

import json
import re

_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("k6", re.compile(r"^\s*http_req_duration\.*:|\bhttp_req_waiting\b|\"root_group\"\s*:", re.M)),
    ("vegeta", re.compile(r"^Requests\s+\[total, rate(?:, throughput)?\]", re.M)),
    ("hey", re.compile(r"^\s*Response time histogram:", re.M)),
    ("oha", re.compile(r"^\s*Success rate:\s+[\d.]+%?\s*$", re.M)),
    ("wrk", re.compile(r"^\s*Thread Stats\s+Avg\s+Stdev\s+Max", re.M)),
    ("ab", re.compile(r"^Concurrency Level:\s+\d+[\s\S]{0,400}^Time taken for tests:", re.M)),
    (
        "locust",
        re.compile(
            r"^Type\s+Name\s+# reqs\s+# fails|^Type,Name,Request Count,Failure Count|^Timestamp,User Count,Type,Name,Requests/s",
            re.M,
        ),
    ),
    (
        "perf_analyzer",
        re.compile(r"throughput: [\d.]+ infer/sec, latency \d+ usec|^Concurrency,Inferences/Second,", re.M),
    ),
    ("siege", re.compile(r"^Transactions:\s+[\d,]+ hits|^Availability:\s+[\d.]+ %", re.M)),
    ("JMeter", re.compile(r"^timeStamp,elapsed,label,responseCode", re.M)),
)
_JSON_KEYS: tuple[tuple[str, frozenset[str]], ...] = (
    ("vegeta", frozenset({"latencies", "bytes_in", "bytes_out", "status_codes"})),
    ("k6", frozenset({"metrics", "root_group"})),
    ("locust", frozenset({"num_requests", "num_failures", "response_times"})),
    ("oha", frozenset({"summary", "responseTimeHistogram"})),
    ("autocannon", frozenset({"latency", "requests", "non2xx"})),
)
LOOK = 20_000


def load_tool(text: str) -> str:
    """The tool whose report this is, or ""."""
    head = text[:LOOK]
    if head.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        first = value[0] if isinstance(value, list) and value else value
        keys = set(first) if isinstance(first, dict) else set()
        return next((name for name, wanted in _JSON_KEYS if wanted <= keys), "")
    return next((name for name, form in _FORMS if form.search(head)), "")


RESULT_TEXT = re.compile(
    r"Serving Benchmark Result|Offline Throughput Benchmark Result|token throughput \(tok/s\)|Successful requests:|Benchmark duration \(s\)"
    r"|Request throughput \(req/s\)|Mean TTFT \(ms\)|NVIDIA AIPerf|LLM Metrics\s|Output token throughput \(per sec\)"
    r"|^\|\s*model\s*\|.{0,200}\|\s*test\s*\||Succeed requests|Total / Success / Failed|Total Output Throughput \(tokens/sec\)"
    r"|^Metric,avg,|^build_commit,|MLPerf Results Summary|^Successful/total requests: \d|^Baseline throughput: [\d.]+ tok/s"
    r"|^Num prompts: +\d+$|^eval rate: +[\d.]+ tokens/s|^Throughput: [\d.,]+ requests/s\b|^Number Of Completed Requests: \d|^Avg latency: [\d.]+ seconds"
    r"|^Prefill\. latency: |S_TG t/s|Speed \(token/s\)|TPUT per GPU|output throughput \(tok/s\)|token throughput \(completion token\)|^(?=[^\n]*\bcompleted\b)(?=[^\n]*output_throughput)[\w ,;\t]+$|\bttfr \(ms\)"
    r"|^Output token throughput: [\d.]+",
    re.M | re.I,
)
"""What a printed result of a tool that ddtop reads has in it."""


def is_result_text(text: str) -> bool:
    """Whether a text looks like a benchmark's printed result, also that of a load tool that counts no tokens."""
    return RESULT_TEXT.search(text) is not None or bool(load_tool(text))
