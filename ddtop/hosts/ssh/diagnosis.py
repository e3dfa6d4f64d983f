"""An exception of asyncssh (or the socket below it) as a cause: what happened, what it means, what to do."""

from __future__ import annotations

import errno
import os
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import msgspec
from asyncssh.config import ConfigParseError

from ddtop.errors import HostError, HostLostError, HostUnreachableError
from ddtop.hosts.ssh.causes import CAUSES, SshCause, fill
from ddtop.hosts.ssh.error_texts import HANG_UPS, find_hits
from ddtop.hosts.ssh.known_keys import KeyFinding, remove_commands, ssh_command
from ddtop.hosts.ssh.target import SshTarget
from ddtop.hosts.ssh.text_verdict import best_cause


class SshFault(msgspec.Struct, frozen=True, kw_only=True):
    """One classified SSH error, in the words of `ddtop inspect ssh`."""

    verdict: str
    cause: str
    severity: str
    what: str
    means: str
    do: str
    retry: bool
    text: str


def agent_words(target: SshTarget | None) -> str:
    """Whether an SSH agent can be reached here: asyncssh's PermissionDenied does not say it."""
    if target is not None and target.agent_path == "":
        return "the config turns the SSH agent off (IdentityAgent none)"
    path = (target.agent_path if target else None) or os.environ.get("SSH_AUTH_SOCK")
    if not path:
        return "no SSH agent: SSH_AUTH_SOCK is not set"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(path)
        except OSError:
            return f"the SSH agent does not respond: its socket {path} is gone"
    return f"the SSH agent at {path} responds"


def locked_keys(target: SshTarget) -> tuple[str, ...]:
    """The host's private keys here that are protected by a passphrase (reads the files; sends nothing)."""
    names = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk", "id_dsa")
    files = target.identity_files or tuple(str(Path("~/.ssh").expanduser() / name) for name in names)
    out: list[str] = []
    for file in files:
        try:
            asyncssh.read_private_key(file)
        except asyncssh.KeyImportError as error:
            if "assphrase" in str(error):
                out.append(file)
        except (OSError, ValueError):
            continue
    return tuple(out)


def classify_ssh_error(
    exc: BaseException,
    target: SshTarget | None = None,
    *,
    presented: KeyFinding | None = None,
    hop: SshTarget | None = None,
    said: str = "",
) -> SshFault:
    """What an exception of asyncssh (or the socket below it) stands for.

    `presented` is what `find_key` said about the key the host showed: without it, "changed" and "unknown"
    cannot be told apart and "unknown" is said. `hop` is the jump host that was being contacted, if it was one; `said` what
    the server or gateway wrote before the login (its banner): where that is a refusal, it is the cause.
    """
    at = hop or target
    name = _cause_of(exc, at, presented)
    if hop is not None and name == "connection-dropped" and not isinstance(exc, asyncssh.ChannelOpenError):
        name = "closed-before-login"  # `hop` is what was being connected to: nothing ran there yet
    name = _by_words(said, name)
    cause = CAUSES[name]
    text = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
    via = f" via ProxyCommand {at.proxy_command[0]}" if at is not None and at.proxy_command else ""
    if hop is not None and target is not None and hop.alias != target.alias:
        via += f" at jump host {hop.alias}"
    return make_fault(cause, text, target=at, presented=presented, via=via, agent=agent_words(at), said=said)


