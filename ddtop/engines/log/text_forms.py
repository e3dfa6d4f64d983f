"""What a text looks like that is no log of a server: a mail, a plan, source code … Pure.

In such a text the words of a failure are quoted, not logged.
"""

from __future__ import annotations

import re

_FORMS = (
    ("a mail", re.compile(r"^(?:From|To|Subject|Message-ID|Return-Path|Received): .", re.M), 2),
    (
        "a password file such as /etc/passwd",
        re.compile(r"^[\w.\-]+:[^:\n]*:\d+:\d+:[^:\n]*:/[^:\n]*:/\S*$", re.M),
        1,
    ),
    (
        "the access log of a web server or proxy",
        re.compile(r'^\S+ \S+ \S+ \[[^\]\n]{10,40}\] "(?:[A-Z]{3,8} \S+ HTTP/[\d.]+|-)?" \d{3} ', re.M),
        1,
    ),
    (
        "the error log of nginx",
        re.compile(
            r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(?:error|warn|crit|alert|emerg|notice)\] \d+#\d+:", re.M
        ),
        1,
    ),
    ("kernel messages", re.compile(r"^\[ *\d+\.\d{6}\] |\bkernel: ", re.M), 2),
    (
        "the output of make or a compiler",
        re.compile(
            r"^make(?:\[\d+\])?: |^\[ *\d+%\] (?:Building|Linking|Built)|^\S+:\d+:\d+: (?:error|warning): |^(?:g?cc|nvcc|g\+\+|clang) ",
            re.M,
        ),
        1,
    ),
    (
        "source code",
        re.compile(
            r"^(?:def \w+\(|class \w+[(:]|import \w+|from [\w.]+ import |#include [<\"]|package \w+;?$|fn \w+\(|func \w+\(|public (?:class|static))",
            re.M,
        ),
        2,
    ),
    (
        "a text with headings (Markdown)",
        re.compile(r"^#{1,4} [A-Za-z].{0,100}\n(?:.{0,400}\n){0,20}?.{0,400}`", re.M),
        1,
    ),
    (
        "a ddtop plan (`ddtop check` reads it)",
        re.compile(r"^\[\[?(?:host|service|sweep|matrix|configuration|plan|model|server)\w*\]\]?\s*$", re.M),
        1,
    ),
    ("TOML or an INI file", re.compile(r"^\[[\w.\"\-]+\]\s*$|^[\w\-]+ = ", re.M), 3),
    ("HTML", re.compile(r"<!DOCTYPE html|<html[ >]", re.I), 1),
    ("JSON", re.compile(r"\A\s*[\[{]\s*[\"{\[\]}]"), 1),
    (
        "a shell history or script",
        re.compile(
            r"^(?: *\d+ {2})?(?:\$ |# |#!/)?(?:cd|ls|sudo|ssh|git|vim?|nano|cat|python3?|pip|docker|tail|export|nvidia-smi|htop|apt|curl|exit|#\d{10})\b(?! ?[:=])",
            re.M,
        ),
        3,
    ),
    (
        "what a terminal showed of ssh",
        re.compile(
            r"^(?:ssh|kex_exchange_identification|Connection (?:closed|reset)|Permission denied)\b|: Permission denied \(",
            re.M,
        ),
        1,
    ),
    (
        "the output of a benchmark or test run",
        re.compile(r"tok(?:ens)?/s|req(?:uests)?/s|throughput|latency|\d+ passed|p(?:50|90|99)\b", re.I),
        2,
    ),
)


QUOTING = (
    "a mail",
    "a password file such as /etc/passwd",
    "the access log of a web server or proxy",
    "the error log of nginx",
    "the output of make or a compiler",
    "source code",
    "a ddtop plan (`ddtop check` reads it)",
    "a text with headings (Markdown)",
    "HTML",
    "a shell history or script",
)
"""Forms in which words of a failure are about something else."""


def looks_like(text: str) -> str:
    """What a text looks like, in words that follow "it looks like"; ``""`` where no form fits."""
    head = text[:20_000]
    for words, rule, least in _FORMS:
        if sum(1 for _ in zip(range(least), rule.finditer(head), strict=False)) >= least:
            return words
    return (
        "binary data"
        if head
        and sum(not (c.isprintable() or c in "\r\n\t\x1b") for c in head[:2_000]) * 5 > len(head[:2_000])
        else ""
    )
