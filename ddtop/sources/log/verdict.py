"""The verdict over a scanned log: ready, starting, stalled, failed or degraded, why, and on which lines it rests. Pure.

`judge` serves the live form and the offline one. "Starting" is only said of the log of a known engine whose last word is
no bad news; of anything else the verdict is `unknown`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ddtop.engines.log.line_prefix import split_prefix
from ddtop.engines.log.phases import SILENT_LIMIT_S
from ddtop.services.causes import cause as cause_row
from ddtop.sources.log.first_cause import (
    cause_by_place,
    comes_again,
    failing_hits,
    failing_raised,
    first_cause,
)
from ddtop.sources.log.last_lines import LastWord, last_word, served, suspicious
from ddtop.sources.log.scan_snapshot import Hit, ScanSnapshot
from ddtop.sources.log.tracebacks import Raised

ALIVE_LINES = 3
"""Decode lines after the last error that show that the server went on."""
WAIT_STALLED = 5
"""Repeats of a waiting line, with no other progress, that are no longer explained by compilation."""


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
    means: str = ""
    """What happened, in the log's own words; empty: the table's sentence."""
    advice: str = ""
    """Empty: the table's."""
    retryable: bool | None = None
    """None: the table's."""


REPEATED = 3
"""Repeats of one line from which on it is a line that waits."""


def judge(scan: ScanSnapshot, *, silence_s: float | None = None, unit_over: bool = False) -> Judgement:
    """The verdict over a scanned log.

    silence_s  seconds since the last line, where known (a file alone does not show that a log has stopped)
    unit_over  the process is known to be gone, so an open traceback will not be completed
    """
    failed = _failure(scan)
    if failed is not None:
        return failed
    if scan.stop_line[0] and scan.phase == "stop":
        return _state(scan, "stopped-by-request", "stop", line=scan.stop_line)
    if (by_signal := _stopped_by_signal(scan)) is not None:
        return by_signal
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
    if (
        scan.ready
        or (scan.phase == "run" and scan.run_after_failure)
        or (scan.counts.get("stats") and not scan.phases)
    ):
        return _ready(scan)  # an engine that prints its counters is up, though it is idle
    phase = phase_now(scan)
    if silence_s is not None and silence_s > SILENT_LIMIT_S.get(phase, 600.0):
        return _stalled(scan, phase)
    if _repeats_itself(scan, phase):
        return _stalled(scan, phase)
    return _starting(scan, phase)


def _failure(scan: ScanSnapshot) -> Judgement | None:
    failing = failing_hits(scan)
    raised = failing_raised(scan)
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
        if trace is not None and trace.exception_line == hit.number and trace.plainest[0] != hit.number:
            evidence = [trace.plainest, (hit.number, hit.text)]
        elif trace is not None and trace.exception_line not in (None, hit.number):
            evidence.append((trace.exception_line or 0, trace.text))
        elif trace is not None and trace.exception_line == hit.number:
            evidence += trace.more[:3]
        evidence += [(h.number, h.text) for h in failing if h.number != hit.number and not h.echo][:6]
        return Judgement(row.slug, row.verdict, row.severity, phase, hit, trace, tuple(evidence))
    if trace is not None:
        row = cause_row(cause_by_place(trace) or "unhandled-exception")
        evidence = [
            (trace.exception_line or trace.line, trace.text),
            *trace.more[:4],
            *[(r.exception_line or r.line, r.text) for r in _chained_to(scan, trace)],
            *[(h.number, h.text) for h in failing[:6]],
        ]
        # without any other sign of an end, a ready server has only met a bad request
        ready = row.slug == "unhandled-exception" and not failing and (scan.ready or "run" in scan.phases)
        verdict, severity = ("degraded", "warn") if ready else (row.verdict, row.severity)
        judged = Judgement(
            row.slug, verdict, severity, trace.phase or phase_now(scan), None, trace, tuple(evidence)
        )
        return in_own_words(scan, judged)
    open_trace = next((r for r in raised if r.name is None), None)
    row = cause_row("unknown-root-cause-cut")
    phase = next((r.phase for r in raised if r.phase), "") or phase_now(scan)
    evidence = [(h.number, h.text) for h in failing][:8] or (
        [(open_trace.line, "Traceback (most recent call last):")] if open_trace else []
    )
    return Judgement(row.slug, row.verdict, row.severity, phase, None, open_trace, tuple(evidence))


