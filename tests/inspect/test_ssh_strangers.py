"""What gateways, proxies and clients of many versions print: the line that says why decides, not the hang-up below it.

The texts are those of OpenSSH 8 to 10, Tailscale, Teleport, cloudflared, AWS SSM, gcloud IAP, rented GPU hosts and
bastions, as their users quote them.
"""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.hosts.ssh.causes import CAUSES, DEFAULTS, fill
from ddtop.hosts.ssh.error_texts import speaks_of_ssh
from ddtop.inspect import NotJudgedError
from ddtop.inspect.ssh import diagnose_ssh

CLOSED = "Connection closed by UNKNOWN port 65535\n"
KEX = "kex_exchange_identification: Connection closed by remote host\n"


def judge(text: str, **more: str) -> dict[str, Any]:
    files = {n.replace("__", "."): t.encode() for n, t in more.items()}
    return diagnose_ssh({"input.txt": text.encode(), **files})


FIRST_LINE = [
    (
        'tailscale: tailnet policy does not permit you to SSH as user "root"\n' + CLOSED,
        "refused",
        "tailscale-policy",
    ),
    (
        "debug1: Connecting to gpu\n# Tailscale SSH requires an additional check.\n"
        "# To authenticate, visit: https://login.tailscale.com/a/0123456789ab\n"
        "Connection closed by 100.64.0.7 port 22\n",
        "refused",
        "login-needs-browser",
    ),
    (
        'tailscale: failed to look up local user "ml"\nConnection closed by 100.64.0.7 port 22\n',
        "refused",
        "account-not-usable",
    ),
    (
        "ERROR: access denied to root connecting to gpu7.example.org:0\n" + KEX + CLOSED,
        "refused",
        "policy-denied",
    ),
    (
        "ERROR: your credentials have expired, please login using 'tsh login'\n" + KEX + CLOSED,
        "refused",
        "credentials-expired",
    ),
    (
        '2025-03-01T10:00:00Z ERR failed to connect to origin error="websocket: bad handshake" '
        "originURL=https://ssh.example.org\n" + KEX + CLOSED,
        "error",
        "proxy-command-failed",
    ),
    (
        "Please open the following URL and log in with your Cloudflare account:\n\n"
        "https://example.cloudflareaccess.com/cdn-cgi/access/cli?token=x\n\n"
        "Leave cloudflared running to download the token automatically.\n" + CLOSED,
        "refused",
        "login-needs-browser",
    ),
    (
        "\nAn error occurred (TargetNotConnected) when calling the StartSession operation: i-0abc is not connected.\n"
        + KEX
        + CLOSED,
        "error",
        "proxy-command-failed",
    ),
    (
        "An error occurred (AccessDeniedException) when calling the StartSession operation: User: "
        "arn:aws:iam::1:user/a is not authorized to perform: ssm:StartSession on resource: i-0\n"
        + KEX
        + CLOSED,
        "refused",
        "policy-denied",
    ),
    (
        "The SSO session associated with this profile has expired or is otherwise invalid. To refresh this SSO "
        "session run aws sso login with the corresponding profile.\n" + CLOSED,
        "refused",
        "credentials-expired",
    ),
    (
        "SessionManagerPlugin is not found. Please refer to SessionManager Documentation here: http://docs.aws\n"
        + KEX
        + CLOSED,
        "error",
        "proxy-command-failed",
    ),
    (
        "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4033: 'not authorized'].\n"
        + KEX
        + CLOSED,
        "refused",
        "policy-denied",
    ),
    (
        "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4003: 'failed to connect to backend'].\n"
        + KEX
        + CLOSED,
        "error",
        "proxy-command-failed",
    ),
    (
        "channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed\n"
        + KEX
        + CLOSED,
        "refused",
        "forwarding-prohibited",
    ),
    (
        "channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n" + KEX + CLOSED,
        "disconnected",
        "host-unreachable",
    ),
    (
        "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n" + CLOSED,
        "refused",
        "refused-by-port",
    ),
    (
        "channel 0: open failed: connect failed: Temporary failure in name resolution\nstdio forwarding failed\n"
        + CLOSED,
        "error",
        "name-not-resolved",
    ),
    (
        "channel 0: open failed: connect failed: Connection timed out\nstdio forwarding failed\n" + CLOSED,
        "disconnected",
        "connect-timeout",
    ),
    ("nc: proxy read: Connection refused by destination\n" + CLOSED, "refused", "refused-by-port"),
    ("FATAL: host gpu7 is in maintenance mode until 14:00\n" + CLOSED, "error", "proxy-command-failed"),
    ("bash: line 1: exec: corkscrew: not found\n" + CLOSED, "error", "proxy-command-failed"),
    ("/bin/sh: 1: exec: cloudflared: not found\n" + KEX + CLOSED, "error", "proxy-command-failed"),
    ("jump@bastion: Permission denied (publickey).\n" + KEX + CLOSED, "refused", "permission-denied"),
    (
        "Your account has been suspended. Contact support.\nConnection closed by 10.1.2.3 port 22\n",
        "refused",
        "policy-denied",
    ),
    (
        "setlocale: LC_ALL: cannot change locale (de_DE)\nConnection reset by 10.1.2.3 port 22\n",
        "disconnected",
        "connection-dropped",
    ),
    (
        "Welcome to vast.ai. If authentication fails, try again after a few seconds, and double check your ssh key.\n"
        "Have fun!\nroot@ssh4.vast.ai: Permission denied (publickey).\n",
        "refused",
        "permission-denied",
    ),
    (
        "************\nAuthorised use only. All activity is logged.\n************\n"
        "Connection reset by 10.1.2.3 port 22\n",
        "disconnected",
        "connection-dropped",
    ),
    (
        "remote error: access to machine 'gpu' requires an approved request. Run: tsh request create\n"
        + KEX
        + CLOSED,
        "refused",
        "policy-denied",
    ),
    ("Too many logins for 'ml'.\nConnection to gpu closed by remote host.\n", "refused", "login-throttled"),
    (
        "Access denied by pam_slurm_adopt: you have no active jobs on this node\nConnection closed by 10.4.4.4 port 22\n",
        "refused",
        "policy-denied",
    ),
    (
        "mkdir: cannot create directory '/home/u': Permission denied\nConnection to gpu closed by remote host.\n",
        "disconnected",
        "connection-dropped",
    ),
    (
        "Certificate invalid: expired\nroot@h: Permission denied (publickey).\n",
        "refused",
        "credentials-expired",
    ),
    (
        "Unauthorized access is prohibited!\nConnection closed by 10.0.0.1 port 22\n",
        "disconnected",
        "connection-dropped",
    ),
    (
        'ERROR: Teleport proxy failed to connect to "node" agent "@local-node" over reverse tunnel:\n\n'
        "  no tunnel connection found\n\nThis usually means that the agent is offline or has disconnected.\n"
        + KEX,
        "error",
        "proxy-command-failed",
    ),
]
UNKNOWN = [
    (
        "paramiko.ssh_exception.NoValidConnectionsError: [Errno None] Unable to connect to port 22 on 10.0.0.9\n",
        "refused",
        "refused-by-port",
    ),
    (
        "paramiko.ssh_exception.SSHException: Error reading SSH protocol banner\n",
        "disconnected",
        "closed-before-login",
    ),
    (
        "ssh_dispatch_run_fatal: Connection to 10.0.0.9 port 22: Connection corrupted\n",
        "disconnected",
        "connection-dropped",
    ),
    (
        "WARNING: Your password has expired.\nPassword change required but no TTY available.\n",
        "refused",
        "account-not-usable",
    ),
    ("stty: 'standard input': Inappropriate ioctl for device\nLinux\n", "ok", "shell-noise"),
    (
        "CreateProcessW failed error:2\nposix_spawnp: No such file or directory\n",
        "error",
        "proxy-command-failed",
    ),
    (
        "channel 0: open failed: unknown channel type: unsupported channel type\nstdio forwarding failed\n"
        + KEX
        + CLOSED,
        "refused",
        "forwarding-prohibited",
    ),
    (
        "Error: SSH is not supported for this instance type\nConnection closed by 5.6.7.8 port 22\n",
        "refused",
        "policy-denied",
    ),
    (
        "ControlPath too long ('/home/someone/.ssh/master-x@gpu:22' >= 108 bytes)\n",
        "error",
        "control-path-too-long",
    ),
    (
        "unix_listener: cannot bind to path /home/u/.ssh/cm/abc.XyZ: No such file or directory\n",
        "error",
        "control-path-unusable",
    ),
    (
        "ControlSocket /tmp/cm-u already exists, disabling multiplexing\nLinux\n",
        "degraded",
        "control-socket-stale",
    ),
    (
        "** WARNING: connection is not using a post-quantum key exchange algorithm.\n"
        '** This session may be vulnerable to "store now, decrypt later" attacks.\n'
        "** The server may need to be upgraded. See https://openssh.com/pq.html\n"
        "root@10.0.0.9: Permission denied (publickey).\n",
        "refused",
        "permission-denied",
    ),
    (
        "Warning: Permanently added '[1.2.3.4]:40022' (ED25519) to the list of known hosts.\nLinux gpu7\n",
        "ok",
        "shell-noise",
    ),
    ("the input device is not a TTY\n", "error", "gateway-needs-terminal"),
    ("Error: this gateway requires an interactive terminal (PTY)\n", "error", "gateway-needs-terminal"),
    (
        "PTY allocation request failed on channel 0\n"
        "Hi u! You've successfully authenticated, but GitHub does not provide shell access.\n",
        "refused",
        "account-not-usable",
    ),
    (
        'Please login as the user "ubuntu" rather than the user "root".\n\nConnection to 3.4.5.6 closed.\n',
        "refused",
        "account-not-usable",
    ),
    (
        "This service allows sftp connections only.\nConnection to h closed.\n",
        "refused",
        "account-not-usable",
    ),
    (
        "no such identity: /home/u/.ssh/gpu: No such file or directory\nu@10.0.0.9: Permission denied (publickey).\n",
        "refused",
        "identity-file-missing",
    ),
    (
        "ssh_askpass: exec(/usr/bin/ssh-askpass): No such file or directory\nHost key verification failed.\n",
        "refused",
        "host-key-unknown",
    ),
    (
        "kex_exchange_identification: banner line contains invalid characters\n"
        "banner exchange: Connection to 10.0.0.9 port 443: invalid format\n",
        "error",
        "not-an-ssh-server",
    ),
    (
        "ssh_dispatch_run_fatal: Connection to 10.0.0.9 port 22: message authentication code incorrect\n",
        "disconnected",
        "connection-dropped",
    ),
    ("OpenSSL version mismatch. Built against 30000070, you have 30200020\n", "error", "ssh-client-broken"),
    (
        "/home/u/.ssh/config line 12: keyword identityfile extra arguments at end of line\n",
        "error",
        "config-parse-error",
    ),
    ("/home/u/.ssh/config line 3: Bad SSH2 KexAlgorithms 'foo'.\n", "error", "config-parse-error"),
    ("ssh: connect to host 10.0.0.9 port 22: Operation not permitted\n", "error", "blocked-on-this-machine"),
    ("ssh: connect to host 10.0.0.9 port 22: Host is down\n", "disconnected", "host-unreachable"),
    ("subsystem request failed on channel 0\nscp: Connection closed\n", "degraded", "sftp-not-offered"),
    (
        "sign_and_send_pubkey: no mutual signature supported\nu@h: Permission denied (publickey).\n",
        "refused",
        "no-common-algorithm",
    ),
    (
        "debug1: expecting SSH2_MSG_KEX_ECDH_REPLY\nConnection timed out during banner exchange\n",
        "disconnected",
        "connect-timeout",
    ),
    (
        'Load key "/root/.ssh/id_rsa": Permission denied\nroot@h: Permission denied (publickey).\n',
        "refused",
        "key-file-permissions",
    ),
    ("u@h's password: \nPermission denied, please try again.\n", "refused", "permission-denied"),
    (
        'debug1: Authentication succeeded (publickey).\nAuthenticated to 10.0.0.9 ([10.0.0.9]:22) using "publickey".\n'
        "debug1: Exit status 0\n",
        "ok",
        "connected",
    ),
    (
        "Received disconnect from 10.0.0.9 port 22:14: No supported authentication methods available\n"
        "Disconnected from 10.0.0.9 port 22\n",
        "refused",
        "permission-denied",
    ),
    (
        "Error response from daemon: container 5f2 is not running\nConnection to ssh.runpod.io closed.\n",
        "error",
        "gateway-target-not-running",
    ),
]


