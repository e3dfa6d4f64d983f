"""python -m sglang.launch_server: load, listen, warm up, serve, drain. SIMULATED; see the other files of this folder.

WARM_S=0.5     seconds with the port open before it is ready      WARM_FAULT=die  the warm-up request fails: it kills itself
STOP_S=0.2     after SIGTERM go on answering for so long          STOP_FAULT=ignore  SIGTERM is not heard
PORT=30001     listens there instead                              BIND=ADDRESS    listens at that address instead
MODEL_NAME=x   serves that name instead                           DIE_S=3         so long after it was ready it dies
SPEED=1        all of its time goes so many times faster
"""
import os, signal, sys, threading, time

from ddtop_bed import ledger
from ddtop_bed.faults import count_start

from . import api, load, scheduler, server_args, shapes, state
from .state import DRAINING, FAULTS, READY, log, wait


def on_sigterm(*_):
    """Before it serves: gone at once. Later: drain, as long as STOP_S and the running requests take."""
    ledger.stamp("sigterm", ready=READY.is_set())
    shape = FAULTS.get("SHAPE")
    if FAULTS.get("STOP_FAULT") == "ignore" or shape == "drain-dead":
        ledger.stamp("fault", kind="ignores-sigterm", start=FAULTS.start)
        return
    if not READY.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    if not DRAINING.is_set():
        DRAINING.set()
        log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        threading.Thread(target=drain, args=[FAULTS.get("STOP_S", 30.0 if shape == "drain" else 0.2)], daemon=True).start()


def last_words():
    left = [request.id for request in list(state.INFLIGHT)]
    return f"Gracefully exiting... Remaining number of requests {len(left)}. Remaining requests remaining_rids={left}."


def drain(seconds):
    end, told = time.monotonic() + seconds / FAULTS.speed(), 0.0
    while time.monotonic() < end or state.COUNTS["running"]:
        if time.monotonic() - told > 5.0 / FAULTS.speed():
            told = time.monotonic()
            log(last_words())
        time.sleep(0.02)
    log(last_words())
    ledger.stamp("exit", status=0)
    os._exit(0)


def listen():
    """Take the port, as late as SGLang does: after the whole load. A port in use is an error only now."""
    args = state.ARGS
    args.port, args.host = FAULTS.get("PORT", args.port), FAULTS.get("BIND") or args.host
    try:
        server = api.Server((args.host, args.port), api.Handler)
    except OSError as error:
        log(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('{args.host}', {args.port}): address already in use")
        ledger.stamp("fault", kind="port-taken", start=FAULTS.start)
        log("INFO:     Waiting for application shutdown.")
        log("INFO:     Application shutdown complete.")
        sys.exit(1)
    for line in (f"Started server process [{os.getpid()}]", "Waiting for application startup.", "Application startup complete.",
                 f"Uvicorn running on http://{args.host}:{args.port} (Press CTRL+C to quit)"):
        log(f"INFO:     {line}")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 5}, daemon=True).start()
    ledger.stamp("listening", port=args.port)


def main():
    signal.signal(signal.SIGTERM, on_sigterm)
    FAULTS.start = count_start()
    ledger.stamp("start", argv=list(sys.orig_argv), start=FAULTS.start)
    args = server_args.parser().parse_args()
    state.ARGS = args
    args.served_model_name = FAULTS.get("MODEL_NAME") or args.served_model_name
    try:
        server_args.resolve(args, lambda text: log("WARNING: " + text))
    except ValueError as error:
        ledger.stamp("fault", kind="refused-arguments", start=FAULTS.start)
        state.refuse(f"ValueError: {error}")
    mib = load.load()
    listen()
    if FAULTS.get("WARM_FAULT") == "die":
        log("Initialization failed. warmup error: Traceback (most recent call last):\nrequests.exceptions.ReadTimeout: HTTPConnectionPool: Read timed out. (read timeout=600)")
        ledger.stamp("fault", kind="warmup", start=FAULTS.start)
        os.kill(os.getpid(), signal.SIGKILL)
    log(f'INFO:     127.0.0.1:{40000 + os.getpid() % 20000} - "GET /model_info HTTP/1.1" 200 OK')
    shapes.chosen().at("warm")
    wait(FAULTS.get("WARM_S", 0.5))
    scheduler.Scheduler(mib).start()
    log(f'INFO:     127.0.0.1:{40000 + os.getpid() % 20000} - "POST /generate HTTP/1.1" 200 OK')
    READY.set()
    log("The server is fired up and ready to roll!")
    ledger.stamp("ready", seed=args.random_seed, port=args.port)
    if FAULTS.get("DIE_S", 0.0):
        time.sleep(FAULTS.get("DIE_S", 0.0))
        state.die("crash", "RuntimeError: CUDA error: an illegal memory access was encountered", where="event_loop_overlap")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