def _chained_to(scan: ScanSnapshot, trace: Raised) -> list[Raised]:
    """What the same process raised while it handled `trace`, in order."""
    found: list[Raised] = []
    for raised in scan.raised:
        if raised.line > trace.line and (raised.pid, raised.rank) == (trace.pid, trace.rank):
            if not raised.chained or not raised.name or len(found) == 2:
                break
            found.append(raised)
    return found


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
    line: tuple[int, str] | None = None,
) -> Judgement:
    row = cause_row(slug)
    lines = [(hit.number, hit.text)] if hit else [line] if line else list(scan.tail)[-1:]
    return Judgement(slug, verdict or row.verdict, severity or row.severity, phase, hit, None, tuple(lines))


def _ready(scan: ScanSnapshot) -> Judgement:
    warning = next(
        (h for h in reversed(scan.hits) if h.role == "warning" and h.slug and _counts_now(scan, h)), None
    )
    if warning is not None and warning.slug:
        return _state(
            scan, warning.slug, "run" if scan.phase == "run" else "ready", verdict="degraded", hit=warning
        )
    if (word := last_word(scan)) is not None:
        if word.kind == "end":
            return _ended(scan, word)
        told = _state(scan, "error-not-known", "run", line=word.line)
        return replace(told, verdict="degraded", severity="warn")
    if (no_gpu := no_gpu_line(scan)) is not None:
        return _state(scan, "no-gpu-used", "run" if scan.phase == "run" else "ready", line=no_gpu)
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
    slug = _stall_slug(scan, phase)
    again = scan.repeated
    if again is None or again.quiet_s is None or again.times < REPEATED:
        return _state(scan, slug, phase)
    told = _state(scan, slug, phase, line=again.line)
    lines = (*told.evidence, *([again.since] if again.since[0] else []))
    means = (
        f"{cause_row(slug).means} For {again.quiet_s:.0f} s by the log's own time only lines came that had come before: "
        "a repeated line is no progress."
    )
    return replace(told, means=means, evidence=lines)


def _stall_slug(scan: ScanSnapshot, phase: str) -> str:
    if phase == "post-load":
        return "silent-after-weights-loaded"
    collective = "nccl" in scan.facts or "init.nccl" in scan.facts or "init-begin" in scan.began
    if phase == "init" and (collective or any("NCCL" in text for _, text in scan.tail)):
        return "nccl-init-hang"
    return "silent-too-long"


def _repeats_itself(scan: ScanSnapshot, phase: str) -> bool:
    """Whether only lines that were there before have come for longer than the phase may be silent."""
    again = scan.repeated
    if again is None or again.times < REPEATED or again.quiet_s is None or not scan.own:
        return False
    return again.quiet_s > SILENT_LIMIT_S.get(phase, 600.0)


def _starting(scan: ScanSnapshot, phase: str) -> Judgement:
    word = last_word(scan)
    known = bool(scan.own or scan.server_args) or _only_systemd(scan)
    if word is not None and known:
        if word.kind == "end":
            return _ended(scan, word)
        told = _state(scan, "error-not-known", phase, line=word.line)
        return replace(
            told, means=f"The last word is {_WORDS[word.kind]} that ddtop has no rule for: {word.text}"
        )
    if not known:
        return _served(scan) or _stopped_or_cut(scan, word) or not_recognised(scan)
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
        return _state(scan, by_phase[phase], phase, line=scan.mark_line if scan.mark_line[0] else None)
    if not phase and "init.communicator" in scan.facts:
        return _state(scan, "init-distributed", "init")
    return _served(scan) or _state(scan, "just-launched", phase or "launch")


_STOPPED = re.compile(r".{0,120}?\bsystemd\[\d+\]: Stopped \S")
_NATIVE = re.compile(
    r"(?:.{0,80}\s)?(?:frame #\d{1,3}: .{1,600}\(0x[0-9a-f]+ in /|goroutine \d+ \[|(?:rip|rflags) +0x[0-9a-f]+\s*$|runtime/\w+\.(?:s|go):\d+ \+0x)|\d{1,3} +0x[0-9a-f]{8,16} \S|Thread 0x[0-9a-f]+ .{0,40}\(most recent call first\)"
)
"""Lines that only a process writes that dies in native code, or whose threads were dumped because it hung."""


