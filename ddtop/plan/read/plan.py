"""TOML text → a checked `Plan`, or one error that names every fault."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli

from ddtop.errors import PlanError
from ddtop.plan.check import check_cells
from ddtop.plan.model import Bench, Model, Notify, Plan, Policy, Record, Report, SlurmSettings
from ddtop.plan.placeholders import check_all, fill_env, names_in
from ddtop.plan.problems import InvalidPlanError, Problem, Problems, shown
from ddtop.plan.read.bench import check_bench_argv, read_bench
from ddtop.plan.read.configs import NAME, read_configs, read_service
from ddtop.plan.read.dataset import warn_of_vllm_flag
from ddtop.plan.read.fields import Fields
from ddtop.plan.read.sampling import read_samplings
from ddtop.plan.read.workload import read_matrix, read_workloads

MAX_BYTES = 8 * 1024 * 1024
DEEPEST = 32

_RETRY = r"retry-(once|twice)(-then-(broken|fail|stop))?"
POLICY_WORDS: dict[str, tuple[str, str]] = {
    "transient": (rf"{_RETRY}|fail-and-go-on|broken|stop", "retry-once"),
    "bug": (rf"{_RETRY}|fail-and-go-on|broken|stop", "retry-once-then-broken"),
    "config": (r"fail-and-go-on|broken|stop", "fail-and-go-on"),
    "host": (r"wait-clean|stop", "wait-clean"),
    "reboot": (r"restage-and-resume|resume|stop", "restage-and-resume"),
    "zero_tokens": (rf"{_RETRY}|fail-and-go-on|broken|stop", "retry-once-then-broken"),
    "foreign": (r"wait-[1-9]\d{0,3}min-then-stop|stop", "wait-10min-then-stop"),
    "invalid_client": (r"rerun-(once|twice)|fail-and-go-on", "rerun-twice"),
    "allocation": (r"requeue-and-resume|stop", "requeue-and-resume"),
}
"""Key of `[policy]` → (what is allowed, the default)."""

_RETRY_WORDS = "retry-once or retry-twice (alone, or with -then-broken, -then-fail, -then-stop)"
POLICY_ALLOWED: dict[str, str] = {
    "transient": f"{_RETRY_WORDS}, fail-and-go-on, broken, stop",
    "bug": f"{_RETRY_WORDS}, fail-and-go-on, broken, stop",
    "config": "fail-and-go-on, broken, stop (never a retry: the arguments would still be wrong)",
    "host": "wait-clean, stop",
    "reboot": "restage-and-resume, resume, stop",
    "zero_tokens": f"{_RETRY_WORDS}, fail-and-go-on, broken, stop",
    "foreign": "wait-<N>min-then-stop (such as wait-10min-then-stop), stop",
    "invalid_client": "rerun-once, rerun-twice, fail-and-go-on",
    "allocation": "requeue-and-resume, stop",
}


def check_plan(path: Path, environ: Mapping[str, str] | None = None) -> tuple[Plan, list[str]]:
    """The plan in the file at `path`, and its warnings in words.

    `environ` fills `{env.NAME}`; by default that of this process. Raises PlanError (InvalidPlanError, with all
    faults, where the file could be read).
    """
    name = str(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PlanError(
                f"{name} is larger than {MAX_BYTES // 1024 // 1024} MiB",
                do="remove what does not belong to the plan",
            )
        data = path.read_bytes()
    except IsADirectoryError:
        raise PlanError(f"{name} is a folder", do="name a plan in it: ddtop plan check FILE.toml") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanError(
            f"{name} cannot be read: {reason}", do="ddtop paths shows where shipped plans are"
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PlanError(f"{name}: line {line}: is not UTF-8", do="save the plan as UTF-8 text") from error
    plan, warnings = parse_plan(text, name=name, folder=path.parent, environ=environ)
    return plan, [str(warning) for warning in warnings]


def parse_plan(
    text: str,
    *,
    name: str = "plan.toml",
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    datasets: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Plan, Sequence[Problem]]:
    """The plan in `text`, and its warnings. `folder` is where `prompts_file` is relative to; the texts of `files` (by the
    names that the plan uses) are not read from the disk. `datasets`: those that were measured, as they were.

    Raises InvalidPlanError with all faults.
    """
    # TOML ends lines with LF or CRLF; tomli rejects a lone CR.
    problems = Problems(text, files, datasets)
    try:
        raw = tomli.loads(text)
        if _too_deep(raw):
            raise RecursionError
    except tomli.TOMLDecodeError as error:
        raise InvalidPlanError(name, [_syntax(error, text)]) from error
    except RecursionError as error:
        words = f"at most {DEEPEST} levels"
        raise InvalidPlanError(name, [Problem((), "is nested too deeply", words)]) from error
    data = {
        key: fill_env(problems, value, (key,), os.environ if environ is None else environ)
        for key, value in raw.items()
    }
    fields = Fields(problems, data, ())
    plan = _read(fields, text, name, folder)
    if not problems.faults:
        check_cells(plan, problems)
    if problems.faults:
        raise InvalidPlanError(name, problems.faults)
    return plan, tuple(problems.warnings)


def _too_deep(value: Any) -> bool:
    """Whether tables and lists are nested deeper than everything here that walks through them can follow."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _syntax(error: tomli.TOMLDecodeError, text: str) -> Problem:
    match = re.search(r"\(at line (\d+), column (\d+)\)|\(at end of document\)", str(error))
    what = str(error).split(" (at ")[0]
    line = int(match[1]) if match and match[1] else len(text.splitlines()) or 1
    column = f" at column {match[2]}" if match and match[2] else ""
    return Problem((), f"is not valid TOML{column}: {what}", "see toml.io", line)


