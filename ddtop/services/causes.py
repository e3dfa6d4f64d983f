"""The vocabulary of causes and verdicts: the table causes.toml, read once.

It is in this room because services, engines and sources all use it, and services is the lowest of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import tomli


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table; see the head of causes.toml for the meaning of each field."""

    slug: str
    verdict: str
    severity: str
    kind: str
    retryable: bool
    remedy: str
    means: str
    advice: str
    signatures: tuple[str, ...]
    advice_by: Mapping[str, str] = field(default_factory=dict)
    """Advice for one engine, where its flags differ from what `advice` names."""

    def advice_for(self, engine: str | None) -> str:
        """The advice for a server of this engine (None: not known)."""
        return self.advice_by.get(engine or "", self.advice)


@dataclass(frozen=True, slots=True)
class CauseTable:
    """All causes by slug, the slug of each signature id, the gate's verdict words and the phase words."""

    by_slug: dict[str, Cause]
    by_signature: dict[str, str]
    readiness: dict[str, tuple[str, str]]
    phases: dict[str, str]

    def slug_of(self, signature_id: str, phase: str = "") -> str | None:
        """The cause a signature names, more exactly where the phase is known; None for pointers and markers."""
        return self.by_signature.get(f"{signature_id}@{phase}") or self.by_signature.get(signature_id)


@functools.cache
def load_causes() -> CauseTable:
    """The packaged table. Read once."""
    raw: dict[str, Any] = tomli.loads(
        resources.files("ddtop.services").joinpath("causes.toml").read_text("utf-8")
    )
    causes = {row["slug"]: Cause(**{**row, "signatures": tuple(row["signatures"])}) for row in raw["cause"]}
    by_signature = {sid: slug for slug, cause in causes.items() for sid in cause.signatures}
    readiness = {row["verdict"]: (row["word"], row["cause"]) for row in raw["readiness"]}
    return CauseTable(causes, by_signature, readiness, dict(raw["phase"]))


def cause(slug: str) -> Cause:
    """The row of a cause. Raises KeyError for a slug that is not in the table."""
    return load_causes().by_slug[slug]


def phase_word(phase: str) -> str:
    """The word shown for a phase of the log grammar (`load` → `load-weights`)."""
    return load_causes().phases.get(phase, phase)


def verdict_fields(slug: str, engine: str | None = None) -> dict[str, Any]:
    """The fields that every verdict has: verdict, cause, severity, retryable, meaning, advice, and remedy if any.

    engine  the server's, where known: the advice names its flags
    """
    row = cause(slug)
    fields: dict[str, Any] = {
        "verdict": row.verdict,
        "cause": row.slug,
        "severity": row.severity,
        "retryable": row.retryable,
        "meaning": row.means,
        "advice": row.advice_for(engine),
    }
    if row.remedy:
        fields["remedy"] = row.remedy
    return fields


def causes_markdown() -> str:
    """The whole table for the docs: every cause with its verdict, meaning and advice, in the order of the file."""
    lines = [
        "| cause | verdict | severity | again? | what it means | what to do |",
        "|---|---|---|---|---|---|",
    ]
    for row in load_causes().by_slug.values():
        again = {"config": "never", "bug": "once", "host": "when the host is clean", "transient": "once"}.get(
            row.kind, "–"
        )
        cells = (f"`{row.slug}`", row.verdict, row.severity, again, row.means, row.advice)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
