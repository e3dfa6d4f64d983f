"""`ddtop inspect model`: a model directory, a listing of one, or what a probe said about one."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtop.agent.model.check import check_model_dir
from ddtop.agent.model.judge import judge
from ddtop.agent.model.shards import Entry
from ddtop.agent.model.weight_files import (
    SMALL_FILES,
    Head,
    is_weight,
    read_head,
    read_index,
    small_file_fault,
)
from ddtop.inspect.inputs import NotJudgedError, evidence, result, text_of
from ddtop.inspect.listing import ROUNDED, bare_names, is_abridged, parse_listing

_ENOSPC = re.compile(
    r"No space left on device|ENOSPC|disk quota exceeded|not enough (?:free )?(?:disk )?space", re.I
)
_DF = re.compile(
    r"^\S.{0,200}?\s+(?P<size>\d{1,20})\s+(?P<used>\d{1,20})\s+(?P<avail>\d{1,20})\s+\d{1,3}%\s+(?P<at>/.*)$"
)
_RSYNC = re.compile(
    r"(?:Fetching \d{1,6} files|Downloading[^\n]{0,200}):\s{1,4}(?P<fetch>\d{1,2})%\||\b(?P<pct>\d{1,3})%\s+[\d.,]{1,12}[kKMGT]?B/s\s+\d{1,4}:\d\d:\d\d"
)
_PATH_IN_ERROR = re.compile(r"['\"‘’`](?P<p>[^'\"‘’`\n]{1,1000})['\"‘’`]")


def diagnose_model(source: Mapping[str, bytes] | str | Path) -> dict[str, Any]:
    """The verdict on a model: of a directory of this machine (a path), or of files that describe one (a mapping
    from name to content: listings, an index, df, error texts, a probe's text, small model files themselves).

    Raises NotJudgedError when nothing in it describes a model.
    """
    if isinstance(source, (str, Path)):
        got = check_model_dir(str(source))
        return _shape(got)
    files = dict(source)
    texts = {name: text_of(data) for name, data in files.items() if not _is_model_file(name)}
    probe = next((t for n, t in texts.items() if _looks_like_probe(t)), None)
    entries = _entries(files, texts)
    if probe is not None and not any(is_weight(e.path) for e in entries):
        return _from_probe(probe)
    if not any(is_weight(e.path) for e in entries) and (named := _of_names(texts)) is not None:
        return named
    if not entries and (bars := [m for t in texts.values() for m in DOWNLOAD_BAR.finditer(t)]):
        return _of_bars(bars)
    if not entries and not any(_ENOSPC.search(t) for t in texts.values()):
        raise NotJudgedError("it holds no listing, no model file and no probe output")
    index = next((i for n, d in files.items() if n.endswith(".index.json") and (i := read_index(d))), None)
    if index is None:
        index = _index_of_blobs(entries, files)
    faults = _small_faults(files, entries)
    if index and any(ROUNDED.search(t) for t in texts.values()):
        index = {**index, "total_size": None}  # rounded sizes cannot be held against it
    sizes = {
        posixpath.basename(e.path): e.size
        for n, t in texts.items()
        if "source" in posixpath.basename(n)
        for e in parse_listing(t)
        if n.endswith((".lst", ".list"))
    }
    if not any(is_weight(e.path) for e in entries) and any(_OLLAMA.search(e.path) for e in entries):
        return _of_ollama(entries)
    no_space = next((t for t in texts.values() if _ENOSPC.search(t)), None)
    available = _available(texts)
    got = judge(
        entries, index=index, source_sizes=sizes, available=available, no_space=no_space, small_faults=faults
    )
    proof = [
        evidence(line.strip(), at, name)
        for name, text in texts.items()
        if name.endswith((".err", ".log"))
        for at, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ][:4]
    _short_file(got, entries, sizes, no_space)
    grown = _grown(texts)
    progress = next((m for t in texts.values() for m in [_RSYNC.search(t)] if m), None)
    if grown:
        got["grown_bytes"] = grown
    if (progress or grown) and got["verdict"] == "incomplete" and got["cause"] != "tmpfs-full":
        got.update(
            verdict="staging",
            cause="copy-in-progress",
            severity="info",
            percent=int(progress["pct"] or progress["fetch"]) if progress else None,
            advice="A copy is running. Wait until it has ended before you start the server.",
        )
    got["evidence"] = [*got["evidence"], *proof]
    return _shape(got)


DOWNLOAD_BAR = re.compile(
    r"^[ \t]*(?:\S{1,200}?(?:safetensors|gguf|bin|pth?|json|model|txt|\((?:\u2026|\.\.\.)\))|Fetching \d+ files|Downloading[^\n:|]{0,80}): +(?P<pct>\d{1,3})%\|[^\n]*?\d",
    re.M,
)
"""A progress bar of `hf download`: a file, or all of them."""


def _of_bars(bars: list[re.Match[str]]) -> dict[str, Any]:
    """What a terminal showed of a download, without a listing: how far it is, not whether the files are whole."""
    lowest = min(int(bar["pct"]) for bar in bars)
    return result(
        "model",
        "staging",
        "copy-in-progress",
        "info",
        "A download is shown, and not its end. When it has ended, give the listing: `ls -l FOLDER`, or `ddtop inspect model FOLDER`.",
        [evidence(bar[0].strip()) for bar in bars[-2:]],
        percent=lowest if lowest < 100 else None,
    )


_OLLAMA = re.compile(r"(?:^|/)sha256[-:][0-9a-f]{64}(?P<part>-partial(?:-\d+)?)?$")


def _of_ollama(entries: list[Entry]) -> dict[str, Any]:
    """A listing of ollama's blobs: a half-done one can be seen, that all are there cannot."""
    parts = [e for e in entries if (m := _OLLAMA.search(e.path)) and m["part"]]
    if not parts:
        raise NotJudgedError(
            "these are ollama's blobs: their names do not say which belong to a model (use `ollama list`)"
        )
    return result(
        "model",
        "incomplete",
        "partial-files-left",
        "error",
        "A download of ollama is half done: `ollama pull MODEL` goes on with it.",
        [evidence(f"half-done: {e.path} ({e.size} bytes)") for e in parts[:3]],
        incomplete_markers=len(parts),
        ready_to_start=False,
    )


def _of_names(texts: Mapping[str, str]) -> dict[str, Any] | None:
    """A listing of bare names: it can show that shards are missing, and nothing else. None where it is none."""
    names = [name for text in texts.values() for name in bare_names(text)]
    if not any(is_weight(name) for name in names):
        return None
    got = judge([Entry(name, size=1 << 20, sized=False) for name in names])
    if any(is_abridged(text) for text in texts.values()):
        raise NotJudgedError("rows of the listing were left out (`...`): give all of it, with sizes (ls -l)")
    if got["cause"] != "shard-missing":
        raise NotJudgedError("names without sizes do not show whether the files are complete: use ls -l")
    text = f"{got['present_shards']} of {got['expected_shards']} shards are listed, without sizes"
    got["evidence"] = [got["evidence"][0], {"text": text}]
    return _shape({k: v for k, v in got.items() if k not in {"present_bytes", "ok", "resumable_bytes"}})


def _shape(got: Mapping[str, Any]) -> dict[str, Any]:
    rest = {k: v for k, v in got.items() if k not in {"verdict", "cause", "severity", "advice", "evidence"}}
    return result(
        "model", got["verdict"], got["cause"], got["severity"], got["advice"], got["evidence"], **rest
    )


def _is_model_file(name: str) -> bool:
    return is_weight(name) or "/blobs/" in f"/{name}"


def _entries(files: Mapping[str, bytes], texts: Mapping[str, str]) -> list[Entry]:
    """Listed entries, with heads where the file itself was given too, and given files that were not
    listed."""
    table: dict[str, Entry] = {}
    for name, text in texts.items():
        base = posixpath.basename(name)
        if name.endswith((".lst", ".list")) and "source" not in base:
            for entry in parse_listing(text):
                table[posixpath.normpath(entry.path)] = entry
        elif base == "links.txt":
            for entry in parse_listing(text):
                table.setdefault(posixpath.normpath(entry.path), entry._replace(kind="l"))
    if not table:
        for text in texts.values():
            if len(listed := [e for e in parse_listing(text) if e.kind != "f" or "." in e.path]) > 1:
                table.update((posixpath.normpath(e.path), e) for e in listed)
    for name, data in files.items():
        path = posixpath.normpath(name)
        if "/" not in path and not is_weight(path):
            continue  # a describing file, not one of the model's
        head = _head_of(path, data) if _is_model_file(path) else None
        old = table.get(path)
        # A listing may be of the real file and the given one only its first bytes: the listed size wins.
        if old and old.size > len(data) and head is not None and head.fault == "truncated-header":
            head = None  # only the begin of the file was given
        table[path] = old._replace(head=head) if old else Entry(path, "f", len(data), head=head)
    top = {posixpath.basename(n): d for n, d in files.items() if "/" not in n}
    for name in ("config.json", "model.safetensors.index.json"):
        if name in top and not any(posixpath.basename(p) == name for p in table):
            table[name] = Entry(name, "f", len(top[name]))
    return list(table.values())


def _head_of(path: str, data: bytes) -> Head:
    name = path
    if "/blobs/" in f"/{path}":
        name = "x.gguf" if data[:4] == b"GGUF" else "x.safetensors" if data[8:9] == b"{" else "x"
    return read_head(name, len(data), io.BytesIO(data))


def _index_of_blobs(entries: list[Entry], files: Mapping[str, bytes]) -> dict[str, Any] | None:
    """The index of a cache whose links say which blob it is."""
    for entry in entries:
        if entry.kind == "l" and entry.target and entry.path.endswith(".index.json"):
            blob = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), entry.target))
            if blob in files and (found := read_index(files[blob])):
                return found
    return None