def _read(fields: Fields, text: str, name: str, folder: Path | None) -> Plan:
    problems = fields.problems
    title = fields.text("name", required='a name for this sweep: name = "my-sweep"') or "plan"
    if fields.has("name") and not NAME.match(title):
        fields.fault("name", title, "letters, digits and . _ + -, at most 64")
        title = "plan"
    host = fields.text("host")
    model = _read_model(fields.table("model"))
    service_fields = fields.table("service")
    if service_fields is None:
        fields.missing("service", "a table [service] with kind, engine, unit, port and command")
        service_fields = Fields(Problems(""), {}, ("service",))
    service = read_service(service_fields, title, fields.data.get("configs"))
    configs = read_configs(fields.table("configs"), service, problems)
    warn_of_vllm_flag(problems, service, configs)
    if model is None and _mentions_model([fields.data.get(key) for key in ("service", "configs", "bench")]):
        problems.fault(("model",), "is missing, but {model.…} is used", "a table [model] with name and path")
    bench_fields = fields.table("bench")
    bench = read_bench(bench_fields) if bench_fields is not None else Bench()
    workloads = read_workloads(
        fields.tables("workload", '[[workload]] name = "fib"'), bench, problems, folder, service, configs
    )
    table = fields.table("matrix") or Fields(problems, {}, ("matrix",))
    matrix = read_matrix(table, configs, workloads, bench)
    check_bench_argv(bench, configs, problems)
    samplings = read_samplings(problems, fields.anything("sampling"), bench)
    plan = Plan(
        name=title,
        host=host,
        model=model,
        service=service,
        configs=configs,
        matrix=matrix,
        workloads=workloads,
        samplings=samplings,
        bench=bench,
        policy=_read_policy(fields.table("policy")),
        record=_read_record(fields.table("record")),
        report=_read_report(fields.table("report")),
        notify=_read_notify(fields.table("notify")),
        slurm=_read_slurm(fields.table("slurm")),
        text=text,
        path=name,
        files=problems.files,
        datasets=problems.datasets,
        env=problems.env,
    )
    fields.done()
    return plan


def _mentions_model(value: Any) -> bool:
    if isinstance(value, str):
        return any(name.startswith("model.") for name in names_in(value))
    if isinstance(value, dict):
        return any(_mentions_model(v) for v in value.values())
    return isinstance(value, list) and any(_mentions_model(v) for v in value)


