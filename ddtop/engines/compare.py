"""The comparison that all engines share: wanted arguments against those in effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddtop.engines.args import ArgTable, account_of, folded_argv, same
from ddtop.engines.base import ArgMismatch

IGNORED = frozenset(
    {"api_key", "log_level", "log_level_http", "log_requests", "log_requests_level", "enable_metrics"}
)
"""Arguments that change nothing measured, or that a server does not report, for good reason."""

Override = Callable[[str, Any, Any, Mapping[str, Any]], str]


def compare(
    wanted_argv: Sequence[str],
    resolved: Mapping[str, Any],
    cmdline: Sequence[str],
    *,
    table: ArgTable,
    launchers: Sequence[str],
    override: Override,
    unwanted: Sequence[str] = (),
) -> tuple[ArgMismatch, ...]:
    """What of the wanted arguments is not in effect.

    resolved  the engine's own account (names as in its argument dump), may be empty
    cmdline   argv of the running process: decides whether a difference is an old server or the engine's own override
    override  (name, wanted, running, resolved) → why the engine forces another value, ``""`` = no known reason
    unwanted  canonical names that count when they run without being wanted (speculative settings)
    """
    wanted = folded_argv(wanted_argv, launchers, table)
    asked = folded_argv(cmdline, launchers, table) if cmdline else {}
    account = account_of(resolved, table)
    found: list[ArgMismatch] = []
    for name, value in wanted.items():
        if (
            name in IGNORED or str(value).lower() == "auto"
        ):  # whatever the engine then chose is what was wanted
            continue
        path = name in table.paths
        if name in account:
            running = account[name]
            if same(value, running, path=path):
                continue
            why = override(name, value, running, account)
            passed_on = name in asked and same(value, asked[name], path=path)
            if why or passed_on:
                found.append(
                    ArgMismatch(
                        name,
                        value,
                        running,
                        "overridden",
                        why or "the server was started with it and uses another value",
                    )
                )
            else:
                found.append(ArgMismatch(name, value, running))
        elif name in asked:
            if not same(value, asked[name], path=path):
                found.append(ArgMismatch(name, value, asked[name]))
        elif asked or account:
            found.append(ArgMismatch(name, value, None, "missing"))
    for name in unwanted:
        running = account.get(name, asked.get(name))
        if name not in wanted and running not in (None, False, "", "none", "None", [], {}):
            found.append(ArgMismatch(name, None, running, "unwanted"))
    for name, value in asked.items():
        if name.startswith(("speculative_", "spec_")) and name not in wanted and name not in unwanted:
            found.append(ArgMismatch(name, None, value, "unwanted"))
    return tuple(found)
