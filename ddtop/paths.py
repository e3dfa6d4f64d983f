"""Where ddtop keeps things: XDG folders, what it ships, and nothing else.

`DDTOP_HOME` (a folder) puts all of it in one place: for tests, for the demo, and for a run on a USB stick.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).resolve().parent


def _base(kind: str, platform_path: Path) -> Path:
    home = os.environ.get("DDTOP_HOME")
    return Path(home) / kind if home else platform_path


def config_dir() -> Path:
    """Settings and the user's themes: `$XDG_CONFIG_HOME/ddtop`."""
    return _base("config", platformdirs.user_config_path("ddtop"))


def config_file() -> Path:
    return config_dir() / "config.toml"


def data_dir() -> Path:
    """Recordings and the history: `$XDG_DATA_HOME/ddtop`."""
    return _base("data", platformdirs.user_data_path("ddtop"))


def runs_dir() -> Path:
    return data_dir() / "runs"


def cache_dir() -> Path:
    """What can be fetched again, such as datasets: `$XDG_CACHE_HOME/ddtop`."""
    return _base("cache", platformdirs.user_cache_path("ddtop"))


def state_dir() -> Path:
    """Logs of ddtop itself and locks: `$XDG_STATE_HOME/ddtop`."""
    return _base("state", platformdirs.user_state_path("ddtop"))


def shipped(kind: str) -> Path:
    """The folder `themes` or `plans` that came with ddtop: inside the wheel, or beside the package in a checkout."""
    inside = _PACKAGE / "_shipped" / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind


def all_paths() -> dict[str, Path]:
    """Every place by name, as `ddtop paths` prints them."""
    return {
        "config": config_file(),
        "user themes": config_dir() / "themes",
        "recordings": runs_dir(),
        "history": data_dir() / "history.db",
        "datasets": cache_dir() / "datasets",
        "own log": state_dir() / "ddtop.log",
        "shipped plans": shipped("plans"),
        "shipped themes": shipped("themes"),
    }