def _small_faults(files: Mapping[str, bytes], entries: list[Entry]) -> dict[str, str]:
    """Small files that were given whole and cannot be read. What is shorter than its listed size is an excerpt: its begin
    alone is judged."""
    listed = {posixpath.basename(e.path): e.size for e in entries if e.kind == "f"}
    found: dict[str, str] = {}
    for name, data in files.items():
        base = posixpath.basename(name)
        is_index = base.endswith(".index.json")
        if base not in SMALL_FILES and not is_index:
            continue
        whole = max(listed.get(base, len(data)), len(data)) if len(data) > ROUNDED_SLACK else len(data)
        fault = small_file_fault(base, data, whole)
        if fault is None and is_index and whole == len(data) and not (read_index(data) or {}).get("shards"):
            fault = "no index of shards"
        if fault is not None:
            found[base] = fault
    return found


ROUNDED_SLACK = 4096
"""A given file shorter than this is whole: excerpts are made of large ones."""


def _available(texts: Mapping[str, str]) -> int | None:
    """Free bytes by a `df -B1` output; a tmpfs row before others."""
    rows = [(line, m) for t in texts.values() for line in t.splitlines() if (m := _DF.match(line.strip()))]
    if not rows:
        return None
    unit = next((1024 for t in texts.values() if re.search(r"1K-blocks|1024-blocks", t)), 1)
    best = next((m for line, m in rows if line.startswith("tmpfs") or "/dev/shm" in line), rows[0][1])
    return int(best["avail"]) * unit


