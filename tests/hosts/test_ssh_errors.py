"""SSH errors by their kind: what they stand for, and whether trying again can help."""

from __future__ import annotations

import socket
from pathlib import Path

import asyncssh
import pytest

from ddtop.errors import HostLostError, HostUnreachableError
from ddtop.hosts.ssh.causes import CAUSES, fill
from ddtop.hosts.ssh.diagnosis import agent_words, classify_ssh_error, explain_ssh_error
from ddtop.hosts.ssh.target import SshTarget


@pytest.mark.parametrize(
    ("error", "cause", "kind"),
    [
        (TimeoutError(), "connect-timeout", HostLostError),
        (OSError(113, "No route to host"), "host-unreachable", HostLostError),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 22), "
                "[Errno 111] Connect call failed"
            ),
            "refused-by-port",
            HostLostError,
        ),
        (ConnectionResetError(104, "reset"), "connection-dropped", HostLostError),
        (asyncssh.ConnectionLost("Connection lost"), "connection-dropped", HostLostError),
        (
            asyncssh.DisconnectError(2, "Too many authentication failures"),
            "too-many-auth-failures",
            HostUnreachableError,
        ),
        (
            asyncssh.DisconnectError(2, "'utf-8' codec can't decode byte 0xff in position 1"),
            "client-decode-error",
            HostLostError,
        ),
        (
            asyncssh.KeyImportError("Passphrase must be specified to import encrypted private keys"),
            "key-needs-passphrase-or-agent",
            HostUnreachableError,
        ),
        (
            asyncssh.KeyEncryptionError("OpenSSH private key encryption requires bcrypt"),
            "key-wrong-passphrase",
            HostUnreachableError,
        ),
        (asyncssh.KeyExchangeFailed("No matching cipher"), "no-common-algorithm", HostUnreachableError),
        (asyncssh.ChannelOpenError(2, "Connection refused"), "refused-by-port", HostLostError),
        (asyncssh.ChannelOpenError(2, "open failed"), "max-sessions-reached", HostLostError),
        (asyncssh.HostKeyNotVerifiable("Host key is revoked"), "host-key-revoked", HostUnreachableError),
        (asyncssh.ChannelOpenError(4, "SSH connection closed"), "connection-dropped", HostLostError),
        (
            FileNotFoundError(2, "No such file", "/x/known_hosts.gpu"),
            "known-hosts-missing",
            HostUnreachableError,
        ),
        (FileNotFoundError(2, "No such file", "/x/id_gpu"), "identity-file-missing", HostUnreachableError),
        (
            ExceptionGroup("g", [ValueError("x"), ConnectionRefusedError(111, "refused")]),
            "refused-by-port",
            HostLostError,
        ),
        (RuntimeError("odd"), "ssh-error", HostLostError),
    ],
)
def test_errors_by_kind(error: BaseException, cause: str, kind: type) -> None:
    target = SshTarget(alias="ct200", hostname="10.0.0.5", user="root")
    fault = classify_ssh_error(error, target)
    assert fault.cause == cause
    told = explain_ssh_error(error, target)
    assert type(told) is kind and told.host == "ct200" and told.what and told.means and told.do
    assert "{" not in str(told)


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "x"), ConnectionResetError(104, "x"), asyncssh.ConnectionLost("x")]
)
def test_a_proxy_whose_pipe_breaks_is_named(error: Exception) -> None:
    target = SshTarget(alias="x", hostname="x", user="u", proxy_command=("nc", "x", "22"))
    told = explain_ssh_error(error, target)
    assert "via ProxyCommand nc" in told.what and isinstance(told, HostUnreachableError)


def test_a_cause_below_another_error_is_found() -> None:
    try:
        try:
            raise ConnectionRefusedError(111, "refused")
        except OSError as inner:
            raise RuntimeError("could not connect") from inner
    except RuntimeError as error:
        assert classify_ssh_error(error).cause == "refused-by-port"


def test_the_hop_is_named() -> None:
    target = SshTarget(alias="ct200", hostname="10.0.0.5", user="root")
    hop = SshTarget(alias="bastion", hostname="192.0.2.1", user="me", port=2222)
    told = explain_ssh_error(ConnectionRefusedError(111, "refused"), target, hop=hop)
    assert (
        "192.0.2.1:2222" in told.what and "jump host me@192.0.2.1:2222" in told.what and told.host == "ct200"
    )


def test_agent_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert "not set" in agent_words(None)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    assert "is gone" in agent_words(None)
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "sock"))
        agent.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "sock"))
        assert "responds" in agent_words(None)


def test_every_cause_has_its_words() -> None:
    for cause in CAUSES.values():
        assert cause.what and cause.means and cause.do
        assert cause.verdict in {"ok", "partial", "degraded", "refused", "disconnected", "error"}
        assert cause.severity in {"info", "warn", "error", "critical"}
        assert "{" not in fill(cause.means + cause.do + cause.what)
