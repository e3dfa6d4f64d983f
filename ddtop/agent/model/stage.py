"""Staging a model: from a whole copy on this host, else by download; file by file, checked, resumable.

A file is copied to a temporary name, fsynced and renamed; a manifest with this boot's id is the last thing written.
Files that are whole already are kept. Nothing is deleted that staging did not write.

Spec: {"path": where to, "sources": [directory | HF cache | "hf:org/name[@rev]", …] in order, "parallel": 4,
"reserve_b": bytes to leave free (default: 2 GiB on a tmpfs, for NCCL, else 256 MiB), "as_root": set by job-start}.
"""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from ..errors import JobFailedError
from ..host.facts import cgroup_limits, cgroup_of, memory, read_text
from ..host.state_folder import TMPFS, filesystem_of, sync_folder, write_json
from .check import MANIFEST, boot_id, check_model_dir, wanted_revision
from .download import HF, download
from .gather import is_file_path, parts_of, source_path
from .progress import MIB, Progress

CHUNK_B = 8 << 20
PARTIAL = ".ddtop-partial"
_SKIP_DIRS = {".cache", ".git", ".no_exist", "blobs", "refs"}


class File(NamedTuple):
    """One file to have: where it is, its name below the target, its size and time stamp."""

    source: str
    name: str
    size: int
    mtime_ns: int


def snapshot_dir(root: str) -> str:
    """The folder with the model's files: of a Hugging Face cache the wanted snapshot, else itself."""
    snapshots = os.path.join(root, "snapshots")
    if not os.path.isdir(snapshots):
        return root
    wanted = wanted_revision(root)
    if wanted and os.path.isdir(os.path.join(snapshots, wanted)):
        return os.path.join(snapshots, wanted)
    names = sorted(os.listdir(snapshots), key=lambda name: os.stat(os.path.join(snapshots, name)).st_mtime)
    return os.path.join(snapshots, names[-1]) if names else root


def list_files(source: str) -> List[File]:
    """The files of a source, links followed, bookkeeping left out; large ones first, so that all copiers end together."""
    found = []
    if os.path.isfile(source):
        top = os.path.dirname(source)
        for name in parts_of(source):
            info = os.stat(os.path.join(top, name))
            found.append(File(os.path.join(top, name), name, info.st_size, info.st_mtime_ns))
        return sorted(found, key=lambda file: -file.size)
    top = snapshot_dir(source)
    for folder, folders, names in os.walk(top, followlinks=True):
        folders[:] = [name for name in folders if name not in _SKIP_DIRS]
        for name in names:
            if name == MANIFEST or name.endswith((PARTIAL, ".incomplete", ".lock")):
                continue
            full = os.path.join(folder, name)
            info = os.stat(full)
            found.append(File(full, os.path.relpath(full, top), info.st_size, info.st_mtime_ns))
    return sorted(found, key=lambda file: -file.size)


def is_whole(file: File, target: str, damaged: Sequence[str]) -> bool:
    """Whether the target holds this file already: its size, no holes, and not among those found damaged."""
    try:
        info = os.stat(os.path.join(target, file.name))
    except OSError:
        return False
    if info.st_size != file.size or file.name in damaged or os.path.basename(file.name) in damaged:
        return False
    return info.st_blocks * 512 >= info.st_size or info.st_size < 4096 or _compressed(target)


def _compressed(path: str) -> bool:
    """File systems on which fewer blocks than bytes are no holes."""
    return (filesystem_of(path) or "") in ("btrfs", "zfs", "fuse", "overlay")


def space_problem(need_b: int, free_b: int, reserve_b: int, tmpfs: bool, mem: Dict[str, Any]) -> str:
    """Why `need_b` more bytes do not fit; empty if they do. A tmpfs's pages are memory of the writer's cgroup."""
    if need_b + reserve_b > free_b:
        return "%s are needed (and %s left free), %s are free" % (size(need_b), size(reserve_b), size(free_b))
    if tmpfs and mem.get("available_b") is not None and need_b > mem["available_b"]:
        return "%s of memory are needed, %s are available" % (size(need_b), size(mem["available_b"]))
    limit = mem.get("cgroup_limit_b")
    if tmpfs and limit is not None and need_b + mem.get("cgroup_used_b", 0) > limit:
        return "%s are needed, and memory.max of this cgroup is %s" % (size(need_b), size(limit))
    return ""


def size(count_b: float) -> str:
    """
    >>> size(52 << 30), size(14 << 20)
    ('52.0 GiB', '14 MiB')
    """
    return "%.1f GiB" % (count_b / (1 << 30)) if count_b >= 1 << 30 else "%.0f MiB" % (count_b / MIB)


def _memory() -> Dict[str, Any]:
    found = memory()
    group = cgroup_of()
    limits = cgroup_limits(group)
    if limits:
        found["cgroup_limit_b"] = min(limits)
        used = read_text("/sys/fs/cgroup" + (group or "") + "/memory.current")
        found["cgroup_used_b"] = int(used) if used and used.strip().isdigit() else 0
    return found