@pytest.mark.parametrize(("text", "verdict", "cause"), FIRST_LINE + UNKNOWN)
def test_the_line_that_says_why_decides(text: str, verdict: str, cause: str) -> None:
    got = judge(text)
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    assert got["advice"] and "``" not in got["advice"] and "` `" not in got["advice"]


def test_words_of_a_gateway_are_shown_also_where_they_are_not_known() -> None:
    got = judge("The sun is too bright today for GPUs.\nConnection closed by 10.1.2.3 port 22\n")
    assert got["cause"] == "connection-dropped"
    assert any("too bright" in e["text"] for e in got["evidence"])


@pytest.mark.parametrize("text", ["GPU 0: fine\n$ echo $?\n255\n", "Linux gpu7 6.1\nrc=255\n"])
def test_a_status_of_255_is_never_fine(text: str) -> None:
    noise = "** WARNING: connection is not using a post-quantum key exchange algorithm.\n"
    got = judge(noise + text)
    assert (got["verdict"], got["cause"]) == ("error", "ssh-error")


def test_a_command_that_failed_behind_a_warning_is_told() -> None:
    noise = "** WARNING: connection is not using a post-quantum key exchange algorithm.\n"
    got = judge(noise + "cat: /x: No such file or directory\n$ echo $?\n1\n")
    assert (got["verdict"], got["cause"], got["rc"]) == ("error", "command-failed", 1)


