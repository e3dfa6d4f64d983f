"""Is this model whole? A pure judgement of a list of entries: no file is touched here.

The same rules judge a directory on a host, a `find` listing, and a Hugging Face cache. "The directory exists" and
"all names are there" are never enough; see `weight_files.Head` for what is known of each file.
"""

from __future__ import annotations

import posixpath
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .damage import damage, parts_missing, small_file_faults
from .shards import Entry, Weights, collect, expected_names, is_marker
from .weight_files import is_weight

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


def judge(
    entries: Sequence[Entry],
    *,
    index: Optional[Dict[str, Any]] = None,
    source_sizes: Optional[Dict[str, int]] = None,
    available: Optional[int] = None,
    no_space: Optional[str] = None,
    wanted_revision: Optional[str] = None,
    small_faults: Optional[Dict[str, str]] = None,
) -> Dict[str, Any]:
    """The verdict on one model.

    `index` as `weight_files.read_index` gives it; `source_sizes` file sizes by base name of the copy it was made
    from; `available` free bytes where it lies; `no_space` the text of an ENOSPC error, if there was one; `small_faults`
    base name → why a small file (config, index, tokenizer) that is there cannot be read.
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
    small = small_file_faults(weights, small_faults or {})
    if small:
        out["unreadable_files"] = sorted(small)
    if weights.dangling:
        out["broken_links"] = len(weights.dangling)
    names, counts = expected_names(weights.files, weights.dangling, index)
    if index is None:
        names += sorted(n for n in source_sizes or {} if is_weight(n) and n not in names)
    gguf = any(name.lower().endswith(".gguf") for name in weights.files)
    missing = [name for name in names if name not in weights.files]
    if not missing and gguf:
        missing = parts_missing(weights.files)
        names = names + missing
    out.update(
        expected_shards=len(names),
        shards=len(names),
        missing=missing,
        present_shards=sum(1 for name in names if name in weights.files),
    )
    if index and index.get("total_size") is not None:
        out["index_total_size"] = index["total_size"]
    bad = damage(weights.files, source_sizes or {}, out)
    if available is not None:
        out["available_bytes"] = available
    cause, severity, advice = _decide(
        out, bad, weights, missing, counts, index, markers, available, no_space, gguf, small
    )
    verdict = {"all-shards-present": "complete", "copy-in-progress": "staging"}.get(cause, "incomplete")
    if cause in ("mixed-shard-sets", "index-total-mismatch", "shard-too-long", "differs-from-source"):
        verdict = "inconsistent"
    out.update(
        verdict=verdict, cause=cause, severity=severity, advice=advice, ready_to_start=verdict == "complete"
    )
    out["evidence"] = _evidence(out, bad, missing, markers)
    out["evidence"][:0] = [{"text": f"{name}: {why}"} for name, why in sorted(small.items())[:4]]
    links = [e for e in entries if e.kind == "l" and posixpath.basename(e.path) in weights.outside]
    if cause == "broken-symlink":
        out["evidence"][:0] = [{"text": f"{e.path} -> {e.target}"} for e in links[:3]]
    return out


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
    small: Dict[str, str],
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
    if "config.json" in weights.outside or (
        not weights.files and any(is_weight(name) for name in weights.outside)
    ):
        out["remedy"] = "copy with cp -aL or rsync -L"
        return (
            "broken-symlink",
            "error",
            (
                f"{len(weights.outside)} names are links whose target is not in this listing (of a hub cache: blobs/ was not "
                "copied). Copy the files instead of the links: `cp -aL` or `rsync -aL`; the same copy again gives the same. If "
                "only one folder was listed, list it with `ls -lL`."
            ),
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
    if small:
        names = ", ".join(f"{n} ({why})" for n, why in sorted(small.items())[:3])
        index_bad = any(n.endswith(".index.json") for n in small)
        return (
            "index-unreadable" if index_bad else "config-unreadable",
            "error",
            f"No engine can load it: {names}. Delete and fetch the small files again (all but the shards); the shards may stay.",
        )
    if markers:
        return (
            "partial-files-left",
            "warn",
            "Half-done files are left beside the shards: finish or remove them.",
        )
    bare = gguf or all(
        n.lower().endswith((".onnx", ".onnx_data", ".onnx.data", ".plan")) for n in weights.files
    )
    if not bare and not out["config_present"]:
        if "adapter_config.json" in weights.other:
            advice = "This is an adapter (LoRA), not a model: stage its base model, and give the adapter to the server beside it."
            return "config-missing", "error", advice
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
