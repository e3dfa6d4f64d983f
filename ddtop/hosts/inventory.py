"""Which connector a host's name means, with the settings `[hosts.NAME]` of the user's config.toml."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tomli

from ddtop.errors import UsageError
from ddtop.hosts.base import Connector
from ddtop.plan.model import SlurmSettings

LOCAL_NAMES = frozenset({"local", "localhost"})


class HostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[hosts.NAME]` in config.toml. All optional."""

    ssh: str = ""
    """What to give to ssh instead of NAME: an alias of ~/.ssh/config or [user@]host[:port]."""
    user: str = ""
    port: int = 0
    host_dir: str = ""
    """State folder there, instead of ~/.local/state/ddtop."""
    python: str = ""
    """The python3 that runs the agent there."""
    plan: str = ""
    """Plan that `ddtop connect NAME` runs when no --plan is given."""
    ssh_config: str = ""
    """SSH configuration for this host instead of ~/.ssh/config."""
    via: str = ""
    """The login node of a Slurm cluster: the host is then an allocation of it."""
    slurm: SlurmSettings | None = None


def read_host_settings(paths: Sequence[Path]) -> dict[str, HostSettings]:
    """`[hosts.*]` of the config files, later ones winning; missing files are fine. Raises UsageError."""
    found: dict[str, HostSettings] = {}
    for path in paths:
        try:
            table = tomli.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
            raise UsageError(f"{path}: {error}", do="repair the file, or move it away") from error
        hosts = table.get("hosts", {})
        if not isinstance(hosts, Mapping):
            raise UsageError(f"{path}: hosts must be tables: [hosts.NAME]")
        for name, raw in hosts.items():
            found[name] = _settings(path, name, raw)
    return found


def _settings(path: Path, name: str, raw: Any) -> HostSettings:
    try:
        return msgspec.convert(raw, HostSettings)
    except msgspec.ValidationError as error:
        fields = HostSettings.__struct_fields__
        for key in raw if isinstance(raw, Mapping) else ():
            if key not in fields:
                near = difflib.get_close_matches(key, fields, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"allowed here: {', '.join(fields)}"
                raise UsageError(f"{path}: [hosts.{name}]: unknown key `{key}`", do=hint) from error
        raise UsageError(f"{path}: [hosts.{name}]: {error}", do="see docs/configuration.md") from error


def check_name(name: str) -> None:
    """Raises UsageError where `name` cannot be `[user@]host[:port]`, an ssh:// URI or an alias of an SSH configuration."""
    do = "use a name from ~/.ssh/config, [user@]host[:port], or local"
    if not name.strip() or name.startswith("-") or any(c.isspace() or not c.isprintable() for c in name):
        raise UsageError(f"{name!r} is not a host name", do=do)
    user, at, host = name.removeprefix("ssh://").rstrip("/").rpartition("@")
    if (at and not user) or not host:
        raise UsageError(f"{name!r} lacks the {'host' if not host else 'user'} beside its @", do=do)
    head, colon, port = host.rpartition(":")
    # Several colons are an IPv6 address; brackets around it leave one port behind them.
    if colon and (":" not in head or head.endswith("]")) and not (port.isdecimal() and 0 < int(port) < 65536):
        raise UsageError(f"{name!r}: `{port}` is not a port", do="use a number from 1 to 65535")


def connector_for(
    name: str,
    *,
    config_paths: Sequence[Path] = (),
    ssh_config: Sequence[Path] | None = None,
    host_dir: str | None = None,
    slurm: SlurmSettings | None = None,
    owner: str = "",
) -> Connector:
    """The connector for a host's name: `local` or `localhost` is this machine, all else is SSH.

    `config_paths` are ddtop's own config files, `ssh_config` those of SSH (None: the user's), `host_dir` the
    command line's --host-dir, which wins. `slurm` are the settings of the plan, which win too, and `owner` the run whose
    allocation it is. Nothing is contacted. Raises UsageError.
    """
    check_name(name)
    settings = read_host_settings(config_paths).get(name, HostSettings())
    folder = host_dir or settings.host_dir or None
    if name in LOCAL_NAMES and not settings.ssh:
        from ddtop.hosts.local import LocalConnector

        return LocalConnector(name, host_dir=folder, python=settings.python or None)
    from ddtop.hosts.ssh.connection import SshConnector

    if settings.via and settings.slurm is None and slurm is None:
        raise UsageError(
            f"{name} has a login node (via) and no Slurm settings",
            do=f"add a table [hosts.{name}.slurm], or [slurm] to the plan",
        )
    wanted = slurm.over(settings.slurm) if slurm is not None else settings.slurm
    if wanted is not None:
        from ddtop.hosts.slurm import SlurmConnector

        login = SshConnector(
            settings.via or name,
            ssh=settings.via or settings.ssh or None,
            config_paths=ssh_config,
            user=settings.user or None,
            port=settings.port or None,
        )
        return SlurmConnector(
            name,
            login,
            wanted,
            owner=owner or secrets.token_hex(4),
            host_dir=folder,
            python=settings.python or "python3",
        )
    return SshConnector(
        name,
        ssh=settings.ssh or None,
        config_paths=ssh_config,
        user=settings.user or None,
        port=settings.port or None,
        host_dir=folder,
        python=settings.python or "python3",
    )
