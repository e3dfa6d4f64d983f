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
            "tailscale-policy",
            r"tailnet policy does not permit|tailscale: .{0,80}(?:SSH policy|access denied|not permitted|no matching policy)"
            r"|tailssh: rejecting connection",
        ),
        (
            "login-needs-browser",
            r"Tailscale SSH requires an additional check|To authenticate, visit|open the following (?:URL|link)"
            r"|(?:visit|open|go to) (?:the )?(?:URL|link|https://)\S{0,300}.{0,60}(?:browser|log ?in|authenticate)"
            r"|(?:log ?in|authenticate|sign in).{0,40}(?:in|with) (?:a|your|the) (?:web )?browser",
        ),
        (
            "account-not-usable",
            r"failed to look ?up (?:local )?user|login as the user .{1,80} rather than|allows? sftp connections only"
            r"|does not provide shell access|shell access is (?:disabled|not)|only allows? (?:sftp|scp|git)"
            r"|This account is (?:currently )?(?:not available|disabled|locked)|account (?:has )?expired|You must change your password|Password change required|password has expired",
        ),
        (
            "credentials-expired",
            r"(?:credentials?|certificate|token|SSO session|session).{0,80}(?:has |have |is |are )?expired|Certificate invalid: expired"
            r"|ExpiredToken|please (?:re-?)?log ?in (?:again|using)|tsh login|Not logged in"
            r"|Unable to locate credentials|Reauthentication (?:is )?(?:required|failed)",
        ),
        (
            "policy-denied",
            r"access denied to \S{1,80} connecting|AccessDenied(?:Exception)?\b|is not authorized to perform"
            r"|\[4033: |not authorized'|rejected by policy|denied by (?:the )?(?:policy|administrator|rule)"
            r"|(?:account|user) (?:has been |is )?(?:suspended|blocked|banned)",
        ),
        (
            "gateway-needs-terminal",
            r"doesn.t support PTY|input device is not a TTY|(?:requires?|needs?|must have) (?:an? )?(?:interactive )?(?:terminal|PTY|TTY)\b(?<!sudo)"
            r"|(?:PTY|interactive terminal) (?:is )?required|(?:non-?interactive|exec) (?:sessions?|commands?) (?:are |is )?not (?:supported|allowed)",
        ),
        (
            "gateway-target-not-running",
            r"container \S{1,80} is not running|No such container|(?:pod|instance|machine|container|workspace)\b.{0,40}"
            r"(?:is (?:not running|stopped|not ready|offline|paused)|not found|does not exist|has been terminated)",
        ),
        (
            "control-path-too-long",
            r"too long for Unix domain socket|ControlPath too long|path .{1,400} too long for",
        ),
        (
            "control-path-unusable",
            r"unix_listener: (?:cannot|bind)|muxserver_listen|ControlPath .{0,300}(?:No such file|Permission denied)",
        ),
        (
            "ssh-client-broken",
            r"OpenSSL version mismatch|(?:^|[\s/])ssh: (?:symbol lookup error|error while loading shared|command not found)"
            r"|(?:^|[\s:])ssh: (?:not found|No such file)|command not found: ssh\b",
        ),
        (
            "blocked-on-this-machine",
            r"connect to (?:host|address) .{1,255}: (?:Operation not permitted|Permission denied)",
        ),
        ("sftp-not-offered", r"subsystem request failed|sftp-server: (?:not found|No such file)"),
        ("host-key-unknown", r"Host key verification failed"),
        (
            "host-key-unknown",
            r"No \S{1,30} host key is known for|authenticity of host .{1,200} can.t be established",
        ),
        ("host-key-unknown", r"HostKeyNotVerifiable|Host key is not trusted|not found in known_hosts"),
        (
            "key-file-permissions",
            r"UNPROTECTED PRIVATE KEY FILE|bad permissions|Permissions \d{3,4} for .{1,300} are too open"
            r"|Load key .{1,300}: Permission denied",
        ),
        (
            "key-format-invalid",
            r"Load key .{1,300}: (?:invalid format|error in libcrypto)"
            r"|not a valid (?:OPENSSH|RSA) private key",
        ),
        ("identity-file-missing", r"no such identity: |Identity file .{1,300} not accessible"),
        ("agent-refused", r"agent refused operation|signing failed for"),
        ("config-permissions", r"Bad owner or permissions on"),
        ("key-needs-passphrase-or-agent", r"Enter passphrase for|ssh_askpass: exec"),
        (
            "login-throttled",
            r"Exceeded MaxStartups|Session limit|[Tt]oo many (?:connections|logins|sessions)|rate limit"
            r"|kex_exchange_identification: (?:Connection closed|read: Connection reset)"
            r"|Not allowed at this time"
            r"|ssh_exchange_identification: (?:Connection closed|read: Connection reset)",
        ),
        (
            "control-socket-stale",
            r"mux_client_hello_exchange|master hello exchange failed|Control socket connect\(.{1,300}: (?!No such)"
            r"|ControlSocket .{1,300} already exists",
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
            r"|Pseudo-terminal will not be allocated|post-quantum key exchange|store now, decrypt later|openssh\.com/pq\.html"
            r"|Permanently added .{1,300} to the list of known hosts|[Uu]nsupported option \"|[Dd]eprecated option \""
            r"|Failed to add the host to the list of known hosts|No xauth data|X11 forwarding request failed"
            r"|PTY allocation request failed|Inappropriate ioctl for device|received duplicated \S{1,40} host key",
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
            r"|Permission denied, please try again|No supported authentication methods"
            r"|Authentication failed|Auth fail",
        ),
        (
            "forwarding-prohibited",
            r"unknown channel type: unsupported|port forward.{0,80}(?:AllowTcpForwarding|prohibited)|remote port forwarding failed"
            r"|administratively prohibited: (?:open|port)|forwarding (?:is )?(?:disabled|prohibited)",
        ),
        (
            "max-sessions-reached",
            r"no more sessions|Session open refused by peer"
            r"|mux_client_request_session: session request failed",
        ),
        (
            "connection-dropped",
            r"Connection corrupted|SSH connection closed|Connection lost|ConnectionLost|exit_status=None|Broken pipe"
            r"|Connection reset by|Timeout, server .{1,100} not responding|client_loop: send disconnect"
            r"|Connection to \S{1,200} closed by remote|Corrupted MAC on input"
            r"|message authentication code incorrect|ssh_dispatch_run_fatal: .{1,300}: (?:incorrect signature|crypto)",
        ),
        (
            "forwarding-prohibited",
            r"channel \d{1,6}: open failed: connect failed: (?!.*(?:refused|timed out|No route|unreachable|not known|name|resolve))",
        ),
        ("connection-dropped", r"Connection closed by (?!remote)"),
        ("refused-by-port", r"Connection refused|Unable to connect to port \d+ on"),
        (
            "connect-timeout",
            r"Connection timed out|Operation timed out|Timed out while waiting for handshake|timed out during banner exchange|(?<!clearing )Connection timeout",
        ),
        (
            "host-unreachable",
            r"No route to host|Network is (?:unreachable|down)|Host is (?:down|unreachable)|assign requested address",
        ),
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
            r"Bad configuration option|terminating, \d+ bad configuration|ConfigParseError|extra arguments at end of line"
            r"|line \d{1,6}: (?:Bad |[Mm]issing |[Uu]nsupported |[Ii]nvalid |no argument after)"
            r"|percent_expand: unknown key|garbage at end of line",
        ),
        (
            "proxy-command-failed",
            r"(?:proxy|nc|aws|cloudflared|corkscrew|connect|socat|tsh|gcloud)\S{0,40}: (?:command )?not found"
            r"|exec: \S{1,200}: not found|ssh_exchange_identification|websocket: bad handshake|TargetNotConnected"
            r"|SessionManagerPlugin is not found|start-iap-tunnel|unexpected HTTP response|proxy: .{0,80}fail"
            r"|over reverse tunnel|agent is offline|posix_spawnp: No such file|CreateProcessW failed",
        ),
        ("closed-before-login", r"Error reading SSH protocol banner"),
        (
            "not-an-ssh-server",
            r"Protocol mismatch|bad packet length|Bad remote protocol version|banner line contains invalid"
            r"|banner exchange: .{0,200}invalid format|invalid protocol identifier|kex_protocol_error",
        ),
        (
            "connection-dropped",
            r"^Received disconnect from .{1,255}:\d{1,3}: .{0,80}(?:idle|timeout|by user|shut|Bye|restart)",
        ),
        (
            "ssh-error",
            r"^ssh: connect to|^kex_exchange_identification: |^Received disconnect from|^ssh: \S.{3,200}",
        ),
        ("connected", r"^Authenticated to \S{1,255} |debug1: Exit status 0\b"),
    )
)
HANG_UPS = frozenset({"connection-dropped", "closed-before-login", "login-throttled", "ssh-error"})
"""Causes that say that it ended, not why."""
_PROXIED = re.compile(r"UNKNOWN port 65535")
_ENDED = re.compile(
    r"Connection (?:closed|reset) by|Connection to \S{1,255} closed|connection closed", re.IGNORECASE
)
_NOT_WORDS = re.compile(r"^\s*(?:debug\d:|\$ |# |> |rc ?[:=]|OpenSSH_|\*\* |[-=*#_~\s]*$|Disconnected from)")
_DENIAL = re.compile(
    r"not (?:permit|allow|authori[sz]|supported)|\bdeny\b|(?<!Permission )\bdenied\b|forbidden|unauthori[sz]ed(?! (?:use|access) )|no access|suspended|revoked|rejected"
    r"|blocked|must be approved|requires? (?:an? )?approv|(?:account|access|user).{0,40}(?:disabled|locked)",
    re.IGNORECASE,
)
_BANNER = re.compile(r"prohibited|prosecut|monitored|logged|authori[sz]ed (?:use|user|access)", re.IGNORECASE)


