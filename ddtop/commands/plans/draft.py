"""`ddtop plan new --from HOST`: a first plan, from the server that runs there now."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddtop.errors import AgentError, RefusedError
from ddtop.hosts.base import Host
from ddtop.redact import names_secret

_VALUES = {"tp": ("--tp", "--tp-size", "--tensor-parallel-size"), "port": ("--port",)}
SINFO = "%P|%l|%G|%D"
_MODEL = ("--model-path", "--model", "-m")


def plan_from_host(host: str, ssh_config: Path | None) -> str:
    """TOML of a plan with one configuration: the one that runs now. Raises HostError, RefusedError."""
    from ddtop.runner import RunOptions, make_connector

    async def ask() -> tuple[dict[str, Any], str]:
        connector = make_connector(RunOptions(host=host, ssh_config=ssh_config))
        reached = await connector.connect()
        try:
            found: dict[str, Any] = await reached.call("probe", timeout_s=10, units=[])
            return found, "" if found.get("servers") else await _sinfo(reached)
        finally:
            await reached.close()
            if hasattr(connector, "release"):
                await connector.release(forget=True)

    found, sinfo = asyncio.run(ask())
    return slurm_plan_text(host, sinfo) if sinfo.strip() else plan_text(host, found)


async def _sinfo(host: Host) -> str:
    """What sinfo says of the partitions; "" where there is none."""
    try:
        done = await host.call("exec", argv=["sinfo", "--noheader", f"--format={SINFO}"], timeout_s=10)
    except AgentError:
        return ""
    return str(done.get("stdout") or "") if done.get("rc") == 0 else ""


class Partition(NamedTuple):
    """One line of sinfo."""

    name: str
    limit: str
    gpus: str
    """GPUs of a node, as `8` or `h200:8`; "" without any."""
    nodes: int
    default: bool


def partitions(sinfo: str) -> list[Partition]:
    """Partitions as sinfo lists them with SINFO, those with GPUs first, the default one before others.

    >>> partitions("cpu*|infinite|(null)|4\\ngpu|4:00:00|gpu:h200:8(S:0-1)|2")[0]
    Partition(name='gpu', limit='4:00:00', gpus='h200:8', nodes=2, default=False)
    """
    found = []
    for row in sinfo.splitlines():
        fields = row.strip().split("|")
        if len(fields) == 4:
            match = re.search(r"gpu:((?:[^:,()]+:)?\d+)", fields[2])
            count = int(fields[3]) if fields[3].isdigit() else 0
            name = fields[0].rstrip("*")
            found.append(Partition(name, fields[1], match[1] if match else "", count, fields[0] != name))
    return sorted(found, key=lambda p: (not p.gpus, not p.default))


def slurm_plan_text(host: str, sinfo: str) -> str:
    """A plan for an allocation of the cluster whose login node this is, and what to put into config.toml."""
    every = partitions(sinfo)
    best = every[0] if every else Partition("", "", "", 0, False)
    others = ", ".join(f"{p.name} ({p.gpus or 'no'} GPUs, {p.limit})" for p in every[1:])
    limit = "" if best.limit in ("", "infinite", "UNLIMITED") else f", at most {best.limit}"
    gpus = best.gpus if ":" in best.gpus else int(best.gpus or 0)
    tp = int(str(gpus).rpartition(":")[2] or 0) or 1
    lines = [
        f"# Drafted from the Slurm login node {host}. Edit it, then run `ddtop plan check`.",
        *([f"# Other partitions: {others}."] if others else []),
        "# The allocation is the host. To give it a name of its own, put this into config.toml (`ddtop paths`):",
        f"#   [hosts.{re.sub(r'[^A-Za-z0-9_-]+', '-', best.name or 'slurm')}]",
        f"#   via = {_toml(host)}",
        f"name = {_toml('slurm-' + re.sub(r'[^a-z0-9.-]+', '-', (best.name or host).lower()))}",
        f"host = {_toml(host)}",
        "",
        "[slurm]",
        f"partition = {_toml(best.name)}",
        f"gpus = {_toml(gpus) if isinstance(gpus, str) else gpus}                     # of each node",
        f'time = "1:00:00"             # the walltime{limit}',
        '# account = "…"              # sacctmgr show assoc user=$USER lists yours',
        "",
        "[model]",
        'path = "/shared/models/NAME" # where every node sees it',
        "",
        "[service]",
        'kind = "process"             # a step of the allocation; there is no systemd for it',
        'unit = "server"',
        'engine = "sglang"',
        "port = 30000",
        'command = ["python3", "-m", "sglang.launch_server", "--model-path", "{model.path}", "--tp", "{tp}", "--port", "{port}"]',
        "",
        "[configs]",
        "plain = {}",
        "",
        "[matrix]",
        f"tp = [{tp}]",
        "concurrency = [1, 8, 32]",
        "context = [0]",
        'baseline = "plain"',
        "",
        "[[workload]]",
        'name = "fib"',
        'prompts = ["Write a Python program that prints the first 50 Fibonacci numbers."]',
        "output_tokens = [256]",
        "",
        "[bench]",
        'warmup = "handover"          # measured from where the load has settled',
    ]
    return "\n".join(lines)


def plan_text(host: str, probe: Mapping[str, Any]) -> str:
    """The plan for the first server of a probe. Raises RefusedError where nothing serves."""
    servers = [s for s in probe.get("servers") or [] if isinstance(s, Mapping)]
    if not servers:
        raise RefusedError(
            "no SGLang, vLLM or llama.cpp server runs there",
            host=host,
            do="start one, or begin with a shipped plan: ddtop paths shows where they are",
        )
    server = servers[0]
    model = str(server.get("model") or "")
    placed = model.startswith("/")  # a name such as org/model is the engine's own to fetch
    words = [str(w) for w in server.get("cmdline") or []]
    command, tp, masked = templated(words, server.get("port"), model if placed else "")
    unit = server.get("unit")
    kind = "systemd" if unit else "process"
    name = re.sub(r"[^a-z0-9.-]+", "-", f"{host}-{Path(model or 'model').name}".lower())
    lines = [
        f"# Drafted from the server that ran on {host}. Run `ddtop plan check` after every edit.",
        f"name = {_toml(name)}",
        f"host = {_toml(host)}",
        "",
        *(_model(model) if placed else []),
        "[service]",
        f"kind = {_toml(kind)}",
        f"unit = {_toml(str(unit or 'server'))}",
        f"engine = {_toml(str(server.get('engine')))}",
        f"port = {server.get('port') or 30000}",
        f"command = {_toml(command)}",
        "",
        "[configs]",
        'current = {}                 # add others: name = { args = ["--flag", "value"] }',
        "",
        "[matrix]",
        f"tp = [{tp}]",
        "concurrency = [1, 8, 32]",
        "context = [0]",
        'baseline = "current"',
        "",
        "[[workload]]",
        'name = "fib"',
        'prompts = ["Write a Python program that prints the first 50 Fibonacci numbers."]',
        "output_tokens = [256]",
        "",
        "[bench]",
        'warmup = "handover"          # measured from where the load has settled',
    ]
    if masked:
        lines.insert(
            1,
            f"# Left out because it looks like a secret: {', '.join(masked)}. Set it in the host's environment.",
        )
    if len(servers) > 1:
        others = ", ".join(f"{s.get('engine')} pid {s.get('pid')}" for s in servers[1:])
        lines.insert(1, f"# Other servers run there too: {others}.")
    return "\n".join(lines)


def _model(path: str) -> list[str]:
    return [
        "[model]",
        f"path = {_toml(path)}",
        'sources = []                 # where to copy it from if it is missing: folders, "hf:org/name"',
        "",
    ]


def templated(words: Sequence[str], port: Any, model: str) -> tuple[list[str], int, list[str]]:
    """A command line with {tp}, {port} and {model.path} put in; the TP it had; the flags left out as secrets. `model` is the
    model's path; "" leaves what names it as it is.

    >>> templated(["python3", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "4", "--port", "1"], 1, "/m")
    (['python3', '-m', 'sglang.launch_server', '--model-path', '{model.path}', '--tp', '{tp}', '--port', '{port}'], 4, [])
    >>> templated(["vllm", "serve", "/m", "--port", "1"], 1, "/m")
    (['vllm', 'serve', '{model.path}', '--port', '{port}'], 1, [])
    """
    out: list[str] = []
    masked: list[str] = []
    tp, rest, words = 1, iter(range(len(words))), list(words)
    for i in rest:
        word = words[i]
        flag, joined, value = word.partition("=")
        after = value if joined else (words[i + 1] if i + 1 < len(words) else "")
        target = "{tp}" if flag in _VALUES["tp"] else "{port}" if flag in _VALUES["port"] else ""
        # `-m` names a module after python, a model after llama-server.
        if model and flag in _MODEL and not (flag == "-m" and Path(words[0]).name.startswith("python")):
            target = "{model.path}"
        if flag.startswith("--") and names_secret(flag):
            masked.append(flag)
            if not joined and after and not after.startswith("-"):
                next(rest, None)
            continue
        if model and word == model and i and words[i - 1] == "serve":
            out.append("{model.path}")
            continue
        if not target:
            out.append(word.replace("{", "{{").replace("}", "}}"))
            continue
        if target == "{tp}" and after.isdigit():
            tp = int(after)
        out += [f"{flag}={target}"] if joined else [flag, target]
        if not joined:
            next(rest, None)
    return out, tp, masked


def _toml(value: str | list[str]) -> str:
    """A TOML string or array: JSON's are valid TOML where no lone surrogate is in them."""
    return json.dumps(value, ensure_ascii=True)
