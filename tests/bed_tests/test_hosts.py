"""The hosts are real systems: boot, login, reboot, power loss, links."""

import socket
import subprocess

import pytest

from tests.bed_tests.helpers import until


def identity(host):
    return host.sh("cat /proc/sys/kernel/random/boot_id").strip()


def test_boots_to_a_clean_systemd_and_takes_logins(ct200, b300):
    assert ct200.sh("cat /proc/1/comm").strip() == "systemd"
    assert ct200.sh("systemctl is-system-running").strip() == "running"
    assert identity(ct200) != identity(b300)
    assert ct200.ssh("hostname; id -u").split() == ["ct200", "0"]
    assert ct200.ssh("sudo -n id -u", user="bench").strip() == "0"
    assert ct200.sh("ip route get 192.0.2.1", check=False) == ""  # no way out of the bed


def test_reboot_gives_a_new_boot_and_an_empty_shm_and_keeps_the_disk(ct200):
    before = identity(ct200)
    ct200.stage()
    ct200.sh("echo kept > /root/on-disk; nvidia-smi -pl 400")
    ct200.fault(LOAD_S=1)
    ct200.reboot(dark_s=0.2)
    assert identity(ct200) != before
    assert ct200.sh("ls /dev/shm") == ""
    assert ct200.sh("cat /root/on-disk; rm /root/on-disk").strip() == "kept"
    assert float(ct200.sh("cut -d' ' -f1 /proc/uptime")) < 30
    assert "400" not in ct200.sh("nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits -i 0")
    assert [e["event"] for e in ct200.ledger()] == ["restored"]  # the ledger outlives the boot


def test_power_loss_is_silent(b300):
    before = identity(b300)
    with socket.create_connection((b300.spec.ip, 22), 2) as conn:
        conn.settimeout(0.5)
        assert conn.recv(8).startswith(b"SSH-")
        while True:  # the rest of the greeting
            try:
                conn.recv(4096)
            except TimeoutError:
                break
        b300.kill()
        until(lambda: b300.bed.status()["hosts"]["b300"]["state"] == "off")
        with pytest.raises(TimeoutError):
            conn.recv(1)  # neither FIN nor RST
    b300.bed.on("b300")
    assert identity(b300) != before


def test_links_can_be_cut_hidden_and_delayed(ct200, b300):
    address = (ct200.spec.ip, 22)
    ct200.cut()
    with pytest.raises(TimeoutError):
        socket.create_connection(address, 0.3)
    assert ct200.sh("echo out of band").strip() == "out of band"
    ct200.heal()
    ct200.hide()
    with pytest.raises(TimeoutError):
        socket.create_connection(address, 0.3)
    via = subprocess.run(
        ["ssh", "-F", ct200.bed.ssh_config, "ct200-via-b300", "hostname"], capture_output=True, text=True
    )
    assert via.stdout.strip() == "ct200", via.stderr
    ct200.heal()
    ct200.delay(200)
    with pytest.raises(TimeoutError):
        socket.create_connection(address, 0.15)
    ct200.heal()
    socket.create_connection(address, 1).close()


def test_a_reset_host_has_another_key_until_it_is_trusted(b300):
    b300.sh("touch /root/old-disk")
    b300.reset(dark_s=0.2)
    login = ["ssh", "-F", b300.bed.ssh_config, "b300", "ls /root"]
    refused = subprocess.run(login, capture_output=True, text=True)
    assert refused.returncode == 255 and "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    b300.bed.trust()
    assert "old-disk" not in subprocess.run(login, capture_output=True, text=True, check=True).stdout
