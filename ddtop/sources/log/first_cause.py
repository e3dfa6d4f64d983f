"""Which cause came first in a scanned log: the one that a failure is told with. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from ddtop.sources.log.scan_snapshot import Hit, ScanSnapshot
from ddtop.sources.log.tracebacks import FOLLOW_UPS, Raised, quoted_cause

_HOST_TIER = ("kernel", "host")
FAILING = ("cause", "consequence", "pointer")
_BY_SIGTERM = re.compile(
    r"exit ?code:? ?=?\s?(?:-15|143)\b|exitcode=-15|[Ss]ignal:? ?(?:15|SIGTERM)\b|status=15/TERM|status=143"
)
COMES_AGAIN = re.compile(
    r"(?:^|\.)(?:Value|Assertion|Import|ModuleNotFound|Type|Key|NotImplemented|Attribute|Name|UnboundLocal|Index|Syntax|Indentation|"
    r"FileNotFound|FileExists|NotADirectory|IsADirectory|Permission|JSONDecode|UnicodeDecode|Validation|HFValidation|Argument\w*|\w*Config\w*|"
    r"PydanticUser|ZeroDivision|Lookup|Unsupported\w*|Incompatible\w*|Missing\w*|Invalid\w*|EntryNotFound|RepositoryNotFound|LocalEntryNotFound)"
    r"(?:Error|Exception)?$"
)
"""Exceptions of the same arguments, files and packages each time: before a server is ready they are the configuration's."""
_GENERIC = re.compile(
    r"^(?:RuntimeError|Exception|OSError|BaseException|\w*(?:Unavailable|NotSupported|Unsupported)\w*)$"
)
_DEMANDS = re.compile(
    r"\brequires?\b|\bnot (?:yet |currently )?(?:supported|compatible|available|implemented|installed|allowed|recogni[sz]ed)\b|\bunsupported\b"
    r"|\bonly (?:be )?(?:supported|supports?|available|works?|compatible|implemented|valid)\b|\bdoes(?: not|n't) (?:support|satisfy|have|exist|match|expose)\b"
    r"|\bmust (?:not )?(?:be|use|have|match|set|contain|specify)\b|\bcan(?: ?not|'t) be (?:used|combined|set|enabled|implemented)\b|\bincompatible\b"
    r"|\bmismatch|\b[Ii]nvalid\b|\b[Uu]nknown\b|\bno such\b|\bPlease (?:set|use|specify|install|pass|provide|upgrade)\b|\bset [A-Z][A-Z_]{4,}\b|(?<![\w-])--[a-z][\w-]{2,}"
    r"|\bmissing\b|\b(?:is|are) unavailable\b|\bis not writable\b|\bnot in the checkpoint\b|\bNo \w+ layers? found\b|\bSelect a different\b|\bcould not find\b|\bCan't (?:get|find)\b|\bis not (?:set|defined|configured|loaded)\b",
    re.IGNORECASE,
)
"""Words by which a general exception says what the start lacks or may not have: the same start lacks it again."""
_PASSES = re.compile(
    r"\btimed? ?out\b|\btimeout\b|\bconnect|\bpeer\b|out of memory|\bmemory\b.{0,40}\b(?:free|available|enough)|\bCUDA (?:runtime )?error\b|\bNCCL error|\bdied\b"
    r"|\bkilled\b|\bbusy\b|\bin use\b|\bsignal\b|\bexit(?:ed)? (?:code|with)\b|\bnetwork\b|\bHTTP\b|\bunexpected(?:ly)?\b|\binternal\b|\bassert",
    re.IGNORECASE,
)
"""Words of what may be gone at the next start."""


def is_configuration(name: str, text: str) -> bool:
    """Whether an exception is of a kind that the same arguments, files and packages raise again: by its type, or by what a
    general one (RuntimeError) says.

    >>> is_configuration("RuntimeError", "RuntimeError: the b12x kernel requires an SM120 GPU")
    True
    >>> is_configuration("RuntimeError", "RuntimeError: connection to the store is not available")
    False
    """
    if COMES_AGAIN.search(name):
        return True
    bare = name.rpartition(".")[2]
    return (
        _GENERIC.search(bare) is not None and _DEMANDS.search(text) is not None and not _PASSES.search(text)
    )


def comes_again(scan: ScanSnapshot, raised: Raised) -> bool:
    """Whether an exception that no rule knows is the configuration's fault: of a kind that the same start raises again, and
    before the server was ready."""
    worked = any(scan.counts.get(kind, 0) for kind in ("decode", "stats", "timing"))
    if scan.ready and 0 < scan.ready_number < raised.line:
        return False
    if worked and not scan.ready:
        return False
    return raised.name is not None and is_configuration(raised.name, raised.words)


_BY_PLACE = ((re.compile(r"(?:^|\.)TimeoutError$"), "shm_broadcast.py", "worker-rpc-timeout"),)
"""Exceptions that say nothing themselves: name, the file whose frame raised it, cause."""