def _grown(texts: Mapping[str, str]) -> int:
    """Bytes that came between the last two of successive listings (`input.read1.lst` …); 0 for a single
    one."""
    reads = {int(m[1]): t for n, t in texts.items() if (m := re.search(r"\.read(\d{1,4})\.", n))}
    totals = [sum(e.size for e in parse_listing(reads[n]) if e.kind == "f") for n in sorted(reads)]
    return max(0, totals[-1] - totals[-2]) if len(totals) > 1 else 0


def _short_file(
    got: dict[str, Any], entries: list[Entry], sizes: Mapping[str, int], no_space: str | None
) -> None:
    """Name the file a full disk cut short, and by how much."""
    if got["cause"] != "tmpfs-full":
        return
    listed = {posixpath.basename(e.path): e.size for e in entries if e.kind == "f"}
    named = [posixpath.basename(m["p"]) for m in _PATH_IN_ERROR.finditer(no_space or "")]
    short = next((n for n in [*got["truncated"], *named] if n in listed), None)
    if short is None and len(listed) > 1:
        common = max(listed.values())
        short = min(listed, key=lambda n: listed[n]) if min(listed.values()) < common else None
    if short is not None:
        got["short_file"] = short
        got["copied_shards"] = len([n for n in got["ok"] if n != short])
        if short in sizes:
            got["short_by_bytes"] = sizes[short] - listed[short]


