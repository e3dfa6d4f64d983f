"""`diagnose_log`: what a log file says, as `ddtop inspect log` gives it: verdict, cause, evidence, advice, numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import tomli

from ddtop.engines.log.line_prefix import split_prefix
from ddtop.engines.log.text_forms import QUOTING, looks_like
from ddtop.services.causes import cause as cause_row
from ddtop.services.causes import phase_word, verdict_fields
from ddtop.sources.log.file_lines import BLOB, ReadLog, read_log
from ddtop.sources.log.result_fields import log_fields
from ddtop.sources.log.scan_snapshot import ScanSnapshot
from ddtop.sources.log.scanner import LogScanner
from ddtop.sources.log.tracebacks import FOLLOW_UPS, Raised
from ddtop.sources.log.verdict import Judgement, in_own_words, judge, not_recognised, phase_now

_MAIN_FILES = re.compile(r"input(?P<n>\d*)\.(?!all\.)\w+$")


def scan_bytes(data: bytes, engine: str | None = None) -> tuple[ReadLog, ScanSnapshot]:
    """Read and scan a whole log file."""
    read = read_log(data)
    scanner = LogScanner(engine)
    for entry, times in read.chosen:
        scanner.feed(entry, times=times)
    return read, scanner.snapshot()


def _meta(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Numbers given beside a log (`meta.toml`): how long it has been silent, whether the port is open."""
    found: dict[str, Any] = {}
    for name, data in files.items():
        if name.endswith(".toml") and not name.startswith(("expect", "input")):
            try:
                found.update(tomli.loads(data.decode("utf-8", "replace")))
            except (tomli.TOMLDecodeError, RecursionError):
                continue
    return found


_LAST_WORDS = re.compile(r"^(?:[a-z_]\w*\.)*(?P<name>[A-Z]\w{0,60}(?:Error|Exception)): \S")


def _is_one_document(data: bytes) -> bool:
    """Whether a file is one JSON value over several lines: what stands in its texts was logged elsewhere."""
    if data.strip().count(b"\n") < 2:
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


_CONTINUES = re.compile(r"^(?:\s|$|\[\w|Possible solutions|Open an issue|For more information|Set |See )")


def _ended_by_exception(scan: ScanSnapshot) -> Judgement | None:
    """An excerpt may begin behind its traceback: then the exception is its last word, and nothing follows.

    Only a file can be judged so; a log that is still being written may go on.
    """
    for number, line in reversed(scan.tail):
        parsed = split_prefix(line)
        if parsed.level in ("DEBUG", "INFO", "WARNING"):
            return None
        if found := _LAST_WORDS.match(parsed.message):
            if FOLLOW_UPS.search(found["name"]):
                return None
            row = cause_row("unhandled-exception")
            trace = Raised(parsed.rank, parsed.pid, number, number, "", found["name"], parsed.message, number)
            where = ((number, line),)
            ended = Judgement(row.slug, row.verdict, row.severity, phase_now(scan), None, trace, where)
            return in_own_words(scan, ended)
        if not _CONTINUES.match(parsed.message) or parsed.prefixed:
            return None
    return None


def _one(name: str, data: bytes, engine: str | None, silence_s: float | None) -> dict[str, Any]:
    read, scan = scan_bytes(data, engine)
    judged = judge(scan, silence_s=silence_s)
    form = ""
    if not scan.own and not scan.server_args and not read.journal and judged.verdict != "unknown":
        form = looks_like("\n".join(entry.line[:2_000] for entry, _ in read.chosen[:400]))
    if form in QUOTING or (form == "JSON" and _is_one_document(data)):
        judged = not_recognised(scan)
    elif judged.verdict == "starting" or judged.slug in ("error-not-known", "not-recognised"):
        judged = _ended_by_exception(scan) or judged
    result = verdict_fields(judged.slug, scan.engine)
    result["verdict"], result["severity"] = judged.verdict, judged.severity
    result["meaning"] = judged.means or result["meaning"]
    result["advice"] = judged.advice or result["advice"]
    if judged.retryable is not None:
        result["retryable"] = judged.retryable
    if judged.verdict == "unknown":
        del result["retryable"]
    elif judged.phase:
        result["phase"] = phase_word(judged.phase)
    if judged.hit is not None:
        result["signature"] = judged.hit.signature
        result["advice"] = judged.hit.advice or result["advice"]
    if form in QUOTING:
        result["looks_like"] = form
    if scan.engine and (scan.own or judged.verdict != "unknown"):
        result["engine"] = scan.engine
    result["lines"] = read.lines
    result["evidence"] = [
        {"file": name, "line": number, "text": text[:400]} for number, text in judged.evidence
    ] or [{"file": name, "line": None, "text": f"{read.lines} lines, none that tells anything"}]
    result.update(log_fields(read, scan, judged.hit, judged.raised, judged.slug))
    if silence_s is not None:
        result["silence_s"] = silence_s
    return result


