"""A command's output cut out of what a login shell printed around it, by the marks before and after it."""

from __future__ import annotations

import re

import msgspec

_BEGIN = re.compile(r"(?P<mark>[\w\-.:]{0,40}(?P<word>BEGIN|START|begin|start|ready)[\w\-.:]{0,80})")


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A command's output without what the login shell printed around it. `rc`: exit code, where the mark gives it."""

    payload: str | None
    rc: int | None
    noise: tuple[str, ...]
    cut: bool


def read_frame(text: str) -> Frame | None:
    """Take what stands between a pair of marks (`X_BEGIN_nonce`, `X_END_nonce rc=N`); None without a begin
    mark.

    The begin mark may follow noise on its line (a prompt without line end). `cut` says that the end mark is
    missing: the payload is then partial and must not be used.
    """
    for begin in _BEGIN.finditer(text[:2_000_000]):
        mark, word = begin["mark"], begin["word"]
        around = text[begin.start() - 1 : begin.start()] + text[begin.end() : begin.end() + 1]
        if not re.search(r"[_\-:.].*\w{3,}|__", mark) or "libc_start" in mark or set(around) & set("|<{'\"`"):
            continue  # a word of a sentence or of a chat template, or the first function of a native stack
        ends = {"BEGIN": "END", "START": "END", "begin": "end", "start": "end", "ready": "done"}
        stop = mark.replace(word, ends[word])
        at = text.find(stop, begin.end())
        before = [line for line in text[: begin.start()].splitlines() if line.strip()]
        if at < 0:
            if "__" in mark or re.search(r"[0-9a-f]{4,}", mark):
                return Frame(payload=None, rc=None, noise=tuple(before), cut=True)
            continue
        tail_line, _, after = text[at + len(stop) :].partition("\n")
        rc = re.search(r"(?:rc|status|exit)\s?[=:]\s?(-?\d{1,5})", tail_line)
        trailing = [line for line in after.splitlines() if line.strip()]
        return Frame(
            payload=text[begin.end() : at].strip("\r\n"),
            rc=int(rc[1]) if rc else None,
            noise=(*before, *trailing),
            cut=False,
        )
    return None
