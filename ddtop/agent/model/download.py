"""Downloading a model with the host's own `hf` tool (or `huggingface-cli`): it resumes and checks by itself."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import threading
from typing import Any, Dict, List, Optional, Tuple

from ..errors import JobFailedError
from ..host.state_folder import read_json
from .progress import Progress

HF = "hf:"
POLL_S = 1.0
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<rev>[\w./-]+))?\Z")


def parse_source(source: str) -> Tuple[str, Optional[str]]:
    """
    >>> parse_source("hf:Qwen/Qwen3.6-27B@main")
    ('Qwen/Qwen3.6-27B', 'main')
    """
    match = _NAME.match(source)
    if not match:
        raise JobFailedError("%s: a download is named hf:org/name or hf:org/name@revision" % source)
    return match.group("repo"), match.group("rev")


def find_tool() -> str:
    """`hf`, or the older `huggingface-cli`, in the PATH or beside the usual environments."""
    for name in ("hf", "huggingface-cli"):
        places = os.environ.get("PATH", "") + ":" + os.path.expanduser("~/.local/bin")
        path = shutil.which(name, path=places)
        if path:
            return path
    raise JobFailedError(
        "there is no hf tool on this host: install it (pip install -U huggingface_hub), or name a directory that "
        "holds the model in model.sources"
    )


def download_words(tool: str, repo: str, revision: Optional[str], target: str) -> List[str]:
    words = [tool, "download", repo, "--local-dir", target]
    return words + (["--revision", revision] if revision else [])


def folder_size(path: str) -> int:
    """Allocated bytes of all files below, unfinished ones too."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                info = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            total += min(info.st_size, info.st_blocks * 512) if info.st_blocks else 0
    return total


def announced_size(target: str) -> Optional[int]:
    """Bytes of all tensors, as the weights' index says once it is there; None before. The files are a little larger."""
    for path in glob.glob(os.path.join(glob.escape(target), "*.index.json")):
        found = read_json(path)
        size = (found.get("metadata") or {}).get("total_size") if isinstance(found, dict) else None
        if isinstance(size, (int, float)) and size > 0:
            return int(size)
    return None


def download(source: str, target: str, progress: Progress) -> Dict[str, Any]:
    """Runs the tool to its end. Raises JobFailedError with its last lines."""
    repo, revision = parse_source(source)
    words = download_words(find_tool(), repo, revision, target)
    os.makedirs(target, exist_ok=True)
    progress.now(state="downloading", source=source)
    env = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    )
    lines: List[str] = []
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    while True:
        progress.total_b = progress.total_b or announced_size(target)
        progress.add(folder_size(target) - progress.done_b)
        try:
            code = process.wait(POLL_S)
            break
        except subprocess.TimeoutExpired:
            continue
    reader.join(2.0)
    if code != 0:
        raise JobFailedError(
            "%s: exit status %d: %s" % (" ".join(words[:3]), code, " | ".join(lines[-5:])[-1500:])
        )
    progress.add(folder_size(target) - progress.done_b)
    return {"source": source, "files": {}}


def _read(process: "subprocess.Popen[bytes]", lines: List[str]) -> None:
    assert process.stdout is not None
    for raw in process.stdout:
        text = raw.decode("utf-8", "replace").strip()
        if text:
            print(text, flush=True)
            lines.append(text)
            del lines[:-50]
