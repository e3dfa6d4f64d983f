"""What is wrong with the files of a model, one by one, and which parts of a split are not there. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .shards import Entry, Weights
from .weight_files import EXPECTED_SIZE_FORMULA, SMALL_FILES, Head

LFS_POINTER_BYTES = (125, 140)
"""A git-lfs pointer: three short lines, the last with the size in 1 to 14 digits."""


def small_file_faults(weights: Weights, given: Dict[str, str]) -> Dict[str, str]:
    """Base name → why it cannot be read, for the small files that this model needs: those found unreadable, and those whose
    size alone says it. An index counts only where shards lie beside it."""
    found = dict(given)
    for name, entry in weights.other.items():
        needed = name in SMALL_FILES or name.endswith(".index.json")
        if needed and name not in found and entry.kind == "f" and entry.sized:
            if entry.size == 0:
                found[name] = "empty"
            elif name in _LARGE_SMALL and LFS_POINTER_BYTES[0] <= entry.size <= LFS_POINTER_BYTES[1]:
                found[name] = "by its size an LFS pointer"
    split = any("-of-" in name for name in weights.files)
    return {n: why for n, why in found.items() if split or not n.endswith(".index.json")}


_LARGE_SMALL = ("tokenizer.json", "tokenizer.model", "tekken.json")
"""Files kept by git-lfs in most repositories; none of them is as small as a pointer."""


def parts_missing(files: Dict[str, Entry]) -> List[str]:
    """Parts that a split GGUF says it has and that are not here, where the names do not tell them."""
    heads = [(n, e.head) for n, e in files.items() if e.head is not None and (e.head.parts or 0) > 1]
    if not heads:
        return []
    total = max(head.parts or 0 for _, head in heads)
    here = {head.part for _, head in heads}
    return [f"part {i + 1} of {total} of {heads[0][0]}" for i in range(min(total, 10000)) if i not in here]


def damage(files: Dict[str, Entry], source_sizes: Dict[str, int], out: Dict[str, Any]) -> Dict[str, Any]:
    """Sort the files by what is wrong with them; fills counts of `out`."""
    bad: Dict[str, Any] = {
        "truncated": [],
        "too_long": [],
        "corrupt": [],
        "pointer": [],
        "sparse": [],
        "differs": [],
    }
    missing_bytes = 0
    data: List[Optional[int]] = []
    for name in sorted(files):
        entry = files[name]
        head = entry.head or Head()
        data.append(head.data)
        need = head.need
        if head.fault == "lfs-pointer":
            bad["pointer"].append(name)
        elif entry.head is None and LFS_POINTER_BYTES[0] <= entry.size <= LFS_POINTER_BYTES[1]:
            bad["pointer"].append(name)  # only its size is known, and no shard is that small
        elif head.fault in ("truncated-header", "truncated") or (need is not None and entry.size < need):
            bad["truncated"].append(name)
            missing_bytes += max(0, (need or entry.size) - entry.size)
        elif head.fault in ("zero-head", "html", "bad-header", "unreadable"):
            bad["corrupt"].append(name)
        elif need is not None and entry.size > need and not head.padded:
            bad["too_long"].append(name)
        elif name in source_sizes and entry.size < source_sizes[name]:
            bad["truncated"].append(name)
            missing_bytes += source_sizes[name] - entry.size
        elif name in source_sizes and entry.size != source_sizes[name]:
            bad["differs"].append(name)
        elif entry.size == 0:
            bad["truncated"].append(name)
        elif entry.blocks is not None and entry.blocks * 512 < entry.size - 4096:
            bad["sparse"].append(name)
    whole = [n for n in sorted(files) if not any(n in names for names in bad.values())]
    out.update(truncated=bad["truncated"], ok=whole, sparse=bad["sparse"], corrupt=bad["corrupt"])
    if bad["truncated"]:
        out["missing_bytes"] = missing_bytes
        out["expected_size_formula"] = EXPECTED_SIZE_FORMULA
    if data and all(d is not None for d in data):
        out["tensor_bytes"] = sum(d or 0 for d in data)
    pointed = [head.pointed for n in bad["pointer"] for head in [files[n].head] if head is not None]
    if bad["pointer"]:
        out["pointer_files"] = len(bad["pointer"])
        if len(set(pointed)) == 1:
            out["pointed_bytes_each"] = pointed[0]
        if pointed:
            out["pointed_bytes"] = sum(p or 0 for p in pointed)
    return bad
