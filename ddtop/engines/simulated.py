"""Whether a server's acceptance is simulated: a switch for tests of the engine, whose tok/s say nothing of speculation.

Sources: SGLang 0.5.23 srt/environ.py and srt/speculative/spec_utils.py (on where the length is above 0; it is in no
log line and not in /server_info); SIMULATE_ACC_LEN in versions before srt/environ.py; vLLM config/speculative.py
(`rejection_sample_method` synthetic, with `synthetic_acceptance_rates` or `_length`, first `_rate`); llama.cpp
`--spec-synth-len` and `--spec-synth-rates`; ATOM `--spec-decode-acceptance-length`; MAX `--synthetic-acceptance-rate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ddtop.engines.args import ArgTable, is_option, normal, parse_argv

VARIABLES = ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")
"""Environment variables that hold a simulated acceptance length."""
OPTIONS = (
    "synthetic_acceptance_rate",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
    "spec_synth_len",
    "spec_synth_rates",
    "spec_decode_acceptance_length",
)
"""Options and keys that set one, with `_` for `-`."""
METHOD = "rejection_sample_method"
_ASSIGNED = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(VARIABLES)})=[\"']?(-?[\d.]+)")
DEPTH = 6
"""How deep settings are searched; vLLM's are three deep."""


def simulated_by_env(env: Mapping[str, str]) -> str:
    """The variable that simulates acceptance, as `NAME=value`; empty where none does."""
    for name in VARIABLES:
        number = normal(env.get(name))
        if isinstance(number, float) and number > 0:
            return f"{name}={env[name]}"
    return ""


def simulated_by_argv(argv: Sequence[str]) -> str:
    """What on a command line simulates acceptance: an option, a key of a JSON option, or a variable that `env`, a shell
    or `docker run` sets; empty where nothing does."""
    assigned = {m.group(1): m.group(2) for m in _ASSIGNED.finditer(" ".join(argv))}
    first = next((i for i, word in enumerate(argv) if is_option(word)), len(argv))
    return simulated_by_env(assigned) or simulated_by_settings(parse_argv(argv[first:], ArgTable()))


def simulated_by_settings(settings: Any) -> str:
    """What in settings (an engine's account of itself, arguments from its log) simulates acceptance, as `name=value`."""
    for path, value in _leaves(settings, "", DEPTH):
        name = path.rpartition(".")[2].replace("-", "_")
        if name == METHOD and value == "synthetic":
            return f"{name}=synthetic"
        if name in OPTIONS and value not in (None, False, "", []):
            return f"{name}={value}"
    return ""


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str) and value[:1] == "{":
        value = normal(value)
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth - 1)
    else:
        yield path, value