def diagnose_log(files: Mapping[str, bytes] | bytes, *, engine: str | None = None) -> dict[str, Any]:
    """Diagnose one log, or several given together.

    files   the log's bytes; or file name → bytes: `input.*` (or the first one) is judged, the fields of `input2.*` …
            get the suffix `_input2` …, a `*.toml` may give `silence_after_last_line_s`, and other texts are searched
            for `blob data` lines only
    engine  ``sglang``, ``vllm``, ``llamacpp``; None = guess from the lines

    Returns verdict (starting ready stalled failed degraded unknown), cause, severity, evidence (file, line, text), advice,
    retryable, remedy where there is one, phase, and every number in the log. What is not logged is absent.
    """
    named = {"input.log": files} if isinstance(files, bytes | bytearray | memoryview) else dict(files)
    named = {name: bytes(data) for name, data in named.items()}
    meta = _meta(named)
    silence = meta.get("silence_after_last_line_s", meta.get("silence_s"))
    silence_s = silence if isinstance(silence, int | float) and not isinstance(silence, bool) else None
    logs = {n: d for n, d in named.items() if _MAIN_FILES.search(n)}
    if len(named) == 1:
        logs, meta, silence_s = named, {}, None
    if not logs:
        logs = {n: d for n, d in named.items() if not n.endswith(".toml")} or {"input.log": b""}
    ordered = sorted(logs.items(), key=lambda item: (_number(item[0]), item[0]))
    main_name, main = ordered[0]
    result = _one(main_name, main, engine, silence_s)
    sigquits = [
        f"{e['file']}:{e['line']}" for e in result["evidence"] if e["text"] and _SIGQUIT.search(e["text"])
    ][:1]
    for name, data in ordered[1:]:
        number = _number(name)
        other = _one(name, data, engine, None)
        for key, value in other.items():
            result[f"{key}_input{number}"] = value
        sigquits += [f"{name}:{e['line']}" for e in other["evidence"] if _SIGQUIT.search(e["text"])][:1]
    if len(sigquits) > 1:
        result["same_event"] = sigquits
    blobs = sum(len(BLOB.findall(d)) for n, d in named.items() if n not in logs) + result.pop("_blobs", 0)
    if blobs:
        result["blob_lines"] = blobs
    return result


_ONLY_HOW = [
    "main-process-exited",
    "main-process-killed",
    "unit-failed",
    "exited-waiting-for-restart",
    "start-limit-hit",
    "process-exited",
    "unknown-root-cause-cut",
    "stopped-by-request",
    "error-not-known",
    "failed",
    "stopped",
    "rebooted",
]
"""Causes that say how a process ended, not why."""


def why_it_ended(data: bytes) -> dict[str, Any] | None:
    """What a server's own lines, in the journal or the status of its unit, say of its end: cause, meaning, advice and the
    line. None where they name no cause; of a loop the newest start that named one counts."""
    got = diagnose_log(data)
    if got["verdict"] == "failed" and got["cause"] not in _ONLY_HOW:
        kept = ("cause", "severity", "meaning", "advice", "retryable", "remedy", "evidence")
        return {key: got[key] for key in kept if key in got}
    slug = next((s for s in reversed(got.get("previous_runs") or ()) if s not in _ONLY_HOW), None)
    if got["verdict"] == "ready" or slug is None:
        return None
    return {key: value for key, value in verdict_fields(slug, got.get("engine")).items() if key != "verdict"}


_SIGQUIT = re.compile(r"[Rr]eceived sigquit from a child proces|SIGQUIT received\.")


def _number(name: str) -> int:
    match = _MAIN_FILES.search(name)
    return int(match["n"]) if match and match["n"] else 1
