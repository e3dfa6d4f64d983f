"""SSH trouble told from text: what ssh, sshd, asyncssh and others print, line by line."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ddtop.hosts.ssh.causes import CAUSES, SshCause


class Hit(msgspec.Struct, frozen=True):
    """One line that says something about the connection: 1-based line, its text, the cause it stands for."""

    line: int
    text: str
    cause: SshCause


def _r(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# Line pattern → cause; the first that matches a line counts. The particular before the general.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_r(r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .{1,200} has changed"), "host-key-changed"),
    (_r(r"Offending (?:\S{1,30} )?key (?:for IP )?in "), "host-key-changed"),
    (_r(r"REVOKED HOST KEY DETECTED|host key .{0,80}revoked"), "host-key-revoked"),
    (
        _r(r"No \S{1,30} host key is known for|authenticity of host .{1,200} can.t be established"),
        "host-key-unknown",
    ),
    (_r(r"HostKeyNotVerifiable|Host key is not trusted|not found in known_hosts"), "host-key-unknown"),
    (
        _r(r"UNPROTECTED PRIVATE KEY FILE|bad permissions|Permissions \d{3,4} for .{1,300} are too open"),
        "key-file-permissions",
    ),
    (
        _r(
            r"Load key .{1,300}: (?:invalid format|error in libcrypto)|not a valid (?:OPENSSH|RSA) private key"
        ),
        "key-format-invalid",
    ),
    (_r(r"agent refused operation|signing failed for"), "agent-refused"),
    (_r(r"Bad owner or permissions on"), "config-permissions"),
    (_r(r"Enter passphrase for|ssh_askpass: exec"), "key-needs-passphrase-or-agent"),
    (
        _r(
            r"Exceeded MaxStartups|kex_exchange_identification: (?:Connection closed|read: Connection reset)"
            r"|Not allowed at this time|ssh_exchange_identification: (?:Connection closed|read: Connection reset)"
        ),
        "login-throttled",
    ),
    (
        _r(r"mux_client_hello_exchange|master hello exchange failed|Control socket connect\("),
        "control-socket-stale",
    ),
    (_r(r"bind .{0,80}Address already in use|cannot listen to port"), "local-port-in-use"),
    (
        _r(
            r"sudo: (?:a password is required|a terminal is required|no tty present|sorry, you must have a tty)"
        ),
        "sudo-needs-password",
    ),
    (
        _r(
            r"fork: .{0,20}(?:Resource temporarily unavailable|Cannot allocate memory)|shell request failed on channel"
            r"|exec request failed on channel"
        ),
        "host-out-of-processes",
    ),
    (_r(r"python3?: (?:command )?not found|python3: No such file"), "python-missing"),
    (
        _r(
            r"setlocale: LC_|Setting locale failed|mesg: ttyname failed|stdin: is not a tty|bind: warning: line editing"
            r"|Could not chdir to home directory|Pseudo-terminal will not be allocated"
        ),
        "shell-noise",
    ),
    (
        _r(r"Passphrase must be specified|Private key file is encrypted|PasswordRequiredException"),
        "key-needs-passphrase-or-agent",
    ),
    (
        _r(
            r"KeyEncryptionError|requires bcrypt|Incorrect passphrase|incorrect passphrase supplied|Unable to decrypt key"
        ),
        "key-wrong-passphrase",
    ),
    (_r(r"Too many authentication failures"), "too-many-auth-failures"),
    (_r(r"codec can.t decode byte"), "client-decode-error"),
    (
        _r(
            r"SSH_AUTH_SOCK .{0,80}(?:gone|not set|missing)|Could not open a connection to your authentication agent"
            r"|error fetching identities|Error connecting to agent"
        ),
        "key-needs-passphrase-or-agent",
    ),
    (
        _r(
            r"PermissionDenied|Permission denied(?: for user| \((?:publickey|password|keyboard|gssapi|hostbased))"
            r"|Authentication failed|Auth fail"
        ),
        "permission-denied",
    ),
    (
        _r(
            r"port forward.{0,80}(?:AllowTcpForwarding|prohibited)|administratively prohibited: (?:open|port)"
            r"|forwarding (?:is )?(?:disabled|prohibited)"
        ),
        "forwarding-prohibited",
    ),
    (
        _r(
            r"no more sessions|Session open refused by peer|mux_client_request_session: session request failed"
        ),
        "max-sessions-reached",
    ),
    (
        _r(
            r"SSH connection closed|Connection lost|ConnectionLost|exit_status=None|Broken pipe|Connection reset by"
            r"|Timeout, server .{1,100} not responding|client_loop: send disconnect|Connection to \S{1,200} closed by remote"
        ),
        "connection-dropped",
    ),
    (_r(r"channel \d{1,6}: open failed: connect failed: (?!.*refused)"), "forwarding-prohibited"),
    (_r(r"Connection closed by (?!remote)"), "connection-dropped"),
    (_r(r"Connection refused"), "refused-by-port"),
    (
        _r(r"Connection timed out|Operation timed out|timed out during banner exchange|Connection timeout"),
        "connect-timeout",
    ),
    (_r(r"No route to host|Network is unreachable"), "host-unreachable"),
    (
        _r(
            r"Could not resolve hostname|Name or service not known|nodename nor servname|Temporary failure in name"
        ),
        "name-not-resolved",
    ),
    (
        _r(
            r"no mutual signature (?:algorithm|supported)|no matching (?:key exchange|host key|cipher|mac)|Unable to negotiate|KeyExchangeFailed"
        ),
        "no-common-algorithm",
    ),
    (_r(r"Received message too long \d{1,12}"), "sftp-broken-by-shell-noise"),
    (_r(r"Cannot execute command-line and remote command"), "remotecommand-conflict"),
    (_r(r"FileNotFoundError:? .{0,200}known_hosts"), "known-hosts-missing"),
    (
        _r(
            r"Unprivileged users are not permitted to log in|pam_nologin\(8\)|System is (?:booting up|going down)\."
        ),
        "host-booting",
    ),
    (
        _r(r"This account is currently not available|account has expired|password has expired"),
        "account-not-usable",
    ),
    (
        _r(r"Bad configuration option|terminating, \d+ bad configuration|ConfigParseError"),
        "config-parse-error",
    ),
    (
        _r(r"(?:proxy|nc|aws|cloudflared)\S{0,40}: (?:command )?not found|ssh_exchange_identification"),
        "proxy-command-failed",
    ),
    (_r(r"Protocol mismatch|bad packet length|Bad remote protocol version"), "not-an-ssh-server"),
)
_CHANNEL = re.compile(
    r"ChannelOpenError(?:\(| code=| )\D{0,20}(?P<code>\d)|ChannelException: \((?P<para>\d),"
)
_FORWARD = re.compile(r"forward|AllowTcpForwarding|direct-tcpip|PermitOpen|tunnel", re.IGNORECASE)


def find_hits(text: str, *, limit_lines: int = 100_000) -> list[Hit]:
    """Every telling line of `text`. A refused channel is a forward or a session by the words around it:
    asyncssh says "open failed" for both, only the code differs (1 prohibited, 2 connect failed)."""
    out: list[Hit] = []
    forward, sessions = False, "session" in text
    for at, line in enumerate(text.splitlines()[:limit_lines], 1):
        shown = line[:2000]
        channel = _CHANNEL.search(shown)
        if channel and "closed" not in shown:
            # Older sshd and paramiko say "administratively prohibited" for the session limit too.
            prohibited = channel["code"] == "1" and (forward or bool(_FORWARD.search(shown)) or not sessions)
            out.append(
                Hit(
                    at,
                    shown.strip(),
                    CAUSES["forwarding-prohibited" if prohibited else "max-sessions-reached"],
                )
            )
            continue
        cause = next((cause for pattern, cause in _RULES if pattern.search(shown)), None)
        if cause is not None:
            out.append(Hit(at, shown.strip(), CAUSES[cause]))
        elif _FORWARD.search(shown):
            forward = True
    return out


_FINGERPRINT = re.compile(r"\b(SHA256:[A-Za-z0-9+/]{43}=?)")
_ALGORITHM = re.compile(r"\b(ED25519|ECDSA|RSA|DSA)(?:-SK)? (?:host )?key", re.IGNORECASE)
_OFFENDING = re.compile(r"Offending .{0,30}?key (?:for IP )?in (?P<file>[^\n:]{1,500}):(?P<line>\d{1,7})")
_REMOVE = re.compile(r"^\s{0,8}(?P<cmd>ssh-keygen\s.{1,500}?)\s{0,8}$", re.MULTILINE)


def key_facts(text: str) -> dict[str, Any]:
    """Fingerprint, algorithm, the place of the old key, and the command ssh gives to forget it, where
    told."""
    out: dict[str, Any] = {}
    if found := _FINGERPRINT.search(text):
        out["fingerprint"] = found[1]
    if found := _ALGORITHM.search(text):
        out["key_type"] = found[1].upper()
    if found := _OFFENDING.search(text):
        out["known_hosts_line"] = f"{found['file']}:{found['line']}"
    if found := _REMOVE.search(text):
        out["remove_command"] = found["cmd"]
    return out