def _read_model(fields: Fields | None) -> Model | None:
    if fields is None:
        return None
    name = fields.text("name") or ""
    path = fields.text("path", required="where the model must lie on the host")
    sources = fields.texts("sources", one=True) or ()
    fields.done()
    problems = fields.problems
    if path is not None and not path.startswith(("/", "{env.")):
        fields.fault("path", path, "an absolute path on the host")
    for index, source in enumerate(sources):
        where = (*fields.path, "sources", index)
        if source.startswith("hf:"):
            if not re.match(r"hf:[\w.-]+/[\w.-]+(@[\w./-]+)?\Z", source):
                problems.fault(
                    where, f"found {shown(source)}", "allowed: hf:org/name or hf:org/name@revision"
                )
        elif not source.startswith(("/", "{env.")):
            problems.fault(where, f"found {shown(source)}", "allowed: an absolute path, or hf:org/name@rev")
        elif path is not None and source.rstrip("/") == path.rstrip("/"):
            problems.fault(where, "is the place it would be copied to", "another folder, or hf:org/name")
    return Model(name=name, path=path or "/", sources=sources)


def _read_policy(fields: Fields | None) -> Policy:
    if fields is None:
        return Policy()
    words: dict[str, str] = {}
    for key, (pattern, default) in POLICY_WORDS.items():
        word = fields.text(key)
        words[key] = word if word is not None else default
        if word is not None and not re.fullmatch(pattern, word):
            fields.fault(key, word, POLICY_ALLOWED[key])
            words[key] = default
    policy = Policy(
        **words,
        host_lost_wait_min=fields.number("host_lost_wait_min", 60.0, 0, 100_000, "minutes"),
        answer_s=fields.number("answer_s", 60.0, 0, 86_400, "s"),
    )
    fields.done()
    return policy


def _read_slurm(fields: Fields | None) -> SlurmSettings | None:
    """`[slurm]`: the allocation that is asked for; the same keys as `[hosts.NAME.slurm]`."""
    if fields is None:
        return None
    gpus, time = fields.data.get("gpus"), fields.data.get("time")
    words = {key: fields.text(key) or "" for key in ("partition", "account", "qos", "constraint")}
    settings = SlurmSettings(
        **words,
        gpus=fields.text("gpus") or 0 if isinstance(gpus, str) else fields.whole("gpus", 0, 0, 100_000),
        time=fields.text("time") or ""
        if isinstance(time, str)
        else fields.whole("time", 0, 1, 10_000_000) or "",
        nodes=fields.whole("nodes", 1, 1, 100_000),
        extra=fields.texts("extra") or (),
    )
    fields.done()
    return settings


def _read_record(fields: Fields | None) -> Record:
    if fields is None:
        return Record()
    record = Record(
        log_mib=fields.number("log_mib", 512.0, 1, 1_000_000, "MiB"), selftest=fields.flag("selftest", False)
    )
    fields.done()
    return record


def _read_report(fields: Fields | None) -> Report:
    if fields is None:
        return Report()
    price = fields.number("usd_per_gpu_hour", 0.0, 0.0001, 100_000, "dollars")
    fields.done()
    return Report(usd_per_gpu_hour=price or None)


def _read_notify(fields: Fields | None) -> Notify:
    if fields is None:
        return Notify()
    command = fields.texts("command") or ()
    variable = fields.text("webhook_env")
    fields.done()
    check_all(fields.problems, (*fields.path, "command"), command, NOTIFY_NAMES)
    if variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        hint = "the name of an environment variable; its URL may hold a secret, so it does not stand here"
        fields.fault("webhook_env", _no_url(variable), hint)
    return Notify(command=command, webhook_env=variable)


NOTIFY_NAMES = (
    "title",
    "cause",
    "advice",
    "host",
    "unit",
    "plan",
    "verdict",
    "alert",
    "run",
    "at",
    "id",
    "choices",
    "default",
)
"""Placeholders of `notify.command`, filled in from the alert."""


def _no_url(value: Any) -> str:
    """A URL is not repeated in a message: it may be the secret itself."""
    return "a URL" if "://" in str(value) else str(value)
