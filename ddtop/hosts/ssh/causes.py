"""Every way in which SSH fails us: verdict, severity, meaning and what to do. The words of `ddtop inspect
ssh`."""

from __future__ import annotations

import msgspec


class SshCause(msgspec.Struct, frozen=True):
    """One cause. `retry`: trying again can help (the host is lost, not refused).

    `means` and `do` may hold {names} that `fill` replaces: alias, host, port, user, keys, agent, ssh, forget,
    fingerprint, via.
    """

    cause: str
    verdict: str
    severity: str
    what: str
    means: str
    do: str
    retry: bool = False


_ALL = (
    SshCause(
        "host-key-changed",
        "refused",
        "critical",
        "the host key is not the one in known_hosts",
        "either the machine was installed anew or is another one, or someone sits in between. "
        "{fingerprint}ddtop "
        "never accepts a changed key by itself and resumes nothing on it",
        "compare the fingerprint with the provider's console; only if it is right: {forget}, then {ssh}",
    ),
    SshCause(
        "host-key-unknown",
        "refused",
        "error",
        "the host key is not known here yet",
        "ssh would ask whether to trust it; ddtop does not ask. {fingerprint}asyncssh says the same for a "
        "changed "
        "key; {looked}",
        "compare the fingerprint with the provider's console, then run {ssh} once and answer yes (for rented "
        "machines: StrictHostKeyChecking accept-new in ~/.ssh/config)",
    ),
    SshCause(
        "host-key-revoked",
        "refused",
        "critical",
        "the host key is marked @revoked in known_hosts",
        "somebody withdrew this key on purpose. {fingerprint}",
        "do not connect; ask who runs the machine",
    ),
    SshCause(
        "key-needs-passphrase-or-agent",
        "refused",
        "error",
        "the key is protected by a passphrase and no agent holds it",
        "ddtop never prompts, so it can use such a key only through the agent. {agent}",
        "start an agent and add the key (`eval $(ssh-agent)`, `ssh-add {key}`), then start ddtop from that "
        "shell",
    ),
    SshCause(
        "key-wrong-passphrase",
        "refused",
        "error",
        "a private key could not be decrypted",
        "the passphrase is wrong, or the package bcrypt is missing where an OpenSSH key needs it",
        "add the key to the agent (`ssh-add {key}`), and install asyncssh with its bcrypt extra",
    ),
    SshCause(
        "permission-denied",
        "refused",
        "error",
        "permission denied for user {user}",
        "the host accepted none of the offered keys ({keys}). {agent}",
        "check `ssh -v {alias}`; name the right User and IdentityFile in ~/.ssh/config, or put the public "
        "key into "
        "the host's authorized_keys",
    ),
    SshCause(
        "too-many-auth-failures",
        "refused",
        "error",
        "too many keys were offered before the right one",
        "sshd ends the login after MaxAuthTries keys; the agent holds more than that",
        "set `IdentitiesOnly yes` and the one IdentityFile for this host in ~/.ssh/config",
    ),
    SshCause(
        "max-sessions-reached",
        "degraded",
        "warn",
        "sshd refuses one more session on this connection",
        "MaxSessions (default 10) is used up by streams that stay open; the connection itself is fine and "
        "the "
        "host is up",
        "ddtop keeps few channels and queues the rest; end other users of this connection or raise "
        "MaxSessions",
        retry=True,
    ),
    SshCause(
        "forwarding-prohibited",
        "degraded",
        "warn",
        "sshd does not allow port forwarding",
        "AllowTcpForwarding is no (or PermitOpen does not list the port); commands still work",
        "ddtop asks the server through its agent instead; for a jump host set AllowTcpForwarding yes there",
    ),
    SshCause(
        "connection-dropped",
        "disconnected",
        "error",
        "the connection was cut{via}",
        "a command cut off like this has no exit status and partial output: that is unknown, never an empty "
        "answer",
        "a run connects again by itself; jobs on the host go on. If it repeats, look at the network or "
        "sshd's log",
        retry=True,
    ),
    SshCause(
        "closed-before-login",
        "disconnected",
        "error",
        "{host}:{port} closed the connection before a login",
        "what listens there is no sshd, or its sshd turns connections away (MaxStartups, a firewall, a host that "
        "goes down or is not up yet)",
        "`nc {host} {port}` must show a line that begins with SSH-2.0-; else check Port in ~/.ssh/config, then "
        "sshd's log on the machine's console",
        retry=True,
    ),
    SshCause(
        "client-decode-error",
        "disconnected",
        "critical",
        "output that is not UTF-8 made the SSH client close the whole connection",
        "one broken byte of a progress bar ends every stream when output is read as text",
        "read bytes (encoding=None) and decode with errors='replace', as ddtop does",
        retry=True,
    ),
    SshCause(
        "refused-by-port",
        "refused",
        "error",
        "nothing listens on {host}:{port}",
        "the machine is up, but its sshd is not (yet), or listens elsewhere, or a firewall rejects",
        "wait if it is booting; else check Port in ~/.ssh/config and sshd on the machine's console",
        retry=True,
    ),
    SshCause(
        "connect-timeout",
        "disconnected",
        "error",
        "no answer from {host}:{port}{via}",
        "the machine is down, still booting, too busy to answer, or the network in between drops packets",
        "check the provider's console and the VPN; a run goes on trying",
        retry=True,
    ),
    SshCause(
        "host-unreachable",
        "disconnected",
        "error",
        "no route to {host}",
        "the network is down here or there, or a VPN is not up",
        "bring the network up; a run goes on trying",
        retry=True,
    ),
    SshCause(
        "name-not-resolved",
        "error",
        "error",
        "the name {host} does not resolve",
        "neither DNS nor /etc/hosts knows it, and ~/.ssh/config gives no HostName for it",
        "correct the name, add `HostName` for {alias} to ~/.ssh/config, or bring up the VPN that knows it",
    ),
    SshCause(
        "no-common-algorithm",
        "refused",
        "error",
        "the two sides have no algorithm in common",
        "the sshd is very old or very strict, or ~/.ssh/config narrows the list",
        "compare `ssh -vv {alias}` with Ciphers, MACs, KexAlgorithms and HostKeyAlgorithms in ~/.ssh/config",
    ),
    SshCause(
        "not-an-ssh-server",
        "error",
        "error",
        "what answers there does not speak SSH{via}",
        "the port belongs to another service, or a proxy or rc file prints text first",
        "check Port and ProxyCommand in ~/.ssh/config",
    ),
    SshCause(
        "proxy-command-failed",
        "error",
        "error",
        "the connection ended in the proxy{via}",
        "the ProxyCommand is missing, failed, or printed text of its own; the error does not name it",
        "run it by hand: it must print `SSH-2.0-…` first and nothing else",
    ),
    SshCause(
        "identity-file-missing",
        "error",
        "error",
        "a key file does not exist",
        "ssh passes over a missing IdentityFile; asyncssh gives up on it",
        "ddtop leaves missing files out; correct the path if the key was meant to be used",
    ),
    SshCause(
        "known-hosts-missing",
        "error",
        "error",
        "a known_hosts file does not exist yet",
        "ssh would create it; asyncssh gives up. No host was contacted",
        "ddtop takes a missing file for an empty one; run {ssh} once to fill it",
    ),
    SshCause(
        "config-parse-error",
        "error",
        "error",
        "the ssh config cannot be read",
        "ssh would refuse it too; nothing was contacted",
        "correct the line, then check with `ssh -G {alias}`",
    ),
    SshCause(
        "remotecommand-conflict",
        "error",
        "error",
        "ssh refuses a command where the config has a RemoteCommand",
        "`ssh HOST command` fails with 255 there; ddtop does not use ssh and passes over RemoteCommand",
        "nothing for ddtop; for ssh use `ssh -o RemoteCommand=none {alias} …`",
    ),
    SshCause(
        "sftp-broken-by-shell-noise",
        "degraded",
        "warn",
        "the login shell prints text, so SFTP does not work",
        "the first bytes of the greeting are read as a length",
        "make rc files silent for non-interactive shells; ddtop frames its own output and needs no SFTP",
    ),
    SshCause(
        "account-not-usable",
        "refused",
        "error",
        "the login works but the account may run nothing",
        "a nologin shell, an expired password, or a forced command",
        "ask who runs the host; try {ssh}",
    ),
    SshCause(
        "host-booting",
        "refused",
        "warn",
        "the host is up, but still booting (or going down), and lets nobody in yet",
        "pam_nologin refuses every login except root's until systemd says that the boot is done",
        "wait a minute; a run goes on trying",
        retry=True,
    ),
    SshCause(
        "key-file-permissions",
        "refused",
        "error",
        "a private key file is readable by others",
        "ssh refuses such a key and goes on without it",
        "`chmod 600 {key}` and `chmod 700 ~/.ssh`",
    ),
    SshCause(
        "key-format-invalid",
        "refused",
        "error",
        "a private key file cannot be read as a key",
        "it is cut, is a public key, has Windows line ends, or is in a form this program does not know",
        "check it with `ssh-keygen -y -f {key}`; copy it again, or convert it (`ssh-keygen -p -f {key}`)",
    ),
    SshCause(
        "agent-refused",
        "refused",
        "error",
        "the agent refused to sign",
        "it asks for a confirmation or a touch that nobody gave, or its key is locked",
        "unlock or confirm the key (`ssh-add -l`, touch the token), then try again",
    ),
    SshCause(
        "config-permissions",
        "error",
        "error",
        "~/.ssh/config may be written by others, so ssh refuses it",
        "nothing was contacted",
        "`chmod 600 ~/.ssh/config`, and let it belong to you",
    ),
    SshCause(
        "login-throttled",
        "refused",
        "warn",
        "sshd closed the connection before the login",
        "too many logins at once (MaxStartups), a penalty for earlier failures, or a ban (fail2ban, "
        "hosts.deny)",
        "wait a minute and try once; use one connection for all (ddtop does); ask for a higher MaxStartups",
        retry=True,
    ),
    SshCause(
        "control-socket-stale",
        "degraded",
        "warn",
        "ssh's shared connection (ControlMaster) is dead",
        "its socket is left over; ddtop does not use it",
        "remove the socket or run `ssh -O exit {alias}`",
    ),
    SshCause(
        "local-port-in-use",
        "error",
        "error",
        "a forwarded port is already in use here",
        "another program, or an older tunnel, listens on it",
        "end that one (`ss -ltnp`), or choose another port",
    ),
    SshCause(
        "sudo-needs-password",
        "error",
        "error",
        "sudo asks for a password",
        "ddtop never prompts, so what needs root cannot be done there",
        "allow the commands by NOPASSWD in sudoers, or log in as root",
    ),
    SshCause(
        "host-out-of-processes",
        "error",
        "error",
        "the host cannot start another process",
        "its process limit or its memory is used up",
        "end what fills it (`ps -u {user}`), raise TasksMax or ulimit -u",
    ),
    SshCause(
        "python-missing",
        "error",
        "error",
        "there is no python3 on the host",
        "ddtop's agent needs one (3.8 or newer)",
        "install python3 there",
    ),
    SshCause(
        "shell-noise",
        "ok",
        "info",
        "the login shell prints warnings",
        "harmless: ddtop takes its answers from between its own marks",
        "nothing for ddtop; make rc files silent for other tools",
    ),
    SshCause(
        "ssh-error",
        "error",
        "error",
        "the SSH connection failed{via}",
        "ddtop has no rule for this error; its text is all there is",
        "try {ssh} and `ssh -v {alias}`",
        retry=True,
    ),
)

CAUSES: dict[str, SshCause] = {cause.cause: cause for cause in _ALL}


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def fill(text: str, **context: str) -> str:
    """Put the context into a sentence; names without a value vanish."""
    return " ".join(text.format_map(_Blank(context)).split())