def copy_file(file: File, target: str, progress: Progress) -> None:
    """To a temporary name that knows which file it is a part of, then renamed: an interrupted copy goes on."""
    final = os.path.join(target, file.name)
    os.makedirs(os.path.dirname(final), exist_ok=True)
    part = "%s.%x-%x%s" % (final, file.size, file.mtime_ns, PARTIAL)
    source = os.open(file.source, os.O_RDONLY)
    try:
        out = os.open(part, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            at = min(os.fstat(out).st_size, file.size)
            progress.add(at, file.name)
            os.lseek(out, at, os.SEEK_SET)
            while at < file.size:
                sent = os.sendfile(out, source, at, min(CHUNK_B, file.size - at))
                if sent == 0:
                    raise JobFailedError("%s was shortened while it was copied" % file.source)
                at += sent
                progress.add(sent, file.name)
                os.posix_fadvise(source, 0, at, os.POSIX_FADV_DONTNEED)  # not twice in memory
            os.ftruncate(out, file.size)
            os.fsync(out)
        finally:
            os.close(out)
    finally:
        os.close(source)
    os.utime(part, ns=(file.mtime_ns, file.mtime_ns))
    os.rename(part, final)


def copy_from(source: str, target: str, spec: Dict[str, Any], progress: Progress) -> Dict[str, Any]:
    """Copies what the target folder lacks. Returns the manifest."""
    files = list_files(source)
    judged = os.path.join(target, os.path.basename(source)) if os.path.isfile(source) else target
    found = check_model_dir(judged) if os.path.isdir(target) else {}
    damaged = [name for key in ("truncated", "sparse", "corrupt") for name in found.get(key) or []]
    wanted = [file for file in files if not is_whole(file, target, damaged)]
    os.makedirs(target, exist_ok=True)
    _remove_stale_parts(target, wanted)
    progress.total_b = sum(file.size for file in files)
    progress.add(progress.total_b - sum(file.size for file in wanted))
    progress.now(state="copying", source=source, files=len(files), files_done=len(files) - len(wanted))
    need = sum(max(0, file.size - _present_part(file, target)) for file in wanted)
    _check_space(target, need, spec)
    with concurrent.futures.ThreadPoolExecutor(max(1, int(spec.get("parallel", 4)))) as pool:
        futures = [pool.submit(copy_file, file, target, progress) for file in wanted]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                progress.now(files_done=progress.base["files_done"] + 1)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    sync_folder(target)
    return {
        "source": source,
        "files": {file.name: {"size": file.size, "mtime_ns": file.mtime_ns} for file in files},
    }


def _present_part(file: File, target: str) -> int:
    try:
        return os.stat(
            "%s.%x-%x%s" % (os.path.join(target, file.name), file.size, file.mtime_ns, PARTIAL)
        ).st_size
    except OSError:
        return 0


def _remove_stale_parts(target: str, wanted: Sequence[File]) -> None:
    """Our own temporary files of sources that have changed since."""
    keep = {"%s.%x-%x%s" % (os.path.join(target, f.name), f.size, f.mtime_ns, PARTIAL) for f in wanted}
    for folder, _, names in os.walk(target):
        for name in names:
            full = os.path.join(folder, name)
            if name.endswith(PARTIAL) and full not in keep:
                os.unlink(full)


def _check_space(target: str, need_b: int, spec: Dict[str, Any]) -> None:
    info = os.statvfs(target)
    tmpfs = filesystem_of(target) in TMPFS
    reserve = spec.get("reserve_b")
    if reserve is None:  # small file systems keep a twentieth
        reserve = min(2 << 30 if tmpfs else 256 << 20, info.f_blocks * info.f_frsize // 20)
    problem = space_problem(need_b, info.f_bavail * info.f_frsize, int(reserve), tmpfs, _memory())
    if problem:
        raise JobFailedError("%s: no room for the model: %s" % (target, problem))


def stage(spec: Dict[str, Any], tell: Callable[[Dict[str, Any]], None]) -> None:
    """Does the whole: checks, takes the first source that serves, verifies, writes the manifest."""
    model = os.path.abspath(os.path.expanduser(str(spec["path"])))
    target = os.path.dirname(model) if is_file_path(model) else model
    progress = Progress(tell, target)
    progress.now()
    tried = []
    for source in [str(word) for word in spec["sources"]]:
        if source.startswith(HF):
            _check_space(_nearest(target), 0, spec)
            manifest = download(source, target, progress)
        else:
            path = os.path.abspath(source_path(source, model))
            found = check_model_dir(path)
            if found["verdict"] != "complete":
                tried.append("%s: %s (%s)" % (source, found["verdict"], found.get("cause", "")))
                continue
            manifest = copy_from(path, target, spec, progress)
        progress.now(state="checking")
        judged = check_model_dir(model)
        if judged["verdict"] != "complete":
            raise JobFailedError(
                "%s is not complete after staging: %s: %s"
                % (model, judged["verdict"], judged.get("advice", ""))
            )
        stamp = {"schema": 1, "boot_id": boot_id(), "finished_at_s": time.time(), "by": "ddtop", **manifest}
        if spec.get("as_root"):
            give_to_root(
                target, sorted(manifest["files"]) if target != model and "files" in manifest else None
            )
        write_json(os.path.join(target, MANIFEST), stamp, 0o644)
        progress.now(state="done")
        return
    raise JobFailedError("no source holds a whole copy: " + "; ".join(tried or ["none was named"]))


def give_to_root(target: str, only: Optional[Sequence[str]] = None) -> None:
    """Also files that were here already: logind's RemoveIPC deletes those that belong to the user. `only`: these names, of
    a folder that holds other things too."""
    if only is not None:
        for name in only:
            os.chown(os.path.join(target, name), 0, 0, follow_symlinks=False)
        return
    for folder, _, names in os.walk(target):
        os.chown(folder, 0, 0)
        for name in names:
            os.chown(os.path.join(folder, name), 0, 0, follow_symlinks=False)


def is_in_shm(path: str) -> bool:
    """Whether logind's RemoveIPC looks there."""
    return (os.path.realpath(os.path.expanduser(path)) + "/").startswith("/dev/shm/")


def _nearest(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path
