"""What ddtop makes of ssh configs, held against `ssh -G` where ssh is installed."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtop.errors import HostUnreachableError
from ddtop.hosts.ssh.match_exec import harmless_exec
from ddtop.hosts.ssh.resolve import resolve_target, split_jump
from ddtop.hosts.ssh.target import SshTarget

CASES = Path(__file__).parents[1] / "cases"
needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")


def resolve(folder: Path, text: str, host: str = "gpu1", **more: object) -> SshTarget:
    path = folder / "config"
    path.write_text(text)
    return resolve_target(host, config_paths=[path], include_dir=folder, exec_rule=harmless_exec, **more)  # type: ignore[arg-type]


def ssh_g(path: Path, host: str) -> dict[str, list[str]]:
    """`ssh -G`: option → values, lower case names."""
    done = subprocess.run(
        ["ssh", "-G", "-F", str(path), host], capture_output=True, text=True, timeout=20, check=True
    )
    out: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        out.setdefault(name, []).append(value)
    return out


@needs_ssh
@pytest.mark.parametrize(
    ("folder", "file", "host"),
    [
        ("F02-match-exec-and-localuser", "input.config", "gpu1"),
        ("F05-tokens-in-hostname-identity", "input.config", "gpu1"),
        ("F20-control-canon-ipv6-order-quotes", "control.config", "gpu1"),
        ("F20-control-canon-ipv6-order-quotes", "ipv6.config", "gpu6"),
        ("F20-control-canon-ipv6-order-quotes", "order.config", "gpu1"),
        ("F20-control-canon-ipv6-order-quotes", "quote.config", "gpu1"),
        ("F20-control-canon-ipv6-order-quotes", "neg.config", "gpu9.lab"),
        ("F20-control-canon-ipv6-order-quotes", "crlf.config", "gpu1"),
        ("F06-proxycommand-ssm", "input.config", "gpu1"),
    ],
)
def test_cases_resolve_as_ssh_does(folder: str, file: str, host: str) -> None:
    path = CASES / folder / file
    ours = resolve_target(host, config_paths=[path], include_dir=path.parent, exec_rule=harmless_exec)
    theirs = ssh_g(path, host)
    assert [ours.hostname, str(ours.port), ours.user] == [theirs[k][0] for k in ("hostname", "port", "user")]
    named = [f for f in theirs.get("identityfile", []) if not f.startswith("~/.ssh/id_") or "%" in f]
    assert list(ours.identity_files_named) == [f.replace("%h", ours.hostname) for f in named]


words = st.sampled_from(["gpu1", "gpu2", "gpu*", "*", "!gpu2", "*.lab", "gpu?"])
options = st.sampled_from(
    [
        "HostName 192.0.2.7",
        "HostName %h.example.net",
        "Port 2201",
        "User alice",
        "user=bob",
        "  Port = 2202",
        "IdentityFile ~/.ssh/id_%h",
        "IdentitiesOnly yes",
        "HostKeyAlias known",
        "StrictHostKeyChecking no",
        "ProxyJump a@jump:2222",
        "ProxyCommand nc %h %p",
        "ProxyJump none",
        "# a comment",
        "",
    ]
)
block = st.tuples(st.lists(words, min_size=1, max_size=3), st.lists(options, max_size=4))


@needs_ssh
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(block, min_size=1, max_size=4))
def test_random_configs_resolve_as_ssh_does(
    tmp_path: Path, blocks: list[tuple[list[str], list[str]]]
) -> None:
    text = "".join(f"Host {' '.join(names)}\n" + "".join(f"{o}\n" for o in opts) for names, opts in blocks)
    try:
        ours = resolve(tmp_path, text)
    except HostUnreachableError as error:
        assert "circle" in error.what  # ssh would start itself for ever
        return
    theirs = ssh_g(tmp_path / "config", "gpu1")
    assert [ours.hostname, str(ours.port), ours.user] == [theirs[k][0] for k in ("hostname", "port", "user")]
    assert (ours.proxy_jump or "none") == theirs.get("proxyjump", ["none"])[0]
    assert bool(ours.proxy_command) == ("proxycommand" in theirs)
    assert ours.strict == {"false": "no"}.get(
        theirs["stricthostkeychecking"][0], theirs["stricthostkeychecking"][0]
    )
    assert (ours.host_key_alias or "") == theirs.get("hostkeyalias", [""])[0]


def test_nothing_configured(tmp_path: Path) -> None:
    got = resolve(tmp_path, "")
    assert (got.hostname, got.port, got.user, got.route) == ("gpu1", 22, getpass.getuser(), ("gpu1:22",))
    assert got.strict == "ask" and got.notes == () and got.shown == f"{got.user}@gpu1:22"


def test_user_and_port_given_win(tmp_path: Path) -> None:
    got = resolve(tmp_path, "Host gpu1\n  User a\n  Port 1\n", "bob@gpu1:2200")
    assert (got.user, got.port, got.hop) == ("bob", 2200, "bob@gpu1:2200")


def test_includes_in_order_of_names_and_inside_blocks(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10-b").write_text("Host gpu1\n User second\n Port 10\n")
    (tmp_path / "conf.d" / "05-a").write_text("Host gpu1\n User first\n")
    got = resolve(tmp_path, "Host other\n User x\nHost *\nInclude conf.d/*\n  Port 99\n")
    assert (got.user, got.port) == ("first", 10)
    assert [Path(i).name for i in got.included] == ["05-a", "10-b"]


def test_a_missing_include_is_no_error(tmp_path: Path) -> None:
    assert resolve(tmp_path, "Include nowhere/*\nHost gpu1\n Port 5\n").port == 5


def test_an_include_of_itself_is_an_error_for_people(tmp_path: Path) -> None:
    with pytest.raises(HostUnreachableError, match="Include nested too deep"):
        resolve(tmp_path, "Include config\n")


@pytest.mark.parametrize(
    "text",
    [
        "Host gpu1\n Port many\n",
        "Match fancy x\n",
        "Host gpu1\n User 'open\n",
        "Host gpu1\n IdentityFile %Z\n",
        "Host gpu1\n IdentityFile ${DDTOP_NO_SUCH}/x\n",
    ],
)
def test_what_ssh_refuses_is_said_with_the_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(HostUnreachableError) as caught:
        resolve(tmp_path, text)
    assert "ssh config cannot be used" in caught.value.what and "ssh -G gpu1" in caught.value.do


def test_tokens_see_a_hostname_that_comes_later(tmp_path: Path) -> None:
    """asyncssh expands at the end of each file; ssh at the end of all."""
    (tmp_path / "keys").write_text("Host gpu1\n IdentityFile ~/.ssh/id_%h_%r_%n\n")
    got = resolve(tmp_path, "Include keys\nHost gpu1\n HostName box.example\n User u\n")
    assert got.identity_files_named == ("~/.ssh/id_box.example_u_gpu1",)


def test_missing_and_present_identity_files(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("x")
    got = resolve(tmp_path, f"Host *\n IdentityFile {tmp_path}/gone\n IdentityFile {tmp_path}/good\n")
    assert got.identity_files == (f"{tmp_path}/good",) and got.missing_identity_files == (f"{tmp_path}/gone",)
    assert [n.slug for n in got.notes] == ["identity-file-missing"]


def test_the_home_of_nobody_is_left_as_written(tmp_path: Path) -> None:
    got = resolve(tmp_path, "Include ~no-such-user/x\nHost gpu1\n IdentityFile ~no-such-user/key\n")
    assert got.missing_identity_files == ("~no-such-user/key",)


def test_known_hosts_files(tmp_path: Path) -> None:
    got = resolve(tmp_path, f"Host *\n UserKnownHostsFile {tmp_path}/kh.%h\n")
    assert got.known_hosts_new == f"{tmp_path}/kh.gpu1" and f"{tmp_path}/kh.gpu1" not in got.known_hosts
    off = resolve(tmp_path, "Host *\n UserKnownHostsFile /dev/null\n StrictHostKeyChecking no\n")
    assert off.known_hosts_new is None and off.strict == "no"
    assert "NOT checked" in off.notes[0].text


def test_nested_jumps_in_order_with_users_and_ports(tmp_path: Path) -> None:
    text = (CASES / "F04-jump-chain-nested" / "input.config").read_text()
    got = resolve(tmp_path, text)
    assert got.route == ("user1@bastion1(192.0.2.1):2222", "bastion2(192.0.2.2):22", "gpu1(10.0.0.5):22")
    assert got.nested_jump and all(j.jumps == () for j in got.jumps)
    assert got.shown.endswith("via bastion1, bastion2")


def test_only_the_first_hop_of_a_list_brings_its_own_jump(tmp_path: Path) -> None:
    """ssh gives the later hops `-J` of the earlier ones, which overrides their own ProxyJump."""
    text = "Host gpu1\n ProxyJump a,b\nHost a\n ProxyJump x\nHost b\n ProxyJump y\n"
    assert [j.alias for j in resolve(tmp_path, text).jumps] == ["x", "a", "b"]


def test_the_first_hop_may_have_a_proxy_command(tmp_path: Path) -> None:
    got = resolve(tmp_path, "Host gpu1\n ProxyJump a\nHost a\n ProxyCommand nc -x p %h %p\n")
    assert got.jumps[0].proxy_command == ("nc", "-x", "p", "a", "22") and got.proxy_command is None


def test_jumps_in_a_circle_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostUnreachableError, match="circle"):
        resolve(tmp_path, "Host gpu1\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n")


def test_a_wildcard_jump_does_not_jump_over_itself(tmp_path: Path) -> None:
    """`Host *` with a ProxyJump and the bastion excluded, as people write it."""
    got = resolve(tmp_path, "Host * !bastion\n ProxyJump bastion\n")
    assert got.route == ("bastion:22", "gpu1:22")


def test_the_first_of_jump_and_command_wins(tmp_path: Path) -> None:
    assert resolve(tmp_path, "Host gpu1\n ProxyCommand none\n ProxyJump j\n").jumps == ()
    assert resolve(tmp_path, "Host gpu1\n ProxyJump j\n ProxyCommand nc %h %p\n").proxy_command is None
    assert resolve(tmp_path, "Host gpu1\n ProxyJump none\n ProxyCommand nc %h\n").proxy_command == (
        "nc",
        "gpu1",
    )


def test_canonical_names_with_a_resolver(tmp_path: Path) -> None:
    text = "CanonicalizeHostname yes\nCanonicalDomains lab.example example.net\nHost gpu1.example.net\n User canon\n"
    got = resolve(tmp_path, text, lookup=lambda name: name == "gpu1.example.net")
    assert (got.hostname, got.user, got.alias) == ("gpu1.example.net", "canon", "gpu1")
    assert [n.slug for n in resolve(tmp_path, text).notes] == ["canonicalize-not-done"]
    assert resolve(tmp_path, text, lookup=lambda name: False).hostname == "gpu1"


def test_match_final_sees_the_resolved_host(tmp_path: Path) -> None:
    got = resolve(tmp_path, "Host gpu1\n HostName box.example\nMatch final host box.example\n User late\n")
    assert got.user == "late"


def test_commands_of_a_foreign_config_do_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    got = resolve(tmp_path, f'Match host gpu1 exec "touch {mark}"\n User x\nHost gpu1\n User y\n')
    assert got.user == "y" and not mark.exists()
    assert "match-exec-not-run" in [n.slug for n in got.notes]


def test_own_commands_run_once_for_all_passes(tmp_path: Path) -> None:
    asked: list[str] = []

    def rule(command: str) -> bool:
        asked.append(command)
        return True

    path = tmp_path / "config"
    path.write_text('Match host gpu1 exec "is-up %h"\n Port 7\nMatch final\n User z\n')
    got = resolve_target("gpu1", config_paths=[path], include_dir=tmp_path, exec_rule=rule)
    assert (got.port, got.user, asked) == (7, "z", ["is-up gpu1"])


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("true", True),
        ("false", False),
        ("test -d /", True),
        ("[ -d / ]", True),
        ("! test -d /", False),
        ("test -f /", False),
        ("test -d / && rm x", None),
        ("sh -c true", None),
        ("test -d '", None),
        ("", None),
    ],
)
def test_harmless_commands(command: str, answer: bool | None) -> None:
    assert harmless_exec(command) is answer


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("h", (None, "h", None)),
        ("u@h", ("u", "h", None)),
        ("u@h:22", ("u", "h", 22)),
        ("[::1]:22", (None, "::1", 22)),
        ("ssh://u@h:22", ("u", "h", 22)),
        ("::1", (None, "::1", None)),
        ("u@dom@h", ("u@dom", "h", None)),
    ],
)
def test_split_jump(text: str, want: tuple[str | None, str, int | None]) -> None:
    assert split_jump(text) == want


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                "Host",
                "gpu1",
                "Match",
                "all",
                "Port",
                "=",
                '"',
                "\n",
                "%",
                "!",
                "Include",
                "ProxyJump",
                "gpu1,",
                "\x00",
            ]
        ),
        max_size=30,
    ).map(" ".join)
)
def test_any_config_resolves_or_is_refused_in_words(tmp_path: Path, text: str) -> None:
    try:
        got = resolve(tmp_path, text)
    except HostUnreachableError as error:
        assert error.do
    else:
        assert got.hostname
