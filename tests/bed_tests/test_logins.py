"""Logins as they are on shared machines: a user's own service, processes ended at logout, noise."""

from tests.bed import trouble
from tests.bed.oracle import diff
from tests.bed_tests.helpers import until


def test_a_users_own_service_runs_and_writes_the_ledger(ct200):
    ct200.fault("SPEED=20")
    ct200.stage()
    ct200.ssh("systemctl --user start sglang-user", user="bench")
    assert ct200.wait("ready")["unit"] == "sglang-user.service"


def test_a_logout_can_end_processes_and_delete_what_the_user_staged(ct200):
    trouble.kill_user_processes(ct200.bed, "ct200")
    ct200.ssh(
        "nohup sleep 1000 >/dev/null 2>&1 & mkdir -p /dev/shm/mine && echo weights > /dev/shm/mine/x; ls /dev/shm/mine",
        user="bench",
    )
    until(lambda: "sleep 1000" not in " ".join(ct200.snapshot()["processes"]))
    until(lambda: ct200.sh("ls /dev/shm/mine 2>/dev/null || true") == "")


def test_a_noisy_login_speaks_before_the_command(ct200):
    trouble.noisy_login(ct200.bed, "ct200")
    assert ct200.ssh("echo here") == "Welcome to the GPU farm\nhere\n"
    ct200.restore()
    assert ct200.ssh("echo here") == "here\n"


def test_a_users_drop_ins_and_transient_units_are_seen_and_removed(ct200):
    before = ct200.snapshot()
    ct200.ssh(
        "mkdir -p ~/.config/systemd/user/sglang-user.service.d && printf '[Service]\\nNice=1\\n' > ~/.config/systemd/user/sglang-user.service.d/x.conf",
        user="bench",
    )
    ct200.ssh(
        "sudo -n loginctl enable-linger bench && systemd-run --user -q --unit=ddtop-left sleep 1000",
        user="bench",
    )
    lines = "\n".join(diff(before, ct200.snapshot()))
    assert (
        "sglang-user.service.d/x.conf" in lines
        and "transient/ddtop-left.service" in lines
        and "sleep 1000" in lines
    )
    ct200.restore()
    assert ct200.settled(before) == []


def test_after_a_reboot_any_user_may_hold_a_gpu(ct200):
    ct200.reboot(dark_s=0.2)
    ct200.fault("SPEED=20")
    ct200.sh("mkdir /dev/shm/Qwen3.6-27B && cp -r /data/models/Qwen3.6-27B/. /dev/shm/Qwen3.6-27B/")
    ct200.ssh("systemctl --user start sglang-user", user="bench")
    assert ct200.wait("ready")["unit"] == "sglang-user.service"


def test_a_plain_user_may_nothing(ct200):
    assert "a password is required" in ct200.ssh("sudo -n true 2>&1; true", user="plain")
    assert "sglang" not in ct200.ssh(
        "journalctl -u sglang-bench -o cat --no-pager 2>/dev/null; true", user="plain"
    )
    assert "access denied" in ct200.ssh("systemctl start sglang-bench 2>&1; true", user="plain").lower()


def test_a_rented_container_has_sshd_and_no_systemd(ct200):
    name = trouble.rent(ct200.bed, "ct200")
    assert ct200.bed.ssh(name, "hostname; cat /proc/1/comm").split() == ["rented", "rented-containe"]
    assert "not been booted with systemd" in ct200.bed.ssh(name, "systemctl status 2>&1; true")
    assert ct200.bed.ssh(name, "journalctl -n 5 --no-pager -o cat 2>/dev/null; true") == ""
    same = "cat /proc/sys/kernel/random/boot_id"
    assert ct200.bed.ssh(name, same) == ct200.sh(same)
    ct200.fault("SPEED=20")
    command = "cp -r /data/models/Qwen3.6-27B /dev/shm/; cd /; setsid /opt/sglang/bin/python -m sglang.launch_server --model-path /dev/shm/Qwen3.6-27B > /tmp/log 2>&1 < /dev/null &"
    ct200.bed.ssh(name, command)
    assert ct200.wait("ready")["unit"] == "rented.service"
    assert (
        int(ct200.bed.ssh(name, "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0"))
        > 80000
    )
    ct200.restore()
    assert "rented.service" not in ct200.snapshot()["units"]
