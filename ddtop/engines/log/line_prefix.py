"""What stands before the message of a log line: journal or container prefix, time, rank, process, level.

A log line of a server host has been through up to three writers: the engine's own prefix
(`[2026-04-27 02:36:04 TP0] `, `(EngineCore_DP0 pid=59) INFO 05-07 04:54:33 [core.py:299] `), the runtime's
(`[rank3]:[E421 …]`, `host:175:175 [0] NCCL INFO`) and the journal's or container's (`Apr 03 09:19:00 host
python3[612]: `). All of them are optional, in any combination.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")

_WRITTEN_OUT = re.compile(
    r"(?:ESC|\^\[|\\x1[bB]|\\u001[bB]|\\0?33|\u241b)\[[0-9;]{0,20}m|\[(?:\d{1,2};)+\d{1,3}m|\[0m"
)
"""Colours whose escape was written out, or lost, when somebody copied the text."""

# A record of another process may begin in the middle of a line, after a bar without newline.
_GLUE = re.compile(
    r"(?<=\S)(?="
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z]+\d+)*\] "
    r"|\((?:APIServer|EngineCore|VllmWorker|Worker|VllmWorkerProcess|Ray\w*)[\w.\-]*(?: [\w=]+){0,4} pid=\d+\)"
    r"|\[Gloo\] Rank \d"
    r")"
)

_OUTER = (
    # docker compose, kubectl: `name-1  | text`
    re.compile(r"(?P<unit>[\w][\w.\-]{0,80}?) +\| ?(?!\d+/)"),
    # journalctl -o short / short-precise, syslog: `Apr 03 09:19:00 host python3[612]: text`
    re.compile(
        r"(?P<time>(?:(?:[^\W\d_]{3,5}\.?|\d{1,2}月) [ \d]?\d \d\d:\d\d:\d\d(?:\.\d+)?"
        r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?))"
        r" (?!(?:TRACE|DEBUG|INFO|WARN|ERROR) )[\w.\-]+ (?P<unit>[^\s\[\]:]+(?: \S+)?)(?:\[(?P<pid>\d+)\])?: "
    ),
    # docker logs --timestamps, CRI: `2026-01-01T00:00:00.123456789Z stderr F text`
    re.compile(
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)) (?:std(?:out|err) [FP] )?"
    ),
    # Python's logging as programs set it: `2024-08-05 05:40:52,191 - lmdeploy - WARNING - text`, around another's line too
    re.compile(
        r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - (?P<unit>[\w.\-]{1,60}) - (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
        r"(?:[\w./\-]{1,80}\.py:\d+ - )?"
    ),
    # Docker Desktop's window: the time, and the line as it is
    re.compile(r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?=\s\s|[A-Za-z.\[(<*=\"])"),
    # dmesg and journalctl -o short-monotonic
    re.compile(r"\[ *\d+\.\d{6}\] (?:[\w.\-]+ (?P<unit>[^\s\[\]:]+)(?:\[(?P<pid>\d+)\])?: )?"),
)
_SGLANG = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<rank>(?: [A-Z]+\d+)*)\] ?")
_SGLANG_BARE = re.compile(r"\[?(?P<rank>(?:DP|TP|EP|PP)\d+(?: (?:DP|TP|EP|PP)\d+)*)\] ")
_VLLM_PROC = re.compile(
    r"\((?P<proc>[A-Za-z][\w.\-]*)(?P<extra>(?: [^\s()]+){0,4}?) pid=(?P<pid>\d{1,12})(?:, [^)]{0,200})?\)"
    r"(?: \[[\w.\-]+\])? ?"
)
_VLLM_LEVEL = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) "
    r"(?:\[(?P<src>[\w./\-]+\.py:\d+)\] ?|(?P<src2>[\w./\-]+\.py:\d+)\] ?)?"
)
_VLLM_SRC = re.compile(r"\[(?P<src>[\w./\-]+\.py:\d+)\] ")
_C10D = re.compile(
    r"\[rank(?P<rank>\d+)\]:(?:\[(?P<level>[EWIF])\d* ?(?P<time>\d\d:\d\d:\d\d[.\d]*)? ?(?:[\w.]+:\d+)?\])? ?"
)
_NCCL = re.compile(r"(?P<host>[\w.\-]+):(?P<pid>\d+):\d+ \[(?P<gpu>\d+)\] (?=NCCL )")
_LLAMA = re.compile(r"(?:\[\d+\] )?(?P<time>\d+\.\d\d\.\d{3}\.\d{3}) (?P<level>[DIWE]) ")
# TensorRT-LLM: `[04/28/2025-09:56:44] [TRT-LLM] [I] `, ranks since 0.20 as `[RANK 3]`, a module since 1.1; C++: `[TensorRT-LLM][ERROR] `
_TRTLLM = re.compile(
    r"(?:\[(?P<time>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[(?:TRT-LLM|TensorRT-LLM)\] ?(?:\[RANK (?P<rank>\d+)\] ?)?"
    r"\[(?P<level>[DIWEFV]|DEBUG|VERBOSE|INFO|WARNING|ERROR)\] (?:\[[a-z_.]{1,40}\] )?(?:\[RANK (?P<rank2>\d+)\] ?)?"
)
# Go's slog, as ollama writes it: `time=… level=INFO source=server.go:591 msg="…"`
_SLOG = re.compile(
    r"time=\"?(?P<time>\S{10,40}?)\"? level=(?P<level>[A-Z]+)(?:[+-]\d+)? (?:source=(?P<src>\S+) )?(?=msg=)"
)
# Rust's tracing, as TGI writes it behind a container's time: `INFO shard-manager: text_generation_launcher: …`
_TRACING = re.compile(
    r" ?(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) (?:[\w{}=\"\-.]{1,80}: ?){0,6}?text_generation_\w+(?:::\w+)*: (?:[\w/.\-]+\.rs:\d+: )?"
)
_WORDS = {
    "I": "INFO",
    "W": "WARNING",
    "WARN": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
    "D": "DEBUG",
    "V": "DEBUG",
}
_UVICORN = re.compile(r"(?P<level>INFO|WARNING|ERROR|DEBUG|CRITICAL): {2,}(?=\S)")


@dataclass(frozen=True, slots=True)
class Line:
    """One record without its prefixes. `time` is as written, never converted: prefixes carry no zone."""

    message: str
    time: str | None = None
    rank: str = ""
    pid: int | None = None
    proc: str = ""
    level: str = ""
    source: str = ""
    unit: str = ""
    prefixed: bool = False
    """The engine's own prefix was there, so this is the beginning of a record, not a continuation."""


