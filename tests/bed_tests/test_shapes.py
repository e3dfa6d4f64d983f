"""Starts that look dead: the healthy one gets ready, its twin stops for good; all of them side by side."""

from tests.bed_tests.helpers import until

NAMES = [
    "slow-load",
    "silent-memory",
    "reading",
    "compile",
    "cache",
    "capture",
    "waiting",
    "bursts",
    "draft",
    "nccl",
    "warm",
    "mount",
]
MODEL = "/data/models/Qwen3.6-27B-DFlash"  # 3 GiB: several fit on a GPU


def begin(host, names, first_port):
    faults = ["SPEED=30", "LOAD_S=2", "SHAPE_S=20", "SHAPE_GAP_S=5"]
    for i, name in enumerate(names):
        faults += [f"WHEN=--port {first_port + i}", f"SHAPE={name}"]
    host.fault(*faults)
    for i, name in enumerate(names):
        host.sh(
            f"systemd-run -q --unit=shape-{name} -E CUDA_VISIBLE_DEVICES={i % 8} /opt/sglang/bin/python -m sglang.launch_server "
            f"--model-path {MODEL} --port {first_port + i} --mem-fraction-static 0.1"
        )


def test_healthy_shapes_get_ready(ct200):
    begin(ct200, NAMES, 31000)
    until(lambda: len(ct200.ledger("ready")) == len(NAMES), 30)
    assert ct200.faults() == []
    assert {e["kind"] for e in ct200.ledger("shape")} == set(NAMES) - {"slow-load"}


def test_their_dead_twins_never_do(ct200):
    names = [n + "-dead" for n in NAMES]
    begin(ct200, names, 32000)
    until(lambda: {e["kind"] for e in ct200.faults()} == {f"shape:{n}" for n in names}, 30)
    assert ct200.ledger("ready") == []
    assert "nvcc" in ct200.sh("cat /proc/[0-9]*/comm")


def test_a_slow_stop_and_one_that_never_comes(ct200):
    ct200.stage()
    ct200.fault("SPEED=40", "LOAD_S=1", "SHAPE=drain")
    ct200.sh("systemctl start sglang-bench")
    ct200.wait("ready")
    ct200.sh("systemctl stop sglang-bench")
    took_s = (ct200.ledger("exit")[0]["t_ns"] - ct200.ledger("sigterm")[0]["t_ns"]) / 1e9
    assert 0.7 < took_s < 5
    ct200.fault("SPEED=20", "LOAD_S=1", "SHAPE=drain-dead")
    ct200.sh("systemctl start sglang-bench")
    until(lambda: len(ct200.ledger("ready")) == 2)
    ct200.sh("systemctl --no-block stop sglang-bench")
    ct200.wait("fault", kind="ignores-sigterm")
    assert ct200.sh("systemctl show sglang-bench -P ActiveState").strip() == "deactivating"
