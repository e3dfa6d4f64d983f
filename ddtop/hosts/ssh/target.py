"""One host of `~/.ssh/config`, resolved: a frozen `SshTarget` with final values, and notes on what acts otherwise."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Strict = Literal["yes", "ask", "accept-new", "no"]
"""`no`: the host key is not checked. `accept-new`: a new key is saved, a changed one refused. `yes` and `ask` (the
default): an unknown key is refused and its fingerprint shown; ddtop never prompts."""


class Note(msgspec.Struct, frozen=True):
    """An option that does not act as it does under ssh: a slug, a sentence, and the option's name."""

    slug: str
    text: str
    option: str = ""


class SshTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to reach one host, all paths absolute and all tokens expanded.

    `jumps` are the hops in the order in which they are contacted, each with empty `jumps` of its own; only the
    first may have a `proxy_command`. `identity_files` exist; `missing_identity_files` were named but do not.
    `known_hosts` exist; `known_hosts_new` is where an accepted key is written (its folder may not exist).
    `agent_path` is the agent's socket, None for SSH_AUTH_SOCK's, "" when the config turns the agent off.
    """

    alias: str
    hostname: str
    port: int = 22
    user: str
    user_given: bool = False
    identity_files: tuple[str, ...] = ()
    missing_identity_files: tuple[str, ...] = ()
    identity_files_named: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    agent_path: str | None = None
    jumps: tuple[SshTarget, ...] = ()
    proxy_jump: str | None = None
    proxy_command: tuple[str, ...] | None = None
    host_key_alias: str | None = None
    strict: Strict = "ask"
    known_hosts: tuple[str, ...] = ()
    known_hosts_new: str | None = None
    options: dict[str, Any] = {}
    notes: tuple[Note, ...] = ()
    included: tuple[str, ...] = ()
    proxy_from: str | None = None
    used_match: bool = False
    nested_jump: bool = False

    @property
    def hop(self) -> str:
        """As in `user@alias(10.0.0.5):22`; the user only where the config or the jump names one."""
        user = f"{self.user}@" if self.user_given else ""
        where = self.alias if self.alias == self.hostname else f"{self.alias}({self.hostname})"
        return f"{user}{where}:{self.port}"

    @property
    def route(self) -> tuple[str, ...]:
        """All hops in order, the host itself last."""
        return (*(jump.hop for jump in self.jumps), self.hop)

    @property
    def tcp_target(self) -> str:
        """`host:port` of the host itself, `[…]` around an IPv6 address."""
        return f"[{self.hostname}]:{self.port}" if ":" in self.hostname else f"{self.hostname}:{self.port}"

    @property
    def shown(self) -> str:
        """As in `root@10.0.0.5:22 via bastion`, for people."""
        via = " via " + ", ".join(j.alias for j in self.jumps) if self.jumps else ""
        if self.proxy_command:
            via = f" via ProxyCommand {self.proxy_command[0]}"
        return f"{self.user}@{self.tcp_target}{via}"

    @property
    def key_name(self) -> str:
        """The name this host's key has in known_hosts."""
        name = self.host_key_alias or self.hostname
        return name if self.port == 22 or self.host_key_alias else f"[{name}]:{self.port}"
