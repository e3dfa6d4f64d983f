"""Result files of other tools: what they hold, and whether it may be believed.

`diagnose_results` takes a file or its bytes and finds out by itself which tool wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import tomli

from ddtop.bench.importers import blocks, engines, markdown, others, printed, serving, tables
from ddtop.bench.importers.common import Fields, ResultFormatError, json_lines, loads, number, peek
from ddtop.bench.importers.load_tools import load_tool
from ddtop.bench.importers.surroundings import plain_text, planned_before
from ddtop.bench.importers.verdict import advice, judge_record, server_cause

__all__ = ["ResultFormatError", "diagnose_results", "read_records"]

SIBLINGS = {"plan.toml": "plan", "server.log": "server_log", "rc.txt": "rc"}
MAX_BYTES = 256 << 20


def diagnose_results(
    source: str | Path | bytes,
    *,
    name: str = "",
    planned: int | None = None,
    server_log: str = "",
    rc: int | None = None,
) -> dict[str, Any]:
    """Verdict, cause, severity and the fields of a result file.

    `source`: a path, or the bytes. A path's neighbours are used where nothing is given: `plan.toml` (num_prompts),
    `server.log`, `rc.txt`. One record gives plain fields; several give lists. A field that cannot be known is absent.
    Raises OSError if the file cannot be read; never for what is in it.
    """
    if isinstance(source, bytes):
        raw = source
    else:
        path = Path(source)
        name = name or path.name
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES)
        beside = _neighbours(path)
        planned = planned if planned is not None else beside.get("plan")
        server_log = server_log or beside.get("server_log", "")
        rc = rc if rc is not None else beside.get("rc")
    utf16 = raw.startswith((b"\xff\xfe", b"\xfe\xff"))  # redirected by PowerShell
    text = raw.decode("utf-16" if utf16 else "utf-8", "replace").lstrip("\ufeff")
    try:
        records, damaged = read_records(text)
    except ResultFormatError as problem:
        return {
            "verdict": "unknown",
            "cause": "not-a-result",
            "severity": "error",
            "advice": advice("not-a-result"),
            "why": str(problem),
            "name": name,
        }
    out = _verdict(records, damaged, planned)
    out["name"] = name
    if rc is not None:
        out["rc"] = rc
    cause = server_cause(server_log) if server_log else None
    if cause is not None:
        out["server_cause"] = cause
    out["advice"] = advice(out["cause"], tokens_counted=out.get("output_tokens") != 0)
    return out


def read_records(text: str) -> tuple[list[Fields], list[str]]:
    """(records, damaged lines) of any known file. Raises ResultFormatError if nothing in it is known."""
    stripped = text.strip()
    if not stripped:
        raise ResultFormatError("the file is empty")
    if tool := load_tool(stripped):
        raise ResultFormatError(
            f"a report of {tool}: it counts requests, not tokens, so it says nothing of tok/s"
        )
    try:
        data = loads(stripped)
    except ValueError:
        data = None
    if isinstance(data, dict):
        return _from_object(data), []
    if isinstance(data, list):  # a sweep's summary
        records = [
            record for one in data if isinstance(one, dict) for record in _from_object(one, strict=False)
        ]
        if records:
            return records, []
        raise ResultFormatError("a JSON list without any known result in it")
    if stripped.startswith(("{", "[")):
        rows, damaged = json_lines(stripped)
        if rows and others.is_aiperf_record(rows[0]):
            return [
                others.from_aiperf_records([row for row in rows if others.is_aiperf_record(row)])
            ], damaged
        records = [record for row in rows for record in _from_object(row, strict=False)]
        if records or (damaged and stripped.startswith("{")):
            return _newest(records), damaged
        if rows:
            raise ResultFormatError("JSON lines without any known result in them")
    plain = plain_text(text)
    if plain.lstrip().startswith("{") and not stripped.startswith(
        "{"
    ):  # JSON lines behind the prefixes of a log
        return read_records(plain)
    return _printed(plain), []


def _printed(text: str) -> list[Fields]:
    """The records of a printed result. Raises ResultFormatError if nothing in it is known."""
    if found := printed.from_printed(text):
        return [{**one, **_planned(text)} for one in found]
    if rows := tables.csv_rows(text):
        records = [record for row in rows for record in _from_object(row, strict=False)]
        if records:
            return records
    if not _BLOCK.search(text) and (table := tables.from_table(text)):
        return [{**table, **_planned(text)}]
    records = [
        {**fields, **_planned(before)}
        for before, block in _blocks(text)
        if (fields := serving.from_console(block)) is not None
    ]
    if not records and (rows := json_lines("\n".join(s for s in text.splitlines() if s.startswith("{")))[0]):
        records = [record for row in rows for record in _from_object(row, strict=False)]
    if not records and (block_of_any := blocks.from_any_block(text)) is not None:
        return [block_of_any]
    if not records:
        raise ResultFormatError(
            f"neither JSON nor a benchmark's printed result; it begins with {text.strip()[:60]!r}"
        )
    return records


_BLOCK = re.compile(r"^=+ .{0,40}Benchmark Result =+\s*$", re.M)


def _blocks(text: str) -> list[tuple[str, str]]:
    """[(what stands before it, block)] of each printed result: a loop over concurrencies prints one after another."""
    starts = [found.start() for found in _BLOCK.finditer(text)]
    if not starts:
        return [(text, text)]
    ends = [*starts[1:], len(text)]
    before = [text[: starts[0]], *(text[a:b] for a, b in pairwise(starts))]
    out = []
    for lines, start, end in zip(before, starts, ends, strict=True):
        block = text[start:end]
        closed = re.search(r"^={20,}\s*$", block, re.M)
        out.append((lines, block[: closed.end()] if closed else block))
    return out


def _planned(before: str) -> Fields:
    count = planned_before(before)
    return {} if count is None else {"planned_before": count}


def _from_object(data: dict[str, Any], strict: bool = True) -> list[Fields]:
    if others.is_guidellm(data):
        return others.from_guidellm(data)
    if others.is_llama_benchy(data):
        return others.from_llama_benchy(data)
    for knows, reads in (
        (others.is_genai_bench, others.from_genai_bench),
        (others.is_inference_perf, others.from_inference_perf),
        (others.is_aiperf, others.from_aiperf),
        (serving.is_serving, serving.from_json),
        (serving.is_one_batch, serving.from_one_batch),
        (others.is_multi_turn, others.from_multi_turn),
        (engines.is_llama_bench, engines.from_llama_bench),
        (markdown.is_batched_bench, markdown.from_batched_bench),
        (markdown.is_inferencex, markdown.from_inferencex),
        (engines.is_ollama, engines.from_ollama),
        (engines.is_trtllm, engines.from_trtllm),
        (engines.is_hypercomputer, engines.from_hypercomputer),
        (engines.is_vllm_throughput, engines.from_vllm_throughput),
        (engines.is_vllm_latency, engines.from_vllm_latency),
        (engines.is_sglang_offline, engines.from_sglang_offline),
    ):
        if knows(data):
            return [reads(data)]
    if others.is_aiperf_record(data):
        return [others.from_aiperf_records([data])]
    if (foreign := printed.from_foreign_json(data)) is not None:
        return [foreign]
    if strict:
        raise ResultFormatError(
            f"JSON with the keys {', '.join(list(data)[:8])}: no tool known to ddtop writes that"
        )
    return []


def _newest(records: list[Fields]) -> list[Fields]:
    """Tools append: of two lines for the same cell the later one counts; `superseded` says how many it replaced."""
    kept: dict[str, Fields] = {}
    for record in records:
        key = json.dumps(
            [
                record.get(k)
                for k in (
                    "tool",
                    "tag",
                    "model",
                    "backend",
                    "max_concurrency",
                    "request_rate",
                    "prompt_tokens",
                )
            ]
            + [record.get("concurrency") if record.get("max_concurrency") is None else None]
        )
        before = kept.pop(key, None)
        replaced = {} if before is None else {"superseded": before.get("superseded", 0) + 1}
        kept[key] = {**record, **replaced}
    return list(kept.values())


def _verdict(records: list[Fields], damaged: list[str], planned: int | None) -> dict[str, Any]:
    opinions = [judge_record(record, planned) for record in records]
    out: dict[str, Any] = {}
    if len(opinions) == 1 and not damaged:
        one = opinions[0]
        out = dict(one.fields)
        out.update(verdict=one.verdict, cause=one.cause, severity=one.severity, why=one.why)
    else:
        names = sorted({key for one in opinions for key in one.fields})
        for key in names:
            values = [one.fields[key] for one in opinions if key in one.fields]
            if len(values) == len(opinions):
                out[key] = values
        done = [n for record in records if (n := _cell_concurrency(record)) is not None]
        out["records_ok"], out["records_bad"] = len(records), len(damaged)
        out["concurrencies_done"] = done
        order = ("failed", "partial", "suspect", "ok")
        worst = min(opinions, key=lambda one: (one.usable, order.index(one.verdict))) if opinions else None
        if worst is not None:
            out.update(verdict=worst.verdict, cause=worst.cause, severity=worst.severity, why=worst.why)
        if damaged:
            redo = [n for line in damaged if (n := number(peek(line, "max_concurrency"))) is not None]
            out["redo"] = [n for n in redo if n not in done]
            if worst is None or worst.verdict in ("ok", "suspect"):
                why = f"{len(damaged)} damaged line(s); the last run was cut"
                out.update(verdict="partial", cause="last-line-truncated", severity="warn", why=why)
    out["usable_for_comparison"] = bool(opinions) and all(one.usable for one in opinions)
    out["records"] = [dict(one.fields) for one in opinions]
    return out


def _cell_concurrency(record: Mapping[str, Any]) -> Any:
    return record.get("max_concurrency", record.get("concurrency"))


def _neighbours(path: Path) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for file, key in SIBLINGS.items():
        beside = path.with_name(file)
        if beside == path or not beside.is_file():
            continue
        text = beside.read_bytes()[:1_000_000].decode("utf-8", "replace")
        if key == "plan":
            try:
                count = tomli.loads(text).get("num_prompts")
            except tomli.TOMLDecodeError:
                count = None
            if isinstance(count, int):
                out["plan"] = count
        elif key == "rc":
            if text.strip().lstrip("-").isdigit():
                out["rc"] = int(text)
        else:
            out[key] = text
    return out
