"""Logins as they are on shared machines: a user's own service, processes ended at logout, noise."""

from tests.bed import trouble
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
