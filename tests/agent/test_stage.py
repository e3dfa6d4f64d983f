"""Staging: real files, interrupted, damaged, from a cache, without room, by a (SIMULATED) hf tool."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from ddtop.agent.errors import JobFailedError
from ddtop.agent.model.check import MANIFEST, boot_id
from ddtop.agent.model.download import announced_size, download_words, parse_source
from ddtop.agent.model.progress import Meter
from ddtop.agent.model.stage import PARTIAL, list_files, space_problem, stage
from tests.agent.helpers import agent
from tests.agent.job_results import collect_job

SHARD_B = 300_000


def shard(size: int, fill: int) -> bytes:
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes([fill]) * size


def make_model(folder: Path, shards: int = 3, size: int = SHARD_B) -> Path:
    folder.mkdir(parents=True)
    names = [f"model-{i:05d}-of-{shards:05d}.safetensors" for i in range(1, shards + 1)]
    for i, name in enumerate(names):
        (folder / name).write_bytes(shard(size, i + 1))
    weights = {f"w{i}": name for i, name in enumerate(names)}
    index = {"metadata": {"total_size": size * shards}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"architectures": ["X"]}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def same(source: Path, target: Path) -> bool:
    files = [f for f in source.rglob("*") if f.is_file()]
    return all((target / f.relative_to(source)).read_bytes() == f.read_bytes() for f in files)


def run(path: Path, *sources: Path | str, **more: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    stage({"path": str(path), "sources": [str(s) for s in sources], **more}, told.append)
    return told


def test_copies_whole_and_writes_the_manifest_last(tmp_path: Path) -> None:
    source = make_model(tmp_path / "src")
    told = run(tmp_path / "dst", source)
    assert same(source, tmp_path / "dst")
    manifest = json.loads((tmp_path / "dst" / MANIFEST).read_text())
    assert manifest["boot_id"] == boot_id()
    assert manifest["files"]["config.json"]["size"] == (source / "config.json").stat().st_size
    assert told[0]["state"] == "checking"
    assert told[-1]["state"] == "done"
    assert told[-1]["bytes_done"] == told[-1]["bytes_total"] == sum(f.size for f in list_files(str(source)))
    assert told[-1]["files_done"] == told[-1]["files"] == 7
    assert not list((tmp_path / "dst").glob("*" + PARTIAL))
    newest = max((tmp_path / "dst").iterdir(), key=lambda p: p.stat().st_ctime_ns)
    assert newest.name == MANIFEST


def test_only_what_is_missing_or_damaged_is_copied(tmp_path: Path) -> None:
    source = make_model(tmp_path / "src")
    target = tmp_path / "dst"
    run(target, source)
    kept = (target / "model-00001-of-00003.safetensors").stat().st_ino
    (target / "model-00002-of-00003.safetensors").unlink()
    third = target / "model-00003-of-00003.safetensors"
    size = third.stat().st_size
    third.unlink()
    with third.open("wb") as file:
        file.truncate(size)  # the right size, and all holes
    (target / "user.txt").write_text("not ours")
    told = run(target, source)
    assert same(source, target)
    assert (target / "model-00001-of-00003.safetensors").stat().st_ino == kept
    assert (target / "user.txt").read_text() == "not ours"
    begun = next(item for item in told if item["state"] == "copying")
    assert begun["files_done"] == 5


def test_an_interrupted_copy_goes_on_where_it_was(tmp_path: Path) -> None:
    source = make_model(tmp_path / "src", shards=1)
    target = tmp_path / "dst"
    target.mkdir()
    (file,) = [f for f in list_files(str(source)) if f.name.endswith(".safetensors")]
    part = target / f"{file.name}.{file.size:x}-{file.mtime_ns:x}{PARTIAL}"
    part.write_bytes(Path(file.source).read_bytes()[:100_000])
    stale = target / f"{file.name}.1-2{PARTIAL}"
    stale.write_bytes(b"of another source")
    inode = part.stat().st_ino
    run(target, source)
    assert same(source, target)
    assert (target / file.name).stat().st_ino == inode, "the part became the file"
    assert not stale.exists()


def test_a_hugging_face_cache_is_a_source(tmp_path: Path) -> None:
    real = make_model(tmp_path / "real")
    cache = tmp_path / "models--org--name"
    snapshot = cache / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("a" * 40)
    for i, file in enumerate(sorted(real.iterdir())):
        blob = cache / "blobs" / f"{i:064x}"
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    run(tmp_path / "dst", tmp_path / "absent", cache)
    assert same(real, tmp_path / "dst")
    assert not (tmp_path / "dst" / "config.json").is_symlink()


def test_a_source_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    broken = make_model(tmp_path / "broken")
    (broken / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(JobFailedError) as caught:
        run(tmp_path / "dst", broken, tmp_path / "nowhere")
    assert str(broken) in str(caught.value)
    assert "incomplete" in str(caught.value)
    assert not (tmp_path / "dst").exists(), "nothing is begun"
    good = make_model(tmp_path / "good")
    run(tmp_path / "dst", broken, good)
    assert same(good, tmp_path / "dst")


def test_no_room_is_said_before_anything_is_copied(tmp_path: Path, tiny_tmpfs: Path) -> None:
    source = make_model(tmp_path / "src")
    with pytest.raises(JobFailedError, match="no room for the model"):
        run(tiny_tmpfs / "dst", source)
    assert not list((tiny_tmpfs / "dst").iterdir())
    small = make_model(tmp_path / "small", size=20_000)
    run(tiny_tmpfs / "dst2", small)
    assert same(small, tiny_tmpfs / "dst2")


GIB = 1 << 30


@pytest.mark.parametrize(
    ("need", "free", "reserve", "tmpfs", "mem", "words"),
    [
        (52 * GIB, 60 * GIB, 2 * GIB, True, {"available_b": 200 * GIB}, ""),
        (52 * GIB, 53 * GIB, 2 * GIB, True, {"available_b": 200 * GIB}, "53.0 GiB are free"),
        (14 << 20, 4 << 20, 100 << 20, True, {}, "14 MiB are needed (and 100 MiB left free), 4 MiB are free"),
        (52 * GIB, 90 * GIB, 2 * GIB, True, {"available_b": 40 * GIB}, "40.0 GiB are available"),
        (52 * GIB, 90 * GIB, 2 * GIB, False, {"available_b": 40 * GIB}, ""),
        (52 * GIB, 90 * GIB, 0, True, {"available_b": 99 * GIB, "cgroup_limit_b": 32 * GIB}, "memory.max"),
        (52 * GIB, 90 * GIB, 0, True, {"cgroup_limit_b": 60 * GIB, "cgroup_used_b": 20 * GIB}, "memory.max"),
        (0, 0, 0, True, {}, ""),
    ],
)
def test_space(need: int, free: int, reserve: int, tmpfs: bool, mem: dict[str, Any], words: str) -> None:
    problem = space_problem(need, free, reserve, tmpfs, mem)
    assert (words in problem) if words else problem == ""


def test_the_rate_is_of_the_last_30_seconds() -> None:
    meter = Meter()
    done = 0
    for second in range(120):
        done += (6000 if second < 60 else 1000) << 20
        rate = meter.rate(float(second), done)
    assert rate == pytest.approx(1000, rel=0.05), "an SLC cache's end must show"


HF = """#!/bin/sh
# SIMULATED hf tool
echo "$@" > {args}
[ "$FAIL" ] && echo "Repository Not Found" >&2 && exit 1
cp -r {model}/. "$4"/
"""


def test_download_by_the_hosts_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(tmp_path / "hub")
    tool = tmp_path / "hf"
    tool.write_text(HF.format(args=tmp_path / "args", model=model))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = run(tmp_path / "dst", "hf:org/name@v1")
    assert (tmp_path / "args").read_text().split() == [
        "download",
        "org/name",
        "--local-dir",
        str(tmp_path / "dst"),
        "--revision",
        "v1",
    ]
    assert same(model, tmp_path / "dst")
    assert "downloading" in {item["state"] for item in told}
    assert json.loads((tmp_path / "dst" / MANIFEST).read_text())["source"] == "hf:org/name@v1"
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(JobFailedError, match="Repository Not Found"):
        run(tmp_path / "dst2", "hf:org/none")


def test_the_index_tells_how_much_is_to_come(tmp_path: Path) -> None:
    assert announced_size(str(tmp_path)) is None
    index = tmp_path / "model.safetensors.index.json"
    for text, size in (("{", None), ("[]", None), ('{"metadata": {"total_size": 52}}', 52), ("{}", None)):
        index.write_text(text)
        assert announced_size(str(tmp_path)) == size


def test_no_tool_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(JobFailedError, match="pip install"):
        run(tmp_path / "dst", "hf:org/name")


def test_names_of_downloads() -> None:
    assert parse_source("hf:Qwen/Qwen3.6-27B") == ("Qwen/Qwen3.6-27B", None)
    assert download_words("hf", "a/b", None, "/x") == ["hf", "download", "a/b", "--local-dir", "/x"]
    for bad in ("hf:", "hf:a", "hf:a/b/c", "hf:a/b@", "hf:-x/y;z"):
        with pytest.raises(JobFailedError):
            parse_source(bad)


async def test_as_a_job(state_dir: Path, tmp_path: Path) -> None:
    source = make_model(tmp_path / "src")
    async with agent(state_dir) as host:
        spec = {"path": str(tmp_path / "dst"), "sources": [str(source)]}
        await host.call("job-start", job="stage-1", kind="stage", spec=spec)
        async with host.stream("job-watch", job="stage-1") as batches:
            items = [item async for batch in batches for item in batch]
        assert items[-1]["state"]["state"] == "done", items[-1]
        assert items[-1]["state"]["progress"]["bytes_done"] == items[-1]["state"]["progress"]["bytes_total"]
        assert (await host.call("model-check", path=str(tmp_path / "dst")))["verdict"] == "complete"
        spec = {"path": str(tmp_path / "dst2"), "sources": [str(tmp_path / "none")]}
        await host.call("job-start", job="stage-2", kind="stage", spec=spec)
        async with host.stream("job-watch", job="stage-2") as batches:
            last = [item async for batch in batches for item in batch][-1]
        assert "no source holds a whole copy" in last["state"]["why"]
        assert (await collect_job(host, "stage-2"))[0] == {}
