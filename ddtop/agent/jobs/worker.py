"""A detached job's own process: a monitor that writes how it ended, and a worker that does it.

The monitor forks the worker before anything else happens, so a worker killed by anything (a signal, the kernel's
out-of-memory killer, its own crash) still leaves an end state. Should the monitor be killed too, systemd's
ExecStopPost writes it (`write_end_of_unit`); without systemd such a job is "lost".
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, NoReturn, Optional

from ..errors import JobFailedError
from ..host.processes import signal_name, start_ticks
from ..host.state_folder import own_as_folder, read_json, write_json

KILL_AFTER_S = 8.0
TAIL_B = 20_000
_PR_SET_PDEATHSIG = 1

Tell = Callable[[Dict[str, Any]], None]


def end_state(state: str, why: str, code: Optional[int]) -> Dict[str, Any]:
    return {"state": state, "why": why, "exit": code, "ended_at_s": time.time()}


def write_end(folder: str, end: Dict[str, Any]) -> None:
    """Write how the job ended, unless that is written already: the first end counts."""
    path = os.path.join(folder, "end.json")
    if not os.path.exists(path):
        write_json(path, end)


def describe_wait_status(status: int) -> Dict[str, Any]:
    """The end of a worker by its wait status.

    >>> describe_wait_status(9)["state"], describe_wait_status(0)["state"], describe_wait_status(256)["exit"]
    ('killed', 'done', 1)
    """
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return end_state("killed", "killed by " + signal_name(number), -number)
    code = os.WEXITSTATUS(status)
    return end_state("done" if code == 0 else "failed", "" if code == 0 else "exit status %d" % code, code)


def write_end_of_unit(folder: str) -> int:
    """ExecStopPost: write the end as systemd tells it, if the monitor wrote none."""
    if not os.path.isdir(folder):
        return 0  # forgotten meanwhile
    result = os.environ.get("SERVICE_RESULT", "?")
    code, status = os.environ.get("EXIT_CODE", "?"), os.environ.get("EXIT_STATUS", "?")
    if result == "success" and code == "exited" and status == "0":
        end = end_state("done", "", 0)
    elif code in ("killed", "dumped") or result in ("signal", "oom-kill", "timeout", "core-dump"):
        end = end_state("killed", "systemd: %s (%s %s)" % (result, code, status), None)
    else:
        end = end_state("failed", "systemd: %s (%s %s)" % (result, code, status), None)
        end["exit"] = int(status) if status.isdigit() else None
    write_end(folder, end)
    return 0


def run_job(folder: str) -> int:
    """The monitor. Returns 0 when the job is done."""
    order = read_json(os.path.join(folder, "spec.json"))
    if order is None:
        write_end(folder, end_state("failed", "spec.json cannot be read", None))
        return 1
    _take_env(os.path.join(folder, "env.json"))
    log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    own_as_folder(log, folder)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(folder)
    if os.getpid() != os.getpgrp():
        os.setpgid(0, 0)
    write_json(
        os.path.join(folder, "pid.json"), {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    )
    worker = os.fork()
    if worker == 0:
        _work(folder, order)
    stop_s = float(order["spec"].get("stop_s", KILL_AFTER_S))
    return _watch(folder, worker, order.get("limit_s"), stop_s)


def _take_env(path: str) -> None:
    """The login's environment; the file may hold keys and is gone once read."""
    env = read_json(path)
    if env is not None:
        os.environ.clear()
        os.environ.update({str(k): str(v) for k, v in env.items()})
    try:
        os.unlink(path)
    except OSError:
        pass


