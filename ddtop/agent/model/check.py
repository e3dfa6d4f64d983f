"""Checking a model directory of this host (the op `model-check`): gather its files, then `judge` them.

Costs two small reads a shard (163 shards: some 10 ms when cached). Hashes only on request.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import posixpath
import time
from typing import Any, Dict, List, Optional, Sequence

from ..context import Context
from ..host.state_folder import filesystem_of
from .judge import judge
from .shards import Entry
from .weight_files import is_weight, read_head, read_index

MANIFEST = ".ddtop-staged.json"
MAX_ENTRIES = 200_000
_EXACT_BLOCKS = ("tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs")
_INDEXES = (
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "consolidated.safetensors.index.json",
)


def gather(root: str, now_s: Optional[float] = None, *, heads: bool = True) -> List[Entry]:
    """All entries below `root`, paths relative to it. Links to directories are followed once (a model path is
    often a link); unreadable parts are left out. A link that leaves `root` carries its file's own entry."""
    now = time.time() if now_s is None else now_s
    out: List[Entry] = []
    exact = (filesystem_of(root) or "") in _EXACT_BLOCKS
    for folder, names, files in os.walk(root):
        here = os.path.relpath(folder, root)
        names[:] = [n for n in names if not (here == "." and n == ".git")]
        for name in files:
            full = os.path.join(folder, name)
            path = name if here == "." else posixpath.join(here.replace(os.sep, "/"), name)
            entry = _entry(root, full, path, now, heads)
            # A compressing file system allocates less than the size; only a file half of holes is judged
            # there.
            if not exact and entry.blocks is not None and entry.blocks * 1024 >= entry.size:
                entry = entry._replace(blocks=None)
            out.append(entry)
            if len(out) >= MAX_ENTRIES:
                return out
    return out


def _entry(root: str, full: str, path: str, now: float, heads: bool) -> Entry:
    try:
        own = os.lstat(full)
    except OSError:
        return Entry(path)
    if os.path.islink(full):
        target = os.readlink(full)
        inside = os.path.realpath(full).startswith(os.path.realpath(root) + os.sep)
        if inside or not os.path.exists(full):
            return Entry(path, "l", own.st_size, target)
        own = os.stat(full)  # a snapshot given alone: its blobs lie outside, so the link stands for its file
    head = None
    link_names = is_weight(path) or "/blobs/" in "/" + path
    if heads and link_names and os.path.isfile(full):
        head = _head(full, path, own.st_size)
    return Entry(path, "f", own.st_size, None, own.st_blocks, max(0.0, now - own.st_mtime), head)


def _head(full: str, path: str, size: int) -> Any:
    """Head of a weight file; a cache blob has no ending, so its first bytes choose the form."""
    try:
        with open(full, "rb") as file:
            name = path
            if "/blobs/" in "/" + path:
                magic = file.read(16)
                file.seek(0)
                if magic[:4] == b"GGUF":
                    name = "x.gguf"
                elif magic[8:9] == b"{" or not magic.strip(b"\0"):
                    name = "x.safetensors"
                elif magic[:4] == b"PK\x03\x04":
                    name = "x.bin"
                else:
                    name = "x"
            return read_head(name, size, file)
    except OSError:
        return None


def find_index(root: str, entries: Sequence[Entry]) -> Optional[Dict[str, Any]]:
    """The index of the model below `root`, links followed; None when there is none that can be read."""
    places = sorted(
        (e.path for e in entries if posixpath.basename(e.path) in _INDEXES),
        key=lambda p: (_INDEXES.index(posixpath.basename(p)), p.count("/")),
    )
    for path in places:
        try:
            with open(os.path.join(root, path), "rb") as file:
                found = read_index(file.read(64 << 20))
        except OSError:
            continue
        if found:
            return found
    return None


def wanted_revision(root: str) -> Optional[str]:
    """The commit that refs/main of a Hugging Face cache names, or None."""
    for name in ("refs/main", "refs/master"):
        try:
            with open(os.path.join(root, name), encoding="ascii", errors="replace") as file:
                return file.read(100).strip() or None
        except OSError:
            continue
    return None


