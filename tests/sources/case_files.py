"""Load the cases of one group and compare every expected key."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

CASES = Path(os.environ.get("DDTOP_CASES") or Path(__file__).parent.parent / "cases")
ABOUT = {"id", "group", "origin", "kind", "notes", "check", "absent"}


def folders(group: str) -> list[Path]:
    return sorted(p.parent for p in CASES.glob(f"{group}*/expect.toml"))


def files(folder: Path) -> dict[str, bytes]:
    return {
        f.name: f.read_bytes()
        for f in folder.iterdir()
        if f.is_file() and f.name not in ("expect.toml", "source.txt")
    }


def same(want: Any, got: Any) -> bool:
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        return abs(want - got) <= 1e-4 * max(1.0, abs(want))
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(same(w, g) for w, g in zip(want, got, strict=True))
    return bool(want == got)


def wrong(folder: Path, got: dict[str, Any], leave: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    expect = tomllib.loads((folder / "expect.toml").read_text("utf-8"))
    bad = {}
    for key, want in expect.items():
        if key in ABOUT or key in leave:
            continue
        if want == "absent":
            if got.get(key) is not None:
                bad[key] = (want, got[key])
        elif not same(want, got.get(key)):
            bad[key] = (want, got.get(key))
    bad.update(
        {name: ("absent", got[name]) for name in expect.get("absent", []) if got.get(name) is not None}
    )
    return bad


QUERY_FIELDS: tuple[str, ...] = (
    "timestamp",
    "count",
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "power.draw",
    "power.draw.instant",
    "enforced.power.limit",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "utilization.memory",
    "temperature.gpu",
    "temperature.memory",
    "clocks.current.sm",
    "clocks.current.memory",
    "pstate",
    "clocks_event_reasons.active",
    "mig.mode.current",
    "gpu_recovery_action",
    "ecc.errors.uncorrected.volatile.total",
)
"""A query as the tests make it: all of its fields are known to driver 580."""
