"""asyncssh's reader of `~/.ssh/config`, with what it leaves out.

`ssh -G` cannot take its place: it runs `Match exec` commands (not allowed for another person's file), does not tell
set values from defaults, answers nothing about a file with one unknown option, and resolves one hop of a ProxyJump.

asyncssh passes over every option it does not act on (`StrictHostKeyChecking`, `ControlMaster` …). ddtop must
know them: to translate the ones that matter and to say which it ignores. Differences from asyncssh 2.24, each
on purpose:

- all options are kept, the first value wins, as in OpenSSH;
- ProxyJump and ProxyCommand: the one named first wins;
- tokens are expanded once, after the last file, so that an included `IdentityFile %h` sees a later `HostName`;
- `Match exec` goes through a function that may refuse (a colleague's file must not run commands here).
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Any

from asyncssh.config import ConfigParseError, SSHClientConfig

from ddtop.hosts.ssh.config_words import IGNORED_OPTIONS, is_named, is_taken, option_word, split_words
from ddtop.hosts.ssh.match_exec import ExecRule, expand_home

_TOKEN_OPTIONS = (
    "CertificateFile",
    "ControlPath",
    "GlobalKnownHostsFile",
    "IdentityAgent",
    "IdentityFile",
    "ProxyCommand",
    "ProxyJump",
    "RemoteCommand",
    "UserKnownHostsFile",
)
_TOKEN = re.compile(r"%(.)")
_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z_0-9]*)\}")


class HostConfig(SSHClientConfig):
    """One host's settings, made by `read_config`: `raw` as written, `expanded` with tokens replaced."""

    _percent_expand: set[str] = set()  # noqa: RUF012  asyncssh's own form; expansion is done once, at the end
    _no_split: set[str] = {*SSHClientConfig._no_split, "localcommand", "knownhostscommand"}  # noqa: RUF012
    exec_rule: ExecRule
    include_dir: Path
    included: list[str]
    include_stack: list[str]
    used_match: bool
    proxy_file: str | None
    alias: str
    unknown: list[str]

    def parse(self, path: Path) -> None:
        """Read a file as ssh does: with comments behind a setting, in any encoding, and with note taken of options
        that ssh would refuse the file for."""
        self._path, self._line_no, self._matching = path, 0, True
        for line in path.read_bytes().decode("utf-8-sig", "surrogateescape").split("\n"):
            self._line_no += 1
            if (text := line.strip()) and not text.startswith("#"):
                self._take(text)

    def _take(self, line: str) -> None:
        option = option_word(line)
        if option not in self._handlers:
            ignored = str(self._options.get("IgnoreUnknown") or "")
            if not is_taken(option, ignored) and option not in self.unknown:
                self.unknown.append(option)
            return
        if not self._matching and option not in self._conditionals:
            return
        args = self._arguments(option, line)
        name, handler = self._handlers[option]
        if not args:
            self._error(f"Missing {name} value")
        handler(self, name, args)
        if args:
            self._error(f"Extra data at end: {' '.join(args)}")

    def _arguments(self, option: str, line: str) -> list[str]:
        if option in self._no_split:
            return [re.sub(r'^"?\w+"?\s*=?\s*', "", line)]
        try:
            words = split_words(line)
        except ValueError as error:
            self._error(str(error))
        first, _, value = words[0].partition("=")
        rest = ([value] if value else []) + words[1:]
        del first
        if rest and rest[0].startswith("="):
            rest = ([rest[0][1:]] if len(rest[0]) > 1 else []) + rest[1:]
        if option != "match":
            return rest
        # `Match host=gpu1` is as good as `Match host gpu1`
        return [part for word in rest for part in _condition(word)]

    def _match_host(self, option: str, args: list[str]) -> None:
        del option
        self._matching = is_named(self._orig_host, args)
        args.clear()

    def _match_val(self, match: str) -> object:
        return self.alias if match == "originalhost" else super()._match_val(match)

    def _match(self, option: str, args: list[str]) -> None:
        """As asyncssh, but `exec` is decided by `exec_rule`, after the conditions before it held."""
        words = list(args)
        args.clear()
        matching = True
        run: list[str] = []
        while words:
            word = words.pop(0)
            if word.lstrip("!").lower() != "exec":
                run.append(word)
                if word.lstrip("!").lower() not in {"all", "canonical", "final"} and words:
                    run.append(words.pop(0))
                continue
            if not words:
                self._error("Missing exec match pattern")
            command = words.pop(0)
            matching = self._match_part(option, run) and matching
            run = []
            if matching:
                self._set_tokens()
                answer = self.exec_rule(self._expand(command))
                matching = False if answer is None else answer != word.startswith("!")
        matching = self._match_part(option, run) and matching
        self._matching = matching
        self.used_match = self.used_match or matching

    def _match_part(self, option: str, words: list[str]) -> bool:
        if not words:
            return True
        super()._match(option, words)
        return bool(self._matching)

    def _include(self, option: str, args: list[str]) -> None:
        """Include files in the order of their names, as ssh does; a pattern that matches none is no error."""
        if len(self.include_stack) > 16:  # READCONF_MAX_DEPTH of OpenSSH's readconf.c
            self._error("Include nested too deep (does a file include itself?)")
        old_path, old_line = self._path, self._line_no
        for pattern in args:
            full = self.include_dir / expand_home(pattern)
            self.include_stack.append(pattern)
            for name in sorted(glob.glob(str(full))):  # noqa: PTH207  the pattern holds the folder
                if Path(name).is_file():
                    self.included.append(name)
                    self.parse(Path(name))
            self.include_stack.pop()
        self._path, self._line_no, self._matching = old_path, old_line, True
        args.clear()

    def _set_proxy(self, option: str, args: list[str]) -> None:
        """ProxyJump or ProxyCommand: the one named first wins over the other."""
        # As ssh 9.2 has it: `ProxyCommand none` shuts out a later ProxyJump, `ProxyJump none` no later
        # ProxyCommand.
        shut = (
            "ProxyCommand" in self._options if option == "ProxyJump" else bool(self._options.get("ProxyJump"))
        )
        if option not in self._options and not shut:
            value = " ".join(args).lstrip("= ")
            self._options[option] = None if value.lower() == "none" else value
            self.proxy_file = str(self._path)
        args.clear()

    def _keep(self, option: str, args: list[str]) -> None:
        self._options.setdefault(option, " ".join(args))
        args.clear()

    def _set_tokens(self) -> None:
        super()._set_tokens()
        host = str(self._options.get("Hostname", self._orig_host))
        self._tokens["h"] = host
        self._tokens["n"] = self.alias
        self._tokens["k"] = str(self._options.get("HostKeyAlias") or self.alias)
        jump = str(self._options.get("ProxyJump") or "").split(",")[0]
        self._tokens["j"] = jump.rpartition("@")[2].rpartition(":")[0] or jump.rpartition("@")[2]

    def _expand(self, value: str) -> str:
        def token(found: re.Match[str]) -> str:
            name = found[1]
            if name not in self._tokens:
                raise ConfigParseError(f"unknown token %{name} in {value!r}")
            return str(self._tokens[name])

        def variable(found: re.Match[str]) -> str:
            if found[1] not in os.environ:
                raise ConfigParseError(f"the environment has no {found[1]}, named in {value!r}")
            return os.environ[found[1]]

        return _ENV.sub(variable, _TOKEN.sub(token, value))

    @property
    def raw(self) -> dict[str, Any]:
        """The winning value of each option, before tokens."""
        return dict(self._options)

    def expanded(self) -> dict[str, Any]:
        """The winning value of each option with tokens and `${VAR}` expanded where ssh expands them."""
        self._tokens = {"%": "%"}
        self._set_tokens()
        out = dict(self._options)
        for option in _TOKEN_OPTIONS:
            value = out.get(option)
            if isinstance(value, list):
                out[option] = [self._expand(item) for item in value]
            elif isinstance(value, str):
                out[option] = self._expand(value)
        return out


