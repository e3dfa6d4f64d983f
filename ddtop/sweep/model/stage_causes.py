"""Why a model could not be staged: the job's error text → cause, kind, advice. Pure; the first matching row counts.

The patterns are texts of huggingface_hub 0.2x to 1.x (errors.py), and of requests and httpx beneath it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddtop.events import CauseKind


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCause:
    """Of kind transient, the same copy once more goes on where it stopped."""

    slug: str
    kind: CauseKind
    advice: str
    may_pass: bool = False
    """Room is made, a network comes back: worth a wait."""


FAILED = StageCause(
    slug="staging-failed",
    kind="host",
    advice="free space or name another source in [model] sources, then re-stage",
)
_ROWS: tuple[tuple[str, StageCause], ...] = (
    (
        r"no room for the model|No space left on device|disk quota exceeded",
        StageCause(
            slug="no-space",
            kind="host",
            advice="free space there (or `mount -o remount,size=…`), then re-stage",
            may_pass=True,
        ),
    ),
    (
        r"no hf tool on this host",
        StageCause(
            slug="no-download-tool",
            kind="config",
            advice="pip install -U huggingface_hub on the host, or name a directory in [model] sources",
        ),
    ),
    (
        r"\b401\b|\b403\b|Access denied|gated repo|GatedRepo|Invalid (?:user )?token",
        StageCause(
            slug="download-not-allowed",
            kind="config",
            advice="log in on the host (hf auth login) with an account that may read the model, then re-stage",
        ),
    ),
    (
        r"\b404\b|Repository Not Found|RepositoryNotFound|RevisionNotFound|Revision Not Found",
        StageCause(
            slug="download-not-found", kind="config", advice="correct the name or revision in [model] sources"
        ),
    ),
    (
        r"LocalEntryNotFound|appropriate cached snapshot|offline mode|OfflineMode|Name or service not known"
        r"|name resolution|Network is unreachable|No route to host",
        StageCause(
            slug="host-offline",
            kind="host",
            advice="give the host network access (HTTPS_PROXY), or copy the model to a directory there and name it in [model] sources",
            may_pass=True,
        ),
    ),
    (
        r"Connection ?(?:Reset|Aborted|Error|broken)|timed out|Timeout|IncompleteRead|\b50[0234]\b|\b429\b|Temporary failure",
        StageCause(slug="download-cut", kind="transient", advice="re-stage: it goes on where it stopped"),
    ),
    (
        r"^systemd: (?:signal|oom-kill|core-dump)",
        StageCause(
            slug="staging-killed",
            kind="transient",
            advice="see what killed the copy (`journalctl -k` for the OOM killer), then re-stage: it goes on where it stopped",
        ),
    ),
    (
        r"no source holds a whole copy",
        StageCause(
            slug="no-source", kind="config", advice="name a complete copy, or hf:org/name, in [model] sources"
        ),
    ),
)
_TABLE = tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in _ROWS)


def stage_cause(error: str) -> StageCause:
    """
    >>> stage_cause("/dev/shm/M: no room for the model: 52.0 GiB are needed").slug
    'no-space'
    >>> stage_cause("hf download org/name: exit status 1: 404 Client Error").kind
    'config'
    """
    return next((cause for pattern, cause in _TABLE if pattern.search(error)), FAILED)
