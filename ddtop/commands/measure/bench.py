"""`ddtop bench URL` and `ddtop selftest`: one measurement from here, without a plan or a host."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtop.errors import UsageError

if TYPE_CHECKING:
    from ddtop.bench.figures.metrics import Slo

_SLO = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "tpot_ms", "e2e": "e2e_ms", "icl": "icl_ms"}


def parse_slo(text: str | None) -> Slo | None:
    """`ttft=500ms,tpot=30ms,e2e=20s` as limits. Raises UsageError that names the part that is wrong."""
    from ddtop.bench.figures.metrics import Slo

    if not text:
        return None
    limits: dict[str, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+(?:\.\d+)?|\.\d+)\s*(ms|s)?\s*", part)
        if match is None or match[1].lower() not in _SLO:
            raise UsageError(
                f"--slo: `{part.strip()}` is not a limit",
                do=f"write NAME=NUMBERms with NAME one of {', '.join(_SLO)}, such as --slo ttft=500ms,tpot=30ms",
            )
        limits[_SLO[match[1].lower()]] = float(match[2]) * (1000 if match[3] == "s" else 1)
    return Slo(**limits)


def read_prompts(path: Path) -> tuple[Any, ...]:
    """Prompts of a file: one per line, or JSON lines with `prompt`, `messages` or `turns`. Raises UsageError."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prompt-file {path}: {error}", do="name a UTF-8 text or JSONL file") from error
    if not lines:
        raise UsageError(f"--prompt-file {path}: the file holds no prompt", do="write one prompt per line")
    if path.suffix != ".jsonl":
        return tuple(lines)
    prompts: list[Any] = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(
                f"--prompt-file {path}:{number}: not JSON: {error}", do="write one JSON value per line"
            ) from error
        if not isinstance(value, str | dict) or (
            isinstance(value, dict) and not value.keys() & {"prompt", "messages", "turns"}
        ):
            raise UsageError(
                f"--prompt-file {path}:{number}: neither a string nor an object with `prompt`, `messages` or `turns`",
                do='write a string, {"prompt": "…"}, {"messages": […]} or {"turns": ["…", "…"]} on each line',
            )
        prompts.append(value)
    return tuple(prompts)


def bench(
    options: dict[str, Any], *, prompt: str | None, prompt_file: Path | None, slo: str | None, as_json: bool
) -> int:
    """Measures `options["url"]` and prints the result. Returns 0 for VALID, 10 for SUSPECT or INVALID."""
    from ddtop.bench.render import bench_text
    from ddtop.bench.url_bench import BenchOptions, exit_code, run_bench, split_url
    from ddtop.commands.measure.endpoint import ask_endpoint, check_url

    if prompt is not None and prompt_file is not None:
        raise UsageError("--prompt and --prompt-file are both given", do="give one of them")
    for name in ("concurrency", "output_tokens"):
        if options[name] < 1:
            raise UsageError(f"--{name.replace('_', '-')} is {options[name]}", do="give 1 or more")
    for name in ("requests", "rate", "random_input"):
        if options[name] < 0:
            raise UsageError(f"--{name.replace('_', '-')} is {options[name]}", do="give 0 or more")
    if options["endpoint"] not in ("", "chat", "completions", "generate"):
        raise UsageError(f"--endpoint {options['endpoint']}: unknown", do="chat, completions or generate")
    if options["time_limit_s"] <= 0:
        raise UsageError(f"--time-limit is {options['time_limit_s']:g}", do="give more than 0 seconds")
    prompts: tuple[Any, ...] = (prompt,) if prompt is not None else ()
    if prompt_file is not None:
        prompts = read_prompts(prompt_file)
    limits = parse_slo(slo)
    check_url(options["url"], options["api_key_env"])
    found = ask_endpoint(split_url(options["url"])[0], options["api_key_env"])
    for note in found.notes(options["model"]):
        print(f"ddtop: {options['url']}: {note}", file=sys.stderr)
    options = {**options, "engine": found.engine}
    with _progress(as_json) as report:
        result = run_bench(BenchOptions(**options, prompts=prompts, slo=limits, progress=report))
    print(json.dumps(result, indent=1, ensure_ascii=False) if as_json else bench_text(result))
    return exit_code(result)


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A live line on stderr while the block runs; None where stderr is not a terminal, or with `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from ddtop.bench.figures.live import progress_fields

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:.0f}/{task.total:.0f} requests · {task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as live:
        task = live.add_task("connecting", total=1, note="")

        def report(seen: dict[str, Any]) -> None:
            total = seen.get("requests") or 1
            fields = progress_fields(seen)
            note = f"{seen.get('in_flight') or 0} in flight"
            if (speed := fields.get("now_tok_s") or fields.get("tok_s")) is not None:
                note += f" · {'~' if fields['about'] else ''}{speed:,.1f} tok/s"
            if failed := fields.get("failed"):
                note += f" · {failed} failed"
            if (tpot := fields.get("tpot")) is not None:
                note += f" · TPOT p50 {tpot.p50:g} ms"
            phase = fields["phase"] or "measuring"
            total = max(total, fields["requests_total"] or 1)
            live.update(task, description=phase, completed=seen.get("done") or 0, total=total, note=note)

        yield report


def selftest(*, concurrency: int, chunk_ms: float, tokens_per_chunk: int, as_json: bool) -> int:
    """Prints the generator's own error at this load. Returns 0 if it is fit for the load, 10 if not."""
    from ddtop.bench.render import selftest_text
    from ddtop.bench.selftest import SelftestOptions, run_selftest

    if concurrency < 1 or chunk_ms <= 0 or tokens_per_chunk < 1:
        raise UsageError("selftest: every option must be above 0", do="ddtop selftest -c 64 --chunk-ms 20")
    try:
        result = run_selftest(
            SelftestOptions(streams=concurrency, dt_ms=chunk_ms, tokens_per_chunk=tokens_per_chunk)
        )
    except OSError as error:
        raise UsageError(
            f"the stamping server did not start: {error}", do="check that loopback ports are free"
        ) from error
    print(json.dumps(result, indent=1) if as_json else selftest_text(result))
    return 0 if result["fit"] else 10