_CONDITION = re.compile(
    r"(!?(?:host|originalhost|user|localuser|localnetwork|tagged|exec))=(.+)", re.I | re.S
)


def _condition(word: str) -> list[str]:
    found = _CONDITION.fullmatch(word)
    return [found[1], found[2]] if found else [word]


_handlers = dict(SSHClientConfig._handlers)
_handlers.update((name.lower(), (name, HostConfig._keep)) for name in IGNORED_OPTIONS)
_handlers["include"] = ("Include", HostConfig._include)
_handlers["host"] = ("Host", HostConfig._match_host)
_handlers["match"] = ("Match", HostConfig._match)
_handlers["proxyjump"] = ("ProxyJump", HostConfig._set_proxy)
_handlers["proxycommand"] = ("ProxyCommand", HostConfig._set_proxy)
HostConfig._handlers = _handlers


def read_config(
    paths: tuple[Path, ...],
    host: str,
    *,
    user: str | None = None,
    port: int | None = None,
    local_user: str,
    include_dir: Path,
    exec_rule: ExecRule,
    before: HostConfig | None = None,
) -> HostConfig:
    """Read `paths` (in order; the first value of an option wins) for one host name.

    `before`: the first reading, where this is the second that `Match final`, `Match canonical` and
    CanonicalizeHostname ask for. What was set then stays, and `Host` looks at the real name (`host`) now.
    Raises ConfigParseError with file and line for what ssh would refuse too; OSError if a file cannot be
    read.
    """
    no_last: Any = None
    given_user: Any = () if user is None else user
    given_port: Any = () if port is None else port
    again = before is not None
    config = HostConfig(no_last, False, again, again, local_user, given_user, host, given_port)
    config.alias, config.unknown = host, []
    if before is not None:
        config.alias = before.alias
        config._options = {k: list(v) if isinstance(v, list) else v for k, v in before.raw.items()}
        config._options["Hostname"] = host
    config.exec_rule, config.include_dir = exec_rule, include_dir
    config.include_stack = []
    config.included, config.used_match, config.proxy_file = [], False, None
    if before is not None:
        config.used_match, config.proxy_file = before.used_match, before.proxy_file
    config._tokens = {"%": "%"}
    for path in paths:
        config.parse(path)
    for option, value in config._options.items():
        if again and isinstance(value, list):  # named in both readings: once is enough
            config._options[option] = list(dict.fromkeys(value))
    return config