def _words_above(lines: list[str], at: int, told: dict[int, Hit]) -> Hit | None:
    """What a proxy, gateway or server said before the hang-up in line `at` (0-based): a refusal, or the proxy's failure.
    None where an error that is known stands there, or nothing does. Other words of a server may be its banner: they are
    shown with the hang-up, which stays the cause."""
    for back in range(at - 1, max(-1, at - 8), -1):
        hit = told.get(back + 1)
        if hit is not None and hit.cause.cause in HANG_UPS:
            continue
        if hit is not None:
            return None
        line = lines[back].strip()
        if not line or _NOT_WORDS.match(line):
            continue
        if _DENIAL.search(line) and not _BANNER.search(line):
            return Hit(back + 1, line[:2000], CAUSES["policy-denied"])
        if _PROXIED.search("\n".join(lines[at : at + 2])):
            return Hit(back + 1, line[:2000], CAUSES["proxy-command-failed"])
        return Hit(back + 1, line[:2000], told[at + 1].cause) if at + 1 in told else None
    return None


_CHANNEL = re.compile(
    r"ChannelOpenError(?:\(| code=| )\D{0,20}(?P<code>\d)|ChannelException: \((?P<para>\d),"
)
_FORWARD = re.compile(r"forward|AllowTcpForwarding|direct-tcpip|PermitOpen|tunnel", re.IGNORECASE)


