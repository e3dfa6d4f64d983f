"""A recorded plan as files: its text without what only the first machine had, so that it reads the same anywhere. Pure."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePath

import tomli

from ddtop.datasets.sources import FILE

_PROMPTS = re.compile(
    r"""(?P<key>(?<![\w-])(?P<what>prompts_file|dataset)\s*=\s*)(?P<value>"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
)
_BENCH = (
    (re.compile(r"^[ \t]*\[[ \t]*[\"']?bench[\"']?[ \t]*\][^\n]*", re.M), "\n{}"),
    (re.compile(r"^[ \t]*bench[ \t]*=[ \t]*\{", re.M), " {},"),
    (re.compile(r"^[ \t]*bench[ \t]*=[ \t]*\{", re.M), " {} "),
    (re.compile(r"^(?=[ \t]*bench[ \t]*\.)", re.M), "bench.{}\n"),
)
"""Where `bench` begins in each of TOML's spellings, and what is written there."""
_ENV = re.compile(r"(?<!\{)\{env\.([A-Za-z_][A-Za-z0-9_]*)\}")


def plan_files(
    text: str, files: Mapping[str, str], env: Mapping[str, str], folder: str
) -> tuple[str, dict[str, str]]:
    """(the plan's text, {path relative to the plan: text} of its prompt files, below `folder`).

    Variables stand for their recorded values; `prompts_file` names the file written beside the plan, and so does a `dataset`
    whose licence lets its texts be recorded. What was not recorded is left as it is.
    """
    names = {name: f"{folder}/{n}-{_plain(PurePath(name).name)}" for n, name in enumerate(files, start=1)}

    def prompts(match: re.Match[str]) -> str:
        wanted = _with_env(tomli.loads(f"v = {match['value']}")["v"], env)
        if wanted not in names:
            return str(match[0])
        file = names[wanted] if match["what"] == "prompts_file" else f"{FILE}{names[wanted]}"
        return match["key"] + json.dumps(file)

    text = _PROMPTS.sub(prompts, text)
    text = _ENV.sub(lambda m: _escaped(env[m[1]]) if m[1] in env else m[0], text)
    return text, {names[name]: content for name, content in files.items()}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip(".") or "prompts"


def _with_env(text: str, env: Mapping[str, str]) -> str:
    return _ENV.sub(lambda m: env.get(m[1], m[0]), text)


def _escaped(value: str) -> str:
    """A value inside a basic string of TOML, which escapes as JSON does."""
    return json.dumps(value, ensure_ascii=False)[1:-1]


def with_warm_up(text: str, requests: int) -> str:
    """The plan's text with `bench.warmup` written down: what the run used while the plan left it to the version of ddtop.

    >>> with_warm_up('name = "x"\\n[bench]   # how\\nnonce = true\\n', 1).splitlines()[2]
    'warmup = 1'
    """
    asked = f"warmup = {requests}"
    wanted = tomli.loads(text)
    wanted["bench"] = {**wanted.get("bench", {}), "warmup": requests}
    for way, put in _BENCH:
        for found in way.finditer(text):  # what looks like it may stand in a prompt
            written = text[: found.end()] + put.format(asked) + text[found.end() :]
            with contextlib.suppress(tomli.TOMLDecodeError):
                if tomli.loads(written) == wanted:
                    return written
    return text.rstrip("\n") + f"\n\n[bench]\n{asked}\n"
