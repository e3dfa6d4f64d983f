"""Read one line of an engine's log: phases, progress bars, decode and prefill lines, statistics, timings.

Everything here is a pure function of the line. A line is never trusted: it may hold colour, carriage returns, a
record of another process glued behind a bar, replaced bytes, or a megabyte of text (only its beginning and end are
looked at then).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import tomli

from ddtop.engines.log.line_prefix import Line, pieces, split_prefix
from ddtop.engines.log.own_lines import is_quoted
from ddtop.engines.log.phases import phase_of_bar
from ddtop.engines.log.run_lines import run_fact
from ddtop.engines.log.server_args import MAX_CHARS, find_args, parse_server_args

HEAD_CHARS, TAIL_CHARS = 8_192, 4_096
LOGS = ("sglang", "vllm", "llamacpp", "trtllm", "ollama", "tgi")
"""Engines whose logs are read. The first three can be run (`ddtop.engines.ENGINES`), the others are named."""
_WRAPPERS = {"ollama": "llamacpp"}
"""Engines that run another one: its lines stand in their logs."""

_BAR = re.compile(
    r"(?P<pct>\d{1,3})% ?(?:Completed )?\|(?:[^|]{0,300}\|)? ?(?:(?P<n>\d+(?:\.\d+)?[kMG]?)/(?P<of>\d+(?:\.\d+)?[kMG]?))?"
    r"(?: \[(?P<elapsed>[\d:]+)<(?P<eta>[\d:]+|\?)(?:, *(?P<rate>[^\]]{0,40}))?\]?)?"
)
_NCCL_PATCH = re.compile(r"^[\d.]+\d")


@dataclass(frozen=True, slots=True)
class LogFact:
    """One thing a line says.

    kind      ``phase`` (a mark of a phase), ``progress`` (a bar), ``args``, ``decode``, ``prefill``, ``stats``,
              ``spec``, ``timing``, or ``note`` (true, but no progress)
    phase     a name of `LOG_PHASES`; ``""`` = the bar did not say (it belongs to whatever is going on)
    engine    one of `LOGS`, or ``any``
    values    numbers and texts by name; seconds `s`, per cent `pct`, `n`/`of`, tokens `tok`, gibibytes `gb`
    rank      ``DP0 TP0`` and the like, ``""`` when the line did not say
    time      as written in the line, zone unknown, None when it has none
    """

    kind: str
    phase: str
    event: str
    engine: str = "any"
    values: Mapping[str, Any] = field(default_factory=dict)
    rank: str = ""
    pid: int | None = None
    time: str | None = None
    glued: bool = False
    """The record began in the middle of a line, behind something else's text."""
    leads: bool = False
    """The mark begins its message."""


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """One row of phases.toml."""

    engine: str
    phase: str
    event: str
    anchor: str
    regex: re.Pattern[str]
    mark: bool
    source: str


@functools.cache
def load_phase_rules() -> tuple[PhaseRule, ...]:
    """All rules of the packaged phases.toml, in file order. Read once."""
    table = tomli.loads(resources.files("ddtop.engines").joinpath("phases.toml").read_text("utf-8"))
    return tuple(
        PhaseRule(
            row["engine"],
            row["phase"],
            row["event"],
            row["anchor"],
            re.compile(row["regex"]),
            row.get("mark", True),
            row["source"],
        )
        for row in table["rule"]
    )


def clip(line: str) -> str:
    """The part of a very long line that is looked at: a bar's state stands at the end, a record's kind at the start."""
    if len(line) <= HEAD_CHARS + TAIL_CHARS:
        return line
    return line[:HEAD_CHARS] + "\r" + line[-TAIL_CHARS:]


def number(text: str) -> int | float | str:
    """`text` as a number where it is one (thousands commas allowed), else as it is."""
    plain = text.replace(",", "") if re.fullmatch(r"\d{1,3}(?:,\d{3})+", text) else text
    try:
        return int(plain)
    except ValueError:
        try:
            return float(plain)
        except ValueError:
            return text


def _count(text: str) -> int | float:
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 0)
    return float(text[:-1]) * scale if scale else (float(text) if "." in text else int(text))


