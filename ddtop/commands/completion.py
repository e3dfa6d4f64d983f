"""What the shell completes: host names and recordings. Prints no errors and reaches no host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ddtop import paths

INCLUDE_DEPTH = 3
PICTURES = ("throughput", "speedup", "ttft", "tpot", "budget", "acceptance", "pareto", "energy", "search")
"""What `plot --what` draws: the names of `ddtop.charts.kinds.PICTURES`, without loading it (a test holds them together)."""


def host_names(text: str) -> list[str]:
    """Names of `Host` lines in the text of an SSH configuration, without patterns.

    >>> host_names("Host a *.lab !b\\n  User x\\nhost = c d?\\n")
    ['a', 'c']
    """
    found: list[str] = []
    for line in text.splitlines():
        match = re.match(r"\s*host(?:\s*=\s*|\s+)(.+)", line, re.IGNORECASE)
        if match:
            found += [word.strip('"') for word in match[1].split() if not re.search(r"[*?!#]", word)]
    return found


def _ssh_hosts(path: Path, depth: int = 0) -> Iterable[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    yield from host_names(text)
    if depth >= INCLUDE_DEPTH:
        return
    for pattern in re.findall(r"^\s*include[\s=]+(\S+)", text, re.IGNORECASE | re.MULTILINE):
        place = Path(pattern.strip('"')).expanduser()
        base = path.parent if not place.is_absolute() else Path(place.anchor)
        relative = str(place.relative_to(place.anchor)) if place.is_absolute() else str(place)
        for one in sorted(base.glob(relative)):
            yield from _ssh_hosts(one, depth + 1)


def hosts(incomplete: str) -> list[str]:
    """`local`, and the hosts of ~/.ssh/config and of config.toml."""
    names = {"local", *_ssh_hosts(Path.home() / ".ssh" / "config")}
    try:
        text = paths.config_file().read_text(encoding="utf-8")
        names |= set(re.findall(r"^\s*\[hosts\.\"?([^\]\".]+)\"?\]", text, re.MULTILINE))
    except (OSError, UnicodeDecodeError):
        pass
    return sorted(name for name in names if name.startswith(incomplete))


def recordings(incomplete: str) -> list[str]:
    """Recordings where ddtop keeps them, newest first; files elsewhere are completed by the shell itself."""
    try:
        files = sorted(paths.runs_dir().glob("*.ddtop"), key=lambda p: -p.stat().st_mtime)
    except OSError:
        return []
    return [path.name for path in files if path.name.startswith(incomplete)]


def datasets(incomplete: str) -> list[str]:
    """The datasets that ddtop knows."""
    from ddtop.datasets.sources import SOURCES

    return [source.name for source in SOURCES if source.name.startswith(incomplete)]


def one_of(*words: str) -> Callable[[str], list[str]]:
    """A completion that offers `words`."""

    def offer(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return offer
