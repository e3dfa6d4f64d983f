"""The entries of a model on this host: of its folder, or of one GGUF file and its parts; and its small files, read."""

from __future__ import annotations

import os
import posixpath
import time
from typing import Any, Dict, List, Optional, Sequence

from ..host.state_folder import filesystem_of
from .shards import SHARD, Entry, is_marker
from .weight_files import SMALL_FILES, is_weight, read_head, read_index, small_file_fault

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


def small_faults(root: str, entries: Sequence[Entry]) -> Dict[str, str]:
    """Base name → why a small file below `root` cannot be read. Of files above 4 MiB only the begin is looked at."""
    found: Dict[str, str] = {}
    for entry in entries:
        base = posixpath.basename(entry.path)
        wanted = base in SMALL_FILES or base in _INDEXES
        if entry.kind == "d" or not wanted or entry.path.count("/") > 2:
            continue
        try:
            with open(os.path.join(root, entry.path), "rb") as file:
                whole = os.fstat(file.fileno()).st_size
                head = file.read(whole if base in _INDEXES or whole < 4 << 20 else 4096)
        except OSError:
            continue  # a link that leads nowhere, or no right to read: told elsewhere
        fault = small_file_fault(base, head, whole)
        if fault is None and base in _INDEXES and not (read_index(head) or {}).get("shards"):
            fault = "no index of shards"
        if fault is not None:
            found.setdefault(base, fault)
    return found


def is_file_path(path: str) -> bool:
    """Whether a model's path means one file (and the other parts of its split), not a folder."""
    return path.lower().endswith(".gguf") and not os.path.isdir(path)


def parts_of(path: str) -> List[str]:
    """The file and, where its name is that of a split, its other parts beside it: base names that exist."""
    base, folder = os.path.basename(path), os.path.dirname(path) or "."
    split = SHARD.match(base)
    if split is None:
        return [base] if os.path.isfile(path) else []
    head, tail = base[: split.start("i")], "-of-%s%s" % (split.group("n"), split.group("ext"))
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(
        n
        for n in names
        if n.startswith(head) and n.endswith(tail) and os.path.isfile(os.path.join(folder, n))
    )


def gather_file(path: str, now_s: Optional[float] = None) -> List[Entry]:
    """Entries of a model that is one file, or a split of one, and of half-done copies of it."""
    now = time.time() if now_s is None else now_s
    folder = os.path.dirname(os.path.abspath(path))
    base = os.path.basename(path)
    names = parts_of(path)
    try:
        names += [n for n in os.listdir(folder) if n.startswith((base + ".", "." + base)) and is_marker(n)]
    except OSError:
        pass
    found = []
    for name in names:
        full = os.path.join(folder, name)
        try:
            own = os.stat(full)
        except OSError:
            continue
        exact = (filesystem_of(folder) or "") in _EXACT_BLOCKS
        blocks = own.st_blocks if exact or own.st_blocks * 1024 < own.st_size else None
        head = None if is_marker(name) else _head(full, name, own.st_size)
        found.append(Entry(name, "f", own.st_size, None, blocks, max(0.0, now - own.st_mtime), head))
    return found


def source_path(source: str, path: str) -> str:
    """Where a source holds the model at `path`: for a model that is a file, that file in a source that is a folder."""
    source = os.path.expanduser(source)
    inside = os.path.join(source, os.path.basename(path))
    return inside if is_file_path(path) and os.path.isdir(source) and os.path.exists(inside) else source
