"""`{placeholders}`: replaced inside single arguments only, so that none can ever become two.

A placeholder is a word in braces: `{port}`, `{model.path}`, `{budget}`. Braces around anything else are text
(JSON arguments need no escaping); `{{word}}` is the text `{word}`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ddtop.plan.model import Scalar
from ddtop.plan.problems import Path, Problems, nearest
from ddtop.redact import looks_secret

_PLACEHOLDER = re.compile(r"\{\{(?P<text>[A-Za-z_][\w.-]*)\}\}|\{(?P<name>[A-Za-z_][\w.-]*)\}")

SERVER_NAMES = ("model.path", "model.name", "port", "tp", "config")
"""Placeholders of everything that starts a server, besides those of `set` and `for`."""
BENCH_NAMES = (
    *SERVER_NAMES,
    "workload",
    "output_tokens",
    "concurrency",
    "rate",
    "context",
    "repeat",
    "url",
    "result",
)
"""Placeholders of `bench.argv`. `{result}` stays, for ddtop names that file on the host."""


def names_in(text: str) -> list[str]:
    """Names of the placeholders in `text`, in order."""
    return [m["name"] for m in _PLACEHOLDER.finditer(text) if m["name"] is not None]


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """`text` with its placeholders replaced; a name without a value stays as it is."""

    def one(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return "{" + match["text"] + "}"
        name = match["name"]
        return str(values[name]) if name in values else match[0]

    return _PLACEHOLDER.sub(one, text)


def check(problems: Problems, path: Path, text: str, known: Collection[str]) -> None:
    """Note every placeholder of `text` that is not known here, with the nearest known one."""
    for name in names_in(text):
        if name not in known and not name.startswith("env."):
            near = nearest(name, known)
            meant = f"did you mean {{{near}}}? " if near else ""
            words = ", ".join(f"{{{k}}}" for k in known) or "none"
            problems.fault(path, f"has the unknown placeholder {{{name}}}", f"{meant}allowed here: {words}")


def check_all(problems: Problems, path: Path, texts: tuple[str, ...], known: Collection[str]) -> None:
    for index, text in enumerate(texts):
        check(problems, (*path, index), text, known)


def fill_env(problems: Problems, value: Any, path: Path, environ: Mapping[str, str]) -> Any:
    """`value` (of the parsed file) with each `{env.NAME}` replaced by the variable of this machine.

    Done once, when the plan is read. A variable that is not set, or whose name says that it holds a secret, is
    a fault: what a plan says reaches the recording.
    """
    if isinstance(value, dict):
        return {k: fill_env(problems, v, (*path, k), environ) for k, v in value.items()}
    if isinstance(value, list):
        return [fill_env(problems, v, (*path, i), environ) for i, v in enumerate(value)]
    if not isinstance(value, str) or "{env." not in value:
        return value
    known: dict[str, Scalar] = {}
    for name in names_in(value):
        if not name.startswith("env."):
            continue
        variable = name.removeprefix("env.")
        if looks_secret(variable, ""):
            problems.fault(
                path,
                f"takes {{{name}}}, which looks like a secret",
                "secrets come from the environment of the host, never from a plan",
            )
        elif variable not in environ:
            problems.fault(
                path, f"takes {{{name}}}, but {variable} is not set here", f"set it: export {variable}=…"
            )
        else:
            known[name] = problems.env[variable] = environ[variable]
    return _fill_env_only(value, known)


def _fill_env_only(text: str, known: Mapping[str, Scalar]) -> str:
    for name, value in known.items():
        text = re.sub(r"(?<!\{)\{" + re.escape(name) + r"\}", lambda _m, v=value: str(v), text)  # type: ignore[misc]
    return text
