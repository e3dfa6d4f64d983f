"""The user's settings: `config.toml`, environment over it, defaults under it; each value knows where it came from.

theme = "ddtop-dark"
bell = true

[keys]                       # ids of docs/dashboard.md
restage = "f5"

[hosts.ct200]
plan = "~/plans/ct200.toml"  # used by `ddtop connect ct200` when no --plan is given
host_dir = "/data/ddtop"     # the agent's state folder on that host
ssh_config = "~/.ssh/config-lab"
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli
from msgspec import to_builtins

from ddtop.errors import UsageError
from ddtop.hosts.inventory import HostSettings, read_host_settings
from ddtop.paths import config_file

_TOP = {"theme": str, "bell": bool, "keys": dict, "hosts": dict}


_WRITTEN = {str: 'text: "…"', bool: "true or false", dict: "a table of its own"}


@dataclass(frozen=True)
class Settings:
    """Effective settings. `origin` maps each name to where its value came from."""

    theme: str = "ddtop-dark"
    bell: bool = True
    keys: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, HostSettings] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)

    def host(self, name: str) -> HostSettings:
        return self.hosts.get(name, HostSettings())


def load_settings(path: Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Reads config.toml, if there is one. Raises UsageError naming file, key, what was found and what is allowed."""
    path = path or config_file()
    env = os.environ if env is None else env
    found = _read(path)
    _check(found, _TOP, path, "")
    origin = {name: str(path) for name in found}
    hosts = read_host_settings([path])
    theme = found.get("theme", Settings.theme)
    if env.get("DDTOP_THEME"):
        theme, origin["theme"] = env["DDTOP_THEME"], "environment DDTOP_THEME"
    return Settings(
        theme=theme,
        bell=found.get("bell", True),
        keys={str(k): str(v) for k, v in found.get("keys", {}).items()},
        hosts=hosts,
        origin=origin,
    )


def describe(settings: Settings) -> str:
    """Effective settings, one a line, with their origin; as `ddtop config show` prints them."""
    lines = [
        f"{name} = {_toml(getattr(settings, name))}  # {settings.origin.get(name, 'default')}"
        for name in ("theme", "bell")
    ]
    lines += [f"keys.{k} = {_toml(v)}  # {settings.origin['keys']}" for k, v in settings.keys.items()]
    for name, host in settings.hosts.items():
        values = {field: getattr(host, field) for field in host.__struct_fields__ if field != "slurm"}
        values |= {f"slurm.{k}": v for k, v in to_builtins(host.slurm).items()} if host.slurm else {}
        lines += [
            f"hosts.{_toml_key(name)}.{k} = {_toml(v)}  # {settings.origin['hosts']}"
            for k, v in values.items()
            if v
        ]
    return "\n".join(lines)


def _toml(value: object) -> str:
    """A value as written in config.toml."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomli.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: cannot be read: {error}", do="correct the file's permissions or its encoding (UTF-8)"
        ) from error
    except tomli.TOMLDecodeError as error:
        raise UsageError(
            f"{path}: not valid TOML: {error}", do="correct that line, or move the file away"
        ) from error


def _check(found: dict[str, Any], allowed: Mapping[str, type], path: Path, prefix: str) -> None:
    for name, value in found.items():
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"allowed here: {', '.join(allowed)}"
            raise UsageError(f"{path}: unknown key `{prefix}{name}`", do=hint)
        if not isinstance(value, allowed[name]):
            raise UsageError(
                f"{path}: `{prefix}{name}` is {_toml(value)}", do=f"write {_WRITTEN[allowed[name]]}"
            )
