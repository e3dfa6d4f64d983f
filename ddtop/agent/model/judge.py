"""Is this model whole? A pure judgement of a list of entries: no file is touched here.

The same rules judge a directory on a host, a `find` listing, and a Hugging Face cache. "The directory exists" and
"all names are there" are never enough; see `weight_files.Head` for what is known of each file.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from .shards import Entry, Weights, collect, expected_names, is_marker
from .weight_files import EXPECTED_SIZE_FORMULA, Head, is_weight

_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "tiktoken.model",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "qwen.tiktoken",
    "vocab.txt",
)

COPY_NOW_S = 60.0
"""A half-done file written to within this time means that a copy is running now."""


LFS_POINTER_BYTES = (125, 140)
"""A git-lfs pointer: three short lines, the last with the size in 1 to 14 digits."""


def judge(
    entries: Sequence[Entry],
    *,
    index: Optional[Dict[str, Any]] = None,
    source_sizes: Optional[Dict[str, int]] = None,
    available: Optional[int] = None,
    no_space: Optional[str] = None,
    wanted_revision: Optional[str] = None,
) -> Dict[str, Any]:
    """The verdict on one model.

    `index` as `weight_files.read_index` gives it; `source_sizes` file sizes by base name of the copy it was made
    from; `available` free bytes where it lies; `no_space` the text of an ENOSPC error, if there was one.
    """
    weights = collect(entries, wanted_revision)
    markers = [e for e in entries if e.kind != "d" and is_marker(e.path)]
    out: Dict[str, Any] = {
        "weight_files": len(weights.files),
        "incomplete_markers": len(markers),
        "resumable_bytes": sum(e.size for e in markers),
        "index_present": index is not None,
        "present_bytes": sum(e.size for e in weights.files.values()),
        "config_present": "config.json" in weights.other or "params.json" in weights.other,
        "tokenizer_present": any(name in weights.other for name in _TOKENIZERS),
        "present": sorted(weights.files),
        "layout": _layout(entries, weights),
    }
    names, counts = expected_names(weights.files, weights.dangling, index)
    if index is None:
        names += sorted(n for n in source_sizes or {} if is_weight(n) and n not in names)
    gguf = any(name.lower().endswith(".gguf") for name in weights.files)
    missing = [name for name in names if name not in weights.files]
    out.update(
        expected_shards=len(names),
        shards=len(names),
        missing=missing,
        present_shards=sum(1 for name in names if name in weights.files),
    )
    if index and index.get("total_size") is not None:
        out["index_total_size"] = index["total_size"]
    bad = _damage(weights.files, source_sizes or {}, out)
    if available is not None:
        out["available_bytes"] = available
    cause, severity, advice = _decide(
        out, bad, weights, missing, counts, index, markers, available, no_space, gguf
    )
    verdict = {"all-shards-present": "complete", "copy-in-progress": "staging"}.get(cause, "incomplete")
    if cause in ("mixed-shard-sets", "index-total-mismatch", "shard-too-long", "differs-from-source"):
        verdict = "inconsistent"
    out.update(
        verdict=verdict, cause=cause, severity=severity, advice=advice, ready_to_start=verdict == "complete"
    )
    out["evidence"] = _evidence(out, bad, missing, markers)
    return out


def _damage(files: Dict[str, Entry], source_sizes: Dict[str, int], out: Dict[str, Any]) -> Dict[str, Any]:
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
        elif need is not None and entry.size > need:
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


def _decide(
    out: Dict[str, Any],
    bad: Dict[str, Any],
    weights: Weights,
    missing: List[str],
    counts: List[Tuple[str, int]],
    index: Optional[Dict[str, Any]],
    markers: List[Entry],
    available: Optional[int],
    no_space: Optional[str],
    gguf: bool,
) -> Tuple[str, str, str]:
    """(cause, severity, advice), the gravest first."""
    broken = bool(missing or bad["truncated"] or bad["sparse"] or bad["corrupt"])
    if no_space or (broken and available is not None and available < 1 << 20):
        out["remedy"] = "remount tmpfs larger (default is half of RAM) or free it; check size BEFORE copying"
        out["copied_shards"] = len(out["ok"])
        return (
            "tmpfs-full",
            "error",
            (
                "There was no room for the whole model. Make room (`mount -o remount,size=… /dev/shm`, or "
                "delete what is "
                "not needed), then copy again with sizes compared: a copy that skips existing names keeps the "
                "short file."
            ),
        )
    if any(m.age_s is not None and m.age_s < COPY_NOW_S for m in markers):
        return (
            "copy-in-progress",
            "info",
            "A copy or download is running: wait for it, do not start the server.",
        )
    if not weights.files:
        return "weights-absent", "error", "There are no weights here: copy or download the model again."
    if bad["pointer"]:
        out["remedy"] = "git lfs pull or download again"
        return (
            "git-lfs-pointers",
            "error",
            (
                "The shards are git-lfs pointers, not weights: `git lfs pull` in the clone, or download the "
                "model."
            ),
        )
    if missing:
        return (
            "shard-missing",
            "error",
            (
                f"{len(missing)} of {out['expected_shards']} shards are missing: stage those again"
                + (" (a half-done download can be resumed)." if out["resumable_bytes"] else ".")
            ),
        )
    if bad["truncated"]:
        return "shard-truncated", "error", "Copy the short files again; their names alone look complete."
    if bad["corrupt"]:
        return "shard-corrupt", "error", "These files are not what their names say: copy them again."
    if bad["sparse"]:
        return (
            "sparse-holes",
            "error",
            (
                "The size is right but blocks are missing (a copy that reserves space first was cut): copy them "
                "again."
            ),
        )
    if bad["too_long"]:
        return (
            "shard-too-long",
            "error",
            "Files are longer than their headers say: they are of another version.",
        )
    if bad["differs"]:
        return (
            "differs-from-source",
            "error",
            "Sizes differ from the source: the set is mixed, copy it again.",
        )
    if markers:
        return (
            "partial-files-left",
            "warn",
            "Half-done files are left beside the shards: finish or remove them.",
        )
    if not gguf and not out["config_present"]:
        return "config-missing", "error", "config.json is missing: copy the small files too."
    if index is None and len({n for _, n in counts}) > 1 and len({stem for stem, _ in counts}) == 1:
        return (
            "mixed-shard-sets",
            "error",
            "Shards of two different splits lie together: clear it and copy again.",
        )
    total = index.get("total_size") if index else None
    held = out.get("tensor_bytes", out["present_bytes"])
    if total is not None and held < total and _comparable(out):
        return "shard-truncated", "error", "The files hold fewer bytes than the index says: copy them again."
    if total is not None and "tensor_bytes" in out and out["tensor_bytes"] > total * 1.5 and not gguf:
        out["note"] = "the files hold more than the index says (shared tensors, or another precision)"
    return "all-shards-present", "info", "The model is whole; the server can be started."


def _comparable(out: Dict[str, Any]) -> bool:
    """Sizes can be held against the index's total only when every shard's size is known."""
    return bool(out["expected_shards"]) and out["present_shards"] == out["expected_shards"]


def _layout(entries: Sequence[Entry], weights: Weights) -> str:
    if weights.root or any("/blobs/" in "/" + e.path for e in entries):
        return "hf-cache"
    return "gguf" if any(n.lower().endswith(".gguf") for n in weights.files) else "plain"


def human_bytes(count: int) -> str:
    """Bytes for people, in powers of 1000 as disks are sold: `52.1 GB`.

    >>> human_bytes(999), human_bytes(52100000000)
    ('999 bytes', '52.1 GB')
    """
    if count < 1000:
        return f"{count} bytes"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.5:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def _evidence(
    out: Dict[str, Any], bad: Dict[str, Any], missing: List[str], markers: List[Entry]
) -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = []
    shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    if missing:
        rows.append({"text": f"missing: {shown}"})
    for label, names in bad.items():
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            rows.append({"text": f"{label.replace('_', ' ')}: {', '.join(names[:3])}{more}"})
    for marker in markers[:3]:
        rows.append({"text": f"half-done: {marker.path} ({human_bytes(marker.size)})"})
    here = human_bytes(out["present_bytes"])
    text = f"{out['present_shards']} of {out['expected_shards']} shards present, {here}"
    rows.append({"text": text + ("" if out["index_present"] else "; no index file")})
    if not out["tokenizer_present"] and out["weight_files"] and out["layout"] != "gguf":
        rows.append({"text": "no tokenizer file among them: the server must be given one"})
    return rows
