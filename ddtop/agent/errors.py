"""What an op raises to say that it cannot (its code is a word of wire.ERROR_CODES), and what a detached job raises."""

from __future__ import annotations

import errno


class OpError(Exception):
    """What went wrong, in a sentence for people (`what`), and what to do about it (`do`)."""

    def __init__(self, code: str, what: str, do: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.do = do


class JobFailedError(Exception):
    """The work could not be done; its text is the job's `why`."""


def from_os_error(error: OSError, about: str) -> OpError:
    """An OSError as an OpError: "not-permitted", "not-found", "disk" or "failed".

    >>> from_os_error(FileNotFoundError(2, "No such file or directory"), "/x").code
    'not-found'
    """
    text = f"{about}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        return OpError("not-permitted", text)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return OpError("not-found", text)
    if error.errno in (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT):
        return OpError("disk", text)
    return OpError("failed", text)
