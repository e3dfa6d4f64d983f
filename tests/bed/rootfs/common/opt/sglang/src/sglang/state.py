"""The one server of this process: its arguments, faults and counters, and how it logs, waits and dies."""
import os, signal, sys, threading, time

from ddtop_bed import gpu, ledger
from ddtop_bed.faults import Faults

FAULTS = Faults()
ARGS = None  # set by launch_server
READY, DRAINING = threading.Event(), threading.Event()
GPUS = [0]
MODEL = {}
COUNTS = {"prompt": 0, "generated": 0, "verify": 0, "requests": 0, "running": 0, "queued": 0, "throughput": 0.0, "accept": 1.0}
INFLIGHT = set()  # requests being served, for the ledger if the process dies under them


def log(text, rank=None):
    """One record as SGLang's logger writes it: local time, second resolution, the rank if there are several."""
    tp = f" TP{rank}" if rank is not None and ARGS and ARGS.tp_size > 1 else ""
    print(time.strftime(f"[%Y-%m-%d %H:%M:%S{tp}] ") + text, flush=True)


def wait(seconds):
    """Sleep for `seconds` of the server's own time: SPEED makes it pass faster."""
    if seconds > 0:
        time.sleep(seconds / FAULTS.speed())


def claim(phase, mib):
    """Hold GPU memory on this server's GPUs."""
    gpu.claim(GPUS, mib, phase, name="sglang::scheduler_TP")


def die(kind, message, where="init_model_worker", early_pointer=False):
    """As SGLang: a scheduler process fails, the parent kills its whole tree, itself too (SIGKILL)."""
    pointer = "Received sigquit from a child process. It usually means the child failed."
    if early_pointer:
        log(pointer)
    log("Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/src/sglang/srt/managers/scheduler.py", line 3118, in run_scheduler_process\n'
        f"    scheduler.{where}()\n{message}\n", 0)
    if not early_pointer:
        log(pointer)
    now = time.time_ns()
    for request in list(INFLIGHT):
        ledger.stamp("request", outcome="killed", start_ns=request.start_ns, end_ns=now, prompt_sha=request.sha, tokens=request.sent)
    ledger.stamp("fault", kind=kind, start=FAULTS.start)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def hang(kind, spin=False):
    """Never go on: asleep, or at full CPU as a collective that waits for a lost rank."""
    ledger.stamp("fault", kind=kind, start=FAULTS.start)
    while spin:
        sum(range(100_000))
    while True:
        time.sleep(1e6)


def refuse(message):
    """An exception before anything was launched: a traceback and status 1."""
    print(f'Traceback (most recent call last):\n  File "<frozen runpy>", line 198, in _run_module_as_main\n'
          f'  File "/opt/sglang/src/sglang/launch_server.py", line 25, in <module>\n    server_args = prepare_server_args(sys.argv[1:])\n{message}', file=sys.stderr, flush=True)
    sys.exit(1)
