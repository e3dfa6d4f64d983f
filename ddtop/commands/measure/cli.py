"""The command line of these commands: wiring only, as in `ddtop/cli.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ddtop.commands import completion
from ddtop.commands.options import JsonFlag
from ddtop.errors import UsageError

app = typer.Typer(rich_markup_mode=None)


@app.command()
def bench(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="An OpenAI-compatible endpoint, such as http://127.0.0.1:30000."),
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", help="Concurrent requests (streams).")
    ] = 1,
    requests: Annotated[
        int, typer.Option("--requests", "-n", help="Total number of requests; 0 means 8 per stream.")
    ] = 0,
    rate: Annotated[
        float, typer.Option("--rate", help="Open loop: send this many requests/s (Poisson).")
    ] = 0.0,
    ramp: Annotated[
        bool, typer.Option("--ramp", help="Find the knee up to --concurrency, or up to --rate.")
    ] = False,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", help="Tokens to generate per request.")
    ] = 256,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Prompt text.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option("--prompt-file", help="Prompts: one per line, or JSONL.")
    ] = None,
    random_input: Annotated[
        int, typer.Option("--random-input", help="Use random prompts of about this many words.")
    ] = 0,
    model: Annotated[
        str, typer.Option("--model", help="Model name; by default the first of /v1/models.")
    ] = "",
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            help="chat, completions or generate.",
            autocompletion=completion.one_of("chat", "completions", "generate"),
        ),
    ] = "",
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="Environment variable that holds the API key.")
    ] = "",
    slo: Annotated[
        str | None, typer.Option("--slo", help="Latency limits, such as ttft=500ms,tpot=30ms; adds goodput.")
    ] = None,
    time_limit_s: Annotated[
        float, typer.Option("--time-limit", help="Stop measuring after this many seconds.")
    ] = 600.0,
    json_out: JsonFlag = False,
) -> None:
    """Measure any endpoint from this machine, without a plan."""
    from ddtop.commands.measure import bench as room

    options: dict[str, Any] = {
        "url": url,
        "concurrency": concurrency,
        "requests": requests,
        "rate": rate,
        "ramp": ramp,
        "output_tokens": output_tokens,
        "random_input": random_input,
        "model": model,
        "endpoint": endpoint,
        "api_key_env": api_key_env,
        "time_limit_s": time_limit_s,
    }
    code = room.bench(options, prompt=prompt, prompt_file=prompt_file, slo=slo, as_json=json_out)
    raise typer.Exit(code)


@app.command()
def selftest(
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Concurrent streams.")] = 64,
    chunk_ms: Annotated[
        float, typer.Option("--chunk-ms", help="Milliseconds between chunks of a stream.")
    ] = 20.0,
    tokens_per_chunk: Annotated[
        int, typer.Option("--tokens-per-chunk", help="Tokens per chunk, as with speculative decoding.")
    ] = 1,
    json_out: JsonFlag = False,
) -> None:
    """Measure the load generator's own error on this machine."""
    from ddtop.commands.measure import bench as room

    code = room.selftest(
        concurrency=concurrency, chunk_ms=chunk_ms, tokens_per_chunk=tokens_per_chunk, as_json=json_out
    )
    raise typer.Exit(code)


@app.command()
def inspect(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[KIND] FILE",
            help="KIND: log gpu sse unit model results ssh; detected if left out. FILE: - is stdin.",
        ),
    ],
    json_out: JsonFlag = False,
) -> None:
    """Diagnose a log or another file, without a host."""
    from ddtop.inspect import main_inspect

    if len(words) not in (1, 2):
        raise UsageError(f"inspect: {len(words)} arguments given", do="ddtop inspect [KIND] FILE")
    kind = words[0] if len(words) == 2 else None
    raise typer.Exit(main_inspect(kind, words[-1], json_out))


@app.command("import")
def import_results(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A result file of another tool.")],
    json_out: Annotated[bool, typer.Option("--json", hidden=True)] = True,
) -> None:
    """Convert another tool's result file to JSON with ddtop's names.

    `ddtop inspect results FILE` prints the same as text.
    """
    from ddtop.inspect import main_inspect

    raise typer.Exit(main_inspect("results", str(file), json_out))
