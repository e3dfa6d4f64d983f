"""One thread steps all running requests; throughput, acceptance and batching move as they would.

STEP_MS=20         one plain decode step (before TP and speculation)    EOS_AT=N  an answer ends by itself after N tokens unless ignore_eos
ZERO_TOKENS=1      requests end at once with no token; any other value: only if it is a part of the command line
CRASH_AFTER=50     the process dies after so many tokens     CRASH_AFTER_REQUESTS=3  … in the middle of the request after so many
STALL_AFTER=50     no token comes after so many of a request STALL_AFTER_REQUESTS=3  … in any request after so many
ACCEPT=x.y         mean acceptance length, whatever the arguments    ACCEPT_OF=word:x.y,…  of prompts with that word
"""
import hashlib, queue, threading, time, uuid

from ddtop_bed import ledger
from ddtop_bed.faults import matches

from . import rates, state
from .load import context_len
from .state import COUNTS, FAULTS, claim, die, log, wait

WAITING = queue.Queue()
CACHE = set()  # prompts seen since the last flush
MIN_STEP_S = 0.008  # below this several steps are done at once: SPEED must not drown the machine in chunks
ONCE = set()
ROOM = threading.Lock()


class Request:
    """One request on its way: `out` carries numbers of tokens, then None."""

    def __init__(self, prompt, prompt_tokens, limit, ignore_eos, quiet=False, path="", asked_as=""):
        self.id, self.prompt, self.prompt_tokens, self.path, self.quiet = uuid.uuid4().hex, prompt, prompt_tokens, path, quiet
        self.asked_as = asked_as  # the client's X-Request-Id
        eos = FAULTS.get("EOS_AT", 0)
        self.finish = "stop" if eos and not ignore_eos and eos < limit else "length"
        self.limit = min(limit, eos) if self.finish == "stop" else limit
        self.sha = hashlib.sha256(prompt.encode()).hexdigest()[:16]
        self.cached = max(0, prompt_tokens - 1) if prompt in CACHE else 0
        pairs = (pair.split(":") for pair in str(FAULTS.get("ACCEPT_OF", "")).split(",") if ":" in pair)
        self.accept = next((float(length) for word, length in pairs if word in prompt), 0.0)
        self.sent, self.verify, self.carry, self.gone, self.recorded, self.out = 0, 0, 0.0, False, False, queue.Queue()
        self.start_ns = time.time_ns()

    def record(self):
        """The ledger's line, once the request is over."""
        state.INFLIGHT.discard(self)
        if not self.quiet and not self.recorded:
            self.recorded = True
            ledger.stamp("request", outcome="gone" if self.gone else "zero" if not self.sent else self.finish, path=self.path, prompt_sha=self.sha,
                         request_id=self.asked_as, prompt_tokens=self.prompt_tokens, tokens=self.sent, verify=self.verify, start_ns=self.start_ns, end_ns=time.time_ns())


def zero_tokens():
    value = FAULTS.get("ZERO_TOKENS")
    return bool(value) and (value == "1" or matches(value, FAULTS.argv))


def submit(request):
    """Queue a request; None where --max-queued-requests wait already."""
    args = state.ARGS
    if not request.quiet:
        with ROOM:
            if args.max_queued_requests is not None and len(state.INFLIGHT) >= (args.max_running_requests or 2048) + args.max_queued_requests:
                return None
            state.INFLIGHT.add(request)
        COUNTS["requests"] += 1
    if request.limit <= 0 or (zero_tokens() and not request.quiet):
        if zero_tokens():
            ledger.stamp("fault", kind="zero-tokens", start=FAULTS.start)
        request.limit = 0
        request.out.put(None)
        return request
    if not request.quiet:
        CACHE.add(request.prompt)
    WAITING.put(request)
    COUNTS["queued"] = WAITING.qsize()
    return request


def once(kind):
    """Stamp a fault the first time it acts."""
    if kind not in ONCE:
        ONCE.add(kind)
        ledger.stamp("fault", kind=kind, start=FAULTS.start)


def spec():
    """(algorithm, budget, mean acceptance length) by the arguments."""
    args = state.ARGS
    budget = getattr(args, "speculative_ddtree_budget", None) if args.speculative_algorithm == "DDTREE" else None
    accept = FAULTS.get("ACCEPT", 0.0) or rates.accept_len(args.speculative_algorithm, args.speculative_num_draft_tokens or 1, budget)
    return args.speculative_algorithm, budget, accept


