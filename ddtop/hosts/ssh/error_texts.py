"""SSH failures found in text: what ssh, sshd, asyncssh and others print, line by line."""

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


# Cause and line pattern; the first that matches a line counts, so the particular stands before the general.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), cause)
    for cause, pattern in (
        ("host-key-changed", r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .{1,200} has changed"),
        ("host-key-changed", r"Offending (?:\S{1,30} )?key (?:for IP )?in "),
        ("host-key-revoked", r"REVOKED HOST KEY DETECTED|host key .{0,80}revoked"),
        (
            "host-key-unknown",
            r"No \S{1,30} host key is known for|authenticity of host .{1,200} can.t be established",
        ),
        ("host-key-unknown", r"HostKeyNotVerifiable|Host key is not trusted|not found in known_hosts"),
        (
            "key-file-permissions",
            r"UNPROTECTED PRIVATE KEY FILE|bad permissions|Permissions \d{3,4} for .{1,300} are too open",
        ),
        (
            "key-format-invalid",
            r"Load key .{1,300}: (?:invalid format|error in libcrypto)"
            r"|not a valid (?:OPENSSH|RSA) private key",
        ),
        ("agent-refused", r"agent refused operation|signing failed for"),
        ("config-permissions", r"Bad owner or permissions on"),
        ("key-needs-passphrase-or-agent", r"Enter passphrase for|ssh_askpass: exec"),
        (
            "login-throttled",
            r"Exceeded MaxStartups"
            r"|kex_exchange_identification: (?:Connection closed|read: Connection reset)"
            r"|Not allowed at this time"
            r"|ssh_exchange_identification: (?:Connection closed|read: Connection reset)",
        ),
        (
            "control-socket-stale",
            r"mux_client_hello_exchange|master hello exchange failed|Control socket connect\(",
        ),
        ("local-port-in-use", r"bind .{0,80}Address already in use|cannot listen to port"),
        (
            "sudo-needs-password",
            r"sudo: (?:a password is required|a terminal is required|no tty present|sorry, you must have a tty)",
        ),
        (
            "host-out-of-processes",
            r"fork: .{0,20}(?:Resource temporarily unavailable|Cannot allocate memory)"
            r"|shell request failed on channel|exec request failed on channel",
        ),
        ("python-missing", r"python3?: (?:command )?not found|python3: No such file"),
        (
            "shell-noise",
            r"setlocale: LC_|Setting locale failed|mesg: ttyname failed|stdin: is not a tty"
            r"|bind: warning: line editing|Could not chdir to home directory"
            r"|Pseudo-terminal will not be allocated",
        ),
        (
            "key-needs-passphrase-or-agent",
            r"Passphrase must be specified|Private key file is encrypted|PasswordRequiredException",
        ),
        (
            "key-wrong-passphrase",
            r"KeyEncryptionError|requires bcrypt|Incorrect passphrase|incorrect passphrase supplied"
            r"|Unable to decrypt key",
        ),
        ("too-many-auth-failures", r"Too many authentication failures"),
        ("client-decode-error", r"codec can.t decode byte"),
        (
            "key-needs-passphrase-or-agent",
            r"SSH_AUTH_SOCK .{0,80}(?:gone|not set|missing)"
            r"|Could not open a connection to your authentication agent|error fetching identities"
            r"|Error connecting to agent",
        ),
        (
            "permission-denied",
            r"PermissionDenied"
            r"|Permission denied(?: for user| \((?:publickey|password|keyboard|gssapi|hostbased))"
            r"|Authentication failed|Auth fail",
        ),
        (
            "forwarding-prohibited",
            r"port forward.{0,80}(?:AllowTcpForwarding|prohibited)"
            r"|administratively prohibited: (?:open|port)|forwarding (?:is )?(?:disabled|prohibited)",
        ),
        (
            "max-sessions-reached",
            r"no more sessions|Session open refused by peer"
            r"|mux_client_request_session: session request failed",
        ),
        (
            "connection-dropped",
            r"SSH connection closed|Connection lost|ConnectionLost|exit_status=None|Broken pipe"
            r"|Connection reset by|Timeout, server .{1,100} not responding|client_loop: send disconnect"
            r"|Connection to \S{1,200} closed by remote",
        ),
        ("forwarding-prohibited", r"channel \d{1,6}: open failed: connect failed: (?!.*refused)"),
        ("connection-dropped", r"Connection closed by (?!remote)"),
        ("refused-by-port", r"Connection refused"),
        (
            "connect-timeout",
            r"Connection timed out|Operation timed out|timed out during banner exchange|Connection timeout",
        ),
        ("host-unreachable", r"No route to host|Network is unreachable"),
        (
            "name-not-resolved",
            r"Could not resolve hostname|Name or service not known|nodename nor servname"
            r"|Temporary failure in name",
        ),
        (
            "no-common-algorithm",
            r"no mutual signature (?:algorithm|supported)|no matching (?:key exchange|host key|cipher|mac)"
            r"|Unable to negotiate|KeyExchangeFailed",
        ),
        ("sftp-broken-by-shell-noise", r"Received message too long \d{1,12}"),
        ("remotecommand-conflict", r"Cannot execute command-line and remote command"),
        ("known-hosts-missing", r"FileNotFoundError:? .{0,200}known_hosts"),
        (
            "host-booting",
            r"Unprivileged users are not permitted to log in|pam_nologin\(8\)"
            r"|System is (?:booting up|going down)\.",
        ),
        (
            "account-not-usable",
            r"This account is currently not available|account has expired|password has expired",
        ),
        (
            "config-parse-error",
            r"Bad configuration option|terminating, \d+ bad configuration|ConfigParseError",
        ),
        (
            "proxy-command-failed",
            r"(?:proxy|nc|aws|cloudflared)\S{0,40}: (?:command )?not found|ssh_exchange_identification",
        ),
        ("not-an-ssh-server", r"Protocol mismatch|bad packet length|Bad remote protocol version"),
    )
)
_CHANNEL = re.compile(
    r"ChannelOpenError(?:\(| code=| )\D{0,20}(?P<code>\d)|ChannelException: \((?P<para>\d),"
)
_FORWARD = re.compile(r"forward|AllowTcpForwarding|direct-tcpip|PermitOpen|tunnel", re.IGNORECASE)


def find_hits(text: str, *, limit_lines: int = 100_000) -> list[Hit]:
    """Every line of `text` that a rule matches. A refused channel is a forward or a session by the text around it:
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
    """Fingerprint, algorithm, the place of the old key, and ssh's command to remove it; what the
    text does not give is absent."""
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
