"""The supervisor of the `process` service: starts one command, keeps its log, knows how it ended, ends it whole.

FOLDER/spec.json: {"argv", "env", "cwd", "stop_s", "log_mib"}; it writes FOLDER/state.json: {"active", "pid",
"start_ticks", "generation", "exit"?, "log", "argv", "supervisor", "supervisor_ticks"}. SIGTERM to it is a stop.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from typing import Any, Dict, List, Optional

from ..host.facts import boot_identity
from ..host.processes import descendants, signal_name, start_ticks
from ..host.state_folder import read_json, write_json

_PR_SET_CHILD_SUBREAPER = 36
READ_B = 1 << 16


class RotatingLog:
    """Appends; at `limit_b` the file becomes LOG.1 (the older one goes) and a new one begins."""

    def __init__(self, path: str, limit_b: int) -> None:
        self._path = path
        self._limit = limit_b
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        """A full disk loses log lines, never the process."""
        cut = data.rfind(b"\n") + 1
        if self._size > self._limit and cut:
            self._put(data[:cut])  # an unfinished line stays whole
            os.close(self._fd)
            os.replace(self._path, self._path + ".1")
            self._open()
            data = data[cut:]
        self._put(data)

    def _put(self, data: bytes) -> None:
        try:
            while data:
                sent = os.write(self._fd, data)
                self._size += sent
                data = data[sent:]
        except OSError:
            pass


def exit_words(status: int) -> Dict[str, Any]:
    """
    >>> exit_words(256), exit_words(9), exit_words(40)
    ({'code': 1}, {'signal': 'SIGKILL'}, {'signal': 'signal 40'})
    """
    if os.WIFSIGNALED(status):
        return {"signal": signal_name(os.WTERMSIG(status))}
    return {"code": os.WEXITSTATUS(status)}


def _reap_orphans() -> None:
    """Makes grandchildren whose parents die our own children, so that a stop ends all of them."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def _kill_all(number: int) -> int:
    """Signals everything below us; how many there were."""
    below = [pid for pid in descendants(os.getpid()) if pid != os.getpid()]
    for pid in below:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass
    return len(below)


class Supervisor:
    """One run of one command."""

    def __init__(self, folder: str, spec: Dict[str, Any]) -> None:
        self._folder = folder
        self._spec = spec
        self._stop_s = float(spec.get("stop_s", 30))
        self._log_path = os.path.join(folder, "log")
        self._log = RotatingLog(self._log_path, max(1, int(spec.get("log_mib", 64))) << 20)
        self._state: Dict[str, Any] = {
            "argv": spec["argv"],
            "log": self._log_path,
            "supervisor": os.getpid(),
            "supervisor_ticks": start_ticks(os.getpid()),
            "started_at_s": time.time(),
            "boot": boot_identity(),
        }
        self._stopping_s: Optional[float] = None
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_w, False)

    def _write(self, **more: Any) -> None:
        self._state.update(more)
        write_json(os.path.join(self._folder, "state.json"), self._state, 0o644)

    def _on_term(self, _number: int, _frame: Any) -> None:
        self._stopping_s = self._stopping_s or time.monotonic()
        try:
            os.write(self._wake_w, b"x")
        except BlockingIOError:
            pass

    def run(self) -> int:
        """Until the command has ended; its exit code, or 1."""
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, self._on_term)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _reap_orphans()
        env = {**os.environ, **{str(k): str(v) for k, v in (self._spec.get("env") or {}).items()}}
        try:
            child = subprocess.Popen(
                [str(word) for word in self._spec["argv"]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._spec.get("cwd") or os.path.expanduser("~"),
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            text = "%s: %s" % (error.filename or self._spec["argv"][0], error.strerror)
            self._log.write(("ddtop: could not start: %s\n" % text).encode())
            key = "cwd" if error.filename == self._spec.get("cwd") else "command"
            self._write(active=False, exit={"error": text, "key": key}, ended_at_s=time.time())
            return 1
        ticks = start_ticks(child.pid)
        self._write(active=True, pid=child.pid, start_ticks=ticks, generation="%d@%s" % (child.pid, ticks))
        status = self._pump(child)
        self._end_the_rest()
        self._write(active=False, exit=exit_words(status), ended_at_s=time.time())
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1

    def _pump(self, child: "subprocess.Popen[bytes]") -> int:
        """Copies output to the log until the child has ended; a stop is TERM, then KILL after stop_s."""
        import select

        assert child.stdout is not None
        out: Optional[int] = child.stdout.fileno()
        told = killed = False
        while True:
            fds: List[int] = [self._wake_r] + ([out] if out is not None else [])
            ready, _, _ = select.select(fds, [], [], 0.1)
            if out in ready and out is not None:
                data = os.read(out, READ_B)
                if data:
                    self._log.write(data)
                else:
                    out = None
            if self._stopping_s is not None:
                if not told:
                    told = True
                    self._signal(child.pid, signal.SIGTERM)
                    self._signal(child.pid, signal.SIGCONT)  # a process that stands still takes no SIGTERM
                elif not killed and time.monotonic() - self._stopping_s > self._stop_s:
                    killed = True
                    _kill_all(signal.SIGKILL)
                if self._wake_r in ready:
                    os.read(self._wake_r, 100)
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._drain(out)
                return status

    @staticmethod
    def _signal(pid: int, number: int) -> None:
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            pass

    def _drain(self, out: Optional[int]) -> None:
        """Log the output that is left in the pipe, without waiting: a grandchild may hold the pipe open."""
        if out is None:
            return
        os.set_blocking(out, False)
        try:
            while True:
                data = os.read(out, READ_B)
                if not data:
                    return
                self._log.write(data)
        except BlockingIOError:
            return

    def _end_the_rest(self) -> None:
        """End what the main process left behind: workers hold GPU memory and ports."""
        if _kill_all(signal.SIGTERM):
            until = time.monotonic() + min(5.0, self._stop_s)
            while time.monotonic() < until and _kill_all(0):
                self._reap()
                time.sleep(0.05)
            _kill_all(signal.SIGKILL)
        self._reap()

    @staticmethod
    def _reap() -> None:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def supervise(folder: str) -> int:
    """The detached process `supervise FOLDER`."""
    spec = read_json(os.path.join(folder, "spec.json"))
    if spec is None:
        return 2
    env = read_json(os.path.join(folder, "env.json"))
    if env is not None:
        os.environ.clear()
        os.environ.update({str(k): str(v) for k, v in env.items()})
        os.unlink(os.path.join(folder, "env.json"))
    return Supervisor(folder, spec).run()