@pytest.mark.parametrize(
    "text", ["Dear colleague,\nthe meeting is at noon.\n", "root:x:0:0:root:/root:/bin/bash\n"]
)
def test_other_texts_are_not_judged(text: str) -> None:
    with pytest.raises(NotJudgedError):
        judge(text)


def test_words_of_gateways_make_no_text_one_about_ssh() -> None:
    mail = (
        "Dear all,\nyour session has expired, please log in again in your browser.\nThe pod is not running.\n"
    )
    assert not speaks_of_ssh(mail)
    assert speaks_of_ssh("Error: Your SSH client doesn't support PTY\n")
    assert speaks_of_ssh(FIRST_LINE[0][0])


NAMES = [
    ('Load key "/home/user/.ssh/id_gpu": invalid format\n', "/home/user/.ssh/id_gpu", ".ssh/id_ed25519"),
    ('Load key "/home/u/.ssh/k.pub": error in libcrypto\n', "/home/u/.ssh/k", "-f /home/u/.ssh/k.pub"),
    ("Permissions 0644 for '/keys/lambda.pem' are too open.\n", "/keys/lambda.pem", "id_ed25519"),
    ('Load key "C:\\\\Users\\\\u\\\\.ssh\\\\id_rsa": invalid format\n', "id_rsa", "id_ed25519"),
    ('Load key "/k/a b": invalid format\n', "'/k/a b'", "id_ed25519"),
    ("Enter passphrase for key '/home/u/.ssh/work': \n", "/home/u/.ssh/work", "id_ed25519"),
    ("ssh: connect to host 10.9.8.7 port 2201: Connection refused\n", "", "HOST"),
    ("ubuntu@132.145.0.9: Permission denied (publickey).\n", "132.145.0.9", "HOST"),
    (
        "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.9.8.7 port 2201\n",
        "",
        "HOST",
    ),
    ('Please login as the user "ubuntu" rather than the user "root".\n', "User ubuntu", "User root"),
    ("ssh: Could not resolve hostname gpu77: Name or service not known\n", "gpu77", "HOST"),
    ("ControlSocket /tmp/cm-u already exists, disabling multiplexing\n", "/tmp/cm-u", "``"),
]


