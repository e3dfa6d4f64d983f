"""What went wrong with a server: a cause found in a log, and the verdict on a start or a cell. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.events import CauseKind, Evidence, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseReading:
    """A cause found in the log (or the kernel's): the first non-pointer signature of the first failing rank."""

    slug: str
    kind: CauseKind
    text: str
    advice: str = ""
    signature_id: str | None = None
    evidence: tuple[Evidence, ...] = ()
    fatal: bool = True
    """False for a warning that names no failure by itself."""
    final: bool = False
    """The server cannot become ready any more, whether or not its process has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The verdict and its cause. `verdict` None: go on waiting; `slow`: go on waiting, shown as slow."""

    verdict: Verdict | None
    cause: str = ""
    kind: CauseKind = "unknown"
    text: str = ""
    advice: str = ""
    evidence: tuple[Evidence, ...] = ()
    signature_id: str | None = None
    title: str = ""
    """What happened, as the alert is headed; empty: by its verdict."""

    @property
    def alarm(self) -> bool:
        return self.verdict not in (None, "slow")
