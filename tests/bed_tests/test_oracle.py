"""The judge: snapshots that differ by what was left behind, and a reset that leaves nothing."""

from tests.bed import trouble
from tests.bed.oracle import diff, served_once
from tests.bed_tests.helpers import until


def test_nothing_changed_is_an_empty_diff(ct200):
    before = ct200.snapshot()
    ct200.ssh("true", user="bench")
    assert ct200.settled(before, timeout_s=3) == []


def test_every_kind_of_remains_is_named_and_restore_removes_it(ct200):
    ct200.sh("systemctl start sglang-bench")  # fails, without its model, and so stays loaded
    until(lambda: "failed/failed" in ct200.snapshot()["units"].values())
    before = ct200.snapshot()
    trouble.dropin(
        ct200.bed, "ct200", "sglang-bench.service", "[Service]\nNice=1\n", "50-x.conf", "/run/systemd/system"
    )
    ct200.sh("echo '# edited' >> /etc/systemd/system/sglang-bench.service")
    ct200.sh(
        "systemd-run -q --unit=ddtop-left sleep 1000; mkdir /dev/shm/x; echo abc > /dev/shm/x/model.part; rm /data/models/Qwen3.6-27B/config.json"
    )
    lines = "\n".join(diff(before, ct200.snapshot()))
    for part in (
        "unit file new: /run/systemd/system/sglang-bench.service.d/50-x.conf",
        "unit file changed: /etc/systemd/system/sglang-bench.service",
        "unit new: ddtop-left.service (active/running)",
        "sleep 1000",
        "model file new: /dev/shm/x/model.part (4)",
        "model file gone: /data/models/Qwen3.6-27B/config.json",
        "needs daemon-reload: sglang-bench.service",
    ):
        assert part in lines, lines
    ct200.restore()
    assert diff(before, ct200.snapshot()) == ["unit gone: sglang-bench.service (was failed/failed)"]


def test_snapshot_and_ledger_are_read_while_the_link_is_cut(b300):
    b300.cut()
    assert b300.snapshot()["units"]["ssh.service"] == "active/running"
    assert [e["event"] for e in b300.ledger()] == ["restored"]


def test_served_once_counts_whole_answers_only():
    seen = [
        {"outcome": "length", "prompt_sha": "a"},
        {"outcome": "gone", "prompt_sha": "a"},
        {"outcome": "stop", "prompt_sha": "b"},
    ]
    assert served_once(seen) == {"a": 1, "b": 1}