def cause_by_place(raised: Raised) -> str | None:
    """The cause of an exception without words by where it was raised: vLLM's core that waited for its workers."""
    if raised.name is None or raised.text.partition(": ")[2].strip():
        return None
    last = raised.files[-1] if raised.files else ""
    return next((s for name, file, s in _BY_PLACE if name.search(raised.name) and last.endswith(file)), None)


def going_down(scan: ScanSnapshot) -> bool:
    """Whether the log has named the end already, though the process may live on: a part that it needs has died, or its
    port is another's; and nothing has moved since. No such server becomes ready."""
    failing = [h for h in failing_hits(scan) if h.engine not in (*_HOST_TIER, "systemd")]
    ends = [h for h in failing if h.role in ("consequence", "pointer") or h.slug == "port-in-use"]
    if not ends or scan.ready or scan.run_after_failure or scan.phase == "run":
        return False
    hit, raised = first_cause(scan)
    named = hit.slug is not None if hit is not None else raised is not None and raised.name is not None
    return named and scan.mark_line[0] <= min(h.number for h in failing)


def _of_a_family(hit: Hit) -> bool:
    return hit.signature.startswith("fam-")


def failing_hits(scan: ScanSnapshot) -> list[Hit]:
    """The hits that a failure may be told with: what follows a stop on request only shows how the parts ended."""
    failing = [h for h in scan.hits if h.role in FAILING]
    if scan.ready and all(_of_a_family(h) and h.number > scan.ready_number for h in failing):
        failing = []  # a general message alone does not show that a server which was up has ended
    stopped = scan.stop_line[0]
    if stopped:
        failing = [h for h in failing if h.number < stopped or h.role == "cause"]
    if (
        failing
        and all(h.role != "cause" for h in failing)
        and any(_BY_SIGTERM.search(h.text) for h in failing)
    ):
        first = min(h.number for h in failing if _BY_SIGTERM.search(h.text))
        # a group's stop reaches the parts first, and the parent calls that a crash
        failing = [h for h in failing if h.number < first]
    return failing


def failing_raised(scan: ScanSnapshot) -> list[Raised]:
    """The tracebacks that a failure may be told with."""
    stopped = scan.stop_line[0]
    return [
        r
        for r in scan.raised
        if not r.request
        and not (r.name and FOLLOW_UPS.search(r.name))
        and not (stopped and r.line >= stopped)
    ]


def first_cause(scan: ScanSnapshot) -> tuple[Hit | None, Raised | None]:
    """The first cause of a failure: kernel and host before engine, a cause before its consequences.

    Among engine causes the first one in the order of the log decides: that is the first failing rank's first cause.
    An exception that no signature knows outranks a consequence (a peer that only waited), not a known cause.
    """
    hit, raised = _first(scan)
    if hit is None or not hit.echo:
        return hit, raised
    # source code that a traceback shows: the words are in the line that was raised
    twin = next(
        (h for h in scan.hits if h.signature == hit.signature and not h.echo and h.number > hit.number), None
    )
    raised = raised or _traceback_of(scan, hit)
    if twin is not None:
        return twin, _traceback_of(scan, twin) or raised
    if raised is not None and raised.exception_line:
        return replace(hit, number=raised.exception_line, text=raised.text, echo=False), raised
    return hit, raised


def _first(scan: ScanSnapshot) -> tuple[Hit | None, Raised | None]:
    failing = [h for h in failing_hits(scan) if h.role in ("cause", "consequence") and h.slug]
    for engine in _HOST_TIER:
        if hit := next((h for h in failing if h.engine == engine and h.role == "cause"), None):
            return hit, None
    if hit := next((h for h in failing if h.signature in ("sd-oom", "oomkill-kernel")), None):
        return hit, None
    if hit := next((h for h in failing if h.role == "cause"), None):
        return hit, _traceback_of(scan, hit)
    known = {h.number for h in scan.hits if h.role in ("consequence", "pointer", "warning")}
    unknown = [
        r
        for r in failing_raised(scan)
        if r.name and (not ({r.exception_line, r.line} & (known - {r.line})) or quoted_cause(r.text))
    ]
    consequence = next((h for h in failing if h.role == "consequence" and h.engine != "systemd"), None)
    if consequence:
        # "Rank 0 scheduler is dead", and how it ended stands on the next line
        near = range(consequence.number, consequence.number + 4)
        consequence = next(
            (h for h in failing if h.signature == "exit-code-9" and h.number in near), consequence
        )
    if unknown and (consequence is None or not _same_process(unknown[0], consequence)):
        return None, unknown[0]
    if consequence:
        return consequence, unknown[0] if unknown else _traceback_of(scan, consequence)
    if unknown:
        return None, unknown[0]
    return next((h for h in failing if h.role == "consequence"), None), None


def _same_process(raised: Raised, hit: Hit) -> bool:
    return hit.signature in ("sgl-warmup-fail",) and abs(raised.line - hit.number) <= 1


def _traceback_of(scan: ScanSnapshot, hit: Hit) -> Raised | None:
    within = [r for r in scan.raised if r.line <= hit.number <= (r.last_line or r.line)]
    same = [r for r in within if r.pid == hit.pid and (r.rank == hit.rank or not hit.rank)]
    return next(iter(same or within), None)
