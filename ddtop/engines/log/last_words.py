"""Whether a log line is bad news: an error by its level or words, a time-out, the end of a process. Pure.

Needed where no rule of the catalogue knows a line: what ends in bad news is never called a start that goes well.
"""

from __future__ import annotations

import re

from ddtop.engines.log.line_prefix import pieces, split_prefix

CALM = ("DEBUG", "INFO", "WARNING", "D", "I", "W")
_BAD_LEVELS = ("ERROR", "CRITICAL", "FATAL", "E", "F")

_LEVEL = re.compile(
    r"\b(?:level|lvl|severity)[\"']?\s?[=:]\s?[\"']?(?P<word>\w+)"
    r"|^(?:\S{1,60} ){0,4}[\[(]?(?P<tag>TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|FATAL|CRITICAL|PANIC|SEVERE)\b"
    r"|\] \[(?P<one>[DIWEF])\]",
    re.IGNORECASE,
)
_BAD_WORDS = {"error", "err", "fatal", "critical", "panic", "severe", "e", "f", "alert", "emerg", "crit"}
_NO_NEWS = re.compile(
    r"\b(?:0|no|without|zero) (?:errors?|failures?|failed)\b|\b(?:errors?|failed|failures?|error_rate|error rate)\"?\s?[:=]\s?"
    r"(?:0(?:\.0+)?%?|None|null|nil|\"\"|''|\[\])(?:\W|$)|ignor(?:e|ing) .{0,20}error|errors? .{0,20}ignored|thrown while requesting (?:HEAD|GET) |\bRetrying in \d",
    re.IGNORECASE,
)
_ENDED = re.compile(
    r"\bKilled\b(?! \w+ process)|\bAborted\b|[Ss]egmentation fault|\bSIG(?:KILL|SEGV|ABRT|BUS|ILL|FPE)\b|core dumped|\bBus error\b"
    r"|Illegal instruction|\bpanic(?:ked at|:)|terminate called|Fatal Python error"
    r"|\bexit(?:ed|ing|s)?\b.{0,30}?\b(?:with |code|status|rc)\D{0,12}-?[1-9]\d{0,4}\b|\b(?:exit|return(?:ed)?) (?:code|status)\D{0,4}-?[1-9]"
    r"|[Ee]xiting due to|\bdied\b|terminated by signal|killed by signal|\bsignal: \w+|code=(?:exited|killed|dumped), status=[1-9]"
    r"|[Aa]ssertion .{0,300}?failed|\w*ASSERT(?:ION)?\b.{0,300}?(?:failed|FAILED|false$)|assertion failed"
    r"|[Nn]on-zero exit|stopped unexpectedly|process (?:has )?(?:crashed|ended|terminated|exited)",
)
_TIMED_OUT = re.compile(
    r"\btimed[ -]?out\b|\btime-?out (?:expired|exceeded|reached|while|waiting|after)\b|deadline exceeded|TimeoutError|TimeoutExpired|"
    r"\bETIMEDOUT\b|gave up (?:waiting|after)|giving up",
    re.IGNORECASE,
)
_C10D_WAITED = re.compile(r"\[c10d\] (?:waitForInput|The client socket).{0,300}timed out after")
"""What torch.distributed calls a warning: nobody answered for as long as it waits at all."""
_ERROR = re.compile(
    r"^(?:\S{1,80}:? ){0,3}(?:fatal |internal )?errors?\b ?[:!(\[]|^(?:\S{1,60}: ){0,3}fatal\b|\b[A-Z]\w{2,60}(?:Error|Exception)\b: |^Traceback \(|"
    r"\berror: |\bERROR\b|\bFATAL\b|\bCRITICAL\b|\bPANIC\b|\bE\d{4} \d\d:\d\d|\| 5\d\d \|"
)
_ANSWER = re.compile(r"\"(?:GET|POST|PUT|DELETE|HEAD) \S{1,300} HTTP/[\d.]{1,3}\" (?P<status>[1-5]\d\d)\b")
_SUSPECT = re.compile(
    r"\berrors?\b|\bfail(?:ed|ure|s)?\b|\bcannot\b|\bcan't\b|\bcould(?: not|n't)\b|\bunable to\b|\brefused\b|\bdenied\b|\bno such\b|"
    r"\bnot found\b|\binvalid\b|\bexception\b|\babort|\bunreachable\b|\breset by peer\b|\bcrash|\bmissing\b|\bcorrupt|\boom\b|out of memory",
    re.IGNORECASE,
)


def bad_news(line: str) -> str:
    """``error``, ``timeout`` or ``end`` where the line says so plainly, ``suspect`` where it only has the words, else ``""``."""
    text = line[:2_000].rstrip()
    parsed = split_prefix(pieces(text)[-1])
    message = parsed.message
    if _NO_NEWS.search(message):
        return ""
    if (answer := _ANSWER.search(message)) is not None:
        return "error" if answer["status"] >= "500" and "/health" not in answer[0] else ""
    level = parsed.level.upper() or _level_of(message)
    if level == "W" and _C10D_WAITED.search(message):
        return "timeout"
    if level in CALM or level in ("WARN", "NOTICE", "TRACE"):
        return ""
    if _ENDED.search(message):
        return "end"
    if _TIMED_OUT.search(message):
        return "timeout"
    if level in _BAD_LEVELS or level.lower() in _BAD_WORDS or _ERROR.search(message):
        return "error"
    return "suspect" if _SUSPECT.search(message) else ""


def _level_of(message: str) -> str:
    found = _LEVEL.search(message[:300])
    return (found["word"] or found["tag"] or found["one"]).upper() if found else ""
