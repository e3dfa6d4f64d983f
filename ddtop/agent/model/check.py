"""Checking a model directory of this host (the op `model-check`): gather its files, then `judge` them.

Costs two small reads a shard (163 shards: some 10 ms when cached). Hashes only on request.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import posixpath
from typing import Any, Dict, Optional, Sequence

from ..context import Context
from ..host.state_folder import filesystem_of
from .gather import find_index, gather, gather_file, is_file_path, small_faults, source_path
from .judge import judge
from .weight_files import is_weight

MANIFEST = ".ddtop-staged.json"


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
    found = [_source(s, path) for s in sources or ()]
    whole = next((s for s in found if s["verdict"] == "complete"), None)
    one_file = is_file_path(path)
    if one_file:
        entries = gather_file(path, now_s)
        out = (
            judge(entries, available=space["available"] if space else None)
            if entries
            else _absent(path, space, whole)
        )
        out["total_bytes"] = sum(e.size for e in entries)
    elif not os.path.isdir(path):
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
            small_faults=small_faults(path, entries),
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
    folder = os.path.dirname(os.path.abspath(path)) if one_file else path
    out.update(path=path, exists=os.path.isfile(path) or os.path.isdir(path), **_manifest(folder))
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


def _source(path: str, model: str = "") -> Dict[str, Any]:
    named, path = path, source_path(path, model)
    if is_file_path(path):
        entries = gather_file(path)
        if not entries:
            return {"path": named, "verdict": "absent", "bytes": 0, "files": 0}
        found = judge(entries)
        return {
            "path": named,
            "verdict": found["verdict"],
            "cause": found["cause"],
            "bytes": found["present_bytes"],
            "files": len(entries),
        }
    if not os.path.isdir(path):
        return {"path": path, "verdict": "absent", "bytes": 0, "files": 0}
    entries = gather(path)
    found = judge(
        entries,
        index=find_index(path, entries),
        wanted_revision=wanted_revision(path),
        small_faults=small_faults(path, entries),
    )
    return {
        "path": path,
        "verdict": found["verdict"],
        "cause": found["cause"],
        "bytes": found["present_bytes"],
        "files": sum(1 for e in entries if e.kind != "d"),
        **{key: found[key] for key in ("truncated", "corrupt", "missing") if found.get(key)},
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
