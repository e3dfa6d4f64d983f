"""The demo's engine: which configuration is best depends on the load, and a start may be told to fail by a cut file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtop.demo import faults
from ddtop.demo.speed import Speed

CONFIGURATIONS = {
    "auto": Speed.of(algorithm=None, draft_tokens=None, budget=None),
    "linear": Speed.of(algorithm="DFLASH", draft_tokens=4, budget=None),
    "b16": Speed.of(algorithm="DDTREE", draft_tokens=None, budget=16),
    "b64": Speed.of(algorithm="DDTREE", draft_tokens=None, budget=64),
}


def tok_s(name: str, streams: int) -> float:
    speed = CONFIGURATIONS[name]
    return streams * speed.acceptance / speed.step_s(streams)


def test_without_speculation_one_stream_has_the_speed_of_the_real_machine() -> None:
    assert tok_s("auto", 1) == pytest.approx(26, rel=0.01)


@pytest.mark.parametrize(("streams", "best"), [(1, "b16"), (16, "linear"), (256, "auto")])
def test_the_best_configuration_depends_on_the_load(streams: int, best: str) -> None:
    assert max(CONFIGURATIONS, key=lambda name: tok_s(name, streams)) == best


def test_a_start_that_is_told_so_finds_a_file_that_was_cut_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = tmp_path / "model-00001-of-00001.safetensors"
    shard.write_bytes(bytes(1000))
    monkeypatch.setenv("DDTOP_DEMO_DIR", str(tmp_path))
    monkeypatch.setenv("SIM_FAIL_FIRST_START", "cut-shard")
    assert "SafetensorError" in str(faults.failure(tmp_path))
    assert shard.stat().st_size == 500
    assert faults.failure(tmp_path) is None