def clock_s(text: str | None) -> int | None:
    """`01:31` or `1:02:03` in seconds; None for `?` or nothing."""
    if not text or "?" in text:
        return None
    total = 0
    for part in text.split(":"):
        if not part.isdecimal() or len(part) > 9:
            return None
        total = total * 60 + int(part)
    return total


def _bar(message: str) -> tuple[str, dict[str, Any]] | None:
    """The progress bar in a message: (phase, values), or None."""
    if "%" not in message or "|" not in message:
        return None
    match = _BAR.search(message)
    if match is None:
        return None
    pct = int(match["pct"])
    before = message[: match.start()]
    if pct > 100 or len(before) > 200:
        return None
    what = before.strip().rstrip(":").strip()
    values: dict[str, Any] = {"pct": pct, "what": re.sub(r" ?\([^()]*\)$", "", what)}
    if match["n"]:
        values["n"], values["of"] = _count(match["n"]), _count(match["of"])
    elif match.end() < len(message) and not _broken(message[match.end() :]):
        return None
    for key in ("elapsed", "eta"):
        if (seconds := clock_s(match[key])) is not None:
            values[f"{key}_s"] = seconds
    return phase_of_bar(what), values


def _broken(rest: str) -> bool:
    """Whether what follows a bar's first stroke is only more bar (block characters, blanks, replaced bytes)."""
    return all(c in "#.-=>▏▎▍▌▋▊▉█ �|" or c.isspace() for c in rest[:300])


def speaks(engine: str | None, row: str) -> bool:
    """Whether a rule or signature of the engine `row` may be tried on a log of `engine` (None: not known)."""
    return engine is None or row not in LOGS or row in (engine, _WRAPPERS.get(engine))


def _phase_facts(engine: str | None, line: Line, glued: bool) -> list[LogFact]:
    found: list[LogFact] = []
    message = line.message
    for rule in load_phase_rules():
        if rule.anchor not in message:
            continue
        if engine not in (None, "any") and not speaks(engine, rule.engine):
            continue
        match = rule.regex.search(message)
        if match is None or (match.start() and is_quoted(message[: match.start()])):
            continue
        values: dict[str, Any] = {
            k: v if k == "version" else number(v) for k, v in match.groupdict().items() if v is not None
        }
        if "version" in values and (patch := _NCCL_PATCH.match(values["version"])) and rule.event == "nccl":
            values["version"] = patch[0]
        kind = "args" if rule.event == "args" else ("phase" if rule.mark else "note")
        found.append(
            LogFact(
                kind,
                rule.phase,
                rule.event,
                rule.engine,
                values,
                line.rank,
                line.pid,
                line.time,
                glued,
                match.start() == 0,
            )
        )
    return found


def parse_piece(engine: str | None, text: str, *, glued: bool = False) -> tuple[LogFact, ...]:
    """Facts of one record (no carriage returns, nothing glued in it)."""
    line = split_prefix(text)
    common = (line.rank, line.pid, line.time, glued)
    if (run := run_fact(engine, line.message)) is not None:
        kind, event, who, values = run
        return (LogFact(kind, "run", event, who, values, *common),)
    facts = _phase_facts(engine, line, glued)
    if any(f.kind == "args" for f in facts):
        values = parse_server_args(text)
        facts = [f for f in facts if f.kind != "args"] + [
            LogFact(
                "args", "launch", "args", next(f.engine for f in facts if f.kind == "args"), values, *common
            )
        ]
    if (bar := _bar(line.message)) is not None:
        facts.append(LogFact("progress", bar[0], "progress", "any", bar[1], *common))
    return tuple(facts)


