"""Every SSH failure ddtop knows: verdict, severity, what it means and what to do. `ddtop inspect ssh` shows these.

The table is causes.toml beside this file.
"""

from __future__ import annotations

from importlib import resources

import msgspec
import tomli


class SshCause(msgspec.Struct, frozen=True):
    """One cause. `retry`: trying again can help (the host is lost, not refused).

    `what`, `means` and `do` may hold {names} that `fill` replaces: those of DEFAULTS.
    """

    cause: str
    verdict: str
    severity: str
    what: str
    means: str
    do: str
    retry: bool = False


def _load() -> dict[str, SshCause]:
    raw = tomli.loads(resources.files("ddtop.hosts.ssh").joinpath("causes.toml").read_text("utf-8"))
    return {row["cause"]: SshCause(**row) for row in raw["cause"]}


CAUSES: dict[str, SshCause] = _load()

DEFAULTS = {
    "alias": "HOST",
    "host": "the host",
    "port": "22",
    "user": "USER",
    "keys": "no key file is named",
    "key": "~/.ssh/id_ed25519",
    "agent": "check SSH_AUTH_SOCK",
    "ssh": "`ssh HOST true`",
    "forget": "`ssh-keygen -R HOST`",
    "looked": "only known_hosts on the machine that connected tells which of the two it is",
    "fingerprint": "",
    "via": "",
    "words": "",
    "public": "",
    "as_user": "",
    "socket": "",
}
"""What stands in a sentence for a name that is not known, so that no sentence has a hole."""


class _Known(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return DEFAULTS.get(key, "")


def fill(text: str, **context: str) -> str:
    """Put the context into a sentence; a name without a value becomes its default."""
    return " ".join(text.format_map(_Known({k: v for k, v in context.items() if v})).split())
