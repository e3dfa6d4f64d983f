"""Models by listings of every form, and by what a probe said."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.inspect import NotJudgedError
from ddtop.inspect.listing import parse_listing
from ddtop.inspect.model import diagnose_model, uptime_s


def judge(**files: str) -> dict[str, Any]:
    return diagnose_model({name.replace("__", "."): text.encode() for name, text in files.items()})


FIND = """f 1100 model/config.json
f 6300000000 model/model-00001-of-00003.safetensors
f 6300000000 model/model-00003-of-00003.safetensors
"""
LS = """total 12595200
-rw-r--r-- 1 root root       1100 Nov 30 06:00 config.json
-rw-r--r-- 1 root root 6300000000 Nov 30 06:00 model-00001-of-00003.safetensors
-rw-r--r-- 1 root root 6300000000 Nov 30  2025 model-00003-of-00003.safetensors
"""
LS_HUMAN = LS.replace("6300000000", "      5.9G")
LS_ISO = LS.replace("Nov 30 06:00", "2026-11-30 06:00").replace("Nov 30  2025", "2025-11-30 06:00")
LS_GERMAN = LS.replace("Nov 30 06:00", "30. Nov 06:00").replace("Nov 30  2025", "30. Nov  2025")
LS_R = "/dev/shm/model:\n" + LS
SIZES = FIND.replace("f ", "")


@pytest.mark.parametrize("text", [FIND, LS, LS_HUMAN, LS_ISO, LS_GERMAN, LS_R, SIZES])
def test_listings_of_every_form(text: str) -> None:
    got = judge(input__lst=text)
    assert (got["verdict"], got["cause"]) == ("incomplete", "shard-missing")
    assert got["missing"] == ["model-00002-of-00003.safetensors"]
    assert got["present_bytes"] == pytest.approx(12.6e9, rel=0.02)


@pytest.mark.parametrize("order", ["{size} {blocks}", "{blocks} {size}"])
def test_blocks_beside_sizes_show_holes(order: str) -> None:
    def row(name: str, size: int, blocks: int) -> str:
        return f"f {order.format(size=size, blocks=blocks)} m/{name}\n"

    whole = row("config.json", 100, 8) + row("model-00001-of-00002.safetensors", 5_000_000_000, 9_765_632)
    got = judge(input__lst=whole + row("model-00002-of-00002.safetensors", 5_000_000_000, 0))
    assert (got["cause"], got["sparse"]) == ("sparse-holes", ["model-00002-of-00002.safetensors"])
    got = judge(input__lst=whole + row("model-00002-of-00002.safetensors", 5_000_000_000, 9_765_632))
    assert got["verdict"] == "complete"


def test_stat_shows_holes() -> None:
    text = (
        "  File: m/model.safetensors\n  Size: 104857600 \tBlocks: 0          IO Block: 4096   regular file\n"
    )
    (entry,) = parse_listing(text)
    assert (entry.path, entry.size, entry.blocks) == ("m/model.safetensors", 104857600, 0)
    assert judge(input__lst=text)["cause"] == "sparse-holes"


def test_paths_with_blanks_and_links() -> None:
    entries = parse_listing("l 5 a dir/x.safetensors -> ../b lobs/y\nf 7 b lobs/y\n")
    assert entries[0].path == "a dir/x.safetensors" and entries[0].target == "../b lobs/y"


def test_a_short_copy_is_found_by_the_source() -> None:
    got = judge(
        input__lst=FIND + "f 12 model/model-00002-of-00003.safetensors\n",
        source__lst="f 6300000000 model-00002-of-00003.safetensors\n",
    )
    assert (got["cause"], got["truncated"]) == ("shard-truncated", ["model-00002-of-00003.safetensors"])
    assert got["missing_bytes"] == 6300000000 - 12


def test_names_of_the_source_that_are_not_here() -> None:
    got = judge(
        input__lst="f 9 m/config.json\nf 100 m/a.safetensors\n",
        source__lst="f 100 a.safetensors\nf 100 b.safetensors\n",
    )
    assert got["missing"] == ["b.safetensors"]


def test_a_listing_that_grows_is_a_copy_in_progress() -> None:
    first = FIND.replace("f 6300000000 model/model-00003", "f 100 model/model-00003")
    got = diagnose_model({"input.read1.lst": first.encode(), "input.read2.lst": FIND.encode()})
    assert (got["verdict"], got["cause"], got["grown_bytes"]) == ("staging", "copy-in-progress", 6299999900)


@pytest.mark.parametrize(
    "line",
    [
        "  12,345,678,901  45%  812.34MB/s    0:01:23 (xfr#3, to-chk=160/163)",
        "Fetching 17 files:  29%|##9       | 5/17 [01:12<02:53, 14.4s/it]",
    ],
)
def test_progress_of_a_copy(line: str) -> None:
    got = judge(input__lst=FIND, rsync__txt=line)
    assert (got["verdict"], got["percent"]) == ("staging", 45 if "45%" in line else 29)


def test_no_room_without_a_listing_of_the_source() -> None:
    got = judge(
        input__lst=FIND,
        input__err="cp: error writing 'x/model-00003-of-00003.safetensors': No space left on device",
    )
    assert got["cause"] == "tmpfs-full" and got["short_file"] == "model-00003-of-00003.safetensors"
    assert any("No space" in e["text"] for e in got["evidence"])


PROBE = """uptime: {up}
ls /dev/shm/Qwen3.6-27B/config.json: {model}
persistent copy /data/models/q: {copy}
results dir: 14 files
"""


@pytest.mark.parametrize(
    ("up", "model", "copy", "want"),
    [
        (
            "up 3 min",
            "No such file or directory",
            "163 shards, 52 GB",
            ("restage-needed", "tmpfs-lost-by-reboot", "copy-from-persistent"),
        ),
        ("up 3 min", "MISSING", "none", ("restage-needed", "tmpfs-lost-by-reboot", "download")),
        (
            "up 3 min",
            "MISSING",
            "metadata only, 2 files",
            ("restage-needed", "tmpfs-lost-by-reboot", "download"),
        ),
        (
            "up 41 days, 3:12",
            "MISSING",
            "163 shards",
            ("restage-needed", "model-absent", "copy-from-persistent"),
        ),
        ("up 41 days, 3:12", "1100 bytes", "163 shards", ("complete", "model-still-staged", "start-service")),
    ],
)
def test_probes(up: str, model: str, copy: str, want: tuple[str, str, str]) -> None:
    got = judge(probe__txt=PROBE.format(up=up, model=model, copy=copy))
    assert (got["verdict"], got["cause"], got["next_action"]) == want
    assert got["download_needed"] is (want[2] == "download") and got["evidence"]


@pytest.mark.parametrize(
    ("text", "want"),
    [("uptime_s=212", 212), ("06:24 up 3 min, 1 user", 180), ("up 2 days, 1:30", 178200), ("nothing", None)],
)
def test_uptime(text: str, want: float | None) -> None:
    assert uptime_s(text) == want


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "a b c d"])
def test_what_is_no_listing(text: str) -> None:
    with pytest.raises(NotJudgedError):
        judge(input__txt=text)