def parse_line(engine: str | None, line: str) -> tuple[LogFact, ...]:
    """Read one log line, as it came from the file or the journal, without its newline.

    engine  one of `LOGS`, or None (every grammar is tried)
    Returns the facts in the order in which they stand in the line; of a bar's successive states only the last one,
    with ``segments`` = how many there were. Never raises.
    """
    if find_args(line[:HEAD_CHARS]) is not None:
        return parse_piece(
            engine, pieces(line[:MAX_CHARS].replace("\r", ""))[-1] if "\x1b" in line else line[:MAX_CHARS]
        )
    parts = pieces(clip(line))
    facts: list[LogFact] = []
    bars: dict[str, int] = {}
    for index, part in enumerate(parts):
        for fact in parse_piece(engine, part, glued=index > 0 and "\r" not in line):
            if fact.kind != "progress":
                facts.append(fact)
                continue
            key = str(fact.values.get("what"))
            bars[key] = bars.get(key, 0) + 1
            last = replace(fact, values={**fact.values, "segments": bars[key]})
            old = next(
                (i for i, f in enumerate(facts) if f.kind == "progress" and f.values["what"] == key), None
            )
            if old is not None:
                facts.pop(old)
            facts.append(last)
    return tuple(facts)


_STRONG = (
    (
        "sglang",
        re.compile(
            r"server_args=(?:ServerArgs|\{'model_path')|fired up and ready to roll|\b(?:Decode|Prefill) batch(?:[.,]| ?\[\d+\],)? ?#|Load weight (?:begin|end)\b|Init (?:torch distributed|parallel) (?:begin|ends)\b|sglang::|sigquit|SIGQUIT received|/sglang/|^(?:sglang serve|launch_server\.py): error: |sglang\.(?:launch_server|srv|srt)|sglang is using nccl"
        ),
    ),
    (
        "vllm",
        re.compile(
            r"\((?:EngineCore|APIServer|VllmWorker|Worker)[\w.\-]{0,40}[^)\n]{0,40} pid=|non-default args: |Avg (?:prompt|generation) throughput|SpecDecoding metrics|vLLM (?:API )?server|/vllm/|vllm\.(?:entrypoints|v1|engine)|VllmWorker|^vllm(?: serve)?: error: |vLLM is using nccl|LLM engine \(v"
        ),
    ),
    (
        "trtllm",
        re.compile(
            r"\[(?:TRT-LLM|TensorRT-LLM)\] ?\[|^\[TensorRT-LLM\] TensorRT|/tensorrt_llm/|\btrtllm-(?:serve|llmapi-launch)\b|tensorrt_llm\.(?:executor|serve|llmapi|commands|_torch)"
        ),
    ),
    (
        "ollama",
        re.compile(r"\blevel=[A-Z]+ source=[\w.]+\.go:\d+ msg=|\[GIN\] \d{4}/|\bollama (?:runner|serve)\b"),
    ),
    (
        "tgi",
        re.compile(
            r"\btext_generation_(?:launcher|router|server)|\btext-generation-(?:launcher|router|server)\b"
        ),
    ),
    (
        "llamacpp",
        re.compile(
            r"\bllama_(?:model|context|kv|new|server|init|perf)|\bslot +(?:print_timing|release|launch_slot_|update_slots|get_availabl)|\bsrv +\w+: |\bggml_|draft acceptance(?: rate)? =|llama-server|llama_cpp|gguf_init|\berror while handling (?:argument|environment variable) \""
        ),
    ),
)
_WEAK = (
    ("sglang", re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z]+\d+)*\] ", re.MULTILINE)),
    (
        "vllm",
        re.compile(r"^(?:INFO|ERROR|DEBUG|WARNING) \d\d-\d\d \d\d:\d\d:\d\d \[?\w+\.py:\d+\]", re.MULTILINE),
    ),
)


def engine_scores(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """How often `text` shows what only one engine writes (strong), or what mostly one writes (weak)."""
    head = text[:400_000]
    return {n: len(r.findall(head)) for n, r in _STRONG}, {n: len(r.findall(head)) for n, r in _WEAK}


def guess_engine(text: str) -> str | None:
    """The engine whose log this is, by the lines that look like its own; None when none does.

    SGLang imports parts of vLLM, so a line in vLLM's form alone is weak evidence.
    """
    return likeliest(engine_scores(text))


def likeliest(scores: Iterable[Mapping[str, int]]) -> str | None:
    """The engine with the highest score: strong evidence first, weak evidence only where there is no strong one."""
    for counts in scores:
        if wrapper := next((name for name in _WRAPPERS if counts.get(name)), None):
            return wrapper
        best = max(counts, key=lambda name: counts[name], default=None)
        if best is not None and counts[best]:
            return best
    return None
