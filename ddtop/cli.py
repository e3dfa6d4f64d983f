"""The command line: wiring only. Every heavy import stands inside its command, so that `ddtop --help` is instant.

Exit codes: 0 all done (or judged), 2 wrong usage, 10 some cells failed or broken (or SUSPECT, INVALID),
11 host lost or never reached, 12 refused, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ddtop import __version__
from ddtop.commands import completion
from ddtop.errors import DdtopError, UsageError

app = typer.Typer(
    name="ddtop",
    help="Live benchmarking of LLM inference servers on remote GPU hosts: a dashboard, and a headless recorder.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
plan_app = typer.Typer(no_args_is_help=True, help="Check, show or begin a plan.", rich_markup_mode=None)
config_app = typer.Typer(no_args_is_help=True, help="Settings.", rich_markup_mode=None)
app.add_typer(plan_app, name="plan")
app.add_typer(config_app, name="config")

JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable output (see docs/output.md).")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, in TOML.", show_default=False)]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"ddtop {__version__}")
        raise typer.Exit


@app.command()
def connect(
    hosts: Annotated[
        list[str],
        typer.Argument(
            metavar="HOST",
            help="Host names as in ~/.ssh/config, user@host, or local.",
            autocompletion=completion.hosts,
        ),
    ],
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Run this sweep. Without: watch what runs there.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Headless: no dashboard, progress on stderr, recorded to FILE."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one probe of the host and exit.")] = False,
    json_out: JsonFlag = False,
    leave_running: Annotated[
        bool, typer.Option("--leave-running", help="At the end leave the server as the last cell had it.")
    ] = False,
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", help="Instead of ~/.ssh/config.")] = None,
) -> None:
    """Open the dashboard on hosts; with --record run headless."""
    from ddtop.commands import connect as room

    options = room.Options(
        hosts=tuple(hosts),
        plan=plan,
        record=record,
        once=once,
        json_out=json_out,
        leave_running=leave_running,
        ssh_config=ssh_config,
    )
    raise typer.Exit(room.connect(options))


@app.command()
def demo(
    record: Annotated[
        Path | None, typer.Option("--record", help="Without a screen, recorded to FILE.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the demo's folder behind.")] = False,
) -> None:
    """A SIMULATED host with a real sweep and one restart that fails. Nothing of this machine is touched."""
    from ddtop.commands.demo import run_demo

    raise typer.Exit(run_demo(record=record, keep=keep))


@app.command()
def replay(
    recording: Annotated[Path, typer.Argument(metavar="FILE", help="A recording (.ddtop).")],
    speed: Annotated[float, typer.Option("--speed", help="1 is real time.")] = 1.0,
) -> None:
    """The dashboard on a recording, in its own time or faster."""
    from ddtop.commands import connect as room

    raise typer.Exit(room.replay(recording, speed))


@app.command()
def report(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="One or more recordings, side by side.")
    ],
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained HTML file.")] = None,
    md: Annotated[bool, typer.Option("--md", help="Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="One row a cell.")] = False,
    json_out: JsonFlag = False,
    baseline: Annotated[str | None, typer.Option("--baseline", help="Configuration to compare with.")] = None,
) -> None:
    """Tables and plots of one or more recordings."""
    from ddtop.commands import recordings as room

    typer.echo(room.report(recordings, html=html, md=md, csv=csv, as_json=json_out, baseline=baseline))


@app.command()
def runs(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[export RUN FILE]", help="`export RUN FILE` copies a recording, live or not."
        ),
    ] = None,
    json_out: JsonFlag = False,
) -> None:
    """What is recorded and running here; `runs export RUN FILE` copies one."""
    from ddtop.commands import recordings as room

    match words or []:
        case []:
            typer.echo(room.list_runs(as_json=json_out))
        case ["export", run, target]:
            typer.echo(room.export_run(run, Path(target)))
        case other:
            raise UsageError(
                f"runs: cannot make sense of `{' '.join(other)}`", do="ddtop runs export RUN FILE"
            )


@app.command()
def stop(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Run id, recording, or host.", autocompletion=completion.recordings
        ),
    ],
    leave_running: Annotated[
        bool, typer.Option("--leave-running", help="Leave the server as it is.")
    ] = False,
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", help="Instead of ~/.ssh/config.")] = None,
) -> None:
    """Stop a run cleanly: after what is in flight is safe, the host is left as it was found."""
    from ddtop.commands import stop as room

    raise typer.Exit(room.stop(run, leave_running=leave_running, ssh_config=ssh_config))


@plan_app.command("check")
def plan_check(plan: PlanFile) -> None:
    """Errors with their exact place."""
    from ddtop.commands import plan as room

    typer.echo(room.check_plan(plan))


@plan_app.command("show")
def plan_show(plan: PlanFile) -> None:
    """The cells, the restarts and the estimated time."""
    from ddtop.commands import plan as room

    typer.echo(room.show_plan(plan))


@plan_app.command("new")
def plan_new(
    host: Annotated[str, typer.Option("--from", help="Host to look at.", autocompletion=completion.hosts)],
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", help="Instead of ~/.ssh/config.")] = None,
) -> None:
    """A first plan, from what runs on a host now."""
    from ddtop.commands.plan_new import plan_from_host

    typer.echo(plan_from_host(host, ssh_config))


@app.command()
def bench(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="An OpenAI-compatible endpoint, such as http://127.0.0.1:30000."),
    ],
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Streams at a time.")] = 1,
    requests: Annotated[
        int, typer.Option("--requests", "-n", help="Requests in all; 0: 8 for each stream.")
    ] = 0,
    rate: Annotated[float, typer.Option("--rate", help="Open loop: requests per second (Poisson).")] = 0.0,
    ramp: Annotated[bool, typer.Option("--ramp", help="Find the knee, up to --concurrency streams.")] = False,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", help="Tokens asked for per request.")
    ] = 256,
    prompt: Annotated[str | None, typer.Option("--prompt", help="The prompt.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option("--prompt-file", help="One prompt a line, or JSONL.")
    ] = None,
    random_input: Annotated[int, typer.Option("--random-input", help="Prompts of about N random words.")] = 0,
    model: Annotated[str, typer.Option("--model", help="Else the first that /v1/models names.")] = "",
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            help="chat, completions or generate.",
            autocompletion=completion.one_of("chat", "completions", "generate"),
        ),
    ] = "",
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="Environment variable with the key.")
    ] = "",
    slo: Annotated[
        str | None, typer.Option("--slo", help="Such as ttft=500ms,tpot=30ms: adds goodput.")
    ] = None,
    time_limit_s: Annotated[float, typer.Option("--time-limit", help="Seconds for the measurement.")] = 600.0,
    json_out: JsonFlag = False,
) -> None:
    """One measurement of any endpoint from here: no plan, no host, no tokenizer."""
    from ddtop.commands import bench as room

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
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Streams at a time.")] = 64,
    chunk_ms: Annotated[float, typer.Option("--chunk-ms", help="Time between chunks of a stream.")] = 20.0,
    tokens_per_chunk: Annotated[
        int, typer.Option("--tokens-per-chunk", help="As speculation brings them.")
    ] = 1,
    json_out: JsonFlag = False,
) -> None:
    """The load generator's own error on this machine, against a server that stamps what it sends."""
    from ddtop.commands import bench as room

    code = room.selftest(
        concurrency=concurrency, chunk_ms=chunk_ms, tokens_per_chunk=tokens_per_chunk, as_json=json_out
    )
    raise typer.Exit(code)


