"""`advise`: what speculation is worth, by concurrency. It reads one recording and reaches no host."""

from __future__ import annotations

import json

from ddtop.commands.options import chosen
from ddtop.errors import UsageError, plain

FORMATS = ("md", "json", "vllm", "sglang")


def advise(run: str | None, form: str, baseline: str | None) -> str:
    """The advice of a recording, finished or not, in the form asked for. Raises JournalError, UsageError."""
    from ddtop.report import load
    from ddtop.report.advice import advice_arguments, advice_json, advice_markdown, advice_of

    if form not in FORMATS:
        raise UsageError(f"advise: unknown format `{form}`", do=f"--format {', '.join(FORMATS)}")
    recording = load(chosen(run, "advise").path)
    configs = dict.fromkeys(cell.spec.config for cell in recording.state.plan_cells)
    if baseline is not None and baseline not in configs:
        raise UsageError(
            f"advise: there is no configuration `{baseline}`",
            do=f"--baseline is one of {', '.join(configs)}" if configs else "this recording has no sweep",
        )
    found = advice_of(recording.state, baseline)
    if form == "json":
        return json.dumps(advice_json(recording, found), indent=1, ensure_ascii=False)
    if form == "md":
        return plain(advice_markdown(recording, found)).rstrip("\n")
    return plain(advice_arguments(recording, found, form)).rstrip("\n")
