"""SSH by configs and texts that are no cases."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.inspect import NotJudgedError
from ddtop.inspect.ssh import default_query, diagnose_ssh


def judge(host: str | None = None, **files: str | bytes) -> dict[str, Any]:
    named = {n.replace("__", "."): t.encode() if isinstance(t, str) else t for n, t in files.items()}
    return diagnose_ssh(named, host)


@pytest.mark.parametrize(
    ("text", "verdict", "cause"),
    [
        ("Host g\n HostName 1.2.3.4\n", "ok", "config-resolved"),
        ("Host g\n ProxyJump a\n", "ok", "proxyjump"),
        ("Host g\n ProxyCommand nc %h %p\n", "ok", "proxycommand"),
        ("Host g\n ProxyJump a\nHost a\n ProxyJump b\n", "degraded", "nested-proxyjump-unsupported"),
        ("Host g\n IdentityFile /no/such/key\n", "ok", "identity-file-missing-tolerated"),
        ("Host g\n StrictHostKeyChecking no\n", "ok", "host-key-checking-translated"),
        ("Host g\n RequestTTY force\n", "ok", "remotecommand-ignored"),
        ("Match host g\n User x\n", "ok", "match-supported"),
        ('Match host g exec "curl http://x/"\n User x\n', "partial", "match-exec-not-run"),
        ("Host g\n Port many\n", "error", "config-parse-error"),
    ],
)
def test_configs(text: str, verdict: str, cause: str) -> None:
    got = judge("g", input__config=text)
    assert (got["verdict"], got["cause"]) == (verdict, cause)
    assert got["advice"] and got["evidence"]


def test_all_options_are_shown() -> None:
    got = judge(
        "g",
        input__config="Host g\n ServerAliveInterval 5\n IdentitiesOnly yes\n ForwardAgent yes\n ControlPath /x\n",
    )
    assert (got["server_alive_interval"], got["identities_only"], got["control_path"]) == (5, True, "/x")


def test_the_place_of_a_bad_line_has_no_temporary_name() -> None:
    got = judge("g", input__config="Host g\n Port many\n")
    assert "input.config line 2" in got["evidence"][0]["text"] and "/tmp" not in got["evidence"][0]["text"]


def test_files_may_not_leave_their_folder(tmp_path: Any) -> None:
    got = diagnose_ssh(
        {"../../evil": b"Host g\n User evil\n", "input.config": b"Include ../../evil\nHost g\n Port 7\n"}, "g"
    )
    assert got["port"] == 7 and got["user"] != "evil"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Host a\n", "a"),
        ("Host *\nHost b c\n", "b"),
        ("Host *.x !y\nHost = z\n", "z"),
        ("Match host m\n", "m"),
        ("CanonicalDomains d.net\nHost q.d.net\n", "q"),
        ("# nothing\n", None),
    ],
)
def test_the_host_a_config_is_about(text: str, want: str | None) -> None:
    assert default_query(text) == want


@pytest.mark.parametrize(
    ("text", "verdict", "cause", "severity"),
    [
        (
            "Host key verification failed.\nNo ED25519 host key is known for gpu1 and you have requested strict checking.",
            "refused",
            "host-key-unknown",
            "error",
        ),
        (
            "PermissionDenied code=14: Permission denied for user root on host 127.0.0.1",
            "refused",
            "permission-denied",
            "error",
        ),
        (
            "KeyImportError: Passphrase must be specified to import encrypted private keys",
            "refused",
            "key-needs-passphrase-or-agent",
            "error",
        ),
        ("ok\nChannelOpenError code=2 open failed", "degraded", "max-sessions-reached", "warn"),
        (
            "direct-tcpip to 127.0.0.1:30000\nChannelOpenError code=1 open failed",
            "degraded",
            "forwarding-prohibited",
            "warn",
        ),
        ("ConnectionLost: Connection lost", "disconnected", "connection-dropped", "error"),
        ("client_loop: send disconnect: Broken pipe", "disconnected", "connection-dropped", "error"),
        ("ssh: connect to host gpu1 port 22: Connection refused", "refused", "refused-by-port", "error"),
    ],
)
def test_texts(text: str, verdict: str, cause: str, severity: str) -> None:
    got = judge(input__txt=text)
    assert (got["verdict"], got["cause"], got["severity"]) == (verdict, cause, severity)
    assert got["means"] and got["evidence"][0]["line"] >= 1 and "{" not in got["advice"]


def test_asyncssh_text_is_told_apart_by_what_is_known_of_known_hosts() -> None:
    text = "HostKeyNotVerifiable code=9: Host key is not trusted for host 127.0.0.1"
    for meta, cause in (
        ("key in known_hosts differs", "host-key-changed"),
        ("host not in known_hosts", "host-key-unknown"),
    ):
        assert judge(input__txt=text, meta__toml=f'input = "{meta}"\n')["cause"] == cause
    assert judge(input__txt=text)["cause"] == "host-key-unknown"


def test_a_frame_in_noise_and_a_cut_one() -> None:
    whole = "Last login: x\n__P_BEGIN_91bc__\n{}\n__P_END_91bc__ rc=3\n"
    got = judge(input__stdout=whole)
    assert (got["verdict"], got["rc"], got["noise_lines"]) == ("error", 3, 1)
    got = judge(input__stdout=whole[:30])
    assert (got["verdict"], got["cause"]) == ("partial", "output-cut-off") and "payload" not in got


def test_output_without_marks() -> None:
    got = judge(input__stdout='hello\r\n{"gpus": 8}\r\n')
    assert (got["cause"], got["payload"], got["noise_lines"], got["line_end"]) == (
        "output-unframed",
        '{"gpus": 8}',
        1,
        "CRLF",
    )


def test_broken_bytes() -> None:
    got = judge(input__bin=b"GPU \xfe ok")
    assert (got["cause"], got["stdout_expected_replace"]) == ("client-decode-error", "GPU \ufffd ok")


def test_nothing_about_ssh() -> None:
    with pytest.raises(NotJudgedError):
        judge(input__txt="all is well\n")
    with pytest.raises(NotJudgedError):
        diagnose_ssh({})