def boot_id() -> Optional[str]:
    """This boot's id, as the kernel gives it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def check_model_dir(
    path: str, *, sources: Optional[Sequence[str]] = None, hashes: bool = False, now_s: Optional[float] = None
) -> Dict[str, Any]:
    """The verdict on the model at `path` of this host, as plain data.

    Keys: verdict (complete, incomplete, staging, restage-needed, inconsistent), cause, severity, advice,
    evidence (list of {"text"}), ready_to_start, path, exists, layout, fs, available_bytes, total_bytes,
    weight_files, expected_shards, present_shards, present, missing, truncated, ok, sparse, corrupt,
    incomplete_markers, resumable_bytes, present_bytes, tensor_bytes, index_present, index_total_size,
    config_present, tokenizer_present, manifest (what staging wrote, if it did) and manifest_this_boot, and for
    `sources` a list of {"path", "verdict", "bytes", "files"}. What does not apply is left out. `hashes`: also
    sha256 by file name (about 1 GB/s). Never raises for what it finds; unreadable things are named in
    `unknown`.
    """
    path = os.path.expanduser(path)
    space = free_space(path)
    found = [_source(s) for s in sources or ()]
    whole = next((s for s in found if s["verdict"] == "complete"), None)
    if not os.path.isdir(path):
        out = _absent(path, space, whole)
    else:
        entries = gather(path, now_s)
        sizes = _sizes(whole["path"]) if whole else None
        out = judge(
            entries,
            index=find_index(path, entries),
            source_sizes=sizes,
            available=space["available"] if space else None,
            wanted_revision=wanted_revision(path),
        )
        out["total_bytes"] = sum(e.size for e in entries if e.kind == "f")
        if not out["weight_files"] and not out["incomplete_markers"] and not out["config_present"]:
            out.update(_absent(path, space, whole))
        lost = [n for n in sizes or {} if n not in {posixpath.basename(e.path) for e in entries}]
        if out["verdict"] == "complete" and lost:
            out.update(
                verdict="incomplete",
                cause="files-missing",
                severity="error",
                ready_to_start=False,
                missing=lost,
                advice="Files of the source are not here: " + ", ".join(lost[:5]),
            )
        if hashes:
            out["sha256"] = {
                e.path: _sha256(os.path.join(path, e.path)) for e in entries if is_weight(e.path)
            }
        unknown = [] if os.access(path, os.R_OK | os.X_OK) else [path]
        if unknown:
            out["unknown"] = unknown
    out.update(path=path, exists=os.path.isdir(path), **_manifest(path))
    if space:
        out["fs"] = space["fs"]
    if found:
        out["sources"] = found
        out["persistent_copy"] = whole is not None
    return out


def free_space(path: str) -> Optional[Dict[str, Any]]:
    """{"fs": type or None, "available": bytes} of the file system that holds `path`, or its nearest folder."""
    while path and not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent
    try:
        info = os.statvfs(path)
    except OSError:
        return None
    return {"fs": filesystem_of(path), "available": info.f_bavail * info.f_frsize}


def _absent(path: str, space: Optional[Dict[str, Any]], whole: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    tmpfs = bool(space and space["fs"] in ("tmpfs", "ramfs"))
    cause = "tmpfs-empty" if tmpfs else "model-absent"
    advice = (
        f"Copy it from {whole['path']}." if whole else "Download it: no whole copy was found on this host."
    )
    return {
        "verdict": "restage-needed",
        "cause": cause,
        "severity": "warn",
        "advice": advice,
        "ready_to_start": False,
        "evidence": [{"text": f"{path}: nothing there" + (" (tmpfs: a reboot empties it)" if tmpfs else "")}],
        "next_action": "copy-from-persistent" if whole else "download",
        "download_needed": whole is None,
        "weight_files": 0,
        "incomplete_markers": 0,
        "resumable_bytes": 0,
        "present_bytes": 0,
    }


def _source(path: str) -> Dict[str, Any]:
    path = os.path.expanduser(path)
    if not os.path.isdir(path):
        return {"path": path, "verdict": "absent", "bytes": 0, "files": 0}
    entries = gather(path)
    found = judge(entries, index=find_index(path, entries), wanted_revision=wanted_revision(path))
    return {
        "path": path,
        "verdict": found["verdict"],
        "cause": found["cause"],
        "bytes": found["present_bytes"],
        "files": sum(1 for e in entries if e.kind != "d"),
    }


def _sizes(path: str) -> Dict[str, int]:
    """Sizes by base name of the files of a source, links followed, blobs and hidden files left out."""
    out: Dict[str, int] = {}
    for entry in gather(path, heads=False):
        full = os.path.join(path, entry.path)
        base = posixpath.basename(entry.path)
        if "/blobs/" in "/" + entry.path or "/refs/" in "/" + entry.path or base.startswith("."):
            continue
        if (
            "/.cache/" in "/" + entry.path
            or "/.git/" in "/" + entry.path
            or "/.no_exist/" in "/" + entry.path
        ):
            continue
        try:
            out[base] = os.stat(full).st_size
        except OSError:
            continue
    return out


def _sha256(full: str) -> Optional[str]:
    digest = hashlib.sha256()
    try:
        with open(full, "rb") as file:
            for block in iter(lambda: file.read(1 << 22), b""):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def _manifest(path: str) -> Dict[str, Any]:
    """What staging wrote as its last step. On a tmpfs it is trusted only within the boot that wrote it."""
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            got = json.loads(file.read(16 << 20).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(got, dict):
        return {}
    return {"manifest": got, "manifest_this_boot": got.get("boot_id") == boot_id()}


async def model_check(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `model-check`. Hashing 590 GB takes minutes: the client's time limit is the limit."""
    sources = args.get("sources")
    check = functools.partial(check_model_dir, args["path"], sources=sources, hashes=bool(args.get("hashes")))
    return await context.thread(check)
