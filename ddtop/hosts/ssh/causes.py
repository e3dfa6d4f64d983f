"""Every SSH failure ddtop knows: verdict, severity, what it means and what to do. `ddtop inspect ssh` shows these."""

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
        "the machine was reinstalled, another machine has this address, or the connection is "
        "being intercepted. {fingerprint}ddtop never accepts a changed key by itself, and resumes"
        " nothing on that host",
        "compare the fingerprint with the provider's console; if it is the right one: {forget}, then {ssh}",
    ),
    SshCause(
        "host-key-unknown",
        "refused",
        "error",
        "the host key is not in known_hosts",
        "ssh would ask whether to trust it; ddtop does not ask. {fingerprint}asyncssh reports a "
        "changed key in the same words; {looked}",
        "compare the fingerprint with the provider's console, then run {ssh} once and answer yes "
        "(for rented machines: StrictHostKeyChecking accept-new in ~/.ssh/config)",
    ),
    SshCause(
        "host-key-revoked",
        "refused",
        "critical",
        "the host key is marked @revoked in known_hosts",
        "the key was withdrawn on purpose. {fingerprint}",
        "do not connect; ask the host's administrator",
    ),
    SshCause(
        "key-needs-passphrase-or-agent",
        "refused",
        "error",
        "the key has a passphrase, and no SSH agent holds it",
        "ddtop never prompts, so it uses such a key only through the SSH agent. {agent}",
        "start an agent and add the key (`eval $(ssh-agent)`, `ssh-add {key}`), then start ddtop "
        "from that shell",
    ),
    SshCause(
        "key-wrong-passphrase",
        "refused",
        "error",
        "a private key could not be decrypted",
        "the passphrase is wrong, or the Python package bcrypt, which OpenSSH keys need, is missing",
        "add the key to the agent (`ssh-add {key}`), and install asyncssh[bcrypt]",
    ),
    SshCause(
        "permission-denied",
        "refused",
        "error",
        "permission denied for user {user}",
        "the host accepted none of the offered keys ({keys}). {agent}",
        "run `ssh -v {alias}`; set the right User and IdentityFile in ~/.ssh/config, or add the "
        "public key to the host's authorized_keys",
    ),
    SshCause(
        "too-many-auth-failures",
        "refused",
        "error",
        "too many keys were offered before the right one",
        "sshd ends the login after MaxAuthTries keys, and the SSH agent holds more than that",
        "set `IdentitiesOnly yes` and the one IdentityFile for this host in ~/.ssh/config",
    ),
    SshCause(
        "max-sessions-reached",
        "degraded",
        "warn",
        "sshd refuses another session on this connection",
        "streams that stay open use up MaxSessions (default 10); the connection and the host are up",
        "ddtop opens few channels and queues the rest; close other users of this connection, or "
        "raise MaxSessions in sshd_config",
        retry=True,
    ),
    SshCause(
        "forwarding-prohibited",
        "degraded",
        "warn",
        "sshd does not allow port forwarding",
        "AllowTcpForwarding is no, or PermitOpen does not list the port; commands still work",
        "ddtop asks the server through its agent instead; for a jump host set AllowTcpForwarding yes there",
    ),
    SshCause(
        "connection-dropped",
        "disconnected",
        "error",
        "the connection was cut{via}",
        "a command cut off like this has no exit code and only part of its output: its result is "
        "unknown, not empty",
        "a run reconnects by itself, and jobs on the host go on; if it repeats, check the network"
        " and sshd's log",
        retry=True,
    ),
    SshCause(
        "closed-before-login",
        "disconnected",
        "error",
        "{host}:{port} closed the connection before the login",
        "the service on that port is not sshd, or sshd refuses connections (MaxStartups, a "
        "firewall, a host that is booting or shutting down)",
        "`nc {host} {port}` must print a line that begins with SSH-2.0-; if not, check Port in "
        "~/.ssh/config, then sshd's log on the machine's console",
        retry=True,
    ),
    SshCause(
        "client-decode-error",
        "disconnected",
        "critical",
        "the SSH client closed the connection over output that is not UTF-8",
        "when output is read as text, one invalid byte of a progress bar ends every stream",
        "read bytes (encoding=None) and decode with errors='replace', as ddtop does",
        retry=True,
    ),
    SshCause(
        "refused-by-port",
        "refused",
        "error",
        "nothing listens on {host}:{port}",
        "the machine is up, but sshd has not started, listens on another port, or a firewall "
        "rejects the connection",
        "wait if the machine is booting; else check Port in ~/.ssh/config, and sshd on the machine's console",
        retry=True,
    ),
    SshCause(
        "connect-timeout",
        "disconnected",
        "error",
        "no response from {host}:{port}{via}",
        "the machine is down, booting or overloaded, or the network drops the packets",
        "check the provider's console and the VPN; a run keeps trying",
        retry=True,
    ),
    SshCause(
        "host-unreachable",
        "disconnected",
        "error",
        "no route to {host}",
        "the network is down on one side, or the VPN is not up",
        "bring the network up; a run keeps trying",
        retry=True,
    ),
    SshCause(
        "name-not-resolved",
        "error",
        "error",
        "the name {host} does not resolve",
        "DNS and /etc/hosts do not know it, and ~/.ssh/config has no HostName for it",
        "correct the name, add `HostName` for {alias} to ~/.ssh/config, or bring up the VPN whose"
        " DNS knows it",
    ),
    SshCause(
        "no-common-algorithm",
        "refused",
        "error",
        "the two sides have no algorithm in common",
        "sshd is very old or very strict, or ~/.ssh/config narrows the list",
        "compare `ssh -vv {alias}` with Ciphers, MACs, KexAlgorithms and HostKeyAlgorithms in ~/.ssh/config",
    ),
    SshCause(
        "not-an-ssh-server",
        "error",
        "error",
        "the service there does not speak SSH{via}",
        "the port belongs to another service, or a proxy or rc file prints text first",
        "check Port and ProxyCommand in ~/.ssh/config",
    ),
    SshCause(
        "proxy-command-failed",
        "error",
        "error",
        "the connection ended in the proxy{via}",
        "the ProxyCommand is missing, failed, or printed text of its own; SSH reports no more than that",
        "run it by hand: it must print `SSH-2.0-…` first and nothing else",
    ),
    SshCause(
        "identity-file-missing",
        "error",
        "error",
        "a key file does not exist",
        "ssh skips a missing IdentityFile; asyncssh fails on it",
        "ddtop leaves missing files out; correct the path if this key should be used",
    ),
    SshCause(
        "known-hosts-missing",
        "error",
        "error",
        "a known_hosts file does not exist yet",
        "ssh would create it; asyncssh fails on it, before it contacts any host",
        "ddtop treats a missing file as empty; run {ssh} once to create it",
    ),
    SshCause(
        "config-parse-error",
        "error",
        "error",
        "the ssh config cannot be read",
        "ssh would refuse it too; no host was contacted",
        "correct the line, then check with `ssh -G {alias}`",
    ),
    SshCause(
        "remotecommand-conflict",
        "error",
        "error",
        "ssh refuses a command where the config sets RemoteCommand",
        "`ssh HOST command` fails with 255 there; ddtop does not use ssh and ignores RemoteCommand",
        "nothing for ddtop; for ssh use `ssh -o RemoteCommand=none {alias} …`",
    ),
    SshCause(
        "sftp-broken-by-shell-noise",
        "degraded",
        "warn",
        "the login shell prints text, so SFTP does not work",
        "SFTP reads the first bytes of the greeting as a packet length",
        "make rc files silent for non-interactive shells; ddtop marks its own output and needs no SFTP",
    ),
    SshCause(
        "account-not-usable",
        "refused",
        "error",
        "the login works, but the account may not run commands",
        "its shell is nologin, its password has expired, or a forced command is set",
        "run {ssh}, and ask the host's administrator",
    ),
    SshCause(
        "host-booting",
        "refused",
        "warn",
        "the host is booting or shutting down and refuses logins",
        "pam_nologin refuses every login except root's until systemd has finished booting",
        "wait a minute; a run keeps trying",
        retry=True,
    ),
    SshCause(
        "key-file-permissions",
        "refused",
        "error",
        "a private key file is readable by others",
        "ssh ignores such a key",
        "`chmod 600 {key}` and `chmod 700 ~/.ssh`",
    ),
    SshCause(
        "key-format-invalid",
        "refused",
        "error",
        "a private key file cannot be read as a key",
        "it is truncated, is a public key, has Windows line ends, or has a format this program does not know",
        "check it with `ssh-keygen -y -f {key}`; copy it again, or convert it (`ssh-keygen -p -f {key}`)",
    ),
    SshCause(
        "agent-refused",
        "refused",
        "error",
        "the SSH agent refused to sign",
        "it waits for a confirmation or a touch that did not come, or its key is locked",
        "unlock or confirm the key (`ssh-add -l`, touch the token), then try again",
    ),
    SshCause(
        "config-permissions",
        "error",
        "error",
        "~/.ssh/config is writable by others, so ssh refuses it",
        "no host was contacted",
        "`chmod 600 ~/.ssh/config`, and `chown $USER ~/.ssh/config` if it belongs to another user",
    ),
    SshCause(
        "login-throttled",
        "refused",
        "warn",
        "sshd closed the connection before the login",
        "too many logins at once (MaxStartups), a penalty for earlier failures, or a ban "
        "(fail2ban, hosts.deny)",
        "wait a minute and try once; use one connection for everything, as ddtop does; raise "
        "MaxStartups in sshd_config",
        retry=True,
    ),
    SshCause(
        "control-socket-stale",
        "degraded",
        "warn",
        "ssh's shared connection (ControlMaster) is dead",
        "its socket file was left behind; ddtop does not use it",
        "remove the socket or run `ssh -O exit {alias}`",
    ),
    SshCause(
        "local-port-in-use",
        "error",
        "error",
        "a forwarded port is already in use on this machine",
        "another program, or an earlier tunnel, listens on it",
        "end that program (`ss -ltnp` names it), or choose another port",
    ),
    SshCause(
        "sudo-needs-password",
        "error",
        "error",
        "sudo asks for a password",
        "ddtop never prompts, so it cannot do what needs root there",
        "allow the commands by NOPASSWD in sudoers, or log in as root",
    ),
    SshCause(
        "host-out-of-processes",
        "error",
        "error",
        "the host cannot start another process",
        "its process limit or its memory is used up",
        "end the processes that use it up (`ps -u {user}`), or raise TasksMax or ulimit -u",
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
        "harmless: ddtop reads only what stands between its own marks",
        "nothing for ddtop; make rc files silent for other tools",
    ),
    SshCause(
        "ssh-error",
        "error",
        "error",
        "the SSH connection failed{via}",
        "ddtop has no rule for this error; the text is all that is known",
        "run {ssh} and `ssh -v {alias}`",
        retry=True,
    ),
)

CAUSES: dict[str, SshCause] = {cause.cause: cause for cause in _ALL}


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def fill(text: str, **context: str) -> str:
    """Put the context into a sentence; a name without a value becomes nothing."""
    return " ".join(text.format_map(_Blank(context)).split())
