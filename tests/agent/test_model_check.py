"""Model verdicts on real directories: safetensors, torch, GGUF, caches, holes, pointers, sources; also on
3.8."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.agent.model.check import MANIFEST, boot_id, check_model_dir
from ddtop.agent.model.judge import judge
from ddtop.agent.model.shards import Entry, is_marker
from ddtop.agent.model.weight_files import MAX_HEADER, read_head, read_index
from tests.agent.helpers import oldest_python

from .gguf_files import gguf

CASES = Path(__file__).parents[1] / "cases"
OLD_PYTHON = Path(oldest_python())


def tensor_file(size: int) -> bytes:
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    )
    return struct.pack("<Q", len(header)) + header.encode() + b"\7" * size


def model(folder: Path, shards: int = 3, size: int = 20_000, index: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(1, shards + 1)]
    for name in names:
        (folder / name).write_bytes(tensor_file(size))
    (folder / "config.json").write_text('{"architectures": ["X"]}')
    (folder / "tokenizer.json").write_text("{}")
    if index:
        weights = {f"layer.{i}": name for i, name in enumerate(names)}
        text = json.dumps({"metadata": {"total_size": shards * size}, "weight_map": weights})
        (folder / "model.safetensors.index.json").write_text(text)
    return folder


def cache(folder: Path, source: Path, revision: str = "0f1e") -> Path:
    """The same model as a Hugging Face cache."""
    (folder / "blobs").mkdir(parents=True)
    (folder / "refs").mkdir()
    snapshot = folder / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    for i, file in enumerate(sorted(source.iterdir())):
        shutil.copy(file, folder / "blobs" / f"b{i}")
        (snapshot / file.name).symlink_to(f"../../blobs/b{i}")
    return folder


def verdict(path: Path, **more: Any) -> tuple[str, str]:
    got = check_model_dir(str(path), **more)
    assert got["advice"] and got["evidence"] and got["ready_to_start"] is (got["verdict"] == "complete")
    json.dumps(got)
    return got["verdict"], got["cause"]


def test_a_whole_model(tmp_path: Path) -> None:
    got = check_model_dir(str(model(tmp_path / "m")))
    assert (got["verdict"], got["cause"], got["severity"]) == ("complete", "all-shards-present", "info")
    assert got["expected_shards"] == got["present_shards"] == 3 and got["tensor_bytes"] == 60_000
    assert got["tokenizer_present"] and got["config_present"] and got["fs"] and got["available_bytes"] > 0


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard(tmp_path: Path, index: bool) -> None:
    folder = model(tmp_path / "m", index=index)
    (folder / "model-00002-of-00003.safetensors").unlink()
    got = check_model_dir(str(folder))
    assert (got["verdict"], got["cause"]) == ("incomplete", "shard-missing")
    assert got["missing"] == ["model-00002-of-00003.safetensors"] and got["index_present"] is index


@pytest.mark.parametrize("cut", [1, 10_000, 20_100, -1])
def test_a_truncated_shard_by_any_length(tmp_path: Path, cut: int) -> None:
    folder = model(tmp_path / "m")
    shard = folder / "model-00001-of-00003.safetensors"
    data = shard.read_bytes()
    keep = len(data) - cut if cut > 0 else 5
    shard.write_bytes(data[:keep])
    got = check_model_dir(str(folder))
    assert (got["verdict"], got["cause"]) == ("incomplete", "shard-truncated")
    assert got["truncated"] == [shard.name]
    if 0 < cut < 20_000:
        assert got["missing_bytes"] == cut


def test_an_empty_shard_is_truncated(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "model-00003-of-00003.safetensors").write_bytes(b"")
    assert verdict(folder) == ("incomplete", "shard-truncated")


def test_a_longer_file_is_of_another_version(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    with (folder / "model-00003-of-00003.safetensors").open("ab") as file:
        file.write(b"x")
    assert verdict(folder) == ("inconsistent", "shard-too-long")


def test_a_file_with_holes_has_the_right_size_and_is_found(tmp_path: Path) -> None:
    """safetensors opens it without an error: only the allocated blocks tell."""
    folder = model(tmp_path / "m", size=2_000_000)
    shard = folder / "model-00002-of-00003.safetensors"
    data = shard.read_bytes()
    shard.unlink()
    with shard.open("wb") as file:
        file.write(data[:4096])
        file.truncate(len(data))
    if shard.stat().st_blocks * 512 > 1_000_000:
        pytest.skip("this file system keeps no holes")
    got = check_model_dir(str(folder))
    assert (got["verdict"], got["cause"], got["sparse"]) == ("incomplete", "sparse-holes", [shard.name])


def test_holes_on_tmpfs() -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or not os.access(shm, os.W_OK):
        pytest.skip("no writable /dev/shm")
    folder = shm / f"ddtop-test-{os.getpid()}"
    try:
        model(folder, size=200_000)
        assert verdict(folder) == ("complete", "all-shards-present")
        assert check_model_dir(str(folder))["fs"] == "tmpfs"
        with (folder / "model-00001-of-00003.safetensors").open("r+b") as file:
            head = file.read(4096)
            file.truncate(0)
            file.seek(0)
            file.write(head)
            file.truncate(len(tensor_file(200_000)))
        assert verdict(folder) == ("incomplete", "sparse-holes")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"\0" * 20_000, "shard-corrupt"),
        (b"<!DOCTYPE html><html>rate limited</html>", "shard-corrupt"),
        (struct.pack("<Q", MAX_HEADER + 1) + b"{" * 100, "shard-corrupt"),
        (struct.pack("<Q", 40) + b"{not json" + b" " * 60, "shard-corrupt"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n", "git-lfs-pointers"),
    ],
)
def test_what_is_no_weights(tmp_path: Path, content: bytes, cause: str) -> None:
    folder = model(tmp_path / "m")
    (folder / "model-00001-of-00003.safetensors").write_bytes(content)
    got = check_model_dir(str(folder))
    assert (got["verdict"], got["cause"]) == ("incomplete", cause)
    if cause == "git-lfs-pointers":
        assert got["pointed_bytes_each"] == 4976698672 and got["pointer_files"] == 1


def test_nothing_there(tmp_path: Path) -> None:
    got = check_model_dir(str(tmp_path / "gone"))
    assert (got["verdict"], got["exists"], got["download_needed"]) == ("restage-needed", False, True)
    (tmp_path / "empty").mkdir()
    assert check_model_dir(str(tmp_path / "empty"))["verdict"] == "restage-needed"


def test_an_empty_tmpfs_is_named_and_a_whole_source_comes_first(tmp_path: Path) -> None:
    source = model(tmp_path / "disk")
    got = check_model_dir("/dev/shm/ddtop-no-such-model", sources=[str(tmp_path / "no"), str(source)])
    assert (
        got["next_action"] == "copy-from-persistent" and not got["download_needed"] and got["persistent_copy"]
    )
    assert str(source) in got["advice"] and [s["verdict"] for s in got["sources"]] == ["absent", "complete"]
    if got["fs"] == "tmpfs":
        assert got["cause"] == "tmpfs-empty"


def test_small_files_of_the_source_count_too(tmp_path: Path) -> None:
    source = model(tmp_path / "disk")
    copy = model(tmp_path / "ram")
    (source / "generation_config.json").write_text("{}")
    got = check_model_dir(str(copy), sources=[str(source)])
    assert (got["verdict"], got["cause"], got["missing"]) == (
        "incomplete",
        "files-missing",
        ["generation_config.json"],
    )
    (copy / "generation_config.json").write_text("{}")
    assert verdict(copy, sources=[str(source)]) == ("complete", "all-shards-present")


def test_config_missing(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "config.json").unlink()
    assert verdict(folder) == ("incomplete", "config-missing")


def test_half_done_files(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    part = folder / "model-00003-of-00003.safetensors"
    part.rename(folder / "model-00003-of-00003.safetensors.ddtop-part")
    now = part.with_name(part.name + ".ddtop-part").stat().st_mtime
    assert verdict(folder, now_s=now + 5) == ("staging", "copy-in-progress")
    assert verdict(folder, now_s=now + 3600) == ("incomplete", "shard-missing")
    assert check_model_dir(str(folder), now_s=now + 3600)["resumable_bytes"] > 20_000


def test_a_left_over_beside_whole_shards(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "x.safetensors.incomplete").write_bytes(b"x")
    later = (folder / "x.safetensors.incomplete").stat().st_mtime + 3600
    assert verdict(folder, now_s=later) == ("incomplete", "partial-files-left")


@pytest.mark.parametrize(
    ("path", "marker"),
    [
        ("blobs/aa.incomplete", True),
        ("m.partial", True),
        (".model-1.safetensors.Ab12Cd", True),
        ("m.safetensors", False),
        (".gitattributes", False),
        ("blobs/aa11.1a2b3c4d.incomplete", True),
        ("model.safetensors.ddtop-part", True),
        ("config.json", False),
        (".cache/huggingface/download/x.lock", False),
    ],
)
def test_markers(path: str, marker: bool) -> None:
    assert is_marker(path) is marker


def test_a_cache_follows_its_links(tmp_path: Path) -> None:
    root = cache(tmp_path / "models--o--n", model(tmp_path / "m"))
    got = check_model_dir(str(root))
    assert (got["verdict"], got["layout"], got["shards"]) == ("complete", "hf-cache", 3)
    assert got["tensor_bytes"] == 60_000, "sizes are those of the files, not of the links"
    assert verdict(root / "snapshots" / "0f1e") == ("complete", "all-shards-present")


def test_a_cache_with_a_blob_gone(tmp_path: Path) -> None:
    root = cache(tmp_path / "models--o--n", model(tmp_path / "m"))
    link = root / "snapshots" / "0f1e" / "model-00002-of-00003.safetensors"
    link.resolve().unlink()
    for path in (root, link.parent):
        got = check_model_dir(str(path))
        assert (got["cause"], got["missing"]) == ("shard-missing", [link.name])


def test_a_truncated_blob(tmp_path: Path) -> None:
    root = cache(tmp_path / "models--o--n", model(tmp_path / "m"))
    blob = (root / "snapshots" / "0f1e" / "model-00002-of-00003.safetensors").resolve()
    os.truncate(blob, 1000)
    assert verdict(root) == ("incomplete", "shard-truncated")


def test_the_revision_that_main_names_is_judged(tmp_path: Path) -> None:
    root = cache(tmp_path / "models--o--n", model(tmp_path / "m"))
    old = root / "snapshots" / "0000"
    old.mkdir()
    (old / "config.json").symlink_to("../../blobs/b0")
    assert verdict(root)[0] == "complete"
    (root / "refs" / "main").write_text("0000\n")
    assert verdict(root) == ("incomplete", "weights-absent")


def test_a_linked_model_folder(tmp_path: Path) -> None:
    model(tmp_path / "m")
    (tmp_path / "link").symlink_to("m")
    assert verdict(tmp_path / "link") == ("complete", "all-shards-present")


def test_a_single_file_model(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", shards=1, index=False)
    (folder / "model-00001-of-00001.safetensors").rename(folder / "model.safetensors")
    assert verdict(folder) == ("complete", "all-shards-present")


def test_gguf(tmp_path: Path) -> None:
    folder = tmp_path / "g"
    folder.mkdir()
    for i in (1, 2, 3):
        (folder / f"m-Q4_K_M-0000{i}-of-00003.gguf").write_bytes(gguf())
    assert verdict(folder) == ("complete", "all-shards-present")
    (folder / "m-Q4_K_M-00002-of-00003.gguf").unlink()
    assert check_model_dir(str(folder))["missing"] == ["m-Q4_K_M-00002-of-00003.gguf"]
    (folder / "m-Q4_K_M-00002-of-00003.gguf").write_bytes(b"\0" * 100)
    assert verdict(folder) == ("incomplete", "shard-corrupt")


def test_torch_shards(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for i in (1, 2):
        with zipfile.ZipFile(folder / f"pytorch_model-0000{i}-of-00002.bin", "w") as archive:
            archive.writestr("data.pkl", b"x" * 5000)
    assert verdict(folder) == ("complete", "all-shards-present")
    os.truncate(folder / "pytorch_model-00002-of-00002.bin", 3000)
    assert verdict(folder) == ("incomplete", "shard-truncated")


def test_hashes_on_request(tmp_path: Path) -> None:
    got = check_model_dir(str(model(tmp_path / "m")), hashes=True)
    assert len(set(got["sha256"].values())) == 1 and len(got["sha256"]) == 3


def test_a_manifest_of_another_boot_is_not_of_this_one(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / MANIFEST).write_text(json.dumps({"boot_id": boot_id()}))
    assert check_model_dir(str(folder))["manifest_this_boot"] is True
    (folder / MANIFEST).write_text(json.dumps({"boot_id": "other"}))
    assert check_model_dir(str(folder))["manifest_this_boot"] is False
    (folder / MANIFEST).write_text("[]")
    assert "manifest" not in check_model_dir(str(folder))


def test_the_index_total_is_held_against_the_tensors(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    text = (folder / "model.safetensors.index.json").read_text()
    (folder / "model.safetensors.index.json").write_text(text.replace("60000", "90000"))
    assert verdict(folder) == ("incomplete", "shard-truncated")


def test_other_shard_names() -> None:
    for pattern in (
        "model.safetensors-{:05d}-of-00004.safetensors",
        "consolidated-{:02d}-of-04.safetensors",
        "x_{:05d}-of-00004.safetensors",
    ):
        entries = [Entry("config.json", size=10)] + [
            Entry(f"d/{pattern.format(i)}", size=100) for i in (1, 2, 4)
        ]
        got = judge(entries)
        assert got["missing"] == [pattern.format(3)], pattern


def test_on_the_oldest_python(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "model-00002-of-00003.safetensors").unlink()
    code = "import json,sys; sys.path.insert(0, sys.argv[1]); from ddtop.agent.model.check import check_model_dir as c; print(json.dumps(c(sys.argv[2], sources=[sys.argv[2]])))"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [str(OLD_PYTHON), "-I", "-S", "-c", code, str(root), str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    got = json.loads(done.stdout)
    same = check_model_dir(str(folder), sources=[str(folder)])
    for key in ("verdict", "cause", "missing", "present", "sources"):
        assert got[key] == same[key]


def test_it_imports_nothing_of_ddtop_and_no_package() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import ddtop.agent.model.check; print([m for m in sys.modules if m.startswith('ddtop') and not m.startswith('ddtop.agent') and m != 'ddtop'], 'msgspec' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(Path(__file__).parents[2])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[] False"


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["a.safetensors", "a.gguf", "a.bin", "a.pt"]))
def test_any_bytes_have_a_head(data: bytes, name: str) -> None:
    import io

    head = read_head(name, len(data), io.BytesIO(data))
    assert head.fault or name != "a.safetensors" or head.need is not None
    read_index(data)


names = st.sampled_from(
    [
        "config.json",
        "model-00001-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
        "x.gguf",
        "blobs/a",
        "snapshots/r/model.safetensors",
        "a.incomplete",
        "model-00000-of-99999999.bin",
        "",
        "..",
        "/",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.builds(Entry, names, st.sampled_from("fdl"), st.integers(0, 10**12), st.none() | names),
        max_size=10,
    )
)
def test_any_listing_has_a_verdict(entries: list[Entry]) -> None:
    got = judge(entries)
    assert got["verdict"] in {"complete", "incomplete", "staging", "inconsistent", "restage-needed"}
