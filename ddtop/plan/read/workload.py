"""`[matrix]` and `[[workload]]`: what is asked of every configuration."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import msgspec

from ddtop.plan.model import (
    AA,
    ORDERS,
    Bench,
    Config,
    LoadPoint,
    Matrix,
    Service,
    SkipRule,
    Workload,
)
from ddtop.plan.problems import Problems, shown, suggest
from ddtop.plan.read.configs import NAME, suggest_config
from ddtop.plan.read.dataset import by_group, read_dataset, read_stop
from ddtop.plan.read.fields import Fields
from ddtop.plan.read.lengths import read_lengths
from ddtop.plan.read.load import MAX_CONCURRENCY, MAX_RATE, MIN_RATE, read_loads
from ddtop.plan.read.refine import read_refine
from ddtop.plan.read.starts import read_starts
from ddtop.plan.read.trace import OTHERS, read_trace
from ddtop.words import many

MAX_TP, MAX_TOKENS, MAX_REPEATS, MAX_TURNS = 1024, 10_000_000, 1000, 1000


def read_matrix(
    fields: Fields, configs: tuple[Config, ...], workloads: tuple[Workload, ...], bench: Bench
) -> Matrix:
    """`[matrix]`. Without it: TP 1, one stream, no context, once."""
    tp = fields.wholes("tp", (1,), 1, MAX_TP)
    tables = fields.tables("load", "[{ concurrency = 8 }, { rate = 4.0 }]")
    concurrency = fields.wholes("concurrency", () if tables else (1,), 1, MAX_CONCURRENCY)
    load = read_loads(tables, concurrency, workloads, bench)
    drawn: dict[str, Any] = {}
    if isinstance(fields.data.get("context"), dict) and (table := fields.table("context")) is not None:
        drawn, mean = read_lengths(table, 0, MAX_TOKENS)
        context: tuple[int, ...] = (mean,)
        if bench.kind == "command":
            fields.fault("context", fields.data["context"], 'numbers, with bench.kind = "command"')
    else:
        context = fields.wholes("context", (0,), 0, MAX_TOKENS)
    repeats = fields.whole("repeats", 1, 1, MAX_REPEATS)
    starts, rounds = read_starts(fields, configs)
    aa = fields.flag("aa", False)
    points = (*(LoadPoint(concurrency=streams) for streams in concurrency), *load)
    refine = read_refine(fields, configs, points, rounds=rounds is not None)
    baseline = fields.text("baseline")
    order = fields.choice("order", ORDERS, ORDERS[0]) or ORDERS[0]
    rules = [
        _read_skip(table, configs, workloads)
        for table in fields.tables("skip", '[{ config = "b8", reason = "0 tok/s" }]')
    ]
    fields.done()
    if baseline is not None and configs and baseline not in {c.name for c in configs}:
        fields.problems.fault(
            (*fields.path, "baseline"),
            f"names {shown(baseline)}, which is not a configuration",
            suggest_config(baseline, configs),
        )
    first = configs[0].name if configs else ""
    twin = (baseline if baseline is not None else first) + AA
    if aa and twin in {c.name for c in configs}:
        fields.problems.fault(
            (*fields.path, "aa"),
            f"measures the baseline again as {twin}, and a configuration has that name",
            "give the configuration another name",
        )
    return Matrix(
        tp=tp,
        concurrency=concurrency,
        load=load,
        context=context,
        context_lengths=drawn,
        repeats=repeats,
        starts=starts,
        rounds=rounds,
        aa=aa,
        refine=refine,
        baseline=baseline if baseline is not None else first,
        skip=tuple(rules),
        order=order,
    )


def _read_skip(fields: Fields, configs: tuple[Config, ...], workloads: tuple[Workload, ...]) -> SkipRule:
    reason = fields.text("reason", required="why these cells are skipped, in words")
    config = fields.texts("config", one=True) or ()
    workload = fields.texts("workload", one=True) or ()
    numbers = {
        key: fields.wholes(key, (), low, MAX_TOKENS)
        for key, low in (
            *(("tp", 1), ("concurrency", 1), ("context", 0)),
            *(("output_tokens", 0), ("repeat", 1)),
        )
    }
    rate = fields.numbers("rate", MIN_RATE, MAX_RATE, "requests/s")
    search = fields.texts("search", one=True) or ()
    sampling = fields.texts("sampling", one=True) or ()
    fields.done()
    for key, names, known in (
        ("config", config, [c.name for c in configs]),
        ("workload", workload, list(dict.fromkeys(w.base for w in workloads))),
        ("search", search, ["concurrency", "rate"]),
    ):
        for name in names:
            if known and name not in known:
                what = {"config": "configuration", "workload": "workload"}.get(key, "kind of load")
                fields.problems.fault(
                    (*fields.path, key), f"names {shown(name)}, which is not a {what}", suggest(name, known)
                )
    if not any((config, workload, rate, search, sampling, *numbers.values())):
        fields.problems.fault(
            fields.path, "would skip every cell", "say which: config, workload, tp, concurrency, context, …"
        )
    return SkipRule(
        reason=reason or "",
        config=config,
        workload=workload,
        rate=rate,
        search=search,
        sampling=sampling,
        **numbers,
    )


def read_workloads(
    fields: list[Fields],
    bench: Bench,
    problems: Problems,
    folder: FilePath | None,
    service: Service,
    configs: tuple[Config, ...],
) -> tuple[Workload, ...]:
    """`[[workload]]`. An external benchmark needs none: it has its own. A workload of a dataset may become one for each of
    its groups (`by_group`)."""
    if not fields:
        if bench.kind == "builtin":
            problems.fault(
                ("workload",),
                "is missing",
                "add at least one [[workload]] with name, prompts and output_tokens",
            )
        return (Workload(name="bench"),)
    out: list[Workload] = []
    for table in fields:
        name = table.text("name", required="a name for this workload") or f"workload-{len(out) + 1}"
        if not NAME.match(name):
            table.fault("name", name, "letters, digits and . _ + -, at most 64")
        if name in {w.base for w in out}:
            table.problems.fault(
                (*table.path, "name"), f"{shown(name)} is used twice", "give each workload its own name"
            )
        default = (256,) if bench.kind == "builtin" else (0,)
        tokens, drawn = _output_tokens(table, bench, default)
        prompts, dataset = read_dataset(table, folder)
        trace = read_trace(table, bench, folder)
        if trace is not None:
            prompts, tokens = trace.requests, (trace.output_tokens,)
            table.done_with(*OTHERS)
        elif not table.has("dataset"):
            prompts = _prompts(table, bench, folder)
        turns, think_ms, shared = _conversation(table, bench, prompts)
        for key in ("dataset", "stop"):
            if table.has(key) and bench.kind == "command":
                problems.fault(
                    (*table.path, key),
                    'needs ddtop\'s own load generator, but bench.kind is "command"',
                    "leave it out, or leave out bench.kind",
                )
        license_ = table.text("license")
        if license_ is None and dataset is not None:
            license_ = problems.datasets[dataset.name].get("licence")
        workload = Workload(
            name=name,
            prompts=prompts,
            output_tokens=tokens,
            output_lengths=drawn,
            trace=trace,
            turns=turns,
            think_ms=think_ms,
            shared_prefix_tokens=shared,
            license=license_,
            dataset=dataset,
            stop=read_stop(table),
        )
        out += by_group(table, workload, service, configs)
        table.done()
    return tuple(out)


def _output_tokens(
    fields: Fields, bench: Bench, default: tuple[int, ...]
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """(numbers of output tokens, {}), or (the mean, a distribution)."""
    value = fields.data.get("output_tokens")
    table = fields.table("output_tokens") if isinstance(value, dict) else None
    if table is None:
        return fields.wholes("output_tokens", default, 1, MAX_TOKENS), {}
    drawn, mean = read_lengths(table, 1, MAX_TOKENS)
    if bench.kind == "command":
        fields.fault("output_tokens", value, 'numbers, with bench.kind = "command"')
    return (mean,), drawn


def _conversation(fields: Fields, bench: Bench, prompts: tuple[Any, ...]) -> tuple[int, float, int]:
    """turns, think_ms and shared_prefix_tokens. Prompts that are whole conversations say the turns by themselves."""
    scripts = [one for one in prompts if isinstance(one, dict) and "turns" in one]
    said = [len(one["turns"]) + ("prompt" in one or "messages" in one) for one in scripts]
    turns = fields.whole("turns", max([1, *said]), 1, MAX_TURNS)
    think_ms = fields.number("think_ms", 0.0, 0, 3_600_000, "ms")
    shared = fields.whole("shared_prefix_tokens", 0, 0, MAX_TOKENS)
    given = [key for key in ("turns", "think_ms", "shared_prefix_tokens") if fields.has(key)]
    if given and bench.kind == "command":
        fields.problems.fault(
            (*fields.path, given[0]),
            'needs ddtop\'s own load generator, but bench.kind is "command"',
            "leave it out, or leave out bench.kind",
        )
    if think_ms and turns == 1:
        fields.problems.fault(
            (*fields.path, "think_ms"),
            "is the time between two turns, and there is one turn",
            "add turns = 2 or more",
        )
    if turns > 1 and prompts and not scripts and len(prompts) < turns:
        fields.problems.warn(
            (*fields.path, "turns"),
            f"asks {many(len(prompts), 'prompt')} in {turns} turns, so a conversation asks the same thing again",
            "give a prompt for each turn; repeated answers flatter speculative decoding",
        )
    return turns, think_ms, shared


def _prompts(fields: Fields, bench: Bench, folder: FilePath | None) -> tuple[Any, ...]:
    inline = fields.texts("prompts", one=True)
    file = fields.text("prompts_file")
    if file is not None and fields.has("prompts"):
        fields.problems.fault(fields.path, "has both prompts and prompts_file", "one of the two")
    if file is not None:
        return _read_prompts_file(fields, file, folder)
    if inline is not None:
        for index, prompt in enumerate(inline):
            if not prompt.strip():
                fields.problems.fault((*fields.path, "prompts", index), "is empty", "some text to answer")
        if not inline and not fields.data["prompts"]:
            fields.problems.fault((*fields.path, "prompts"), "is an empty list", "at least one prompt")
        return inline
    if bench.kind == "builtin" and not fields.has("prompts"):
        fields.missing("prompts", 'a list of prompts, prompts_file = "….jsonl", or dataset = "…"')
    return ()


def _read_prompts_file(fields: Fields, file: str, folder: FilePath | None) -> tuple[Any, ...]:
    where = (*fields.path, "prompts_file")
    path = FilePath(file).expanduser()
    if not path.is_absolute():
        path = (folder or FilePath()) / path
    try:
        text = (
            fields.problems.given[file] if file in fields.problems.given else path.read_text(encoding="utf-8")
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fields.problems.fault(
            where, f"{path} cannot be read: {reason}", "a path relative to the plan's folder"
        )
        return ()
    fields.problems.files[file] = text
    out: list[Any] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            item = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            fields.problems.fault(
                where, f"{path.name} line {number} is not JSON: {error}", "one JSON value per line"
            )
            return tuple(out)
        prompt = _prompt(item)
        if prompt is None:
            fields.problems.fault(
                where,
                f"{path.name} line {number} holds no prompt",
                'a string, {"prompt": "…"}, {"messages": [{"role": …, "content": …}]} or {"turns": ["…", "…"]}',
            )
            return tuple(out)
        out.append(prompt)
    if not out:
        fields.problems.fault(where, f"{path.name} holds no prompts", "one JSON value per line")
    return tuple(out)


def _prompt(item: Any) -> Any:
    """A prompt of a file as the load generator takes it; None where it is none."""
    if isinstance(item, str) and item.strip():
        return item
    if not isinstance(item, dict):
        return None
    extra: dict[str, Any] = {}
    tokens = item.get("output_tokens")
    if tokens is not None:
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            return None
        extra["output_tokens"] = tokens
    for key in ("prompt", "text"):
        if isinstance(item.get(key), str) and item[key].strip():
            return {"prompt": item[key], **extra} if extra else item[key]
    turns = item.get("turns")
    if turns is not None:
        if not isinstance(turns, list) or not all(isinstance(one, str) and one.strip() for one in turns):
            return None
        extra["turns"] = turns
    messages = item.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(m, dict) and "role" in m for m in messages):
        return {"messages": messages, **extra}
    return extra if extra.get("turns") else None