def make_fault(
    cause: SshCause,
    text: str,
    *,
    target: SshTarget | None = None,
    presented: KeyFinding | None = None,
    via: str = "",
    agent: str = "",
    said: str = "",
) -> SshFault:
    """Fill a cause's sentences with what is known of the host, its keys and its agent."""
    keys: list[str] = list(target.identity_files) if target else []
    print_ = f"It showed {presented.algorithm} {presented.fingerprint}. " if presented else ""
    context = {
        "alias": target.alias if target else "HOST",
        "host": target.hostname if target else "the host",
        "port": str(target.port) if target else "22",
        "user": target.user if target else "",
        "keys": ", ".join(keys) or "no key file named: the default keys in ~/.ssh and the agent's",
        "key": shlex.quote(keys[0]) if keys else "~/.ssh/id_ed25519",
        "agent": agent,
        "ssh": f"`{ssh_command(target)}`" if target else "`ssh HOST true`",
        "forget": " and ".join(f"`{c}`" for c in remove_commands(target, presented))
        if target
        else "`ssh-keygen -R HOST`",
        "looked": "known_hosts holds none for this host, so this one is new"
        if target
        else "only known_hosts on the machine that connected tells which of the two it is",
        "fingerprint": print_
        + (f"Known: {', '.join(presented.where)}. " if presented and presented.where else ""),
        "via": via,
        "words": f": “{' '.join(said.split())[:200]}”" if said.strip() else "",
    }
    return SshFault(
        verdict=cause.verdict,
        cause=cause.cause,
        severity=cause.severity,
        what=fill(cause.what, **context),
        means=fill(cause.means, **context),
        do=fill(cause.do, **context),
        retry=cause.retry,
        text=text[:500],
    )


def explain_ssh_error(
    exc: BaseException,
    target: SshTarget,
    *,
    presented: KeyFinding | None = None,
    hop: SshTarget | None = None,
    said: str = "",
) -> HostError:
    """The error to raise instead: HostLostError when trying again can help, else HostUnreachableError.

    Has `what`, `means`, `do` and `host`; raise it `from exc`.
    """
    fault = classify_ssh_error(exc, target, presented=presented, hop=hop, said=said)
    kind = HostLostError if fault.retry else HostUnreachableError
    what = f"{fault.what} ({fault.text})" if fault.cause in _SHOW_TEXT else fault.what
    place = f" (at jump host {hop.shown})" if hop is not None and hop.alias != target.alias else ""
    return kind(what + place, means=fault.means, do=fault.do, host=target.alias)


_WORDS_DECIDE = {
    "tailscale-policy",
    "login-needs-browser",
    "credentials-expired",
    "policy-denied",
    "account-not-usable",
    "gateway-needs-terminal",
    "gateway-target-not-running",
    "login-throttled",
    "host-booting",
}


def _by_words(said: str, name: str) -> str:
    """The cause by what stood above a hang-up; `name` where that says nothing. A banner beside "permission denied" decides
    only where it asks for another login: most banners warn everybody."""
    if not said.strip() or name not in {*HANG_UPS, "permission-denied", "proxy-command-failed"}:
        return name
    text = f"{said.rstrip()}\nConnection closed by HOST port 22\n"
    found = best_cause(find_hits(text), text).cause
    if name == "permission-denied" and found not in {
        "tailscale-policy",
        "login-needs-browser",
        "credentials-expired",
    }:
        return name
    return found if found in _WORDS_DECIDE else name


_SHOW_TEXT = {
    "ssh-error",
    "config-parse-error",
    "no-common-algorithm",
    "not-an-ssh-server",
    "proxy-command-failed",
    "identity-file-missing",
    "name-not-resolved",
}


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """The exception, those inside a group, and what it was raised from."""
    seen: set[int] = set()
    todo = [exc]
    while todo:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
        todo += [inner for inner in (one.__cause__, one.__context__) if inner is not None]


def _cause_of(exc: BaseException, target: SshTarget | None, presented: KeyFinding | None) -> str:
    for one in _chain(exc):
        found = _one_cause(one, target, presented)
        if found:
            return found
    return "ssh-error"


