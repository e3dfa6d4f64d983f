"""Read command lines of servers, and compare wanted arguments with those in effect.

Names are compared after folding `-` and `_`, values after normalising (`0.90` = `0.9`, `true` = `True`, `none` = None,
JSON by content); aliases are folded by each engine's table.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtop.engines.log.server_args import literal_eval

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_NEGATIVE_NUMBER = re.compile(r"^-\d+(?:\.\d+)?$|^-\.\d+$")


@dataclass(frozen=True, slots=True)
class ArgTable:
    """How one engine spells its arguments.

    aliases      folded spelling → folded canonical name (short options too, without their dashes)
    flags        canonical names that take no value
    positional   canonical name that a lone word stands for (vLLM's model), None = there is none
    paths        canonical names whose values are paths (a trailing slash does not count)
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    positional: str | None = None
    paths: frozenset[str] = frozenset()

    def canonical(self, option: str) -> str:
        """`--tp-size`, `--tp_size` or `-tp` → the name under which values are kept."""
        folded = option.lstrip("-").replace("-", "_")
        return self.aliases.get(folded, folded)


def account_of(resolved: Mapping[str, Any], table: ArgTable) -> dict[str, Any]:
    """A server's own account of its arguments, by canonical name; several spellings of one argument become one.

    The canonical spelling goes before its aliases, these in the order of the table. One that is null says nothing:
    SGLang reports every field it knows, the unused ones of a pair (`speculative_dflash_block_size`) as null.
    """
    place = {name: n for n, name in enumerate(table.aliases, 1)}
    found: dict[str, Any] = {}
    for name in sorted(resolved, key=lambda name: (resolved[name] is None, place.get(name, 0))):
        found.setdefault(table.canonical(name), resolved[name])
    return found


def split_command(command: str | Sequence[str]) -> list[str]:
    """A command line as a list of words: shell text, or a list already; a broken quote is split at blanks."""
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def is_option(word: str) -> bool:
    """Whether a word of a command line is an option and not a value (negative numbers are values)."""
    return word.startswith("-") and len(word) > 1 and not _NEGATIVE_NUMBER.match(word)


def parse_argv(argv: Sequence[str], table: ArgTable) -> dict[str, Any]:
    """Options of a command line → canonical name → value.

    `--a=b` and `--a b` are the same; a flag becomes True, `--no-a` makes `a` False; an option that comes again wins the last time; several
    values of one option become a list. Words before the first option are taken for the positional where the table
    names one.
    """
    found: dict[str, Any] = {}
    words = list(argv)
    i = 0
    loose: list[str] = []
    while i < len(words):
        word = words[i]
        i += 1
        if not is_option(word):
            loose.append(word)
            continue
        option, equals, attached = word.partition("=")
        folded = option.lstrip("-").replace("-", "_")
        name = table.canonical(option)
        if folded.startswith("no_") and not equals:
            found[table.canonical(folded[3:])] = False
            continue
        if equals:
            found[name] = attached
            continue
        if name in table.flags:
            found[name] = True
            if i < len(words) and words[i].lower() in ("true", "false"):
                found[name] = words[i].lower() == "true"
                i += 1
            continue
        values: list[str] = []
        while i < len(words) and not is_option(words[i]):
            values.append(words[i])
            i += 1
        if not values:
            found[name] = True
        elif len(values) == 1:
            found[name] = values[0]
        else:
            found[name] = values
    if table.positional and loose and table.positional not in found:
        found[table.positional] = loose[-1]
    return found


def normal(value: Any) -> Any:
    """A value in the form in which it is compared."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [normal(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): normal(v) for k, v in value.items()}
    text = str(value).strip()
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("none", "null", ""):
        return None
    try:
        number = float(text)
        return number if math.isfinite(number) else lowered
    except ValueError:
        pass
    if text[:1] in "{[(":
        for read in (json.loads, literal_eval):
            try:
                return normal(read(text))
            except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                continue
    return text


def same(wanted: Any, running: Any, *, path: bool = False) -> bool:
    """Whether two values are the same argument, however spelt."""
    a, b = normal(wanted), normal(running)
    if path and isinstance(a, str) and isinstance(b, str):
        a, b = a.rstrip("/"), b.rstrip("/")
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(a, list) != isinstance(b, list):
        a, b = (a if isinstance(a, list) else [a]), (b if isinstance(b, list) else [b])
    if isinstance(a, bool) != isinstance(b, bool):
        return {str(a).lower(), str(b).lower()} in ({"true", "1.0"}, {"false", "0.0"}, {"false", "none"})
    return bool(a == b) or (isinstance(a, str) and isinstance(b, str) and a.lower() == b.lower() and not path)


def options_of(argv: Sequence[str], launchers: Sequence[str]) -> list[str]:
    """The words after the server's launcher (`-m sglang.launch_server`, `vllm serve`, …).

    launchers  texts; the last word that equals one, or ends with `/` and one, is the launcher. Without a launcher
               everything from the first option on is taken, less what is Python's own: `-m MODULE` (a fork's module
               has a name of its own), `script.py` and the interpreter's switches.

    >>> options_of(["/venv/bin/python3", "-u", "-m", "my_fork.serve_it", "--tp", "4"], ())
    ['--tp', '4']
    >>> options_of(["numactl", "--cpunodebind=0", "/venv/bin/python3", "-m", "my_fork.serve_it", "--tp", "4"], ())
    ['--tp', '4']
    """
    words = list(argv)
    for i in range(len(words) - 1, -1, -1):
        if any(words[i] == name or words[i].endswith("/" + name) for name in launchers):
            return words[i + 1 :]
    for start, interpreter in enumerate(words):  # the first word, or behind a wrapper (numactl, a script)
        if not _PYTHON.fullmatch(interpreter.rsplit("/", 1)[-1]):
            continue
        for i, word in enumerate(words[start + 1 :], start + 1):
            if word == "-m":
                return words[i + 2 :]
            if not word.startswith("-"):
                if start == 0 or word.endswith(".py"):
                    return words[i + 1 :]
                break
    for i, word in enumerate(words):
        if is_option(word):
            return words[i:]
    return []


def folded_argv(argv: Sequence[str], launchers: Sequence[str], table: ArgTable) -> dict[str, Any]:
    """Options of a whole command line, interpreter and launcher left out."""
    return parse_argv(options_of(argv, launchers), table)


def whole_int(value: Any) -> int | None:
    """A value as a whole number; None where it is none."""
    value = normal(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else None


def text_of(value: Any) -> str | None:
    """A value as text; None for nothing, True, or a list."""
    return value if isinstance(value, str) and value else None
