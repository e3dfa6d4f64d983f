"""`ddtop inspect`: which inspector judges which kind, and one shape for all answers."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddtop.engines.log.text_forms import looks_like
from ddtop.errors import DdtopError, UsageError
from ddtop.inspect.evidence_lines import last_events, number_lines, result_lines
from ddtop.inspect.file_kind import could_be, guess_kind
from ddtop.inspect.inputs import (
    NotJudgedError,
    input_number,
    is_ssh_config,
    join_reads,
    result,
    text_of,
    unfenced,
)
from ddtop.inspect.render import render_text, to_json

KINDS = ("log", "gpu", "sse", "unit", "model", "results", "ssh")
GROUP_KINDS = {
    "A": "gpu",
    "B": "log",
    "C": "metrics",
    "D": "sse",
    "E": "unit",
    "F": "ssh",
    "G": "model",
    "H": "results",
}
"""Case group → kind. `metrics` is the throughput and acceptance side of a log; for people it is part of
`log`."""

EXIT_OK, EXIT_USAGE, EXIT_NOT_JUDGED = 0, 2, 12
MAX_BYTES = 1 << 30

_STREAMS = {"log", "metrics", "sse", "unit"}
"""Kinds whose inputs are streams: successive reads of one belong together. (Of GPUs and folders each read is a
reading of its own.)"""

_HEAD = {"verdict", "cause", "severity", "advice", "evidence", "schema", "kind"}


def _finish(kind: str, got: Mapping[str, Any]) -> dict[str, Any]:
    """An inspector's result in the common shape; fields that are None are left out."""
    rest = {key: value for key, value in got.items() if key not in _HEAD}
    proof = [item if isinstance(item, Mapping) else {"text": str(item)} for item in got.get("evidence") or ()]
    return result(
        kind, got["verdict"], got["cause"], got["severity"], str(got.get("advice") or ""), proof, **rest
    )


def _function(module: str, name: str) -> Callable[..., dict[str, Any]]:
    """An inspector of another room, imported when it is needed: `ddtop --help` stays instant."""
    found: Callable[..., dict[str, Any]] = getattr(importlib.import_module(module), name)
    return found


def _gpu(files: Mapping[str, bytes]) -> dict[str, Any]:
    return _function("ddtop.sources.gpu.diagnosis", "diagnose_gpu")(files)


def _log(files: Mapping[str, bytes]) -> dict[str, Any]:
    first = next((n for n in sorted(files) if input_number(n) == 1), next(iter(files)))
    if _function("ddtop.sources.figures.server_answers", "server_figures")(files[first]) is not None:
        return _metrics(
            files
        )  # /metrics, /server_info or an answer: no log, so nothing starts or fails in it
    got = dict(_function("ddtop.sources.log.diagnosis", "diagnose_log")(files))
    try:
        numbers = _metrics(files)
    except (ValueError, KeyError):
        numbers = {}
    told = {k: v for k, v in numbers.items() if k not in _HEAD and v is not None}
    if told and numbers.get("lines") != 0:
        got.setdefault("metrics", {**told, "verdict": numbers.get("verdict"), "cause": numbers.get("cause")})
    return got


def _metrics(files: Mapping[str, bytes]) -> dict[str, Any]:
    got = dict(_function("ddtop.sources.figures.diagnosis", "log_metrics")(files))
    got["evidence"] = got.get("evidence") or number_lines(files)
    return got


def _sse(files: Mapping[str, bytes]) -> dict[str, Any]:
    name = next((n for n in files if input_number(n) == 1), next(iter(files)))
    times = None
    if "times.txt" in files:
        words = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", text_of(files["times.txt"]).partition(":")[2])
        times = [float(word) for word in words]
    got = dict(
        _function("ddtop.bench.judge.response", "diagnose_sse")(files[name].lstrip(b"\r\n"), times=times)
    )
    got["evidence"] = got.get("evidence") or last_events(files[name])
    return got


_EXITS = ("main-process-exited", "exited-waiting-for-restart", "flapping", "unit-failed")
"""Causes of a unit that only say that its process ended."""


def _unit(files: Mapping[str, bytes]) -> dict[str, Any]:
    """A unit whose process exited is told by what its own lines say of it, where they name a cause."""
    got = dict(_function("ddtop.services.unit.diagnosis", "diagnose_unit")(files))
    if got["cause"] not in _EXITS:
        return got
    why = _function("ddtop.sources.log.diagnosis", "why_it_ended")
    said = next((told for n in sorted(files) if not n.endswith(".show") and (told := why(files[n]))), None)
    if said is None:
        return got
    proof = [item for item in (*said.pop("evidence", ()), *got["evidence"]) if item["text"]]
    return {**got, **said, "evidence": proof}


