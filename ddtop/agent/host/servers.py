"""Serving processes (SGLang, vLLM, llama.cpp), found by their command lines."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from .facts import cgroup_of, read_text, start_ticks_of, unit_of_cgroup
from .processes import all_pids, cmdline

DEFAULT_PORTS = {"sglang": 30000, "vllm": 8000, "llamacpp": 8080}


def engine_of(words: List[str]) -> Optional[str]:
    """The engine a command line serves with.

    >>> engine_of(["python3", "-m", "sglang.launch_server", "--tp", "8"])
    'sglang'
    >>> engine_of(["/usr/bin/python3", "/venv/bin/vllm", "serve", "Qwen/Qwen3"])
    'vllm'
    >>> engine_of(["/opt/llama.cpp/llama-server", "-m", "x.gguf"])
    'llamacpp'
    >>> engine_of(["grep", "sglang.launch_server"]) is None
    True
    """
    if not words:
        return None
    names = [word.rsplit("/", 1)[-1] for word in words[:6]]
    if names[0] == "llama-server" or names[0].startswith("llama-server"):
        return "llamacpp"
    if not (names[0].startswith("python") or names[0] in ("vllm", "sglang")):
        return None
    for index, name in enumerate(names):
        after_m = index > 0 and names[index - 1] == "-m"
        if after_m and name in ("sglang.launch_server", "sglang.serve"):
            return "sglang"
        if after_m and name.startswith("vllm.entrypoints"):
            return "vllm"
        if name in ("sglang", "vllm") and names[index + 1 : index + 2] == ["serve"]:
            return name
        if name == "launch_server.py" and "sglang" in " ".join(words[:4]):
            return "sglang"
    return None


def option(words: List[str], *names: str) -> Optional[str]:
    """The value of an option in a command line: `--port 1` or `--port=1`; the last one counts.

    >>> option(["x", "--port", "1", "--port=2"], "--port")
    '2'
    """
    value = None
    for index, word in enumerate(words):
        key, sep, rest = word.partition("=")
        if key in names:
            value = rest if sep else (words[index + 1] if index + 1 < len(words) else None)
    return value


def model_of(words: List[str], engine: str) -> Optional[str]:
    """The model that a command line names: by an option, or after `serve`, as vLLM and SGLang take it.

    >>> model_of(["python3", "/venv/bin/vllm", "serve", "/models/q", "--port", "1"], "vllm")
    '/models/q'
    >>> model_of(["llama-server", "-m", "x.gguf"], "llamacpp")
    'x.gguf'
    """
    named = option(words, "--model-path", "--model", "-m" if engine == "llamacpp" else "--model")
    if named or "serve" not in words:
        return named
    after = words[words.index("serve") + 1 :][:1]
    return after[0] if after and not after[0].startswith("-") else None


def absolute(model: Optional[str], pid: int) -> Optional[str]:
    """A model's path as it is from anywhere: one that is relative and exists below the process's folder, with that folder.
    A hub name (`org/name`) stays."""
    if not model or os.path.isabs(model):
        return model
    try:
        full = os.path.normpath(os.path.join(os.readlink("/proc/%d/cwd" % pid), os.path.expanduser(model)))
    except OSError:
        return model
    return full if os.path.exists(full) else model


def find_servers() -> List[Dict[str, Any]]:
    """SERVER: {"pid", "start_ticks", "engine", "cmdline", "port", "model", "cgroup", "unit"} of top processes."""
    found: Dict[int, Tuple[int, Dict[str, Any]]] = {}
    for pid in all_pids():
        words = cmdline(pid)
        engine = engine_of(words)
        stat = read_text("/proc/%d/stat" % pid) if engine else None
        if engine is None or not stat:
            continue
        port = option(words, "--port")
        group = cgroup_of(pid)
        row = {
            "pid": pid,
            "start_ticks": start_ticks_of(stat),
            "engine": engine,
            "cmdline": words,
            "port": int(port) if port and port.isdigit() else DEFAULT_PORTS[engine],
            "model": absolute(model_of(words, engine), pid),
            "cgroup": group,
            "unit": unit_of_cgroup(group),
        }
        found[pid] = (int(stat[stat.rindex(")") + 2 :].split()[1]), row)
    return [row for parent, row in found.values() if parent not in found]
