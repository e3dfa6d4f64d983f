"""Running programs of the host: bounded in time and output, each in a process group of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any, AsyncIterator, Dict, List, NamedTuple, Optional, Sequence

from .context import Context
from .errors import OpError, from_os_error
from .lines import ClippingSplitter

DEFAULT_MAX_B = 200_000


class Done(NamedTuple):
    """A program that ended: return code (negative: killed by that signal), both outputs, seconds it took."""

    rc: int
    out: str
    err: str
    elapsed_s: float
    truncated: bool


def tool_env(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """Our environment with untranslated messages and the system folders at the end of the PATH."""
    env = dict(os.environ)
    env["LC_ALL"] = "C.UTF-8"
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    env["PATH"] += ":/usr/sbin:/sbin"  # a plain user's PATH often lacks them
    if "XDG_RUNTIME_DIR" not in env and os.path.isdir("/run/user/%d" % os.getuid()):
        env["XDG_RUNTIME_DIR"] = "/run/user/%d" % os.getuid()
    env.update(extra or {})
    return env


def kill_group(pid: int, signum: int = signal.SIGKILL) -> None:
    """Ends a child with all it has started (each child of ours leads a group of its own)."""
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass


async def spawn(
    argv: Sequence[str],
    *,
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: int = asyncio.subprocess.DEVNULL,
    stderr: int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    """Starts a program. Raises OpError with its name where it is missing or not permitted."""
    if not argv or not all(isinstance(word, str) for word in argv):
        raise OpError("bad-request", "argv must be a list of strings")
    if cwd is not None and not os.path.isdir(cwd):  # noqa: ASYNC240
        raise OpError("not-found", f"{cwd}: no such directory")
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=tool_env(env),
            cwd=cwd,
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise OpError("not-found", f"{argv[0]}: no such program on this host") from error
    except OSError as error:
        raise from_os_error(error, argv[0]) from error
    except ValueError as error:  # a NUL in a word
        raise OpError("bad-request", f"{argv[0]!r}: {error}") from error


async def _drain(stream: Optional[asyncio.StreamReader], into: List[bytes], max_b: int) -> bool:
    """Reads to the end and keeps the first `max_b` bytes; True if there was more."""
    size = 0
    more = False
    while stream is not None:
        chunk = await stream.read(65536)
        if not chunk:
            break
        if size < max_b:
            into.append(chunk[: max_b - size])
            size += len(into[-1])
        else:
            more = True
    return more


async def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
    max_b: int = DEFAULT_MAX_B,
) -> Done:
    """Runs a program to its end. Raises OpError "timeout" after `timeout_s`, without waiting for the unkillable.

    A program in uninterruptible sleep (a hung nvidia-smi) ignores SIGKILL: it is killed and left behind.
    """
    began = time.monotonic()
    pipe = asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL
    process = await spawn(argv, env=env, cwd=cwd, stdin=pipe)
    out: List[bytes] = []
    err: List[bytes] = []
    loop = asyncio.get_event_loop()
    readers = [
        loop.create_task(_drain(process.stdout, out, max_b)),
        loop.create_task(_drain(process.stderr, err, max_b)),
    ]
    try:
        if stdin is not None and process.stdin is not None:
            feeder = loop.create_task(_feed(process.stdin, stdin.encode("utf-8", "surrogateescape")))
            readers.append(feeder)
        await asyncio.wait_for(process.wait(), timeout_s)
        # A grandchild may hold the pipes open for ever: its later output is not waited for.
        await asyncio.wait(readers, timeout=1.0)
    except asyncio.TimeoutError:
        kill_group(process.pid)
        words = " ".join(argv[:3])
        raise OpError("timeout", f"{words}: timed out after {timeout_s:g} s") from None
    except asyncio.CancelledError:
        kill_group(process.pid)
        raise
    finally:
        truncated = any(r.done() and not r.cancelled() and not r.exception() and r.result() for r in readers)
        for reader in readers:
            reader.cancel()
    rc = process.returncode if process.returncode is not None else -1
    texts = [b"".join(part).decode("utf-8", "replace") for part in (out, err)]
    return Done(rc, texts[0], texts[1], time.monotonic() - began, truncated)


async def _feed(pipe: asyncio.StreamWriter, data: bytes) -> bool:
    try:
        pipe.write(data)
        await pipe.drain()
        pipe.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended without reading all of its input: its return code tells
    return False


async def exec_op(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `exec`."""
    max_b = min(int(args.get("max_b", DEFAULT_MAX_B)), 400_000)
    done = await run(
        args["argv"],
        timeout_s=float(args.get("timeout_s", 30)),
        stdin=args.get("stdin"),
        env=args.get("env"),
        cwd=args.get("cwd"),
        max_b=max_b // 2,  # JSON may double what two outputs take
    )
    return {
        "rc": done.rc,
        "stdout": done.out,
        "stderr": done.err,
        "elapsed_s": done.elapsed_s,
        "truncated": done.truncated,
    }


class LineStream:
    """The output of a long-lived program line by line. Use as an async context manager: leaving it ends the child."""

    def __init__(self, argv: Sequence[str], *, limit_b: int = 1 << 18) -> None:
        self._argv = argv
        self._limit = limit_b
        self._process: Optional[asyncio.subprocess.Process] = None
        self._stderr: List[bytes] = []
        self._drainer: "Optional[asyncio.Task[bool]]" = None

    async def __aenter__(self) -> LineStream:
        self._process = await spawn(self._argv)
        loop = asyncio.get_event_loop()
        self._drainer = loop.create_task(_drain(self._process.stderr, self._stderr, 20_000))
        return self

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        if process is not None:
            kill_group(process.pid)  # also what the child itself has started
        if self._drainer is not None:
            self._drainer.cancel()

    async def batches(self) -> AsyncIterator[List[bytes]]:
        """Whole lines, as many as came together."""
        assert self._process is not None and self._process.stdout is not None
        splitter = ClippingSplitter(self._limit)
        while True:
            chunk = await self._process.stdout.read(1 << 17)
            if not chunk:
                last = splitter.flush()
                if last:
                    yield last
                return
            lines = splitter.feed(chunk)
            if lines:
                yield lines

    async def ended(self) -> str:
        """After the last batch: how it ended, as a sentence, with the end of its standard error."""
        assert self._process is not None
        try:
            rc: object = await asyncio.wait_for(self._process.wait(), 1.0)
        except asyncio.TimeoutError:
            rc = "?"
        complaint = b"".join(self._stderr).decode("utf-8", "replace").strip()
        return "%s ended with rc %s%s" % (self._argv[0], rc, ": " + complaint[-2000:] if complaint else "")
