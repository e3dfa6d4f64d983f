"""What a server runs on: a real process, real package and git folders; nvidia-smi is SIMULATED (tests/agent/test_gpu.py)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtop.agent.gpu.settings import table_of
from ddtop.agent.model.identity import HEADS, WHOLE, model_identity
from ddtop.agent.provenance import git_head, revision_of
from tests.agent.helpers import agent

COMMIT = "a" * 40
OTHER = "b" * 40


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages: one from git, one linked to a git tree, one plain, one that does not matter."""
    folder = tmp_path / "packages"
    for name in ("vllm-0.11.1rc2", "sglang-0.5.23", "torch-2.9.0", "requests-2.0"):
        (folder / f"{name}.dist-info").mkdir(parents=True)
    (folder / "vllm-0.11.1rc2.dist-info" / "direct_url.json").write_text(
        json.dumps({"url": "https://github.com/x/vllm", "vcs_info": {"vcs": "git", "commit_id": COMMIT}})
    )
    tree = tmp_path / "tree"
    (tree / ".git" / "refs" / "heads").mkdir(parents=True)
    (tree / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tree / ".git" / "refs" / "heads" / "main").write_text(OTHER + "\n")
    (tree / "python").mkdir()
    (folder / "sglang-0.5.23.dist-info" / "direct_url.json").write_text(
        json.dumps({"url": f"file://{tree}/python", "dir_info": {"editable": True}})
    )
    return folder


@pytest.fixture
def server(packages: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HF_TOKEN": "never-to-be-seen",
        "VLLM_API_KEY": "never-to-be-seen",
        "LESS": "of no matter",
        "NVIDIA_REQUIRE_CUDA": "of no matter",
        "NVIDIA_VISIBLE_DEVICES": "all",
    }
    child = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1, env=env
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()


@pytest.mark.process
async def test_a_running_server(
    tmp_path: Path, server: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        f"""#!/bin/sh
case "$*" in
  *compute-apps*) echo "gpu_uuid, pid"; echo "GPU-b, {server.pid}"; echo "GPU-c, 1";;
  *query-gpu*) echo "index, uuid"
    for f in GPU-a GPU-b; do
      n=0; line=""
      for name in $(echo "$1" | sed 's/.*=//; s/,/ /g'); do
        case $name in index) v=$([ $f = GPU-a ] && echo 0 || echo 1);; uuid) v=$f;; driver_version) v=580.95.05;;
          power.limit) v="700.00 W";; ecc.mode.current) v=Enabled;; *) v="[N/A]";; esac
        line="$line$v, "
      done; echo "${{line%, }}"
    done;;
  *version*) echo "CUDA Version        : 13.0";;
  *topo*) printf '\\t\\033[4mGPU0\\tGPU1\\033[0m\\nGPU0\\t X \\tNV18\\n\\nLegend:\\n\\n  X = Self\\n';;
esac
"""
    )
    smi.chmod(0o755)
    env = {**os.environ, "PATH": f"{smi.parent}:{os.environ['PATH']}"}
    async with agent(tmp_path / "state", env=env) as host:
        answer = await host.call(
            "provenance", pid=server.pid, main_pid=server.pid, model=str(tmp_path / "tree")
        )
    facts, unknown = answer["facts"], answer["unknown"]
    assert facts["held"] == ["GPU-b"]
    assert facts["gpu"]["gpus"][1] == {
        "index": "1",
        "uuid": "GPU-b",
        "driver_version": "580.95.05",
        "power.limit": "700.00 W",
        "ecc.mode.current": "Enabled",
    }
    assert (facts["gpu"]["driver"], facts["gpu"]["cuda"]) == ("580.95.05", "13.0")
    assert facts["gpu"]["topology"] == "\tGPU0\tGPU1\nGPU0\t X \tNV18"
    assert facts["packages"] == {
        "vllm": {"version": "0.11.1rc2", "revision": COMMIT},
        "sglang": {"version": "0.5.23", "revision": OTHER},
        "torch": {"version": "2.9.0"},
    }
    assert facts["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert facts["environment"]["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert "of no matter" not in facts["environment"].values()
    assert "never-to-be-seen" not in json.dumps(answer)
    assert facts["command"][0] == sys.executable
    assert facts["machine"]["kernel"] == os.uname().release
    assert facts["machine"]["server_cpus"]
    assert unknown == {"model": f"{tmp_path / 'tree'}: no files"}  # of a model: .git is none


@pytest.mark.process
async def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": "/nonexistent"}
    async with agent(tmp_path / "state", env=env) as host:
        answer = await host.call("provenance", pid=2**22 - 1, model="/nonexistent")
    assert answer["unknown"]["held"] == "there is no nvidia-smi on this host"
    assert answer["unknown"]["environment"].startswith("this login may not read the environment")
    assert "model" in answer["unknown"]


def test_a_gpus_settings_are_those_it_tells() -> None:
    rows = table_of("a, b [W]\n0, [N/A]\n1, 5 W\nnoise\n2, [Not Supported]\n", ["index", "power.limit"])
    assert rows == [{"index": "0"}, {"index": "1", "power.limit": "5 W"}, {"index": "2"}]


def test_the_commit_of_a_tree(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/x\n")
    assert git_head(str(tmp_path)) is None
    (git / "packed-refs").write_text(f"# pack-refs\n{COMMIT} refs/heads/x\n")
    assert git_head(str(tmp_path)) == COMMIT
    (git / "HEAD").write_text(OTHER)
    assert git_head(str(tmp_path)) == OTHER
    assert revision_of(str(tmp_path)) is None


def test_a_downloads_notes_name_the_commit_and_the_content(tmp_path: Path) -> None:
    notes = tmp_path / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    big = tmp_path / "model.safetensors"
    big.write_bytes(b"\0" * (5 << 20))
    (tmp_path / "config.json").write_text("{}")
    assert model_identity(str(tmp_path))["covers"] == HEADS
    digest = hashlib.sha256(big.read_bytes()).hexdigest()
    (notes / "model.safetensors.metadata").write_text(f"{COMMIT}\n{digest}\n1700000000.0\n")
    (notes / "config.json.metadata").write_text(f"{COMMIT}\n{'c' * 40}\n1700000000.0\n")
    first = model_identity(str(tmp_path))
    assert (first["revision"], first["covers"], first["files"]) == (COMMIT, WHOLE, 2)
    (tmp_path / "config.json").write_text("[]")
    assert model_identity(str(tmp_path))["sha256"] != first["sha256"]


def test_the_hubs_cache_names_files_by_their_content(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / COMMIT
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / ("d" * 64)).write_bytes(b"\1" * (5 << 20))
    (snapshot / "model.safetensors").symlink_to(blobs / ("d" * 64))
    found = model_identity(str(snapshot))
    assert (found["revision"], found["covers"], found["size_b"]) == (COMMIT, WHOLE, 5 << 20)


def test_one_file_is_a_model_too(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    assert model_identity(str(path))["files"] == 1
    with pytest.raises(OSError, match="no files"):
        model_identity(str(tmp_path / "nothing"))
