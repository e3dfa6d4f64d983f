"""GPM, the GPUs' own activity counters, through `nvidia-smi dmon --gpm-metrics`: followed, and whether they exist.

dmon takes three ticks to show a first value and prints `-` for ever on a chip without GPM, so one look does
not tell. What a follower found is kept in the state folder for this boot and this driver: from then on `can` has `gpm`,
or neither `can` nor `unknown` has it. Until then it stands in `unknown`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from typing import Any, Callable, Dict, List, Optional

from ..context import Context
from ..errors import OpError
from ..host.facts import boot_identity, read_text
from ..host.state_folder import write_whole
from ..programs import LineStream
from ..rights import Rights
from .smi import BACKOFF_S, line_buffered, missing

METRICS = "2,3,5,10"  # SM activity, SM occupancy, tensor activity, DRAM activity
TICKS = 5
"""Ticks without one value after which a chip has no GPM; the first two are `-` everywhere."""


def identity() -> str:
    """The boot and the driver for which an answer holds."""
    driver = read_text("/proc/driver/nvidia/version") or ""
    return boot_identity() + " " + driver.split("\n", 1)[0].strip()


def known(state_dir: Optional[str]) -> Optional[bool]:
    """Whether GPM works here, by an earlier look; None where it was not tried yet."""
    text = read_text(os.path.join(state_dir, "gpm.json")) if state_dir else None
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return None
    if not isinstance(kept, dict) or kept.get("of") != identity():
        return None
    return bool(kept.get("works"))


def remember(state_dir: Optional[str], works: bool) -> None:
    """Keeps the answer for this boot; nothing is kept where the folder cannot be written."""
    if state_dir and known(state_dir) is not works:
        try:
            data = json.dumps({"of": identity(), "works": works}).encode()
            write_whole(os.path.join(state_dir, "gpm.json"), data)
        except OSError:
            pass


def with_gpm(rights: Rights, state_dir: Optional[str]) -> Rights:
    """The rights with `gpm` in `can` or in `unknown`, as far as that is known."""
    if "nvidia-smi" not in rights.can:
        return rights
    works = known(state_dir)
    if works is None:
        return rights._replace(unknown=rights.unknown | {"gpm"})
    return rights._replace(can=rights.can | {"gpm"}) if works else rights


def has_value(line: str) -> Optional[bool]:
    """Whether a row of dmon has a GPM value (the last four columns); None for a head or something else.

    >>> has_value("    0   99  100   0   0   0   0    -    -    -    -")
    False
    >>> has_value("    0   99  100   0   0   0   0   87   12    3   91")
    True
    """
    cells = line.split()
    if not cells or not cells[0].isdigit() or len(cells) < 5:
        return None
    return any(cell not in ("-", "N/A", "[N/A]") for cell in cells[-4:])


async def gpm_follow(context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]) -> None:
    """The op `gpm-follow`. Raises OpError `not-found` where no GPU gives a value."""
    if not shutil.which("nvidia-smi"):
        raise missing()
    every_s = max(1, int(args.get("every_s", 2)))
    words = ["nvidia-smi", "dmon", "-s", "u", "-d", str(every_s), "--gpm-metrics", METRICS]
    failures = 0
    while True:
        works, said = False, ""
        rows: Dict[str, int] = {}
        async with LineStream(line_buffered(words), limit_b=64 << 10) as stream:
            async for lines in stream.batches():
                now = time.monotonic()
                for text in _texts(lines):
                    found = has_value(text)
                    if found:
                        if not works:
                            remember(context.state_dir, True)
                        works = True
                    elif found is False and not works:
                        gpu = text.split()[0]
                        rows[gpu] = rows.get(gpu, 0) + 1
                    elif found is None and not text.lstrip().startswith("#"):
                        said = text[:300]
                    await emit({"line": text, "mono_s": now})
                if not works and rows and min(rows.values()) >= TICKS:
                    break
            how = "" if rows and not works else await stream.ended()
        if not works and rows and min(rows.values()) >= TICKS:
            remember(context.state_dir, False)
            raise OpError("not-found", "these GPUs give no GPM metrics (dmon shows `-`)")
        failures = 0 if works else failures + 1
        if "not recognized" in said or failures >= 3:
            # A driver that does not know the option stays so; one that fails may recover, and is asked again.
            if "not recognized" in said:
                remember(context.state_dir, False)
            raise OpError("not-found", "GPM metrics are not available on this host: " + (said or how))
        await asyncio.sleep(BACKOFF_S[failures])


def _texts(lines: List[bytes]) -> List[str]:
    return [text for text in (line.decode("utf-8", "replace").rstrip() for line in lines) if text]