@pytest.mark.parametrize(("text", "has", "has_not"), NAMES)
def test_advice_names_what_the_message_names(text: str, has: str, has_not: str) -> None:
    got = judge(text)
    assert has in got["advice"] and has_not not in got["advice"], got["advice"]


@pytest.mark.parametrize("line", ['Load key "/home/user/.ssh/id_ecdsa.pub": error in libcrypto\n'])
def test_a_public_half_is_said_to_be_one_also_beside_a_config(line: str) -> None:
    config = "Host gpu1\n HostName 192.0.2.15\n User user\n IdentityFile ~/.ssh/id_ecdsa.pub\n"
    for got in (judge(line), judge(line, input__config=config, query__txt="gpu1")):
        assert got["cause"] == "key-format-invalid"
        assert "public" in got["advice"] and "/home/user/.ssh/id_ecdsa" in got["advice"]


def test_no_sentence_has_a_hole() -> None:
    for cause in CAUSES.values():
        for text in (cause.what, cause.means, cause.do):
            for shown in (fill(text), fill(text, host="", key="", user="", alias="")):
                assert "``" not in shown and "` " not in shown[:1] and "{" not in shown, (cause.cause, shown)
                assert not shown.endswith(("for user", "-f", "to")), (cause.cause, shown)
                assert " ()" not in shown and "( )" not in shown and "()" not in shown, (cause.cause, shown)
    assert set(DEFAULTS) >= {
        "alias",
        "host",
        "port",
        "user",
        "keys",
        "key",
        "agent",
        "ssh",
        "forget",
        "looked",
    }
