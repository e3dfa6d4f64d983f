"""What ssh, sshd and login shells print, told apart line by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtop.hosts.ssh.error_texts import find_hits, key_facts
from ddtop.hosts.ssh.probe_frame import read_frame

CASES = Path(__file__).parents[1] / "cases"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("root@10.0.0.5: Permission denied (publickey,password).", "permission-denied"),
        ("ssh: connect to host gpu1 port 22: Connection refused", "refused-by-port"),
        ("ssh: connect to host gpu1 port 22: Connection timed out", "connect-timeout"),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "name-not-resolved"),
        ("ssh: connect to host gpu1 port 22: No route to host", "host-unreachable"),
        (
            "Received disconnect from 10.0.0.5 port 22:2: Too many authentication failures",
            "too-many-auth-failures",
        ),
        ("No ED25519 host key is known for gpu1 and you have requested strict checking.", "host-key-unknown"),
        ("client_loop: send disconnect: Broken pipe", "connection-dropped"),
        (
            "Unable to negotiate with 10.0.0.5 port 22: no matching host key type found. Their offer: ssh-rsa",
            "no-common-algorithm",
        ),
        ("Timeout, server gpu1 not responding.", "connection-dropped"),
        ("kex_exchange_identification: read: Connection reset by peer", "login-throttled"),
        ("Permissions 0644 for '/home/u/.ssh/id' are too open.", "key-file-permissions"),
        ('Load key "/home/u/.ssh/id": invalid format', "key-format-invalid"),
        (
            'sign_and_send_pubkey: signing failed for ED25519 "/k" from agent: agent refused operation',
            "agent-refused",
        ),
        ("Bad owner or permissions on /home/u/.ssh/config", "config-permissions"),
        ("sudo: a password is required", "sudo-needs-password"),
        ("bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)", "shell-noise"),
        ("-bash: fork: retry: Resource temporarily unavailable", "host-out-of-processes"),
        ("sh: 1: python3: not found", "python-missing"),
        ("Control socket connect(/home/u/.ssh/cm-1): Connection refused", "control-socket-stale"),
        ("channel 3: open failed: administratively prohibited: open failed", "forwarding-prohibited"),
        ("/home/u/.ssh/config: line 3: Bad configuration option: foo", "config-parse-error"),
    ],
)
def test_what_ssh_prints(line: str, cause: str) -> None:
    hits = find_hits(f"debug1: something\n{line}\n")
    assert [(h.line, h.cause.cause) for h in hits] == [(2, cause)]


def test_key_facts_of_ssh_text() -> None:
    got = key_facts((CASES / "F09-host-key-changed" / "input.txt").read_text())
    assert got["fingerprint"].startswith("SHA256:pQ+Iyk") and got["known_hosts_line"] == "./known_hosts:1"
    assert got["remove_command"].startswith("ssh-keygen -f")


@pytest.mark.parametrize(
    "noise",
    ["", "Willkommen auf gpu!\n", "\x1b[33mbase\x1b[0m\nwarning: setlocale: LC_ALL\n", "欢迎\n", "$ "],
)
@pytest.mark.parametrize(
    "marks", [("__DD_BEGIN_7f3a__", "__DD_END_7f3a__"), ("ddtop-begin-91bc", "ddtop-end-91bc")]
)
def test_frames_in_any_noise(noise: str, marks: tuple[str, str]) -> None:
    frame = read_frame(f'{noise}{marks[0]}\n{{"up": true}}\n{marks[1]} rc=0\nbye\n')
    assert frame is not None and frame.payload == '{"up": true}' and frame.rc == 0 and not frame.cut
    assert len(frame.noise) == len([x for x in noise.splitlines() if x.strip()]) + 1


def test_a_cut_frame_is_no_answer() -> None:
    frame = read_frame('hello\n__DD_BEGIN_7f3a__\n{"gpus": 0')
    assert frame is not None and frame.cut and frame.payload is None


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    find_hits(text)
    key_facts(text)
    read_frame(text)
