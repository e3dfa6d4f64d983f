"""The verdict over a scanned log: ready, starting, stalled, failed or degraded, why, and on which lines it rests. Pure.

`judge` serves the live form and the offline one; `first_cause` names the cause of a failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddtop.engines.log.phases import SILENT_LIMIT_S
from ddtop.services.causes import cause as cause_row
from ddtop.sources.log.scan_snapshot import Hit, ScanSnapshot
from ddtop.sources.log.served_requests import served
from ddtop.sources.log.tracebacks import FOLLOW_UPS, Raised

ALIVE_LINES = 3
"""Decode lines after the last error that show that the server went on."""
WAIT_STALLED = 5
"""Repeats of a waiting line, with no other progress, that are no longer explained by compilation."""
_HOST_TIER = ("kernel", "host")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict over a scan.

    slug       cause in the table's words; `verdict` and `severity` are the table's unless the situation says
    more
    hit        the decisive line's hit, None when no signature named the cause
    raised     the decisive traceback, None when there is none
    evidence   (line number, text) of what the verdict rests on, the decisive line first
    """

    slug: str
    verdict: str
    severity: str
    phase: str
    hit: Hit | None = None
    raised: Raised | None = None
    evidence: tuple[tuple[int, str], ...] = ()


def first_cause(scan: ScanSnapshot) -> tuple[Hit | None, Raised | None]:
    """The first cause of a failure: kernel and host before engine, a cause before its consequences.

    Among engine causes the first one in the order of the log decides: that is the first failing rank's first cause.
    An exception that no signature knows outranks a consequence (a peer that only waited), not a known cause.
    """
    failing = [h for h in scan.hits if h.role in ("cause", "consequence") and h.slug]
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
        for r in scan.raised
        if r.name
        and not r.request
        and not FOLLOW_UPS.search(r.name)
        and not ({r.exception_line, r.line} & (known - {r.line}))
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


def judge(scan: ScanSnapshot, *, silence_s: float | None = None, unit_over: bool = False) -> Judgement:
    """The verdict over a scanned log.

    silence_s  seconds since the last line, where known (a file alone does not show that a log has stopped)
    unit_over  the process is known to be gone, so an open traceback will not be completed
    """
    failed = _failure(scan)
    if failed is not None:
        return failed
    if (stop := scan.phases.get("stop")) is not None and scan.phase == "stop":
        del stop
        return _state(scan, "stopped-by-request", "stop")
    zero = scan.counts.get("zero_tps_now", 0)
    if zero >= 3:
        return _state(scan, "engine-hung-zero-throughput", "run", hit=_last_hit(scan, "zero-tps-vllm"))
    if scan.waiting:
        stalled = scan.waiting >= WAIT_STALLED
        verdict = "stalled" if stalled else ("degraded" if scan.ready or scan.phase == "run" else "starting")
        hit = _last_hit(scan, "vllm-shm-wait")
        return _state(
            scan,
            "workers-not-answering",
            phase_now(scan),
            verdict=verdict,
            severity="error" if stalled else "warn",
            hit=hit,
        )
    if scan.ready or (scan.phase == "run" and scan.run_after_failure):
        return _ready(scan)
    phase = phase_now(scan)
    if silence_s is not None and silence_s > SILENT_LIMIT_S.get(phase, 600.0):
        return _stalled(scan, phase)
    return _starting(scan, phase)


def _failure(scan: ScanSnapshot) -> Judgement | None:
    failing = [h for h in scan.hits if h.role in ("cause", "consequence", "pointer")]
    raised = [r for r in scan.raised if not r.request and not (r.name and FOLLOW_UPS.search(r.name))]
    if not failing and not raised:
        return None
    if scan.run_after_failure >= ALIVE_LINES:
        return None
    last = max([h.number for h in failing] + [r.last_line for r in raised])
    if scan.ready and scan.ready_number > last and scan.ready_number:
        return None
    if scan.run_after_failure and not any(h.role in ("cause", "pointer") for h in failing):
        return None
    stop = scan.phases.get("stop")
    if stop is not None and not raised and all(h.engine == "systemd" for h in failing):
        first = min(h.number for h in failing)
        if stop.first_number <= first:
            return None
    hit, trace = first_cause(scan)
    if hit is not None:
        row = cause_row(hit.slug or "unhandled-exception")
        phase = hit.phase or (trace.phase if trace else "")
        evidence = [(hit.number, hit.text)]
        if trace is not None and trace.exception_line not in (None, hit.number):
            evidence.append((trace.exception_line or 0, trace.text))
        evidence += [(h.number, h.text) for h in failing if h is not hit and h.number != hit.number][:6]
        return Judgement(row.slug, row.verdict, row.severity, phase, hit, trace, tuple(evidence))
    if trace is not None:
        row = cause_row("unhandled-exception")
        evidence = [
            (trace.exception_line or trace.line, trace.text),
            *[(h.number, h.text) for h in failing[:6]],
        ]
        # without any other sign of an end, a ready server has only met a bad request
        ready = not failing and (scan.ready or "run" in scan.phases)
        verdict, severity = ("degraded", "warn") if ready else (row.verdict, row.severity)
        return Judgement(
            row.slug, verdict, severity, trace.phase or phase_now(scan), None, trace, tuple(evidence)
        )
    open_trace = next((r for r in raised if r.name is None), None)
    row = cause_row("unknown-root-cause-cut")
    phase = next((r.phase for r in raised if r.phase), "") or phase_now(scan)
    evidence = [(h.number, h.text) for h in failing][:8] or (
        [(open_trace.line, "Traceback (most recent call last):")] if open_trace else []
    )
    return Judgement(row.slug, row.verdict, row.severity, phase, None, open_trace, tuple(evidence))


