"""All lines of a running server out of a log, fast: lines of one form are read by the form, learnt from the first one.

Two lines that differ in digits only have the same fields at the same places. So the first line of each form is parsed
by the grammar twice, once as it is and once with every number replaced by its own index; that tells which number is
which field, and the other lines need only their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtop.engines.log.grammar import LogFact, parse_line
from ddtop.engines.log.structured import plain
from ddtop.services.journald.entries import join_split_lines, looks_like_journal_json, parse_journal_json

_DIGITS = b"0123456789"
_RUN = (
    b"batch",
    b"throughput",
    b"accept len",
    b"metrics",
    b" time =",
    b", tg = ",
    b"prompt processing, n_tokens",
    b"draft acceptance",
    b"statistics ",
    b"#running-req",
)
_TOKEN = re.compile(rb"[\d.]+")
_PLAIN = re.compile(rb"\d+(\.\d+)?")
_BLANK = bytes(c if c in b"0123456789." else 32 for c in range(256))
"""Blanks out all that is no number, so that `split` finds the numbers: four times as fast as a regex."""
_RANK = re.compile(rb"[^\]]{0,120}?:\d\d(?:[.,]\d+)?((?: [A-Z]+\d+)+)\] ")
_FAST = ("decode", "prefill", "stats")
_BASE = 7_000_000
MAX_LINE_BYTES = 65_536
MAX_FORMS = 20_000


@dataclass(slots=True)
class RunLine:
    """What one line of a running server says; the fields are those of `LogFact` of the same names."""

    kind: str
    event: str
    engine: str
    values: Mapping[str, Any]
    rank: str = ""


@dataclass(slots=True)
class Rows:
    """Lines of one kind in columns, in the order of the log. A field that a line did not have is None."""

    count: int
    columns: dict[str, list[Any]]
    ranks: list[str]

    def column(self, name: str) -> list[Any]:
        """One value per line, None where the line had none."""
        return self.columns.get(name) or [None] * self.count

    def given(self, name: str) -> list[Any]:
        """The values of those lines that had the field."""
        column = self.columns.get(name) or []
        return [v for v in column if v is not None] if None in column else column


@dataclass(slots=True)
class Run:
    """All lines with figures: SGLang's in rows, those of the other engines one by one."""

    decode: Rows
    prefill: Rows
    lines: list[RunLine]


@dataclass(slots=True)
class _Part:
    """The lines of one form: their places in the log, and their fields in columns."""

    engine: str
    indices: list[int]
    columns: dict[str, list[Any]]
    ranks: list[str]


class _Form:
    """One form of a line: which number is which field, and what is the same in all of its lines."""

    __slots__ = ("fact", "fields", "fixed", "numbers")

    def __init__(self, fact: LogFact, fields: dict[str, int], fixed: dict[str, Any], numbers: int) -> None:
        self.fact, self.fields, self.fixed, self.numbers = fact, fields, fixed, numbers


_SKIP = _Form(LogFact("note", "run", "none"), {}, {}, 0)
"""Stands for all forms that hold no figures."""


def _learn(engine: str | None, line: bytes) -> tuple[list[LogFact], _Form | None]:
    """Parse a line; and its form, when the line holds one fact that depends on its numbers alone."""
    facts = [
        f
        for f in parse_line(engine, line.decode("utf-8", "replace"))
        if f.phase == "run" and f.kind != "phase"
    ]
    if len(facts) != 1 or facts[0].kind not in _FAST or b"\r" in line or b"\x1b" in line or len(line) > 2_000:
        return facts, None
    count = 0

    def index(match: re.Match[bytes]) -> bytes:
        nonlocal count
        count += 1
        plain = _PLAIN.fullmatch(match[0])
        if plain is None:
            return match[0]
        return b"%d.5" % (_BASE + count - 1) if plain[1] else b"%d" % (_BASE + count - 1)

    probe = _TOKEN.sub(index, line)
    probed = [f for f in parse_line(engine, probe.decode("utf-8", "replace")) if f.phase == "run"]
    if (
        len(probed) != 1
        or probed[0].kind != facts[0].kind
        or probed[0].values.keys() != facts[0].values.keys()
    ):
        return facts, None
    fields: dict[str, int] = {}
    fixed: dict[str, Any] = {}
    for name, value in probed[0].values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            fixed[name] = value
        elif value >= _BASE:
            fields[name] = int(value) - _BASE
        else:
            return facts, None
    numbers = line.translate(_BLANK).split()
    again = {n: float(numbers[k]) for n, k in fields.items() if k < len(numbers)}
    if any(abs(again.get(n, -1.0) - float(facts[0].values[n])) > 1e-9 for n in fields):
        return facts, None
    return facts, _Form(facts[0], fields, fixed, len(numbers))


def mean(values: Sequence[float]) -> float:
    """The mean of `values` (at least one), with four decimals."""
    return round(sum(values) / len(values), 4)


def log_lines(data: bytes) -> list[bytes]:
    """The lines of a log file, or the messages of journal JSON or of a log of JSON records."""
    if looks_like_journal_json(data):
        return [(e.text or "").encode("utf-8", "replace") for e in join_split_lines(parse_journal_json(data))]
    lines = data.split(b"\n")
    if data[:200].lstrip()[:1] != b"{":
        return lines
    told = [plain(line[:MAX_LINE_BYTES].decode("utf-8", "replace")) for line in lines]
    return [line if text is None else text.encode() for line, text in zip(lines, told, strict=True)]


