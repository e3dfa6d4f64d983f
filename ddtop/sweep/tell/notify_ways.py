"""The two ways of a notification: a command on this machine, and a webhook."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddtop.sweep.tell.notify_queue import Sent

if TYPE_CHECKING:
    import httpx

LIMIT_S = 15.0
"""One try takes so long at most."""
COMMAND_TRIES = 3
"""A command that fails is started so often: it may have done half of its work."""
AGAIN_CODES = frozenset({408, 425, 429})
"""HTTP answers below 500 after which another try can help."""


async def run_command(argv: Sequence[str], message: dict[str, str]) -> Sent:
    """Starts the command once, without a shell; it and its children end after LIMIT_S. What it prints is not read."""
    words = [fill(word, message) for word in argv]
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in a log line
        return Sent(f"{words[0]}: {getattr(error, 'strerror', None) or error}", again=False)
    try:
        async with asyncio.timeout(LIMIT_S):
            code = await process.wait()
    except TimeoutError:
        return Sent(f"{words[0]} took longer than {LIMIT_S:g} s", most=COMMAND_TRIES)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Sent(f"{words[0]} ended with exit code {code}", most=COMMAND_TRIES) if code else Sent()


class Webhook:
    """POSTs messages as JSON to one URL. The URL is in no text that leaves this class."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: httpx.AsyncClient | None = None

    async def send(self, message: dict[str, str]) -> Sent:
        """One try. The answer's body is not read: it may be endless."""
        import httpx

        if self._client is None:
            for name in ("httpx", "httpcore"):  # they log the URL
                logging.getLogger(name).setLevel(logging.CRITICAL)
            self._client = httpx.AsyncClient(
                timeout=LIMIT_S, limits=httpx.Limits(max_keepalive_connections=0)
            )
        headers = {"Idempotency-Key": message["id"]}
        try:
            async with asyncio.timeout(LIMIT_S):
                async with self._client.stream("POST", self._url, json=message, headers=headers) as reply:
                    return judge(reply.status_code, reply.headers.get("retry-after", ""))
        except (httpx.TimeoutException, TimeoutError):
            return Sent(f"the webhook gave no answer in {LIMIT_S:g} s")
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as error:
            return Sent(
                f"the webhook could not be reached: {type(error).__name__}: look at its URL", again=False
            )
        except httpx.HTTPError as error:
            if _bad_certificate(error):
                return Sent("the webhook's certificate is not valid", again=False)
            return Sent(f"the webhook could not be reached: {type(error).__name__}")


def judge(status: int, retry_after: str = "") -> Sent:
    """What an HTTP answer means for a message. Pure.

    >>> judge(204).why, judge(503, "7").pause_s, judge(404).again
    ('', 7.0, False)
    """
    if 200 <= status < 300:
        return Sent()
    if 300 <= status < 400:
        why = f"the webhook answered HTTP {status}: redirects are not followed; give its final URL"
        return Sent(why, again=False)
    pause = float(retry_after) if re.fullmatch(r"\d{1,6}", retry_after) else None
    return Sent(
        f"the webhook returned HTTP {status}", again=status >= 500 or status in AGAIN_CODES, pause_s=pause
    )


def _bad_certificate(error: BaseException) -> bool:
    """Whether an error comes from a certificate that does not verify."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return True
        seen = seen.__cause__ or seen.__context__
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def fill(word: str, message: dict[str, str]) -> str:
    """One argument with its placeholders filled in. Other braces stay, also those within a value.

    >>> fill("{title}: {cause} {x}", {"title": "NO TOKENS {cause}", "cause": "0"})
    'NO TOKENS {cause}: 0 {x}'
    """
    return re.sub(r"\{(\w+)\}", lambda found: message.get(found[1], found[0]), word)
