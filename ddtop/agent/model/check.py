"""The op `model-check`: what a model directory is worth (agent/modeldir.py decides)."""

from __future__ import annotations

import functools
from typing import Any, Dict

from ..context import Context
from .folder import check_model_dir


async def model_check(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `model-check`. Hashing 590 GB takes minutes: the client's time limit is the limit."""
    sources = args.get("sources")
    check = functools.partial(check_model_dir, args["path"], sources=sources, hashes=bool(args.get("hashes")))
    return await context.thread(check)
