"""Who listens: real sockets of this machine, and the forms of /proc and ss."""

import os
import socket
from pathlib import Path

import pytest

from ddtop.agent.host import ports
from ddtop.agent.host.facts import boot_identity, parse_cgroup, start_ticks_of, unit_of_cgroup
from ddtop.agent.host.ports import address, container_of, find_listeners, parse_listeners, parse_ss
from ddtop.agent.host.processes import descendants, describe, start_ticks


def test_a_real_listener_is_ours() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        (row,) = find_listeners(port)
        assert (row["addr"], row["port"], row["pid"]) == ("127.0.0.1", port, os.getpid())
        assert row["comm"]
    assert find_listeners(port) == []


def test_two_listeners_on_one_port_are_both_seen() -> None:
    with socket.socket() as one, socket.socket() as two, socket.socket(socket.AF_INET6) as six:
        for sock in (one, two, six):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        two.bind(("127.0.0.1", port))
        six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        six.bind(("::", port))
        for sock in (one, two, six):
            sock.listen()
        rows = find_listeners(port)
        assert sorted(row["addr"] for row in rows) == ["127.0.0.1", "127.0.0.1", "::"]
        assert len({row["inode"] for row in rows}) == 3


def test_connections_are_no_listeners() -> None:
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 72671 1 x 100\n"
        "   1: 0100007F:7530 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 72672 1 x 100\n"
    )
    assert parse_listeners(text, 30000) == [{"addr": "127.0.0.1", "port": 30000, "inode": 72671}]
    assert parse_listeners(text, 1) == []


@pytest.mark.parametrize(
    ("hex_text", "text"),
    [
        ("00000000", "0.0.0.0"),
        ("0100007F", "127.0.0.1"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "::ffff:127.0.0.1"),
    ],
)
def test_addresses(hex_text: str, text: str) -> None:
    assert address(hex_text) in (text, text.replace("127.0.0.1", "7f00:1"))


def test_ss_of_the_facts() -> None:
    line = (
        'LISTEN 0 128 0.0.0.0:30000 0.0.0.0:* users:(("python3",pid=1180,fd=3)) ino:72671 sk:1 cgroup:/a <->'
    )
    assert parse_ss(line) == {72671: 1180}
    assert parse_ss('LISTEN 0 5 *:80 *:* users:(("a\\"b",pid=3,fd=4),("c",pid=9,fd=4)) ino:5 sk:1') == {5: 3}
    assert parse_ss("LISTEN 0 5 *:80 *:* ino:5 sk:1") == {}


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        ("/system.slice/docker-0123456789abcdef0123.scope", "0123456789abcdef0123"),
        ("/docker/0123456789abcdef", "0123456789abcdef"),
        ("/machine.slice/libpod-abcdef0123456789.scope/container", "abcdef0123456789"),
        ("/system.slice/sglang-bench.service", None),
        (None, None),
    ],
)
def test_containers(cgroup: str | None, container: str | None) -> None:
    assert container_of(cgroup) == container


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("/system.slice/sglang-bench.service", "sglang-bench.service"),
        ("/system.slice/system-vllm.slice/vllm@1.service/payload", "vllm@1.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/job.service", "job.service"),
        ("/user.slice/user-1000.slice/session-7.scope", "session-7.scope"),
        ("/init.scope", "init.scope"),
        ("/", None),
        (None, None),
    ],
)
def test_units_of_cgroups(cgroup: str | None, unit: str | None) -> None:
    assert unit_of_cgroup(cgroup) == unit


def test_cgroup_v1_and_v2() -> None:
    assert (
        parse_cgroup("12:memory:/a\n1:name=systemd:/system.slice/x.service\n0::/\n")
        == "/system.slice/x.service"
    )
    assert parse_cgroup("0::/system.slice/x.service\n") == "/system.slice/x.service"


def test_processes_of_this_machine() -> None:
    me = describe(os.getpid())
    assert me is not None
    assert (
        me["start_ticks"] == start_ticks(os.getpid()) == start_ticks_of(Path("/proc/self/stat").read_text())
    )
    assert me["uid"] == os.getuid()
    assert me["read_b"] > 0
    assert os.getpid() in descendants(os.getppid())
    assert describe(2**22 - 3) is None
    assert boot_identity().split("/")[0] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def test_a_listener_whose_owner_has_just_gone_is_no_unknown_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dying process gives up its descriptors before its port; this login may see owners, so it looks again."""
    seen = iter(
        [
            [{"addr": "127.0.0.1", "port": 1, "inode": 5, "unit": None}],
            [{"addr": "127.0.0.1", "port": 1, "inode": 5, "unit": None}],
            [],
        ]
    )
    monkeypatch.setattr(ports, "find_listeners", lambda port: next(seen))
    monkeypatch.setattr(ports.os, "geteuid", lambda: 0)

    class Context:
        async def thread(self, call, *args):  # type: ignore[no-untyped-def]
            return call(*args)

    assert await ports.listeners_of(Context(), 1) == []  # type: ignore[arg-type]
