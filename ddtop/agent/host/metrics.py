"""The stream `metrics-follow`: a few series of a server's /metrics, read at a bounded cost.

The page is read here and cut to the named series; it never leaves the host. A server that takes long to write it is asked
less often: its answers fill at most 2% of the time, while one takes less than 0.2 s.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from typing import Any, Callable, Dict, List, Pattern, Sequence

from ..context import Context
from .http import ask, bearer

SHARE = 0.02
"""Of the time that the server may spend on our questions."""
LONGEST_S = 10.0
ANSWER_S = 2.0
PAGE_B = 4 << 20
MAX_ROWS = 256


def series(names: Sequence[str]) -> Pattern[str]:
    """Matches the lines of these series: name, labels without braces, value."""
    words = "|".join(re.escape(name) for name in names)
    return re.compile(r"^(%s)(?:\{([^\n]*)\})?[ \t]+(\S+)" % words, re.M)


def rows_of(page: str, wanted: Pattern[str]) -> List[List[Any]]:
    """[name, labels, value] of the wanted series, in the page's order; what is not a finite number is left out.

    >>> rows_of('# HELP x_y a\\nx_y{rank="0"} 3.0\\nx_yz 4\\nx_y NaN\\n', series(["x_y"]))
    [['x_y', 'rank="0"', 3.0]]
    """
    found: List[List[Any]] = []
    for match in wanted.finditer(page):
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value) and len(found) < MAX_ROWS:
            found.append([match[1], match[2] or "", value])
    return found


def pause_s(every_s: float, took_s: float) -> float:
    """Seconds from one question to the next.

    >>> pause_s(1.0, 0.004), pause_s(1.0, 0.05), pause_s(1.0, 2.0)
    (1.0, 2.5, 10.0)
    """
    return max(every_s, min(LONGEST_S, took_s / SHARE))


async def metrics_follow(
    context: Context, args: Dict[str, Any], emit: Callable[[Dict[str, Any]], Any]
) -> None:
    """The op `metrics-follow`."""
    every_s = max(0.2, float(args.get("every_s", 1)))
    wanted = series([str(name) for name in args["names"]])
    headers = {"Accept-Encoding": "identity", **bearer(args.get("key_env"))}
    told = ""
    while True:
        began = time.monotonic()
        answer = await context.thread(ask, "GET", args["url"], headers, None, ANSWER_S, PAGE_B)
        took_s = time.monotonic() - began
        status = answer.get("status")
        if status == 200:
            told = ""
            rows = rows_of(answer["body"], wanted)
            await emit({"mono_s": began + took_s / 2, "took_ms": round(took_s * 1e3, 2), "rows": rows})
        else:
            why = "HTTP %s" % status if status is not None else str(answer.get("error"))
            if why != told:
                told = why
                await emit({"error": why})
            took_s = max(took_s, LONGEST_S * SHARE)  # a server that does not answer is asked seldom
        wait_s = pause_s(every_s, took_s)
        await asyncio.sleep(max(0.05, wait_s - (time.monotonic() - began)))