def _results(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Result files are read from a folder: the importers look at what lies beside them (plan, server log,
    status)."""
    judge = _function("ddtop.bench.importers", "diagnose_results")
    numbered = {input_number(n): n for n in sorted(files) if input_number(n) is not None}
    inputs = numbered or {1: next(iter(files))}
    with tempfile.TemporaryDirectory(prefix="ddtop-inspect-") as folder:
        for name, data in files.items():
            (Path(folder) / Path(name).name).write_bytes(data)
        first, *others = sorted(n for n in inputs if n is not None)
        got = dict(judge(Path(folder) / Path(inputs[first]).name))
        if got["verdict"] == "unknown":
            raise NotJudgedError(f"{got['why']}; {got['advice']}")
        got["evidence"] = got.get("evidence") or result_lines(files[inputs[first]], got["cause"])
        for n in others:
            more = judge(Path(folder) / Path(inputs[n]).name)
            got.update((f"{key}_input{n}", value) for key, value in more.items() if key != "evidence")
    return got


def _model(files: Mapping[str, bytes]) -> dict[str, Any]:
    return _function("ddtop.inspect.model", "diagnose_model")(files)


def _ssh(files: Mapping[str, bytes]) -> dict[str, Any]:
    return _function("ddtop.inspect.ssh", "diagnose_ssh")(files)


_INSPECTORS: dict[str, Callable[[Mapping[str, bytes]], dict[str, Any]]] = {
    "log": _log,
    "metrics": _metrics,
    "gpu": _gpu,
    "sse": _sse,
    "unit": _unit,
    "model": _model,
    "results": _results,
    "ssh": _ssh,
}


def inspect_files(kind: str | None, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The verdict on one file or on several that belong together.

    `files`: name → content. `input.*` is judged; `input2.*` … add fields with `_input2` behind their names; other
    names give what stands beside it (`cmd.txt`, `rc.txt`, `meta.toml` …). `kind` None: guessed. Raises
    NotJudgedError when it is not of that kind or says nothing, UsageError for an unknown kind.
    """
    if kind is not None and kind not in _INSPECTORS:
        raise UsageError(f"inspect knows no kind {kind!r}", do="use one of: " + " ".join(KINDS))
    if not files or not any(data.strip() for data in files.values()):
        raise NotJudgedError("the input is empty")
    files = {name: unfenced(data) for name, data in files.items()}
    chosen = kind or guess_kind(files)
    if chosen is None:
        raise NotJudgedError("its kind is unknown: name one of " + " ".join(KINDS))
    if chosen in _STREAMS:
        files = join_reads(files)
    try:
        got = _finish("log" if chosen == "metrics" else chosen, _INSPECTORS[chosen](files))
        return _guessed(got, files, kind) if kind is None or got["verdict"] == "unknown" else got
    except ValueError as error:
        raise NotJudgedError(str(error) or f"it cannot be read as {chosen}") from error


def _guessed(got: dict[str, Any], files: Mapping[str, bytes], kind: str | None) -> dict[str, Any]:
    """A result with what the input was taken for, and what else it could be."""
    name = next((n for n in sorted(files) if input_number(n) == 1), next(iter(files)))
    text = text_of(files[name][:65_536])
    if got["verdict"] == "unknown" and "looks_like" not in got and (form := looks_like(text)):
        got["looks_like"] = form
    if kind is None:
        others = could_be(text, str(got["kind"]))
        got["guessed"] = f"taken for: {got['kind']}" + (
            f" (could also be: {', '.join(others)})" if others else ""
        )
    return got


def inspect_file(kind: str | None, source: Path | str | bytes, *, name: str = "input") -> dict[str, Any]:
    """The verdict on a file, a directory, bytes, or (kind `ssh`) a host name of the user's own ssh config.

    A directory is a model, unless it holds `input*` files: then these are judged together.
    """
    if isinstance(source, bytes):
        return inspect_files(kind, {name: source})
    path = Path(source).expanduser()
    if path.is_dir():
        if _is_bundle(path):
            return inspect_files(kind, read_folder(path))
        if kind in (None, "model"):
            got = _function("ddtop.inspect.model", "diagnose_model")(path)
            return _finish("model", got)
        raise UsageError(f"{path} is a directory", do="give a file, or use kind model")
    if not path.exists():
        if kind == "ssh":
            return _finish("ssh", _function("ddtop.inspect.ssh", "diagnose_ssh")(None, str(source)))
        raise UsageError(f"{path}: no such file", do="ddtop inspect [KIND] FILE, or - for standard input")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    if kind in {None, "ssh"} and is_ssh_config(text_of(data[:65_536])):
        included = _function("ddtop.inspect.ssh", "included_files")(path)
        name = path.name if path.name.endswith(".config") else "input.config"
        return inspect_files("ssh", {**included, name: data})
    return inspect_files(kind, {path.name: data})


def _is_bundle(folder: Path) -> bool:
    """Whether a folder holds inputs that belong together, and is not itself a model."""
    return any(
        input_number(p.name) is not None
        or p.name == "probe.txt"
        or p.suffix in {".config", ".show", ".sse", ".lst"}
        for p in folder.iterdir()
    )


def read_folder(folder: Path, *, limit: int = MAX_BYTES) -> dict[str, bytes]:
    """All files below a folder by relative name, but for what describes a case (`expect.toml`,
    `source.txt`)."""
    out: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in {"expect.toml", "source.txt"}:
            with path.open("rb") as file:
                out[path.relative_to(folder).as_posix()] = file.read(limit)
    return out


def main_inspect(kind: str | None, file: str, as_json: bool) -> int:
    """The command: print the verdict on `file` (`-`: standard input) and give the exit status.

    0 it could be judged (whatever the verdict), 2 wrong usage, 12 it cannot be judged, or it is a log of which nothing can
    be told (verdict `unknown`, which is printed).
    """
    if kind is not None and kind not in KINDS:
        print(f"ddtop inspect: no kind {kind!r}; use one of: {' '.join(KINDS)}", file=sys.stderr)
        return EXIT_USAGE
    try:
        got = inspect_file(kind, sys.stdin.buffer.read(MAX_BYTES) if file == "-" else file)
    except NotJudgedError as error:
        print(f"ddtop inspect: {file}: cannot be judged: {error}", file=sys.stderr)
        return EXIT_NOT_JUDGED
    except DdtopError as error:
        print(f"ddtop inspect: {error}", file=sys.stderr)
        return error.exit_code if error.exit_code == EXIT_USAGE else EXIT_NOT_JUDGED
    print(to_json(got) if as_json else render_text(got))
    return EXIT_NOT_JUDGED if got["verdict"] == "unknown" and got["kind"] == "log" else EXIT_OK
