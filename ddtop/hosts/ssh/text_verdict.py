"""Of all lines that tell of an SSH failure: which one is the cause, and which key, host and user they name. Pure.

What stands above "Connection closed by" or "reset by" comes from the proxy, the gateway or the server, and is the
cause; the hang-up is only how it ended.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from ddtop.hosts.ssh.causes import CAUSES, SshCause
from ddtop.hosts.ssh.error_texts import HANG_UPS, Hit

_FIRST = (
    "client-decode-error",
    "host-key-changed",
    "host-key-revoked",
    "host-key-unknown",
    "key-needs-passphrase-or-agent",
    "key-file-permissions",
    "key-format-invalid",
    "identity-file-missing",
    "agent-refused",
    "key-wrong-passphrase",
    "no-common-algorithm",
    "too-many-auth-failures",
    "tailscale-policy",
    "login-needs-browser",
    "credentials-expired",
    "account-not-usable",
    "permission-denied",
)
"""Causes that explain others beside them, whichever line comes first."""
_LAST = ("sftp-broken-by-shell-noise", "control-socket-stale", "remotecommand-conflict")
_CALM = ("shell-noise", "connected")
_STDIO = re.compile(r"^stdio forwarding failed", re.MULTILINE)


def _rank(cause: str) -> int:
    if cause in _FIRST:
        return _FIRST.index(cause)
    if cause in _CALM:
        return 100 + _CALM.index(cause)
    if cause in _LAST:
        return 90
    return 80 if cause in HANG_UPS else 50


def best_cause(hits: Sequence[Hit], text: str) -> SshCause:
    """The cause that explains the other lines; `hits` is not empty, `text` what they were found in.

    A wrong key beside "Permission denied" is a refusal. A forward that a jump host forbids means that there is no way
    through it; elsewhere commands still work.
    """
    best = min(enumerate(hits), key=lambda item: (_rank(item[1].cause.cause), item[0]))[1].cause
    names = {hit.cause.cause for hit in hits}
    if best.cause == "identity-file-missing" and "permission-denied" in names:
        return msgspec.structs.replace(best, verdict="refused")
    if best.cause == "forwarding-prohibited" and _STDIO.search(text):
        return msgspec.structs.replace(
            best,
            verdict="refused",
            severity="error",
            what="the jump host's sshd does not allow port forwarding",
            means="ProxyJump needs it; AllowTcpForwarding is no there, or PermitOpen does not list the host behind it",
            do="set `AllowTcpForwarding yes` in sshd_config of the jump host, or go over another one",
        )
    return best


_KEYS = (
    re.compile(r'Load key "(?P<p>[^"\n]{1,500})"'),
    re.compile(r"Permissions \d{3,4} for '(?P<p>[^'\n]{1,500})' are too open"),
    re.compile(r"no such identity: (?P<p>[^\n]{1,500}?): "),
    re.compile(r"Enter passphrase for (?:key )?[\"']?(?P<p>[^\"'\n:]{1,500})[\"']?"),
    re.compile(r'signing failed for \S{1,40} "(?P<p>[^"\n]{1,500})"'),
    re.compile(r"'?(?P<p>[^\s'\"]{1,500})'? is not a valid (?:OPENSSH|RSA) private key"),
)
_HOSTS = (
    re.compile(r"connect to (?:host|address) (?P<h>\S{1,255}) port (?P<p>\d{1,5})"),
    re.compile(r"^(?P<u>[\w.\-+@]{1,64})@(?P<h>[\w.\-:\[\]]{1,255}): Permission denied", re.MULTILINE),
    re.compile(
        r"(?:closed|reset) by (?:authenticating |invalid )?(?:user (?P<u>\S{1,64}) )?(?P<h>[\w.\-:]{1,255}) port (?P<p>\d{1,5})"
    ),
    re.compile(
        r"(?:disconnect from|Disconnected from|negotiate with|Connection to) (?P<h>[\w.\-:]{1,255}) port (?P<p>\d{1,5})"
    ),
    re.compile(r"Could not resolve hostname (?P<h>[^\s:]{1,255})"),
    re.compile(r"Permission denied for user (?P<u>\S{1,64}) on host (?P<h>[\w.\-:]{1,255})"),
    re.compile(r"Connection to (?P<h>[\w.\-:]{1,255}) closed by remote"),
)
_LOGIN_AS = re.compile(r"login as the user \"?(?P<u>[\w.\-]{1,64})\"?", re.IGNORECASE)
_SOCKET = re.compile(r"(?:Control ?[Ss]ocket(?: connect\()? ?|path:? [\"']?)(?P<p>/[^\s\"'):]{1,300})")


def names_in(text: str, hits: Sequence[Hit] = ()) -> dict[str, str]:
    """What the messages name, as context of the sentences of causes.toml: key, host, port, user, the words of a gateway.
    What they do not name is absent."""
    out: dict[str, str] = {}
    if found := next((m for pattern in _KEYS if (m := pattern.search(text))), None):
        path = found["p"].strip()
        if path.endswith(".pub"):
            private = shlex.quote(path[:-4])
            out["public"] = f"{path} is the public half: name the private key {private} as IdentityFile, and "
            path = path[:-4]
        out["key"] = path if path.startswith("~/") else shlex.quote(path)
    for pattern in _HOSTS:
        got: dict[str, Any] = m.groupdict() if (m := pattern.search(text)) else {}
        if got.get("h") and got["h"] != "UNKNOWN":
            out.setdefault("host", got["h"])
            if got.get("p"):
                out.setdefault("port", got["p"])
        if got.get("u"):
            out.setdefault("user", got["u"])
    if "host" in out:
        login = f"{out['user']}@{out['host']}" if "user" in out else out["host"]
        port = f"-p {out['port']} " if out.get("port", "22") != "22" else ""
        out["alias"], out["ssh"] = out["host"], f"`ssh {port}{login} true`"
    if other := _LOGIN_AS.search(text):
        out["as_user"] = f"set `User {other['u']}` for this host in ~/.ssh/config; else "
    if socket := _SOCKET.search(text):
        out["socket"] = f" (`{socket['p']}`)"
    said = next((h.text for h in hits if h.cause.cause in _QUOTED), None)
    if said:
        out["words"] = f": “{said[:200]}”"
    return out


_QUOTED = {
    name for name, cause in CAUSES.items() if "{words}" in cause.what + cause.means and name not in HANG_UPS
}
