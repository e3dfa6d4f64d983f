"""What ddtop makes of `~/.ssh/config` for one host: a frozen `SshTarget` with every hop resolved.

asyncssh resolves only the first level of a nested ProxyJump, gives up on a missing IdentityFile or known_hosts
file, and does not know StrictHostKeyChecking. So ddtop resolves all of it here, and hands asyncssh final values
with `config=None`. `notes` says in plain words what was dropped, translated or left undone.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from asyncssh.config import ConfigParseError
from asyncssh.misc import IllegalUserName

from ddtop.errors import HostUnreachableError
from ddtop.hosts.ssh.config_reader import HostConfig, read_config
from ddtop.hosts.ssh.match_exec import ExecRule, expand_home, run_exec
from ddtop.hosts.ssh.option_notes import option_notes
from ddtop.hosts.ssh.target import Note, SshTarget, Strict


def default_config_paths() -> tuple[Path, ...]:
    """The user's and the system's ssh config, those that exist, in ssh's order."""
    paths = (Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config"))
    return tuple(path for path in paths if path.is_file())


def resolve_target(
    host: str,
    *,
    config_paths: Sequence[Path] | None = None,
    user: str | None = None,
    port: int | None = None,
    local_user: str | None = None,
    include_dir: Path | None = None,
    exec_rule: ExecRule = run_exec,
    lookup: Callable[[str], bool] | None = None,
) -> SshTarget:
    """What `ssh HOST` would do, for ddtop. `host` may be `[user@]name[:port]` or an ssh:// URI.

    `config_paths` None means the user's own (a missing one is fine). `lookup` says whether a name resolves; it
    is needed for CanonicalizeHostname, and without it names are left as they are. Reads files, runs `Match
    exec` commands by `exec_rule`; opens no connection. Raises HostUnreachableError for a config that ssh would
    refuse, with file, line and reason.
    """
    given_user, name, given_port = split_jump(host)
    paths = tuple(config_paths) if config_paths is not None else default_config_paths()
    scope = _Scope(
        paths, local_user or _local_user(), include_dir or Path("~/.ssh").expanduser(), exec_rule, lookup
    )
    try:
        return scope.target(name, user or given_user, port or given_port, trail=())
    except (
        ConfigParseError,
        IllegalUserName,
        OSError,
        UnicodeDecodeError,
        RecursionError,
        ValueError,
        IndexError,
    ) as error:
        what = (
            str(error).removeprefix("[Errno 2] ")
            if not isinstance(error, IndexError)
            else "a line without a name"
        )
        raise HostUnreachableError(
            f"{host}: the ssh config cannot be used: {what}",
            means="ssh refuses it too; no host was contacted",
            do=f"correct that line, then check with `ssh -G {shlex.quote(name)}`",
            host=name,
        ) from error


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


_JUMP = re.compile(
    r"^(?:ssh://)?(?:(?P<user>.{1,255})@)?"
    r"(?:\[(?P<six>[^\]@]{1,255})\]|(?P<host>[^:\[\]/@]{1,255}|[0-9a-fA-F:.%]{2,60}))(?::(?P<port>\d{1,5}))?/?$"
)


def split_jump(text: str) -> tuple[str | None, str, int | None]:
    """User, host and port of `[user@]host[:port]`, `[v6]:port` or `ssh://…`; what is not given is None.

    >>> split_jump("a@b1:22"), split_jump("ssh://[2001:db8::1]:2222"), split_jump("2001:db8::1")
    (('a', 'b1', 22), (None, '2001:db8::1', 2222), (None, '2001:db8::1', None))
    """
    found = _JUMP.match(text.strip())
    if not found:
        return None, text.strip(), None
    return found["user"], found["six"] or found["host"], int(found["port"]) if found["port"] else None


class _Scope:
    """The files and rules that hold for one resolution and for all of its hops."""

    def __init__(
        self,
        paths: tuple[Path, ...],
        local_user: str,
        include_dir: Path,
        exec_rule: ExecRule,
        lookup: Callable[[str], bool] | None,
    ) -> None:
        self.paths, self.local_user, self.include_dir = paths, local_user, include_dir
        self.lookup = lookup
        self.skipped: list[str] = []
        self._answers: dict[str, bool | None] = {}
        self._exec_rule = exec_rule

    def _exec(self, command: str) -> bool | None:
        """Each command runs once for one resolution, however many hops and passes ask for it."""
        if command not in self._answers:
            self._answers[command] = self._exec_rule(command)
            if self._answers[command] is None:
                self.skipped.append(command)
        return self._answers[command]

    def read(
        self, host: str, user: str | None, port: int | None, before: HostConfig | None = None
    ) -> HostConfig:
        return read_config(
            self.paths,
            host,
            user=user,
            port=port,
            local_user=self.local_user,
            include_dir=self.include_dir,
            exec_rule=self._exec,
            before=before,
        )

    def target(self, host: str, user: str | None, port: int | None, *, trail: tuple[str, ...]) -> SshTarget:
        config = self.read(host, user, port)
        name, notes = host, list[Note]()
        canonicalize = bool(config.raw.get("CanonicalizeHostname"))
        if canonicalize or config.has_match_final():
            real = str(config.expanded().get("Hostname", host))
            if canonicalize:
                real, notes = self._canonical(real, config.raw)
            config = self.read(real, user, port, before=config)
            name = real
        return self._build(host, name, user, config, trail, notes)

    def _canonical(self, host: str, raw: dict[str, Any]) -> tuple[str, list[Note]]:
        dots = int(raw.get("CanonicalizeMaxDots", 1))
        if host.count(".") > dots or ":" in host:
            return host, []
        if self.lookup is None:
            text = (
                "CanonicalizeHostname is not done here (it needs name resolution): the name is used as given"
            )
            return host, [Note("canonicalize-not-done", text, "CanonicalizeHostname")]
        for domain in raw.get("CanonicalDomains") or ():
            if self.lookup(f"{host}.{domain}"):
                return f"{host}.{domain}", []
        return host, [
            Note("canonicalize-no-hit", "no canonical domain has this name", "CanonicalizeHostname")
        ]

    def _build(
        self,
        host: str,
        name: str,
        user: str | None,
        config: HostConfig,
        trail: tuple[str, ...],
        notes: list[Note],
    ) -> SshTarget:
        got, raw = config.expanded(), config.raw
        keys = [_path(item) for item in got.get("IdentityFile") or () if item.lower() != "none"]
        there = tuple(key for key in keys if Path(key).is_file())
        gone = tuple(key for key in keys if key not in there)
        strict = _strict(got.get("StrictHostKeyChecking"))
        users = [
            _path(p) for p in got.get("UserKnownHostsFile") or ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
        ]
        globals_ = [
            _path(p)
            for p in got.get("GlobalKnownHostsFile")
            or ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
        ]
        command = got.get("ProxyCommand")
        jumps: tuple[SshTarget, ...] = ()
        nested = False
        if got.get("ProxyJump"):
            jumps, nested = self._jumps(str(got["ProxyJump"]), (*trail, name))
        notes += option_notes(raw, gone, strict, self.skipped)
        notes += [
            Note(
                "config-option-unknown", f"ssh knows no option {option!r} and refuses the whole file", option
            )
            for option in config.unknown
        ]
        return SshTarget(
            alias=host,
            hostname=str(got.get("Hostname", name)).lower(),
            port=int(got.get("Port", 22)),
            user=str(got.get("User") or self.local_user),
            user_given=got.get("User") is not None,
            identity_files=there,
            missing_identity_files=gone,
            identity_files_named=tuple(got.get("IdentityFile") or ()),
            certificate_files=tuple(
                c for c in map(_path, got.get("CertificateFile") or ()) if Path(c).is_file()
            ),
            identities_only=bool(got.get("IdentitiesOnly", False)),
            agent_path=_agent(got),
            jumps=jumps,
            proxy_jump=raw.get("ProxyJump"),
            proxy_command=tuple(shlex.split(command)) if command else None,
            host_key_alias=got.get("HostKeyAlias"),
            strict=strict,
            known_hosts=tuple(p for p in (*users, *globals_) if Path(p).is_file()),
            known_hosts_new=next((p for p in users if p not in {"/dev/null", "none"}), None),
            options={k: v for k, v in got.items() if v not in (None, [], ())},
            notes=tuple(notes),
            included=tuple(config.included),
            proxy_from=config.proxy_file,
            used_match=config.used_match,
            nested_jump=nested,
        )

    def _jumps(self, spec: str, trail: tuple[str, ...]) -> tuple[tuple[SshTarget, ...], bool]:
        """Hops of a ProxyJump list, and whether one is nested. ssh lets the first hop keep its own ProxyJump, and
        overrides that of the others (`ssh -J first… next`), so only the first hop's chain is followed."""
        hops: list[SshTarget] = []
        nested = False
        for place, part in enumerate(p for p in spec.split(",") if p.strip()):
            user, name, port = split_jump(part)
            if name in trail:
                raise ConfigParseError(f"ProxyJump goes in a circle: {' > '.join((*trail, name))}")
            if len(trail) > 10:
                raise ConfigParseError(f"ProxyJump chain is deeper than 10: {' > '.join(trail)}")
            hop = self.target(name, user, port, trail=trail)
            if place == 0 and hop.jumps:
                nested = True
                hops += hop.jumps
            hops.append(
                msgspec.structs.replace(
                    hop, jumps=(), proxy_command=hop.proxy_command if place == 0 and not hop.jumps else None
                )
            )
        return tuple(hops), nested


def _path(text: str) -> str:
    return text if text.lower() == "none" else str(expand_home(text))


def _strict(value: object) -> Strict:
    word = str(value or "ask").lower()
    return {
        "no": "no",
        "off": "no",
        "yes": "yes",
        "true": "yes",
        "accept-new": "accept-new",
        "false": "no",
    }.get(word, "ask")  # type: ignore[return-value]


def _agent(got: dict[str, Any]) -> str | None:
    """IdentityAgent: None when not set or SSH_AUTH_SOCK is named, "" for `none`, else the socket's path."""
    if "IdentityAgent" not in got:
        return None
    value = got["IdentityAgent"]
    if value is None:
        return ""
    if str(value) == "SSH_AUTH_SOCK":
        return None
    if str(value).startswith("$"):
        return os.environ.get(str(value)[1:]) or ""
    return _path(str(value))