class Scheduler(threading.Thread):
    """The loop; it never returns."""

    def __init__(self, mib):
        super().__init__(daemon=True)
        self.mib, self.running, self.forwards = mib, [], 0
        self.emitted, self.since, self.verified, self.accepted = 0, time.monotonic(), 0, 0

    def run(self):
        while True:
            self.admit()
            self.step()

    def admit(self):
        """Take waiting requests in, those that wait together in one prefill; with nothing to do, wait for one."""
        args, batch = state.ARGS, []
        room = (args.max_running_requests or 2048) - len(self.running)
        if not self.running and WAITING.empty():
            COUNTS.update(running=0, throughput=0.0)
            claim("idle", self.mib)
            batch.append(WAITING.get())
        while len(batch) < room and not WAITING.empty():
            batch.append(WAITING.get())
        COUNTS["queued"] = WAITING.qsize()
        seen = [r for r in batch if not r.quiet]
        if seen:
            new, cached = sum(r.prompt_tokens - r.cached for r in seen), sum(r.cached for r in seen)
            log(f"Prefill batch, #new-seq: {len(seen)}, #new-token: {new}, #cached-token: {cached}, token usage: 0.00, "
                f"#running-req: {len(self.running)}, #queue-req: {WAITING.qsize()}, #pending-token: 0, cuda graph: False, input throughput (token/s): {new / max(1e-6, rates.prefill_s(new, args.tp_size)):.2f}", 0)
            claim("compute", self.mib)
            COUNTS["running"] = len(self.running) + len(seen)
            wait(rates.prefill_s(new, args.tp_size))
            COUNTS["prompt"] += sum(r.prompt_tokens for r in seen)
        for request in batch:
            self.give(request, 1)  # the first token comes from the prefill
            if request.sent < request.limit:
                self.running.append(request)
            else:
                request.out.put(None)

    def give(self, request, n):
        n = min(n, request.limit - request.sent)
        request.sent += n
        if not request.quiet:
            COUNTS["generated"] += n
            self.emitted += n
        request.out.put(n)

    def step(self):
        """One forward pass of all running requests (several of them at once if SPEED makes them very short)."""
        if not self.running:
            return
        args, (algorithm, budget, accept) = state.ARGS, spec()
        COUNTS["running"] = len(self.running)
        claim("decode", self.mib)
        ms = rates.step_ms(state.MODEL.get("simulated_weights_gib", 16), args.tp_size, algorithm, budget, len(self.running), FAULTS.get("STEP_MS", 0.0))
        each = ms / 1000 / FAULTS.speed()
        times = max(1, round(MIN_STEP_S / each)) if each < MIN_STEP_S else 1
        time.sleep(each * times)
        stall_after, stall_requests = FAULTS.get("STALL_AFTER", 0), FAULTS.get("STALL_AFTER_REQUESTS", 0)
        for request in list(self.running):
            if (0 < stall_after <= request.sent) or 0 < stall_requests < COUNTS["requests"]:
                once("stall")
            else:
                mean = request.accept or accept
                request.carry += mean * times
                n = int(request.carry)
                request.carry -= n
                if algorithm:
                    needed = min(times, max(1, round((request.limit - request.sent) / mean)))  # the last steps may not all be needed
                    request.verify += needed
                    COUNTS["verify"] += needed
                    self.verified += needed
                    self.accepted += min(n, request.limit - request.sent)
                if n:
                    self.give(request, n)
            if request.sent >= request.limit or request.gone:
                request.out.put(None)
                self.running.remove(request)
        self.crash_if_due()
        self.forwards += times
        if self.forwards >= args.decode_log_interval:
            self.log_decode(algorithm)

    def crash_if_due(self):
        tokens, requests = FAULTS.get("CRASH_AFTER", 0), FAULTS.get("CRASH_AFTER_REQUESTS", 0)
        if 0 < tokens <= COUNTS["generated"] or (0 < requests < COUNTS["requests"] and any(r.sent > 4 for r in self.running)):
            die("crash", "RuntimeError: CUDA error: an illegal memory access was encountered", where="event_loop_overlap")

    def log_decode(self, algorithm):
        """SGLang's line, every decode_log_interval forwards; its rate counts the idle time before it, too."""
        now, args = time.monotonic(), state.ARGS
        COUNTS["throughput"] = self.emitted / max(1e-9, now - self.since)
        words = ""
        if algorithm and self.verified:
            COUNTS["accept"] = self.accepted / self.verified
            words = f"accept len: {COUNTS['accept']:.2f}, accept rate: {(COUNTS['accept'] - 1) / max(1, (args.speculative_num_draft_tokens or 2) - 1):.2f}, "
        held = sum(r.prompt_tokens + r.sent for r in self.running)
        log(f"Decode batch, #running-req: {len(self.running)}, #token: {held}, token usage: {min(0.99, held / 834615):.2f}, {words}cuda graph: "
            f"{not args.disable_cuda_graph}, gen throughput (token/s): {COUNTS['throughput']:.2f}, #queue-req: {WAITING.qsize()}", 0)
        self.emitted = self.verified = self.accepted = self.forwards = 0
        self.since = now


def too_long(tokens, limit):
    """SGLang's refusal of a request that does not fit, or nothing."""
    if tokens + limit > context_len():
        return (f"Requested token count exceeds the model's maximum context length of {context_len()} tokens. You requested a total of {tokens + limit} tokens: "
                f"{tokens} tokens from the input messages and {limit} tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.")
    return ""
