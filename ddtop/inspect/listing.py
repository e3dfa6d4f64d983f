"""Read listings of files: find, ls, tree, du, stat."""

from __future__ import annotations

import re

from ddtop.agent.model.shards import Entry

MAX_LINE = 2_000
_FIND = re.compile(
    r"^(?P<kind>[fdlcbsp])\s+(?:(?P<blocks>\d{1,18})\s+(?=\d{1,18}\s))?(?P<size>\d{1,18})\s+(?P<path>\S.{0,4000}?)"
    r"(?:\s->\s(?P<to>\S.{0,4000}?))?\s{0,8}$"
)
_LS = re.compile(
    r"^\s{0,12}(?:\d{1,12}\s+){0,2}(?P<kind>[-dlcbsp])[rwxsStT-]{9}[.+@]?\s+\d{1,9}\s+\S{1,64}\s+\S{1,64}\s+(?P<size>\d{1,18}(?:[.,]\d{1,3})?[KMGT]?)\s+"
    r"(?:\w{3}\s+\d{1,2}\s+[\d:]{4,5}|\d{1,2}\.?\s+\w{3,9}\.?\s+[\d:]{4,5}|\d{1,2}[^\W\d_]{1,2}\s+\d{1,2}[^\W\d_]?\s+[\d:]{4,5}|\d{4}-\d\d-\d\d[ T][\d:.]{5,18}(?:\s[+-]\d{4})?)\s"
    r"(?P<path>.{1,4000}?)(?:\s->\s(?P<to>.{1,4000}?))?\s{0,8}$"
)
_FOLDER = re.compile(r"^(?P<path>\S.{0,1000}):$")
_SIZE_PATH = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s+)?(?P<size>\d{1,18}|\d{1,4}(?:[.,]\d{1,3})?[KMGT](?:iB?)?)\s+(?P<path>(?!0x[0-9a-f]{6,16} )\S.{0,4000}?)\s{0,8}$"
)
_TREE = re.compile(
    r"^[│├└─|`\-\s]{2,200}(?:\[\s{0,20}(?P<size>\d{1,18}(?:[.,]\d{1,3})?[KMGT]?)\]\s{1,4})?(?P<path>[^\s│├└─\[].{0,400}?)\s{0,8}$"
)
ROUNDED = re.compile(
    r"^(?:[-dl]r\S{8,11}\s.{0,200}\s|.{0,200}\[\s{0,20}|)\d{1,4}(?:[.,]\d{1,3})?[KMGT](?:iB?)?[\]\s]", re.M
)
"""A line of a listing whose sizes are for people (`ls -lh`, `du -h`, `tree -h`)."""
TREE_DRAWING = re.compile(r"^[│|\s]{0,200}(?:[├└]─{1,2}|[|`]--)\s{1,4}")
_TREE_BLOB = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})(?:\.[\w.]{0,40}incomplete|\.incomplete)?$")
_LINK = re.compile(r"^(?P<path>\S.{0,4000}?)\s->\s(?P<to>\S.{0,4000}?)\s{0,8}$")
_BROKEN = re.compile(r"^(?P<path>\S.{0,1000}?): +broken symbolic link to (?P<to>\S.{0,1000}?)\s{0,8}$")
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}[mK]")
_STAT_FILE = re.compile(r"^\s{0,4}File: (?P<path>.{1,4000}?)(?: -> (?P<to>.{1,4000}?))?\s{0,8}$")
_STAT_SIZE = re.compile(r"^\s{0,4}Size: (?P<size>\d{1,18})\s{1,20}Blocks: (?P<blocks>\d{1,18})")