_UPTIME = re.compile(r"uptime(?:_s)?\s{0,3}[=:]\s{0,3}(?P<s>\d{1,10})")
_UP = re.compile(
    r"\bup\s+(?:(?P<d>\d{1,5})\s+days?,?\s*)?(?:(?P<h>\d{1,2}):(?P<m>\d{2})|(?P<min>\d{1,2})\s+min)"
)
_MODEL_GONE = re.compile(
    r"(?:/dev/shm|tmpfs|/mnt/ram|/tmp)\S{0,200}:?[^\n]{0,80}(?:\(empty\)|empty|MISSING|missing|No such file|total 0|\b0 files)"
    r"|ls: cannot access '?/dev/shm",
    re.I,
)
_COPY = re.compile(
    r"^(?P<lead>[^\n]{0,20}(?:persistent|copy|backup|source|cache)[^\n:]{0,80}):\s*(?P<what>[^\n]{1,300})$",
    re.I | re.M,
)
_BEFORE_BOOT = re.compile(
    r"(?:before|prior to) (?:the )?(?:re)?boot|reboot|boot[_ ]id (?:changed|differs)", re.I
)


def _looks_like_probe(text: str) -> bool:
    return bool(_UPTIME.search(text) or _UP.search(text)) and bool(_MODEL_GONE.search(text) or "shm" in text)


def uptime_s(text: str) -> float | None:
    """Seconds since boot by `uptime_s=212` or by the words of uptime(1), or None."""
    if found := _UPTIME.search(text):
        return float(found["s"])
    if found := _UP.search(text):
        hours = int(found["h"] or 0)
        return int(found["d"] or 0) * 86400.0 + hours * 3600 + int(found["m"] or found["min"] or 0) * 60
    return None


def _from_probe(text: str) -> dict[str, Any]:
    """The state after a reboot: is the model still in memory, is there a copy on a disk, what to do first."""
    up = uptime_s(text)
    gone = bool(_MODEL_GONE.search(text))
    copy = _COPY.search(text)
    there = bool(
        copy
        and re.search(r"\d+\s*(?:shards|files|[KMGT]i?B)", copy["what"])
        and not re.search(r"\b(?:none|missing|absent|no such)\b|\(empty\)|metadata only", copy["what"], re.I)
    )
    rebooted = bool(_BEFORE_BOOT.search(text)) or (up is not None and up < 3600 and gone)
    proof = [
        evidence(line, at)
        for at, line in enumerate(text.splitlines(), 1)
        if _UPTIME.search(line)
        or _UP.search(line)
        or _MODEL_GONE.search(line)
        or _COPY.search(line)
        or _BEFORE_BOOT.search(line)
    ]
    steps = ["start-service", "wait-ready", "resume-at-interrupted-cell"]
    if not gone:
        return result(
            "model",
            "complete",
            "model-still-staged",
            "info",
            "The model is still staged. Restart the service.",
            proof,
            rebooted=rebooted,
            model_in_shm=True,
            next_action="start-service",
            then=steps[1:],
            download_needed=False,
            uptime_s=up,
        )
    first = "copy-from-persistent" if there else "download"
    advice = "Copy the model from the disk again" if there else "Download the model again (no copy on a disk)"
    return result(
        "model",
        "restage-needed",
        "tmpfs-lost-by-reboot" if rebooted else "model-absent",
        "warn",
        f"{advice}. Then start the service, wait until it is ready, and resume at the interrupted cell.",
        proof,
        rebooted=rebooted,
        model_in_shm=False,
        persistent_copy=there,
        next_action=first,
        then=steps,
        download_needed=not there,
        uptime_s=up,
    )