def strip_ansi(text: str) -> str:
    """Remove colour and cursor sequences (the text itself is kept)."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _WRITTEN_OUT.sub("", text) if "0m" in text else text  # what sets a colour also sets it back


def pieces(line: str) -> list[str]:
    """Cut one log line into the records glued into it; a carriage return also ends a piece. Never empty."""
    return list(_pieces(line))


@lru_cache(maxsize=64)  # a line is cut by its grammar and again by who asks for its prefix
def _pieces(line: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in re.split(r"\r+\n?", strip_ansi(line)) if "\r" in line else [strip_ansi(line)]:
        if not part.strip():
            continue
        found.extend(p for p in _GLUE.split(part) if p.strip())
    return tuple(found) or ("",)


@lru_cache(maxsize=64)
def split_prefix(text: str) -> Line:
    """Take all prefixes off one piece of a line and return what they say."""
    time: str | None = None
    rank = proc = level = source = unit = ""
    pid: int | None = None
    prefixed = False
    rest = text
    for _ in range(2):  # compose over journal, journal over container
        for outer in _OUTER:
            if match := outer.match(rest):
                told = match.groupdict()
                time = told.get("time") or time
                unit = told.get("unit") or unit
                level = told.get("level") or level if unit == "lmdeploy" else level
                pid = int(told["pid"]) if told.get("pid") else pid
                rest = rest[match.end() :]
                break
        else:
            break
    if match := _SGLANG.match(rest):
        time, rank, prefixed = match["time"], match["rank"].strip(), True
        rest = rest[match.end() :]
    elif match := _SGLANG_BARE.match(rest):  # the time cut off by whoever copied the log
        rank, prefixed = match["rank"], True
        rest = rest[match.end() :]
    for _ in range(2):  # a Ray worker's line comes through the engine's process
        match = _VLLM_PROC.match(rest)
        if match is None:
            break
        proc, pid, prefixed = match["proc"], int(match["pid"]), True
        rank = rank or vllm_rank(proc, match["extra"] or "")
        rest = rest[match.end() :]
    if match := _VLLM_LEVEL.match(rest):
        level, time, prefixed = match["level"], match["time"], True
        source = match["src"] or match["src2"] or ""
        rest = rest[match.end() :]
    elif match := _VLLM_SRC.match(rest):
        source, prefixed = match["src"], True
        rest = rest[match.end() :]
    if match := _C10D.match(rest):
        rank, prefixed = rank or f"rank{match['rank']}", True
        level, time = match["level"] or level, match["time"] or time
        rest = rest[match.end() :]
    elif match := _NCCL.match(rest):
        pid, rank, prefixed = int(match["pid"]), rank or f"gpu{match['gpu']}", True
        rest = rest[match.end() :]
    elif match := _LLAMA.match(rest):
        time, level, prefixed = match["time"], match["level"], True
        rest = rest[match.end() :]
    elif match := _TRTLLM.match(rest) or _SLOG.match(rest) or _TRACING.match(rest):
        told = match.groupdict()
        time, level, prefixed = told.get("time") or time, _WORDS.get(told["level"], told["level"]), True
        number = told.get("rank") or told.get("rank2")
        rank, source = rank or (f"rank{number}" if number else ""), told.get("src") or source
        rest = rest[match.end() :]
    if match := _UVICORN.match(rest):
        level, prefixed = match["level"], True
        rest = rest[match.end() :]
    return Line(rest, time, rank, pid, proc, level, source, unit, prefixed)


def vllm_rank(proc: str, extra: str = "") -> str:
    """The rank in a vLLM process name: `Worker_TP3` → `TP3`, `VllmWorker rank=1` → `rank1`, else ``""``."""
    if match := re.search(r"rank=(\d+)", extra):
        return f"rank{match[1]}"
    ranks: list[str] = re.findall(r"(?:(?<=_)|(?<=-))(?:DP|TP|PP|EP)\d+", proc)
    return " ".join(ranks)


def iso_time(text: str | None) -> str | None:
    """`2025-03-12 08:52:40` → `2025-03-12T08:52:40` (no zone is known); None when it has no date with a year."""
    match = re.match(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d+)?)", text or "")
    return f"{match[1]}T{match[2].replace(',', '.')}" if match else None


def seconds_between(first: str | None, last: str | None) -> float | None:
    """Seconds from one written time to another; None when either has no date."""
    a, b = iso_time(first), iso_time(last)
    if a is None or b is None:
        return None
    try:
        return (datetime.fromisoformat(b) - datetime.fromisoformat(a)).total_seconds()
    except ValueError:
        return None
