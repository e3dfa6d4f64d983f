"""Running work with helper tasks beside it: every task has an owner that sees its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


async def alongside(main: Coroutine[Any, Any, T], *helpers: Coroutine[Any, Any, None]) -> T:
    """Runs `main` to its end, `helpers` beside it. A helper's failure ends it all and is raised."""
    work = asyncio.create_task(main)
    tasks = [asyncio.create_task(h) for h in helpers]
    try:
        pending: set[asyncio.Task[Any]] = {work, *tasks}
        while not work.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task is not work:
                    task.result()
        return work.result()
    finally:
        for task in (work, *tasks):
            task.cancel()
        await asyncio.gather(work, *tasks, return_exceptions=True)


def first_of(error: BaseException, kind: type[E]) -> E | None:
    """The first error of `kind` in a tree of exception groups; None where there is none.

    >>> first_of(ExceptionGroup("x", [ExceptionGroup("y", [OSError(2)]), ValueError(1)]), ValueError)
    ValueError(1)
    """
    if isinstance(error, BaseExceptionGroup):
        return next((found for e in error.exceptions if (found := first_of(e, kind)) is not None), None)
    return error if isinstance(error, kind) else None