def _last_hit(scan: ScanSnapshot, signature: str) -> Hit | None:
    return next((h for h in reversed(scan.hits) if h.signature == signature), None)


def _state(
    scan: ScanSnapshot,
    slug: str,
    phase: str,
    *,
    verdict: str = "",
    severity: str = "",
    hit: Hit | None = None,
) -> Judgement:
    row = cause_row(slug)
    lines = [(hit.number, hit.text)] if hit else list(scan.tail)[-1:]
    return Judgement(slug, verdict or row.verdict, severity or row.severity, phase, hit, None, tuple(lines))


def _ready(scan: ScanSnapshot) -> Judgement:
    warning = next(
        (h for h in reversed(scan.hits) if h.role == "warning" and h.slug and _counts_now(scan, h)), None
    )
    if warning is not None and warning.slug:
        return _state(
            scan, warning.slug, "run" if scan.phase == "run" else "ready", verdict="degraded", hit=warning
        )
    slug, phase = ("serving", "run") if scan.phase == "run" else ("ready", "ready")
    judged = _state(scan, slug, phase)
    if not scan.ready:
        return judged
    return Judgement(
        slug, judged.verdict, judged.severity, phase, None, None, ((scan.ready_number, scan.ready_line),)
    )


def _counts_now(scan: ScanSnapshot, hit: Hit) -> bool:
    """Whether a warning still stands: it came often enough, and recently enough."""
    count = scan.counts.get(f"hit:{hit.signature}", 0)
    if hit.signature.startswith("spec-zero"):
        total = scan.counts.get("decode", 0) + scan.counts.get("spec", 0)
        return count >= 3 and count * 2 >= total
    if hit.signature == "zero-tps-vllm":
        return False
    return hit.signature != "sgl-health-fail" or scan.run_after_failure < ALIVE_LINES


def phase_now(scan: ScanSnapshot) -> str:
    """The phase now; `post-load` when the weights are in and nothing after that has been said."""
    if scan.phase != "load":
        return scan.phase or ("launch" if scan.server_args else "")
    bars = [b for b in scan.bars.values() if b.phase == "load"]
    last = scan.phases.get("load")
    done = bool(bars) and bars[-1].pct >= 100 and bars[-1].number == (last.last_number if last else -1)
    return "post-load" if done or (last is not None and last.ended) else "load"


def _stalled(scan: ScanSnapshot, phase: str) -> Judgement:
    if phase == "post-load":
        return _state(scan, "silent-after-weights-loaded", phase)
    if phase == "init":
        return _state(scan, "nccl-init-hang", phase)
    return _state(scan, "silent-too-long", phase)


def _starting(scan: ScanSnapshot, phase: str) -> Judgement:
    by_phase = {
        "launch": "just-launched",
        "init": "init-distributed",
        "download": "downloading",
        "load": "loading",
        "post-load": "loading",
        "kv": "kv-cache-allocation",
        "compile": "torch-compile",
        "jit": "deepgemm-jit",
        "capture": "cuda-graph-capture",
        "warmup": "warming-up",
    }
    if "http" in scan.phases or phase == "sched":
        return _state(scan, "no-ready-marker-yet", phase)
    if phase in by_phase:
        return _state(scan, by_phase[phase], phase)
    if not scan.phases and not scan.server_args and (found := served(scan)) is not None:
        row = cause_row(found.cause)
        return Judgement(row.slug, row.verdict, row.severity, found.phase, None, None, (found.line,))
    return _state(scan, "just-launched" if scan.lines and scan.tail else "no-log-lines", phase or "launch")
