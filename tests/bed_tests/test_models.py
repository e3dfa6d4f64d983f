"""Models: fetched by the stand-in of `hf`, large, lost, and a tmpfs without room."""

from tests.bed import trouble


def test_hf_download_lays_a_whole_model_down_and_can_be_cut(ct200):
    trouble.lose_source(ct200.bed, "ct200", cached_metadata="Qwen/Qwen3.6-27B")
    assert ct200.sh("ls /data/models").split() == ["Qwen3.6-27B-DFlash", "SmolLM2-135M"]
    ct200.fault("HF_S=0.4", "HF_FAULT=cut:5")
    command = "hf download Qwen/Qwen3.6-27B --local-dir /dev/shm/Qwen3.6-27B"
    assert "Connection reset" in ct200.sh(f"{command} 2>&1; true")
    assert ct200.sh("find /dev/shm -name '*.incomplete'") != ""
    ct200.fault("HF_S=0.4", "SPEED=20")
    assert ct200.sh(command).strip() == "/dev/shm/Qwen3.6-27B"
    ct200.sh("systemctl start sglang-bench")
    assert ct200.wait("ready")


def test_sizes_and_room(ct200):
    trouble.big_model(ct200.bed, "ct200", 4)
    assert int(ct200.sh("du -sm /data/models/Qwen3.6-27B").split()[0]) == 57
    trouble.fill_shm(ct200.bed, "ct200", 20)
    assert "No space left" in ct200.sh("cp -r /data/models/Qwen3.6-27B /dev/shm/ 2>&1; true")
    ct200.restore()
    assert int(ct200.sh("du -sm /data/models/Qwen3.6-27B").split()[0]) == 15
    assert ct200.sh("ls /dev/shm") == ""
