"""GGUF files: whole or not by their own table, alone, in a split, as a model's path, and staged."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.agent.host.servers import absolute
from ddtop.agent.model.check import check_model_dir
from ddtop.agent.model.stage import stage
from ddtop.agent.model.weight_files import read_head

from .gguf_files import gguf, part


def verdict(path: Path, **more: Any) -> tuple[str, str]:
    got = check_model_dir(str(path), **more)
    return got["verdict"], got["cause"]


def test_a_whole_file_and_every_cut_of_it(tmp_path: Path) -> None:
    path, data = tmp_path / "m.gguf", gguf()
    path.write_bytes(data)
    assert verdict(path) == ("complete", "all-shards-present") == verdict(tmp_path)
    need = read_head("m.gguf", len(data), io.BytesIO(data)).need
    assert need == len(data)
    for length in [*range(4, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        assert verdict(path) == ("incomplete", "shard-truncated"), length
        assert verdict(tmp_path)[0] == "incomplete"


def test_padding_at_the_end_is_no_fault_and_missing_bytes_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf() + b"\0" * 31)
    assert verdict(path)[0] == "complete"
    path.write_bytes(gguf()[:-200])
    assert check_model_dir(str(path))["missing_bytes"] == 200


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), "shard-corrupt"),
        (b"GGUF" + b"\3" * 100, "shard-corrupt"),
        (b"GGML" + b"\0" * 100, "shard-corrupt"),
        (b"GGUF", "shard-truncated"),
        (b"", "shard-truncated"),
        (b"<!DOCTYPE html><html>Not found", "shard-corrupt"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n", "git-lfs-pointers"),
    ],
)
def test_what_is_no_gguf(tmp_path: Path, data: bytes, cause: str) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    assert verdict(tmp_path / "m.gguf") == ("incomplete", cause)


def test_a_type_or_version_of_tomorrow_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf((("x", (256,), 99, 300),)))
    assert verdict(path)[0] == "complete"
    path.write_bytes(gguf(version=4))
    assert verdict(path)[0] == "complete"


def test_another_alignment_and_old_version(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    data = gguf(align=4096, version=2)
    path.write_bytes(data)
    assert verdict(path)[0] == "complete"
    path.write_bytes(data[:-4097])
    assert verdict(path)[1] == "shard-truncated"


def test_parts_of_a_split_are_judged_one_by_one(tmp_path: Path) -> None:
    names = [tmp_path / f"m-0000{i + 1}-of-00003.gguf" for i in range(3)]
    for i, path in enumerate(names):
        path.write_bytes(part(i, 3))
    (tmp_path / "other-00001-of-00009.gguf").write_bytes(gguf())
    assert verdict(names[0]) == verdict(names[2]) == ("complete", "all-shards-present")
    names[1].write_bytes(part(1, 3)[:-50])
    assert verdict(names[0])[1] == "shard-truncated"
    names[1].unlink()
    got = check_model_dir(str(names[0]))
    assert (got["cause"], got["missing"]) == ("shard-missing", [names[1].name])


def test_a_part_under_another_name_says_itself_that_others_are_missing(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(part(0, 3))
    got = check_model_dir(str(tmp_path / "model.gguf"))
    assert (got["verdict"], got["cause"], len(got["missing"])) == ("incomplete", "shard-missing", 2)


def test_a_path_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    got = check_model_dir(str(tmp_path / "no.gguf"))
    assert (got["verdict"], got["exists"]) == ("restage-needed", False)
    assert got["cause"] in ("model-absent", "tmpfs-empty")


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_file_is_staged_from_a_file_or_a_folder(tmp_path: Path, as_folder: bool) -> None:
    source, target = tmp_path / "disk", tmp_path / "ram" / "m.gguf"
    source.mkdir()
    (source / "m.gguf").write_bytes(gguf())
    (source / "huge-other.gguf").write_bytes(gguf())
    named = source if as_folder else source / "m.gguf"
    got = check_model_dir(str(target), sources=[str(named)])
    assert got["persistent_copy"] and got["verdict"] == "restage-needed"
    stage({"path": str(target), "sources": [str(named)]}, lambda _: None)
    assert verdict(target) == ("complete", "all-shards-present")
    assert not (tmp_path / "ram" / "huge-other.gguf").exists()
    target.write_bytes(gguf()[:-100])
    stage({"path": str(target), "sources": [str(named)]}, lambda _: None)
    assert verdict(target)[0] == "complete"


def test_a_split_is_staged_with_all_its_parts(tmp_path: Path) -> None:
    source, target = tmp_path / "disk", tmp_path / "ram"
    source.mkdir()
    for i in range(3):
        (source / f"m-0000{i + 1}-of-00003.gguf").write_bytes(part(i, 3))
    first = target / "m-00001-of-00003.gguf"
    stage({"path": str(first), "sources": [str(source)]}, lambda _: None)
    assert verdict(first)[0] == "complete" and len(list(target.glob("*.gguf"))) == 3


def test_a_cut_source_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf()[:-100])
    got = check_model_dir(str(tmp_path / "ram" / "m.gguf"), sources=[str(tmp_path / "m.gguf")])
    assert not got["persistent_copy"] and got["sources"][0]["verdict"] == "incomplete"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 60))
def test_any_bytes_after_the_magic(data: bytes, keep: int) -> None:
    read_head("x.gguf", len(data) + 4, io.BytesIO(b"GGUF" + data))
    whole = bytearray(gguf())
    whole[keep : keep + len(data)] = data
    read_head("x.gguf", len(whole), io.BytesIO(bytes(whole)))


def test_a_relative_model_of_a_running_server_is_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.gguf").write_bytes(gguf())
    monkeypatch.chdir(tmp_path)
    pid = os.getpid()
    assert absolute("models/m.gguf", pid) == str(tmp_path / "models" / "m.gguf")
    assert absolute("./models/../models", pid) == str(tmp_path / "models")
    assert absolute("/data/m.gguf", pid) == "/data/m.gguf"
    assert absolute("Qwen/Qwen3-8B", pid) == "Qwen/Qwen3-8B"  # a hub name
    assert absolute(None, pid) is None
