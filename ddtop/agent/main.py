"""The agent's entry: what BOOT runs from memory, and what detached jobs run from the zip in the state folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import List, Optional

from .context import Context
from .gpu.gpm import with_gpm
from .host.facts import boot_identity
from .host.state_folder import find_state_dir
from .lines import PipeWriter
from .rights import find_rights
from .server import Server, encode
from .slurm import hold_step, slurm_step
from .wire import PROTOCOL


def main(argv: Optional[List[str]] = None) -> None:
    """ZIP LENGTH SHA256 NONCE [HOST_DIR] serves; ZIP job|supervise|job-end … is a detached process."""
    words = list(sys.argv if argv is None else argv)
    if len(words) > 1 and words[1] in ("job", "job-end", "supervise"):
        from .detached import run_detached

        code = run_detached(words)
    else:
        if slurm_step() is not None:
            hold_step()
        code = _serve(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread stuck in a dead file system must not keep us


def _protocol_fds() -> int:
    """Keeps standard output for the protocol alone: a stray print goes to standard error, children get no input."""
    protocol = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(protocol, False)
    return protocol


def _serve(words: List[str]) -> int:
    out_fd = _protocol_fds()
    in_fd = os.dup(0)
    os.set_inheritable(in_fd, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.set_blocking(in_fd, False)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(_run(loop, words, in_fd, out_fd))


async def _run(loop: asyncio.AbstractEventLoop, words: List[str], in_fd: int, out_fd: int) -> int:
    zip_hash = words[2] if len(words) > 2 else ""
    host_dir = words[4] if len(words) > 4 else None
    rights = await find_rights()
    state_dir, why = find_state_dir(host_dir)
    if state_dir is None:
        rights = rights._replace(can=rights.can - {"jobs"})
    rights = with_gpm(rights, state_dir)
    context = Context(
        loop, rights=rights, zip_path=words[0], zip_hash=zip_hash, state_dir=state_dir, state_why=why
    )
    writer = PipeWriter(out_fd, loop)
    hello = {
        "protocol": PROTOCOL,
        "agent": zip_hash,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "pid": os.getpid(),
        "uid": rights.uid,
        "user": rights.user,
        "boot": boot_identity(),
        "at_s": time.time(),
        "mono_s": time.monotonic(),
        "hostname": os.uname().nodename,
        "state_dir": state_dir,
        "state_why": why,
        "can": sorted(rights.can),
        "unknown": sorted(rights.unknown),
    }
    writer.write(encode({"hello": hello}))
    server = Server(context, in_fd, writer)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, server.end, 0)  # the session ends: our children end with us
    return await server.serve()