def read_run(lines: list[bytes], engine: str | None = None) -> Run:
    """Every decode, prefill, statistics and timing line of a log. Other lines are not even parsed."""
    single: list[tuple[int, RunLine]] = []
    forms: dict[bytes, _Form | None] = {}
    members: dict[bytes, list[int]] = {}
    get = forms.get
    missing = _Form(LogFact("note", "run", "none"), {}, {}, 0)
    for index, line in enumerate(lines):
        if len(line) > MAX_LINE_BYTES:
            line = line[:MAX_LINE_BYTES]  # noqa: PLW2901
        key = line.translate(None, _DIGITS)
        form = get(key, missing)
        if form is _SKIP:
            continue
        if form is missing or form is None:
            if not any(word in line for word in _RUN):
                if len(forms) < MAX_FORMS:
                    forms[key] = _SKIP
                continue
            facts, learnt = _learn(engine, line)
            if form is missing and len(forms) < MAX_FORMS:
                forms[key] = learnt
            if learnt is None or forms.get(key) is not learnt:
                single.extend((index, _line(f)) for f in facts)
                continue
            members[key] = []
        members[key].append(index)
    parts: dict[str, list[_Part]] = {}
    for key, indices in members.items():
        form = forms[key]
        if form is None:
            continue
        part = _columns(form, lines, indices)
        if part is None:
            single.extend((i, _line(f)) for i in indices for f in _learn(engine, lines[i])[0])
        else:
            parts.setdefault(form.fact.kind, []).append(part)
    return _assemble(parts, single)


def _line(fact: LogFact) -> RunLine:
    return RunLine(fact.kind, fact.event, fact.engine, fact.values, fact.rank)


def _columns(form: _Form, lines: list[bytes], indices: list[int]) -> _Part | None:
    """All lines of one form at once, their numbers in columns; None when some line does not keep to the
    form."""
    numbers = b"\n".join([lines[i] for i in indices]).translate(_BLANK).split()
    if len(numbers) != form.numbers * len(indices):
        return None
    columns: dict[str, list[Any]] = {}
    try:
        for name, number in form.fields.items():
            texts = numbers[number :: form.numbers]
            columns[name] = list(map(float if b"." in texts[0] else int, texts))
    except ValueError:
        return None
    for name, value in form.fixed.items():
        columns[name] = [value] * len(indices)
    rank = form.fact.rank
    ranks = _ranks(lines, indices, rank, numbers, form.numbers) if rank else [""] * len(indices)
    return _Part(form.fact.engine, indices, columns, ranks)


def _ranks(
    lines: list[bytes], indices: list[int], default: str, numbers: list[bytes], width: int
) -> list[str]:
    """The rank of each line. Lines of one form differ in their numbers alone, so a rank of one number (`TP3`) is
    read from its column of `numbers` (`width` a line); only ranks of several numbers are matched line by line."""
    first = lines[indices[0]]
    head = _RANK.match(first)
    if head is None:
        return [default] * len(indices)
    text = head[1].strip().decode("ascii", "replace")
    word = text.rstrip("0123456789")
    place = len(first[: head.end(1)].translate(_BLANK).split()) - 1
    if any(c in "0123456789." for c in word) or numbers[place].decode() != text[len(word) :]:
        return [_rank(lines[i], default) for i in indices]
    column = numbers[place::width]
    names = {value: word + value.decode() for value in set(column)}
    return [names[value] for value in column]


def _assemble(parts: dict[str, list[_Part]], single: list[tuple[int, RunLine]]) -> Run:
    """Put the parts together: SGLang's lines into rows in the order of the log, all others line by line."""
    tables: dict[str, Rows] = {}
    others: list[tuple[int, RunLine]] = []
    for index, line in single:
        if line.engine == "sglang" and line.kind in ("decode", "prefill"):
            columns = {name: [value] for name, value in line.values.items()}
            parts.setdefault(line.kind, []).append(_Part("sglang", [index], columns, [line.rank]))
        else:
            others.append((index, line))
    for kind, listed in parts.items():
        if kind in ("decode", "prefill"):
            tables[kind] = _merged(listed)
            continue
        for part in listed:
            for row, index in enumerate(part.indices):
                values = {name: column[row] for name, column in part.columns.items()}
                others.append((index, RunLine(kind, kind, part.engine, values, part.ranks[row])))
    others.sort(key=lambda pair: pair[0])
    empty = Rows(0, {}, [])
    return Run(tables.get("decode", empty), tables.get("prefill", empty), [line for _, line in others])


def _merged(parts: list[_Part]) -> Rows:
    if len(parts) == 1:
        return Rows(len(parts[0].indices), parts[0].columns, parts[0].ranks)
    indices = [i for part in parts for i in part.indices]
    order = sorted(range(len(indices)), key=indices.__getitem__)
    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(n for part in parts for n in part.columns):
        column: list[Any] = []
        for part in parts:
            column.extend(part.columns.get(name) or [None] * len(part.indices))
        columns[name] = [column[i] for i in order]
    ranks = [rank for part in parts for rank in part.ranks]
    return Rows(len(order), columns, [ranks[i] for i in order])


def _rank(line: bytes, default: str) -> str:
    head = _RANK.match(line)
    return head[1].strip().decode("ascii", "replace") if head is not None else default


def run_evidence(lines: list[bytes], name: str) -> list[dict[str, Any]]:
    """First and last line with figures, as evidence (line numbers of the file, or of the journal's entries)."""
    words = (*_RUN, b"predicted_ms", b"num_generation_tokens")

    def first(numbers: Iterable[int]) -> int | None:
        return next((n for n in numbers if any(word in lines[n] for word in words)), None)

    found = [n for n in (first(range(len(lines))), first(range(len(lines) - 1, -1, -1))) if n is not None]
    return [
        {"file": name, "line": n + 1, "text": lines[n][:400].decode("utf-8", "replace").strip()}
        for n in dict.fromkeys(found)
    ] or [{"file": name, "line": None, "text": f"none of its {len(lines)} lines holds figures"}]