@app.command()
def inspect(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[KIND] FILE", help="KIND: log gpu sse unit model results ssh; - is stdin."),
    ],
    json_out: JsonFlag = False,
) -> None:
    """What ddtop makes of a file, without any host: verdict, cause, evidence, what to do."""
    from ddtop.inspect import main_inspect

    if len(words) not in (1, 2):
        raise UsageError(f"inspect: {len(words)} words given", do="ddtop inspect [KIND] FILE")
    kind = words[0] if len(words) == 2 else None
    raise typer.Exit(main_inspect(kind, words[-1], json_out))


@app.command("import")
def import_results(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A result file of another tool.")],
    json_out: Annotated[bool, typer.Option("--json", hidden=True)] = True,
) -> None:
    """Read another tool's result file: as JSON, in ddtop's names and definitions.

    `ddtop inspect results FILE` says the same for people.
    """
    from ddtop.inspect import main_inspect

    raise typer.Exit(main_inspect("results", str(file), json_out))


@app.command()
def export(
    recording: Annotated[Path, typer.Argument(metavar="FILE", help="A recording.")],
    fmt: Annotated[
        str,
        typer.Option("--format", help="sglang or vllm.", autocompletion=completion.one_of("sglang", "vllm")),
    ],
) -> None:
    """Write the results of a recording as another tool would."""
    from ddtop.commands import recordings as room

    typer.echo(room.export_results(recording, fmt))


@app.command()
def paths() -> None:
    """Where ddtop's files are."""
    from ddtop.paths import all_paths

    for name, place in all_paths().items():
        typer.echo(f"{name:15} {place}{'' if place.exists() else '  (not there yet)'}")


@config_app.command("show")
def config_show() -> None:
    """Effective settings, and where each came from."""
    from ddtop.config import describe, load_settings

    typer.echo(describe(load_settings()))


def main(argv: list[str] | None = None) -> None:
    """Entry point: errors become sentences on stderr, with the exit codes of the module's docstring."""
    try:
        app(args=argv, standalone_mode=True)
    except DdtopError as error:
        print(f"ddtop: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EBADF):
            with contextlib.suppress(OSError):
                sys.stdout.close()  # else Python tries once more at its end, and complains
            print(f"ddtop: the output could not be written: {error.strerror}", file=sys.stderr)
            sys.exit(1)
        if error.filename is None:
            sys.exit(_bug(error))
        print(f"ddtop: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        sys.exit(_bug(error))


def _bug(error: Exception) -> int:
    """A bug is said in a sentence; its traceback goes to ddtop's own log."""
    import traceback

    from ddtop.paths import state_dir

    log = state_dir() / "ddtop.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
        where = f"The traceback is at the end of {log}; please send it along."
    except OSError as trouble:
        where = f"(The traceback could not be written to {log}: {trouble})"
    print(f"ddtop: a bug of ddtop: {type(error).__name__}: {error}\n  do:    {where}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