def find_hits(text: str, *, limit_lines: int = 100_000) -> list[Hit]:
    """Every line of `text` that a rule matches. A refused channel is a forward or a session by the text around it:
    asyncssh says "open failed" for both, only the code differs (1 prohibited, 2 connect failed)."""
    out: list[Hit] = []
    forward, sessions = False, "session" in text
    lines = text.splitlines()[:limit_lines]
    records = ((at, part) for at, line in enumerate(lines, 1) for part in _WRITTEN_OUT.split(line[:2000]))
    for at, shown in records:
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
    added = max((hit.line for hit in out if "Permanently added" in hit.text), default=0)
    # the question whether to trust a key was answered: what came after is the cause
    out = [hit for hit in out if not (hit.cause.cause == "host-key-unknown" and hit.line < added)]
    return _with_words(lines, out)


_WRITTEN_OUT = re.compile(r"(?:\\r)?\\n")
"""Ends of lines that a program wrote out, because it logged what ssh printed as one text."""


def _with_words(lines: list[str], found: list[Hit]) -> list[Hit]:
    told = {hit.line: hit for hit in found}
    if any(hit.cause.cause not in HANG_UPS and hit.cause.cause != "shell-noise" for hit in found):
        return found
    for hit in found:
        if (
            hit.cause.cause in HANG_UPS
            and _ENDED.search(hit.text)
            and (more := _words_above(lines, hit.line - 1, told))
        ):
            return sorted([*found, more], key=lambda h: h.line)
    return found


_LOOSE = {
    "policy-denied",
    "credentials-expired",
    "login-needs-browser",
    "gateway-target-not-running",
    "gateway-needs-terminal",
    "account-not-usable",
    "proxy-command-failed",
}
_SSH = re.compile(r"\bssh\b|Connection (?:closed|reset) by|kex_exchange", re.IGNORECASE)


def speaks_of_ssh(text: str) -> bool:
    """Whether a text is about an SSH connection at all. What a gateway says may stand in other texts too, and counts only
    beside a word of ssh."""
    hits = find_hits(text)
    return any(hit.cause.cause not in _LOOSE for hit in hits) or (bool(hits) and bool(_SSH.search(text)))


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
