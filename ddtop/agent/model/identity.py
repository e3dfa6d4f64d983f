"""Which model a folder or file holds: revision and hashes, without reading weights. Bounded in bytes and files.

Hugging Face's own download notes name the commit and, for large files, the SHA-256 of their content; else the hash is of names,
sizes, small files and the heads of the weights, and `covers` says so.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from ..host.facts import read_text

SMALL_B = 4 << 20
HEAD_B = 64 << 10
MAX_FILES = 2_000
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})(?:/|\Z)")
WHOLE = "the content of every file, of large ones by Hugging Face's notes of the download"
HEADS = "names, sizes, small files and the first 64 KiB of large ones"


def note_of(folder: str, name: str) -> Tuple[Optional[str], Optional[str]]:
    """(commit, SHA-256 of the content) as `hf download --local-dir` noted them; None where it did not."""
    text = read_text(os.path.join(folder, ".cache", "huggingface", "download", name + ".metadata"), 4096)
    lines = [line.strip() for line in (text or "").splitlines()]
    commit = lines[0] if lines and _COMMIT.match(lines[0]) else None
    digest = lines[1] if len(lines) > 1 and _SHA256.match(lines[1]) else None
    return commit, digest


def blob_of(path: str) -> Optional[str]:
    """The SHA-256 by which the hub's cache names the file that `path` is a link to."""
    try:
        name = os.path.basename(os.readlink(path))
    except OSError:
        return None
    return name if _SHA256.match(name) else None


def files_of(path: str) -> List[Tuple[str, str, int]]:
    """(name, path, size) of the model's files, in order of name; hidden folders left out. One file is a model too."""
    if os.path.isfile(path):
        return [(os.path.basename(path), path, os.stat(path).st_size)]
    found: List[Tuple[str, str, int]] = []
    for folder, names, files in os.walk(path):
        names[:] = sorted(n for n in names if not n.startswith("."))
        for name in sorted(files):
            full = os.path.join(folder, name)
            try:
                found.append((os.path.relpath(full, path), full, os.stat(full).st_size))
            except OSError:
                continue
            if len(found) > MAX_FILES:
                return found[:MAX_FILES]
    return sorted(found)


def model_identity(path: str) -> Dict[str, Any]:
    """{"path", "files", "size_b", "revision"|absent, "sha256", "covers"}. Raises OSError where nothing can be read."""
    real = os.path.realpath(os.path.expanduser(path))
    files = files_of(real)
    if not files:
        raise OSError("%s: no files" % path)
    total = hashlib.sha256()
    commits = set()
    whole = True
    for name, full, size in files:
        commit, digest = note_of(real, name) if os.path.isdir(real) else (None, None)
        digest = digest or blob_of(full)
        if commit:
            commits.add(commit)
        if digest is None:
            digest, complete = _content(full, size)
            whole = whole and complete
        total.update(("%s\0%d\0%s\n" % (name, size, digest)).encode("utf-8", "surrogateescape"))
    out: Dict[str, Any] = {"path": path, "files": len(files), "size_b": sum(size for _, _, size in files)}
    snapshot = _SNAPSHOT.search(real)
    if snapshot:
        commits.add(snapshot.group(1))
    if len(commits) == 1:
        out["revision"] = commits.pop()
    out["sha256"], out["covers"] = total.hexdigest(), WHOLE if whole else HEADS
    return out


def _content(path: str, size: int) -> Tuple[str, bool]:
    """(SHA-256 of a small file, or of the first part of a large one; whether it was all)."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        digest.update(file.read(SMALL_B if size <= SMALL_B else HEAD_B))
    return digest.hexdigest(), size <= SMALL_B
