"""A source's file → items. One small reader for each form of line; a line that holds no prompt is named. Pure."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ddtop.datasets.item import MAX_GROUP, PLACEHOLDER, Item
from ddtop.errors import UsageError

Reader = Callable[[Any], Item | None]
"""A decoded line → its item; None where it holds no prompt."""

FORMS = (
    'a string, {"prompt": "…"}, {"messages": [{"role": …, "content": …}]}, {"turns": ["…"]} or '
    '{"conversations": [{"from": "human", "value": "…"}]}; with "group" or "category", and "output_tokens"'
)
EVERY = "all"
"""The group of prompts that name none."""
_USER = ("human", "user")
_ANSWERS = ("gpt", "assistant", "chatgpt", "bing", "bard")


def humaneval(row: Any) -> Item:
    """openai/human-eval: `prompt` is the beginning of a function. It is sent as it stands."""
    return Item(group="coding", prompt=row["prompt"])


def gsm8k(row: Any) -> Item:
    """openai/grade-school-math: `question`."""
    return Item(group="math", prompt=row["question"])


def math500(row: Any) -> Item:
    """MATH-500: `problem`, by `subject`."""
    return Item(group=_word(row["subject"]), prompt=row["problem"])


def turns(row: Any) -> Item | None:
    """Spec-Bench, MT-Bench and SPEED-Bench: `turns`, by `category`. Rows of SPEED-Bench that its own script has filled in
    may hold `messages` instead."""
    if "turns" not in row:
        return own(row)
    first, *more = row["turns"]
    return Item(group=_word(row["category"]), prompt=first, turns=tuple(more))


def sharegpt(row: Any) -> Item | None:
    """ShareGPT, and the custom files of SGLang: `conversations` of {from, value} or {role, content}. The user's texts are
    kept; the answers are the measured server's own."""
    said = [
        (_first(turn, "from", "role"), _first(turn, "value", "content") or "")
        for turn in row["conversations"]
    ]
    group = _word(_first(row, "group", "category") or "chat")
    before = [text for who, text in said if who == "system"][:1]
    # Files without the speakers' names, as SGLang reads them: every second text is the user's.
    named = [text for who, text in said if who in _USER]
    users = named or [text for who, text in said[::2] if who not in (*_ANSWERS, "system")]
    if not users or not users[0].strip():
        return None
    more = tuple(text for text in users[1:] if text.strip())
    if before:
        messages = ({"role": "system", "content": before[0]}, {"role": "user", "content": users[0]})
        return Item(group=group, messages=messages, turns=more)
    return Item(group=group, prompt=users[0], turns=more)


def own(row: Any) -> Item | None:
    """A file of one's own: ddtop's form, OpenAI's `messages`, vLLM's custom JSONL (`prompt`, `output_tokens`), SGLang's
    (`conversations`), or texts alone."""
    if isinstance(row, str):
        return Item(group=EVERY, prompt=row)
    if not isinstance(row, dict):
        return None
    if "conversations" in row:
        return sharegpt({"group": EVERY, **row})
    group = _word(_first(row, "group", "category") or EVERY)
    tokens = next((row[k] for k in ("output_tokens", "max_tokens") if row.get(k) is not None), None)
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        return None
    more = row.get("turns") or ()
    prompt = _first(row, "prompt", "text")
    messages = row.get("messages")
    if prompt is not None:
        return Item(group=group, prompt=prompt, turns=tuple(more), output_tokens=tokens)
    if isinstance(messages, list) and messages and all(_is_message(m) for m in messages):
        return Item(group=group, messages=tuple(messages), turns=tuple(more), output_tokens=tokens)
    if more:
        return Item(group=group, prompt=more[0], turns=tuple(more[1:]), output_tokens=tokens)
    return None


def read(data: bytes, reader: Reader, name: str, *, skip: bool = False) -> tuple[Item, ...]:
    """The items of a source's file: JSON lines, one JSON array, or either under gzip. `skip`: lines without a prompt are
    left out (ShareGPT has some). Raises UsageError, with the line's number."""
    items: list[Item] = []
    for number, row in _rows(data, name):
        item = _read(row, reader)
        if item is None:
            if skip:
                continue
            raise UsageError(f"{name}: line {number} holds no prompt", do=f"wanted: {FORMS}")
        if PLACEHOLDER in item.text:
            raise UsageError(
                f"{name}: line {number} is a placeholder: its text is left out of the published file",
                means="SPEED-Bench leaves texts of others out; NVIDIA's own script fills them in",
                do="run prepare_data.py of NVIDIA Model-Optimizer (examples/specdec_bench), then: "
                "ddtop dataset fetch speed-bench:PART --from FILE.jsonl",
            )
        items.append(item)
    if not items:
        raise UsageError(f"{name} holds no prompts", do=f"wanted, one a line: {FORMS}")
    return tuple(items)


def _read(row: Any, reader: Reader) -> Item | None:
    try:
        item = reader(row)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    if item is None:
        return None
    texts = (*((item.prompt,) if not item.messages else ()), *item.turns)
    return item if all(isinstance(text, str) and text.strip() for text in texts) else None


def _rows(data: bytes, name: str) -> Iterator[tuple[int, Any]]:
    """(line, row); of one JSON array the place in it, from 1."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"{name} is damaged: {error}", do="fetch it again") from error
    if data[:4] == b"PAR1":
        raise UsageError(
            f"{name} is a Parquet file, which ddtop does not read",
            do="python -c \"import pandas as p; p.read_parquet('F.parquet').to_json('F.jsonl', orient='records', "
            'lines=True)" writes the same rows as JSON lines',
        )
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] == b"[":
        try:
            rows = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            rows = None  # lines that are arrays each, or no JSON at all: said below, with the line
        if isinstance(rows, list):
            yield from enumerate(rows, start=1)
            return
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(
                f"{name}: line {number} is no JSON: {error}", do="one JSON value a line, or one JSON array"
            ) from error


def _first(row: Any, *keys: str) -> str | None:
    """The first of these that is text."""
    return next((row[key] for key in keys if isinstance(row.get(key), str)), None)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "content" in value


def _word(text: str) -> str:
    """A group's name as it is used in plans: `Counting & Probability` → `counting_probability`.

    >>> _word("Counting & Probability"), _word("math_reasoning"), _word("  ")
    ('counting_probability', 'math_reasoning', 'all')
    """
    kept = "".join(ch if ch.isalnum() or ch in "-+" else " " for ch in text.lower())
    return "_".join(kept.split())[:MAX_GROUP] or EVERY
