"""Collecting what detached jobs have done, however large: results that do not fit a line are read as files."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from ddtop.errors import AgentError
from ddtop.hosts.base import Host

PIECE_B = 600_000


async def read_file(host: Host, path: str) -> bytes:
    """A whole file of the host, in pieces. Raises AgentError."""
    data = b""
    while True:
        piece = await host.call("file-read", path=path, offset=len(data), max_b=PIECE_B, b64=True)
        data += base64.b64decode(piece["b64"])
        if piece["eof"]:
            return data


async def resolve_result(host: Host, item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(id, result) of an item of job-watch or job-collect. Raises AgentError for a damaged result file."""
    if "result" in item:
        return item["id"], item["result"]
    text = await read_file(host, item["file"])
    try:
        value = json.loads(text)
    except ValueError as error:
        raise AgentError(f"{item['file']} is damaged: {error}", code="failed", host=host.name) from error
    return item["id"], value


async def collect_job(
    host: Host, job: str, known: Iterable[str] = ()
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """({cell id: result} of all results not in `known`, the JOB as it was asked last)."""
    have = set(known)
    found: dict[str, dict[str, Any]] = {}
    while True:
        answer = await host.call("job-collect", job=job, known=sorted(have), timeout_s=30)
        for item in answer["results"]:
            cell, value = await resolve_result(host, item)
            found[cell] = value
            have.add(cell)
        if not answer["more"]:
            return found, answer["job"]


async def watch_job(
    host: Host, job: str, known: Iterable[str] = ()
) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """("progress", "", …), ("result", cell id, …), ("state", word, JOB); ends after the job's end state.

    Use `contextlib.aclosing`. Raises HostLostError with the link: watch again with what is known then.
    """
    async with host.stream("job-watch", job=job, known=sorted(known)) as batches:
        async for batch in batches:
            for item in batch:
                if "progress" in item:
                    yield "progress", "", item["progress"]
                elif "state" in item:
                    yield "state", item["state"]["state"], item["state"]
                else:
                    cell, value = await resolve_result(host, item)
                    yield "result", cell, value
