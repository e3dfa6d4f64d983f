"""Files: follow (over rotation), read, write whole, stat."""

from __future__ import annotations

import asyncio
import base64
import os
import stat as stats
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..context import Context
from ..errors import OpError
from ..lines import ClippingSplitter, after_cr
from .state_folder import write_whole

POLL_S = 0.1
IDLE_POLL_S = 0.25
PARTIAL_S = 0.5
MAX_LINE_B = 256 << 10
CUT = b" [cut: the line is longer than 256 KiB]"
TYPES = ((stats.S_ISREG, "file"), (stats.S_ISDIR, "dir"), (stats.S_ISLNK, "link"), (stats.S_ISFIFO, "fifo"))


def last_piece(raw: bytes) -> str:
    """A line's text; of a bar that redraws itself with CR, what was on screen last.

    >>> last_piece(b"10%\\r 20%\\r")
    ' 20%'
    """
    return after_cr(raw.decode("utf-8", "replace"))


class Follower:
    """One open file: hands out lines with the offset after each. Blocking calls, made in a thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.handle: Optional[int] = None
        self.inode = 0
        self.offset = 0
        self._splitter = ClippingSplitter(MAX_LINE_B, CUT)
        self._line_at = 0

    def open(self, offset: Optional[int], inode: Optional[int]) -> bool:
        """Opens; at `offset` if it is still that file (None: at its end). True if it was another file."""
        self.close()
        self.handle = os.open(self.path, os.O_RDONLY)
        info = os.fstat(self.handle)
        self.inode = info.st_ino
        rotated = inode is not None and inode != self.inode
        if offset is None and inode is None:
            offset = info.st_size
        if rotated or offset is None or offset > info.st_size:
            rotated = rotated or (offset or 0) > info.st_size
            offset = 0
        self.offset = self._line_at = offset
        os.lseek(self.handle, offset, os.SEEK_SET)
        self._splitter = ClippingSplitter(MAX_LINE_B, CUT)
        return rotated

    def read(self) -> List[Tuple[bytes, int]]:
        """(line, offset after it) of what has come, at most about 1 MiB."""
        assert self.handle is not None
        data = os.read(self.handle, 1 << 20)
        if not data:
            return []
        found = []
        begin = 0
        while True:  # line by line, so that each knows its offset
            end = data.find(b"\n", begin)
            piece = data[begin:] if end < 0 else data[begin : end + 1]
            self.offset += len(piece)
            for line in self._splitter.feed(piece):
                found.append((line, self.offset))
                self._line_at = self.offset
            if end < 0 or end + 1 >= len(data):
                return found
            begin = end + 1

    def replaced(self) -> bool:
        """Whether the path names another file now, or this one was cut short."""
        try:
            info = os.stat(self.path)
        except FileNotFoundError:
            return False  # between rename and re-creation
        return info.st_ino != self.inode or info.st_size < self.offset

    def partial(self) -> bytes:
        return self._splitter._rest

    @property
    def line_at(self) -> int:
        """Offset at which the line begins that is not complete yet."""
        return self._line_at

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


async def file_follow(context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]) -> None:
    """The op `file-follow`. Waits for a file that is not there yet. Without an offset it begins at the end."""
    follower = Follower(args["path"])
    offset, inode = args.get("offset"), args.get("inode")
    want_partial = bool(args.get("partial"))
    rotated = False
    changed_s = time.monotonic()
    shown = b""
    try:
        while True:
            if follower.handle is None:
                try:
                    rotated = await context.thread(follower.open, offset, inode)
                except FileNotFoundError:
                    offset = 0 if offset is None else offset  # what it will hold is all new
                    await asyncio.sleep(IDLE_POLL_S)
                    continue
            found = await context.thread(follower.read)
            for raw, after in found:
                await emit(
                    {"text": last_piece(raw), "offset": after, "inode": follower.inode, "rotated": rotated}
                )
                rotated = False
            now = time.monotonic()
            if found:
                changed_s, shown = now, b""
                continue
            partial = follower.partial()
            if want_partial and partial and partial != shown and now - changed_s > PARTIAL_S:
                shown, changed_s = partial, now
                item = {"text": last_piece(partial), "offset": follower.line_at, "inode": follower.inode}
                await emit({**item, "rotated": False, "partial": True})
            if await context.thread(follower.replaced):
                last_words = await context.thread(
                    follower.read
                )  # written between the last read and the rotation
                for raw, after in last_words:
                    await emit(
                        {
                            "text": last_piece(raw),
                            "offset": after,
                            "inode": follower.inode,
                            "rotated": rotated,
                        }
                    )
                    rotated = False
                if last_words:
                    continue
                if partial:
                    at = follower.offset
                    await emit(
                        {"text": last_piece(partial), "offset": at, "inode": follower.inode, "rotated": False}
                    )
                follower.close()
                offset, inode = 0, -1
                continue
            await asyncio.sleep(POLL_S if now - changed_s < 5 else IDLE_POLL_S)
    finally:
        follower.close()


def _read(path: str, offset: int, max_b: int) -> Tuple[bytes, os.stat_result, bool]:
    with open(path, "rb") as file:
        info = os.fstat(file.fileno())
        if stats.S_ISDIR(info.st_mode):
            raise IsADirectoryError(21, "is a directory", path)
        if offset < 0:
            offset = max(0, info.st_size + offset)
        file.seek(offset)
        data = file.read(max_b)
        return data, info, not file.read(1)


async def file_read(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `file-read`. A negative offset counts from the end."""
    max_b = max(1, min(int(args.get("max_b", 500_000)), 700_000))
    data, info, eof = await context.thread(_read, args["path"], int(args.get("offset", 0)), max_b)
    found = {"size_b": info.st_size, "inode": info.st_ino, "eof": eof}
    if args.get("b64"):
        return {"b64": base64.b64encode(data).decode(), **found}
    return {"text": data.decode("utf-8", "replace"), **found}


async def file_write(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `file-write`."""
    path = args["path"]
    if not os.path.isabs(path):
        raise OpError("bad-request", f"{path} is not an absolute path")
    data = (
        base64.b64decode(args["b64"])
        if "b64" in args
        else str(args["text"]).encode("utf-8", "surrogateescape")
    )
    if args.get("mkdir"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    await context.thread(write_whole, path, data, int(args.get("mode", 0o644)))
    return {"size_b": len(data)}


def stat_one(path: str) -> Optional[Dict[str, Any]]:
    try:
        info = os.stat(path)
    except OSError:
        return None
    kind = next((name for test, name in TYPES if test(info.st_mode)), "other")
    return {"size_b": info.st_size, "blocks": info.st_blocks, "mtime_s": info.st_mtime, "type": kind}


async def stat_paths(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `stat`: null for what is not there or may not be looked at."""
    paths = [str(path) for path in args["paths"]]
    return {"paths": await context.thread(lambda: {path: stat_one(path) for path in paths}, timeout_s=20)}