def _stopped_or_cut(scan: ScanSnapshot, word: LastWord | None) -> Judgement | None:
    """What is certain of any program: systemd stopped its unit, or it died and the reason was cut off."""
    if scan.tail and _STOPPED.match(scan.tail[-1][1]):
        return _state(scan, "stopped-by-request", "stop", line=scan.tail[-1])
    if "init.communicator" in scan.facts and word is None:
        return _state(scan, "init-distributed", "init")
    native = next((line for line in scan.tail if _NATIVE.match(line[1])), None)
    return _state(scan, "unknown-root-cause-cut", "", line=native) if native and word is None else None


_WORDS = {"error": "an error", "timeout": "a time-out", "end": "the end of a process"}


def _only_systemd(scan: ScanSnapshot) -> bool:
    """Whether all that has been said is that systemd starts a service: its process has not spoken yet."""
    return bool(scan.tail) and all(_STARTS.match(split_prefix(text).message) for _, text in scan.tail)


_STARTS = re.compile(r"(?:Starting|Started) \S+\.service\b")


def _served(scan: ScanSnapshot) -> Judgement | None:
    if scan.phases or scan.server_args or (found := served(scan)) is None:
        return None
    row = cause_row(found.cause)
    return Judgement(row.slug, row.verdict, row.severity, found.phase, None, None, (found.line,))


def _ended(scan: ScanSnapshot, word: LastWord) -> Judgement:
    """A process ended, and nothing says why."""
    row = cause_row("unknown-root-cause-cut")
    lines = (word.line, *([scan.mark_line] if scan.mark_line[0] else []))
    means = f"The log ends with the end of a process, and does not say why: {word.text}"
    return Judgement(row.slug, row.verdict, row.severity, phase_now(scan), None, None, lines, means=means)


def not_recognised(scan: ScanSnapshot) -> Judgement:
    """Nothing in it is an engine's: all that can be told is which line looks like an error."""
    if not scan.lines or not scan.tail:
        return _state(scan, "no-log-lines", "launch")
    told = _state(scan, "not-recognised", "")
    if not (bad := suspicious(scan)):
        return replace(told, evidence=(next(reversed(scan.tail)),))
    number, text = bad
    return replace(
        told,
        means=f"Nothing in it is a line of a server that ddtop knows. The last line that looks like an error is line {number}: {text[:200]}",
        evidence=(bad,),
    )


def _stopped_by_signal(scan: ScanSnapshot) -> Judgement | None:
    """A server whose parts ended by SIGTERM, and nothing else is wrong: somebody stopped it."""
    told = [h for h in scan.hits if h.role in ("consequence", "pointer")]
    if not told or failing_hits(scan) or failing_raised(scan) or scan.stop_line[0]:
        return None
    return _state(scan, "stopped-by-request", "stop", line=(told[0].number, told[0].text))


def no_gpu_line(scan: ScanSnapshot) -> tuple[int, str] | None:
    """The line that shows that the server runs on the CPU although it was not meant to; None otherwise."""
    said = scan.devices
    if "gpu" in said or "meant-cpu" in said:
        return None
    if "none" in said:
        return said["none"]
    return None if "cpu-engine" in said else said.get("cpu")


def in_own_words(scan: ScanSnapshot, judged: Judgement) -> Judgement:
    """An exception that no rule knows, answered in its own words; one that comes again is not to be retried."""
    raised = judged.raised
    if raised is None or judged.slug != "unhandled-exception":
        return judged
    words = "; then ".join(r.words for r in (raised, *_chained_to(scan, raised))).rstrip(".")
    if judged.verdict != "failed" or not comes_again(scan, raised):
        return replace(judged, means=f"It ended with an exception that ddtop has no rule for: {words}")
    return replace(
        judged,
        means=f"It ended before it was ready, in its own words: {words}",
        advice=OWN_WORDS_ADVICE,
        retryable=False,
    )


OWN_WORDS_ADVICE = "Correct what the message names: an argument in the plan, a file of the model, or a package. The same start fails again."
