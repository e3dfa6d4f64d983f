"""The class of a request (docs/measuring.md, Validity): what its response amounts to. Pure."""

from __future__ import annotations

from .account import Account
from .choice import GOOD_FINISH

FAILED = (
    "empty",
    "truncated",
    "in-band error",
    "short",
    "aborted",
    "timeout",
    "refused",
)  # and every "http NNN"


def request_class(
    account: Account, *, status: int | None, ended: str, asked: int | None = None
) -> tuple[str, str]:
    """Judge one response: (class, why), class being a request class of docs/measuring.md.

    `ended`: how the bytes ended: "complete" (framing or [DONE]), "closed" (the peer closed), "reset", "timeout",
    "refused", "no-answer" (closed before any byte), "not-http", "time-limit" (the cell's time was over: class
    "unfinished", no failure). `asked`: the exact number of output tokens asked for with ignore_eos, else None.
    """
    if ended == "refused":
        return "refused", account.error or "no connection"
    if ended == "time-limit":
        return "unfinished", "cut at the end of the cell"
    if ended == "timeout":
        return "timeout", "no end within the request's time limit"
    if ended == "not-http":
        return "aborted", account.error or "the response is not HTTP"
    if status is None or status == 0:
        return "aborted", "the connection closed before any response"
    if status != 200:
        return "http %d" % status, account.error or "HTTP %d" % status
    if account.error is not None:
        return "in-band error", account.error
    finish = account.finish
    if account.abort_text is not None or (finish is not None and finish not in GOOD_FINISH):
        return "aborted", account.abort_text or "finish_reason %s" % finish
    none_came = account.text_chunks == 0 and not account.tokens
    if none_came:
        cut = ended == "reset" or (ended == "closed" and account.events)
        if finish is None and cut and not account.done_seen:
            return "truncated", "the stream ended before any token, without a finish reason or [DONE]"
        return "empty", "no token came"
    if finish is None:
        return "truncated", "the stream ended without a finish reason"
    if (
        asked is not None
        and account.tokens is not None
        and account.tokens < asked * max(1, len(account.choices))
    ):
        return "short", "%d of %d tokens (%s)" % (account.tokens, asked, finish)
    return "ok", finish