def _watch(folder: str, worker: int, limit_s: Optional[float], stop_s: float) -> int:
    """Waits for the worker; ends it at `limit_s`, or at SIGTERM. `stop_s` after the first signal it is killed."""
    stopping: List[str] = []

    def stop(why: str) -> None:
        if not stopping:
            stopping.append(why)
            _signal_group(worker, signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, stop_s)
        else:
            _signal_group(worker, signal.SIGKILL)

    def on_term(_number: int, _frame: Any) -> None:
        stop("stopped")

    def on_alarm(_number: int, _frame: Any) -> None:
        stop("its time limit of %g s passed" % (limit_s or 0))

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, on_term)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, on_alarm)
    if limit_s:
        signal.setitimer(signal.ITIMER_REAL, max(0.1, float(limit_s)))
    _, status = os.waitpid(worker, 0)  # continued over our handlers (PEP 475)
    _signal_group(worker, signal.SIGKILL)  # what it left behind
    end = describe_wait_status(status)
    said = read_json(os.path.join(folder, "why.json"))
    if stopping:
        end = end_state("failed" if stopping[0] != "stopped" else "killed", stopping[0], end["exit"])
    elif said is not None and end["state"] != "done":
        end["why"] = said.get("why", end["why"])
    write_end(folder, end)
    return 0 if end["state"] == "done" else 1


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _work(folder: str, order: Dict[str, Any]) -> NoReturn:
    """The worker: a group of its own, ended with its monitor."""
    code = 1
    try:
        os.setpgid(0, 0)
        _die_with_parent()
        tell = _teller(folder)
        code = _do(folder, str(order["kind"]), order["spec"], tell)
    except JobFailedError as error:
        _say_why(folder, str(error))
    except MemoryError:
        _say_why(folder, "out of memory")
    except Exception as error:
        traceback.print_exc()
        _say_why(folder, "%s: %s" % (type(error).__name__, error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_with_parent() -> None:
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass  # without it a killed monitor leaves its worker to systemd's control group


def _say_why(folder: str, why: str) -> None:
    sys.stderr.write("ddtop: %s\n" % why)
    try:
        write_json(os.path.join(folder, "why.json"), {"why": why[:4000]})
    except OSError:
        pass  # a full disk: the exit status remains


def _teller(folder: str) -> Tell:
    path = os.path.join(folder, "results", "progress.json")

    def tell(progress: Dict[str, Any]) -> None:
        temporary = path + ".tmp"  # no fsync: progress is worth nothing after a power loss
        with open(temporary, "w") as file:
            json.dump(progress, file)
            own_as_folder(file.fileno(), os.path.dirname(path))
        os.rename(temporary, path)

    return tell


def _do(folder: str, kind: str, spec: Dict[str, Any], tell: Tell) -> int:
    results = os.path.join(folder, "results")
    if kind == "loadgen":
        from ..loadgen.cells import run_cells

        summary = run_cells(spec, results)
        failed = summary.get("failed") or []
        if failed:
            raise JobFailedError("%d of %d cells failed" % (len(failed), len(failed) + len(summary["done"])))
        return 0
    if kind == "stage":
        from ..model.stage import stage

        stage(spec, tell)
        return 0
    if kind == "selftest":
        from ..loadgen.selftest import self_test

        write_json(os.path.join(results, "cell-selftest.json"), self_test(spec))
        return 0
    if kind == "exec":
        return _exec(spec, results)
    if kind == "supervise":
        from ..process.supervise import supervise

        inner = os.path.join(folder, "process")
        os.makedirs(inner, mode=0o700, exist_ok=True)
        write_json(os.path.join(inner, "spec.json"), spec)
        return supervise(inner)
    raise JobFailedError("unknown kind of job: %s" % kind)


def _exec(spec: Dict[str, Any], results: str) -> int:
    """A plain command; its output goes to the log, its end into results/exec.json."""
    began = time.time()
    log_path = os.path.join(os.path.dirname(results), "log")
    offset = os.stat(log_path).st_size
    env = dict(os.environ)
    env.update({str(k): str(v) for k, v in (spec.get("env") or {}).items()})
    try:
        done = subprocess.run(
            [str(word) for word in spec["argv"]],
            cwd=spec.get("cwd") or os.path.expanduser("~"),
            env=env,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        raise JobFailedError("%s: %s" % (spec["argv"][0], error.strerror)) from error
    with open(log_path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(offset, size - TAIL_B))
        tail = file.read().decode("utf-8", "replace")
    end = {"rc": done.returncode, "started_at_s": began, "ended_at_s": time.time(), "output_tail": tail}
    write_json(os.path.join(results, "exec.json"), end)
    if done.returncode != 0:
        last = tail.strip().splitlines()[-1:] or [""]
        raise JobFailedError("%s: exit status %d: %s" % (spec["argv"][0], done.returncode, last[0][:500]))
    return 0