def _one_cause(exc: BaseException, target: SshTarget | None, presented: KeyFinding | None) -> str | None:
    text = str(exc)
    proxied = target is not None and target.proxy_command is not None
    if isinstance(exc, asyncssh.HostKeyNotVerifiable):
        state = presented.state if presented else "revoked" if "revoked" in text.lower() else "unknown"
        return {"changed": "host-key-changed", "revoked": "host-key-revoked"}.get(state, "host-key-unknown")
    if isinstance(exc, (asyncssh.PermissionDenied, asyncssh.IllegalUserName)):
        # asyncssh skips an encrypted key silently; say so where it is the likely reason.
        locked = isinstance(exc, asyncssh.PermissionDenied) and target is not None and locked_keys(target)
        return "key-needs-passphrase-or-agent" if locked else "permission-denied"
    if isinstance(exc, asyncssh.ChannelOpenError):
        if "closed" in text or "lost" in text.lower():
            return "connection-dropped"
        # A jump host's sshd gives the reason of a failed connect in words; "open failed" is a refused
        # session.
        for word, cause in _CONNECT_WORDS.items():
            if word in text.lower():
                return cause
        return "forwarding-prohibited" if exc.code == 1 else "max-sessions-reached"
    if isinstance(exc, asyncssh.KeyImportError) and "assphrase" in text:
        return "key-needs-passphrase-or-agent"
    if isinstance(exc, (asyncssh.KeyEncryptionError, asyncssh.KeyImportError)):
        return "key-wrong-passphrase"
    if isinstance(exc, asyncssh.KeyExchangeFailed):
        return "no-common-algorithm"
    if isinstance(exc, asyncssh.DisconnectError) and "codec can't decode" in text:
        return "client-decode-error"
    if isinstance(exc, asyncssh.ConnectionLost):
        return "proxy-command-failed" if proxied else "connection-dropped"
    if isinstance(exc, (asyncssh.ProtocolError, asyncssh.ProtocolNotSupported)):
        return "proxy-command-failed" if proxied else "not-an-ssh-server"
    if isinstance(exc, asyncssh.DisconnectError):
        return "too-many-auth-failures" if "authentication failures" in text else "connection-dropped"
    if isinstance(exc, UnicodeDecodeError):
        return "client-decode-error"
    if isinstance(exc, ConfigParseError):
        return "config-parse-error"
    return _os_cause(exc, target, proxied)


_CONNECT_WORDS = {
    "refused": "refused-by-port",
    "timed out": "connect-timeout",
    "no route": "host-unreachable",
    "unreachable": "host-unreachable",
    "not known": "name-not-resolved",
    "resolve": "name-not-resolved",
}


def _os_cause(exc: BaseException, target: SshTarget | None, proxied: bool) -> str | None:
    if isinstance(exc, FileNotFoundError):
        name = os.fsdecode(exc.filename) if exc.filename else str(exc)
        if proxied and target is not None and target.proxy_command and target.proxy_command[0] in name:
            return "proxy-command-failed"
        if "known_hosts" in name or (target is not None and name == target.known_hosts_new):
            return "known-hosts-missing"
        return "proxy-command-failed" if proxied else "identity-file-missing"
    if proxied and isinstance(exc, OSError) and not isinstance(exc, TimeoutError):
        return "proxy-command-failed"  # its pipe broke: the proxy ended before or while we wrote
    if isinstance(exc, ConnectionRefusedError):
        return "refused-by-port"
    if isinstance(exc, socket.gaierror):
        return "name-not-resolved"
    if isinstance(exc, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError, EOFError)):
        return "connection-dropped"
    if isinstance(exc, TimeoutError):
        return "connect-timeout"
    if isinstance(exc, OSError):
        if exc.errno in {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}:
            return "host-unreachable"
        # asyncio joins the errors of several addresses into one text: "Multiple exceptions: [Errno 111] …"
        numbers = [int(n) for n in re.findall(r"\[Errno (\d{1,3})\]", str(exc))]
        if errno.ECONNREFUSED in numbers:
            return "refused-by-port"
        if errno.EHOSTUNREACH in numbers or errno.ENETUNREACH in numbers:
            return "host-unreachable"
        if errno.ETIMEDOUT in numbers:
            return "connect-timeout"
    return None
