"""Files through a real agent: followed over rotation and truncation, read in pieces, written whole."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from ddtop.errors import AgentError
from tests.agent.helpers import agent
from tests.waiting import HANG_S


async def lines(batches: Any, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(HANG_S):
        async for batch in batches:
            found += batch
            if len(found) >= count:
                break
    return found


async def test_follow_over_rotation_truncation_and_absence(state_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    async with agent(state_dir) as host:
        async with host.stream("file-follow", path=str(log)) as batches:
            await asyncio.sleep(0.3)
            log.write_bytes(b"first\nbar 10%\rbar 100%\n\xff\xfe\nhalf")
            one = await lines(batches, 3)
            assert [item["text"] for item in one] == ["first", "bar 100%", "\ufffd\ufffd"], (
                "all of a new file"
            )
            with log.open("ab") as file:
                file.write(b" line\n")
            (half,) = await lines(batches, 1)
            assert half["text"] == "half line"
            assert half["offset"] == log.stat().st_size
            inode = half["inode"]
            log.rename(tmp_path / "server.log.1")
            log.write_bytes(b"new file\n")
            (new,) = await lines(batches, 1)
            assert (new["text"], new["rotated"], new["inode"] != inode) == ("new file", True, True)
            os.truncate(log, 0)
            await asyncio.sleep(0.4)
            with log.open("ab") as file:
                file.write(b"t\n")
            (cut,) = await lines(batches, 1)
            assert (cut["text"], cut["offset"]) == ("t", 2)


async def test_follow_resumes_where_it_was(state_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {i}\n" for i in range(1000)))
    async with agent(state_dir) as host:
        async with host.stream("file-follow", path=str(log), offset=0) as batches:
            first = await lines(batches, 400)
        at = first[399]
        async with host.stream(
            "file-follow", path=str(log), offset=at["offset"], inode=at["inode"]
        ) as batches:
            rest = await lines(batches, 600)
    texts = [item["text"] for item in first[:400]] + [item["text"] for item in rest]
    assert texts == [f"line {i}" for i in range(1000)]


async def test_unfinished_lines_are_shown_on_request(state_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"done\nLoading 10%\rLoading 20%")
    async with agent(state_dir) as host:
        async with host.stream("file-follow", path=str(log), offset=0, partial=True) as batches:
            found = await lines(batches, 2)
    assert found[1] == {**found[1], "text": "Loading 20%", "partial": True, "offset": 5}


async def test_read_write_stat(state_dir: Path, tmp_path: Path) -> None:
    async with agent(state_dir) as host:
        path = tmp_path / "new" / "file"
        assert await host.call("file-write", path=str(path), text="grün\n", mkdir=True, mode=0o600) == {
            "size_b": 6
        }
        assert path.stat().st_mode & 0o777 == 0o600
        assert [p.name for p in path.parent.iterdir()] == ["file"], "no temporary file is left"
        assert (await host.call("file-read", path=str(path)))["text"] == "grün\n"
        assert (await host.call("file-read", path=str(path)))["inode"] == path.stat().st_ino
        raw = bytes(range(256)) * 10
        await host.call("file-write", path=str(path), b64=base64.b64encode(raw).decode())
        piece = await host.call("file-read", path=str(path), offset=-256, max_b=100, b64=True)
        assert base64.b64decode(piece["b64"]) == raw[:100]
        assert (piece["size_b"], piece["eof"]) == (2560, False)
        info = (await host.call("stat", paths=[str(path), "/nope", str(tmp_path)]))["paths"]
        assert info["/nope"] is None
        assert (info[str(path)]["size_b"], info[str(path)]["type"], info[str(tmp_path)]["type"]) == (
            2560,
            "file",
            "dir",
        )
        for args, code in (
            ({"path": "relative", "text": ""}, "bad-request"),
            ({"path": "/nope/x", "text": ""}, "not-found"),
            ({"path": "/proc/nope", "text": ""}, None),
        ):
            with pytest.raises(AgentError) as caught:
                await host.call("file-write", **args)
            assert code is None or caught.value.code == code
        with pytest.raises(AgentError) as caught:
            await host.call("file-read", path=str(tmp_path))
        assert "directory" in caught.value.what


async def test_a_full_disk_is_told_as_such(state_dir: Path, tiny_tmpfs: Path) -> None:
    async with agent(state_dir) as host:
        with pytest.raises(AgentError) as caught:
            await host.call("file-write", path=str(tiny_tmpfs / "x"), text="y" * 400_000)
        assert caught.value.code == "disk"
        assert list(tiny_tmpfs.iterdir()) == [], "no half file is left"
