"""How large a weight file must be, from its first bytes: no weights are read.

safetensors: 8 bytes little-endian length N, N bytes of JSON, data; the size must be exactly
8 + N + the largest end offset (safetensors 0.8.0 refuses shorter and longer files alike).
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any, BinaryIO, Dict, NamedTuple, Optional

from .gguf import BadError, CutError, read_table

WEIGHTS = (
    ".safetensors",
    ".gguf",
    ".bin",
    ".pt",
    ".pth",
    ".engine",
    ".plan",
    ".onnx",
    ".onnx_data",
    ".onnx.data",
)
MAX_HEADER = 100 * 1000 * 1000  # the limit of safetensors itself
EXPECTED_SIZE_FORMULA = "8 + header_len + max(data_offsets)"

_LFS = re.compile(rb"^version https://git-lfs\.github\.com/spec/v1\s.*?^size (\d{1,18})\s*$", re.S | re.M)


class Head(NamedTuple):
    """What a weight file's first bytes say. `fault`: None, "lfs-pointer", "truncated-header", "zero-head",
    "html", "bad-header", "truncated" (known from the tail), "unreadable". `need`: size in bytes it must have;
    `data`: bytes of tensors in it; `pointed`: size an LFS pointer stands for; `padded`: it may be longer than `need`;
    `part` and `parts`: which part of a split it says it is, from 0."""

    fault: Optional[str] = None
    need: Optional[int] = None
    data: Optional[int] = None
    pointed: Optional[int] = None
    padded: bool = False
    part: Optional[int] = None
    parts: Optional[int] = None


def is_weight(name: str) -> bool:
    """Whether a file's name says it holds weights (training state and tokenizer files do not)."""
    base = name.rsplit("/", 1)[-1].lower()
    if base.startswith(("training_args", "optimizer", "scheduler", "rng_state", ".")):
        return False
    return base.endswith(WEIGHTS)


def read_head(name: str, size: int, source: BinaryIO) -> Head:
    """Judge one weight file of `size` bytes, open for reading at 0. Reads the header only."""
    try:
        first = source.read(1024)
    except OSError:
        return Head("unreadable")
    pointer = _LFS.match(first)
    if pointer:
        return Head("lfs-pointer", pointed=int(pointer.group(1)))
    if size and not first.strip(b"\0"):
        return Head("zero-head")
    if first.lstrip()[:15].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return Head("html")
    lower = name.lower()
    if lower.endswith(".safetensors"):
        return _safetensors(first, size, source)
    if lower.endswith(".gguf"):
        return _gguf(first, size, source)
    if lower.endswith((".bin", ".pt", ".pth")):
        return _torch(first, size, source)
    return Head()


def _safetensors(first: bytes, size: int, source: BinaryIO) -> Head:
    if len(first) < 8:
        return Head("truncated-header")
    (length,) = struct.unpack("<Q", first[:8])
    if length > MAX_HEADER:
        return Head("bad-header")
    if 8 + length > size:
        return Head("truncated-header", need=8 + length)
    try:
        text = first[8 : 8 + length]
        if len(text) < length:
            text += source.read(length - len(text))
        header = json.loads(text.decode("utf-8"))
        ends = [int(v["data_offsets"][1]) for k, v in header.items() if k != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Head("bad-header")
    data = max(ends) if ends else 0
    if data < 0 or data > 1 << 62:
        return Head("bad-header")
    return Head(None, need=8 + length + data, data=data)


def _gguf(first: bytes, size: int, source: BinaryIO) -> Head:
    if first[:4] != b"GGUF":
        return Head("truncated-header" if size < 24 else "bad-header")
    try:
        table = read_table(first, source)
    except CutError:
        return Head("truncated-header")
    except (BadError, OSError, ValueError, MemoryError):
        return Head("bad-header")
    if table is None:
        return Head()
    return Head(None, table.need, table.data, padded=True, part=table.part, parts=table.parts)


def _torch(first: bytes, size: int, source: BinaryIO) -> Head:
    """torch.save writes a zip, whose last 22 bytes start with PK\\5\\6; a cut file lacks them."""
    if first[:4] != b"PK\x03\x04":
        return Head()  # a bare pickle, or the older tar form: nothing cheap tells
    try:
        source.seek(max(0, size - 66000))
        tail = source.read(66000)
    except OSError:
        return Head("unreadable")
    return Head(None if b"PK\x05\x06" in tail else "truncated")


def small_file_fault(name: str, head: bytes, size: Optional[int] = None) -> Optional[str]:
    """Why a JSON file of a model cannot be read: "empty", "an LFS pointer", "HTML", "no JSON"; None for a sound one.

    `head` is the whole file where `size` is None or equal to its length; of a longer one only its begin is judged.
    """
    if not head.strip(b"\0 \t\r\n"):
        return "empty" if not head else "zeros"
    if _LFS.match(head):
        return "an LFS pointer"
    if head.lstrip()[:15].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "HTML"
    if name.endswith(".json"):
        if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
            return "no JSON"
        if size is None or size == len(head):
            try:
                json.loads(head.decode("utf-8-sig"))
            except (ValueError, RecursionError):
                return "no JSON"
    return None


SMALL_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "params.json",
    "tekken.json",
)
"""Files beside the weights without which no engine starts, where they are listed."""


def read_index(text: bytes) -> Optional[Dict[str, Any]]:
    """{"shards": sorted distinct file names, "total_size": int or None, "tensors": n} of an index file, or
    None."""
    try:
        got = json.loads(text.decode("utf-8"))
        names = sorted({str(name) for name in got["weight_map"].values()})
        total = (got.get("metadata") or {}).get("total_size")
        return {
            "shards": names,
            "tensors": len(got["weight_map"]),
            "total_size": int(total) if isinstance(total, (int, float)) else None,
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
