"""How long a GGUF file must be, by its own tensor table; and which part of a split it is. No weights are read.

Form (ggml/docs/gguf.md): magic, version, tensor count, key-value count, the pairs, the tensors (name, dimensions, type,
offset into the data), padding to `general.alignment`, data. llama.cpp pads the end too, so a file may be a little longer.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, Dict, NamedTuple, Optional, Tuple

MAX_HEADER_B = 512 << 20
"""A header longer than this is none: the largest vocabularies take some 20 MB."""

_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
TYPES: Dict[int, Tuple[int, int]] = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
}
"""ggml type → (weights in a block, bytes of a block). Of a type that is not here the offset alone is known."""


class Table(NamedTuple):
    """What the header says. need: bytes the file must have at least; data: bytes of tensors; part, parts: which part of
    a split (from 0, None where it is none); tensors: entries of the table."""

    need: int
    data: int
    tensors: int
    part: Optional[int] = None
    parts: Optional[int] = None


class CutError(Exception):
    """The file ends within its header."""


class BadError(Exception):
    """The header contradicts itself."""


class _Bytes:
    """Reads on from an open file; knows the place."""

    def __init__(self, first: bytes, source: BinaryIO) -> None:
        self._have, self._source = first, source
        self._at = 0
        self.place = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.place + count > MAX_HEADER_B:
            raise BadError("the header is too long")
        while len(self._have) - self._at < count:
            more = self._source.read(max(1 << 16, count))
            if not more:
                raise CutError("the file ends within its header")
            self._have = self._have[self._at :] + more
            self._at = 0
        out = self._have[self._at : self._at + count]
        self._at += count
        self.place += count
        return out


def read_table(first: bytes, source: BinaryIO) -> Optional[Table]:
    """The table of an open GGUF file of which `first` was read already; None for a version that is not known.

    Raises CutError where the file ends within its header, BadError where that is no sound header.
    """
    order = "<"
    (version,) = struct.unpack("<I", _exact(first[4:8], 4))
    if version > 0xFFFF and not version & 0xFFFF:
        order = ">"  # written on a big-endian machine
        (version,) = struct.unpack(">I", first[4:8])
    if version not in (2, 3):
        if version == 1 or 3 < version < 100:
            return None
        raise BadError("no version of GGUF")
    data = _Bytes(first, source)
    data.take(8)
    tensors, pairs = struct.unpack(order + "QQ", data.take(16))
    if tensors > 1000000 or pairs > 1000000:
        raise BadError("the counts make no sense")
    wanted = _pairs(data, order, pairs)
    ends = [_tensor(data, order) for _ in range(tensors)]
    align = wanted.get("general.alignment") or 32
    start = data.place if not ends else -(-data.place // align) * align
    size = max(ends) if ends else 0
    return Table(start + size, size, tensors, wanted.get("split.no"), wanted.get("split.count"))


def _exact(data: bytes, count: int) -> bytes:
    if len(data) < count:
        raise CutError("the file ends within its header")
    return data


def _text(data: _Bytes, order: str) -> bytes:
    return data.take(struct.unpack(order + "Q", data.take(8))[0])


def _pairs(data: _Bytes, order: str, count: int) -> Dict[str, int]:
    """The few integers wanted of the key-value pairs; the others are passed over."""
    found: Dict[str, int] = {}
    for _ in range(count):
        key = _text(data, order)
        (kind,) = struct.unpack(order + "I", data.take(4))
        value = _value(data, order, kind)
        if key in (b"general.alignment", b"split.no", b"split.count") and isinstance(value, int):
            found[key.decode()] = value
    return found


def _value(data: _Bytes, order: str, kind: int, depth: int = 0) -> Any:
    if kind in _SCALARS:
        raw = data.take(_SCALARS[kind])
        return int.from_bytes(raw, "little" if order == "<" else "big") if kind not in (6, 12) else None
    if kind == _STRING:
        _text(data, order)
        return None
    if kind != _ARRAY or depth > 4:
        raise BadError("an unknown type of value")
    inner, length = struct.unpack(order + "IQ", data.take(12))
    if inner in _SCALARS:
        data.take(_SCALARS[inner] * length)
        return None
    if length > MAX_HEADER_B // 8:
        raise BadError("an array that is too long")
    for _ in range(length):
        _value(data, order, inner, depth + 1)
    return None


def _tensor(data: _Bytes, order: str) -> int:
    """Where the tensor's data ends, in bytes from the begin of the data."""
    _text(data, order)
    (count,) = struct.unpack(order + "I", data.take(4))
    if count > 8:
        raise BadError("too many dimensions")
    elements = 1
    for dimension in struct.unpack(order + "%dQ" % count, data.take(8 * count)):
        elements *= dimension
    kind, offset = struct.unpack(order + "IQ", data.take(12))
    block = TYPES.get(kind)
    size = elements // block[0] * block[1] if block else 1
    if elements > 1 << 50 or offset > 1 << 50:
        raise BadError("sizes that make no sense")
    return int(offset + size)