def parse_listing(text: str) -> list[Entry]:
    """Entries of `find -printf "%y %s %p -> %l"` (with or without %b), `ls -l`, `ls -lR`, size-and-path lines, or
    stat(1). Lines that are none of these are passed over."""
    out: list[Entry] = []
    folder = ""
    for line in map(str.rstrip, _COLOURS.sub("", text).splitlines()):
        if not line or line.startswith("#"):
            continue
        found = (
            _BROKEN.match(line)
            or _FIND.match(line)
            or _LS.match(line)
            or _LINK.match(TREE_DRAWING.sub("", line))
            or _SIZE_PATH.match(line)
        )
        if not found and len(line) < MAX_LINE and (tree := _TREE.match(line)) and tree["size"]:
            found = tree
        if not found and (blob := _TREE_BLOB.match(TREE_DRAWING.sub("", line))) and TREE_DRAWING.match(line):
            out.append(
                Entry(f"../../blobs/{blob[0]}", size=1 << 20, sized=False)
            )  # where snapshots' links lead
            continue
        if not found:
            header = _FOLDER.match(line)
            folder = header["path"] if header else folder
            continue
        got = found.groupdict()
        kind = (got.get("kind") or ("l" if got.get("to") else "f")).replace("-", "f")
        path = got["path"]
        if folder and "/" not in path:
            path = f"{folder}/{path}"
        size, blocks = size_in_bytes(got.get("size") or "0"), got.get("blocks")
        held: int | None = None
        if blocks is not None:
            # `%s %b` or `%b %s`: blocks of 512 bytes are the smaller number of the two.
            held, size = sorted((int(blocks), size))
        out.append(Entry(path, kind, size, got.get("to"), held))
    return _parse_stat(text) or out


_COMMENT = re.compile(r"\s+(?:#|//|<-|\u2190|\u2014) ?.*$")
_SUM = re.compile(r"^(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32}) [ *](?=\S)")
"""What sha256sum, sha1sum or md5sum print before a name."""
_LEFT_OUT = re.compile(r"^(?:\.{3}|\u2026)(?:\s|$)|^\[\.{3}\]$")


def is_abridged(text: str) -> bool:
    """Whether a listing has a row that stands for rows left out (`...`): it cannot show that a file is missing."""
    return any(_LEFT_OUT.match(TREE_DRAWING.sub("", line.strip())) for line in text.splitlines()[:20_000])


def is_checksums(rows: list[str]) -> bool:
    """Whether most rows are of a checksum tool."""
    return sum(_SUM.match(row) is not None for row in rows) * 2 > len(rows)


def bare_names(text: str) -> list[str]:
    """The names of a listing that gives names only (`ls`, `tree`, `find`, `sha256sum`): no size is known of any."""
    names = []
    for line in text.splitlines():
        if len(line) > MAX_LINE:
            continue
        bare = _SUM.sub("", line)
        bare = _COMMENT.sub("", bare) if TREE_DRAWING.match(bare) else bare
        tree = _TREE.match(bare)
        name = (tree["path"] if tree else bare).strip()
        if re.fullmatch(r"[^\s:'\"|]{1,1000}\.\w{1,12}", name):
            names.append(name)
    return names


def size_in_bytes(text: str) -> int:
    """Bytes of a size as ls prints it; `4.7G` of `ls -lh` is rounded, so no exact comparison holds for it."""
    text = re.sub(r"iB?$", "", text)
    factor = 1024 ** (" KMGT".index(text[-1]) if text[-1] in "KMGT" else 0)
    number = text.rstrip("KMGT")
    return int(number) * factor if number.isdecimal() else int(float(number.replace(",", ".")) * factor)


def _parse_stat(text: str) -> list[Entry]:
    """Entries of stat(1): `File: PATH`, then `Size: N  Blocks: N … regular file`."""
    out: list[Entry] = []
    path, target = "", None
    for line in text.splitlines():
        if found := _STAT_FILE.match(line):
            path, target = found["path"].strip("'‘’"), found["to"]
        elif path and (found := _STAT_SIZE.match(line)):
            kind = "l" if target else "d" if "directory" in line else "f"
            out.append(Entry(path, kind, int(found["size"]), target, int(found["blocks"])))
            path, target = "", None
    return out
