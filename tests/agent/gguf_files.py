"""Small GGUF files with a true tensor table, for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def text(word: str) -> bytes:
    data = word.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]] = (
        ("blk.0", (256, 4), 14, 840),
        ("out", (64,), 0, 256),
    ),
    *,
    extra: bytes = b"",
    pairs: int = 0,
    version: int = 3,
    align: int = 32,
) -> bytes:
    """A whole file: each tensor is (name, dimensions, ggml type, bytes)."""
    vocab = (
        text("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", 9, 8, 300)
        + b"".join(text(f"t{i}") for i in range(300))
    )
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), 2 + pairs)
    head += text("general.alignment") + struct.pack("<II", 4, align) + vocab + extra
    offset = 0
    for name, dimensions, kind, size in tensors:
        head += text(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += struct.pack("<IQ", kind, offset)
        offset += -(-size // align) * align
    body = b"".join(bytes([7]) * size + b"\0" * (-size % align) for *_, size in tensors)
    return head + (b"\0" * (-len(head) % align) + body if tensors else b"")


def part(number: int, of: int) -> bytes:
    """One part of a split, which says so itself."""
    extra = text("split.no") + struct.pack("<IH", 2, number) + text("split.count") + struct.pack("<IH", 2, of)
    return gguf((("w", (32, 8), 8, 272),) if number else (), extra=extra, pairs=2)
