"""SHAPE=NAME: starts that look dead and are not. SHAPE=NAME-dead: the twin that looks the same and is.

slow-load      10 times LOAD_S, a line for each shard         dead: stops half-way
silent-memory  no line for SHAPE_S, GPU memory moving         dead: memory stands
reading        no line, flat memory, files being read         dead: nothing is read
compile        nvcc, cicc, ptxas at work, no other sign       dead: they sleep
cache          new files in a compile cache, no other sign    dead: no more files
capture        silent capture, memory creeping                dead: memory stands
waiting        vLLM's waiting line again and again, memory moving   dead: only the lines
bursts         pauses of SHAPE_GAP_S between signs            dead: after three bursts nothing more
draft          the draft model loads after the first, lines   dead: the second load stops
nccl           silent initialisation, then on                 dead: GPU at 100 %, low power, spinning
warm           port open, warm-up compiles in the first request   dead: never ready, nothing moves
mount          half-way, a file server that does not answer for SHAPE_S real seconds: state D   dead: asleep at the same place
drain          STOP_S=30 with lines on stop                   dead: SIGTERM is ignored

SHAPE_S (30) is how long a healthy one takes; SPEED divides it. A dead one stamps the ledger when it stops.
"""
import ctypes, itertools, os, platform, subprocess, sys, time
from pathlib import Path

from ddtop_bed import gpu, ledger

from . import state

COMPILER = "/usr/local/cuda/bin"
WAITING = ("[shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes "
           "are hanging or doing some time-consuming work (e.g. compilation).")


class Shape:
    """Hooks of load and launch; `point` says at which of them this shape acts."""
    lines, memory, load_factor, point = False, True, 1.0, ""

    def __init__(self, name="", dead=False):
        self.name, self.dead = name, dead

    def seconds(self):
        return state.FAULTS.get("SHAPE_S", 30.0)

    def stop(self, spin=False):
        """The dead twin's end: nothing moves any more."""
        state.hang("shape:" + self.name + "-dead", spin=spin)

    def at(self, point):
        if point == self.point:
            ledger.stamp("shape", kind=self.name, dead=self.dead)
            self.act()

    def at_shard(self, i, of):
        pass

    def act(self):
        pass

    def ticks(self, every=1.0):
        """Server seconds until SHAPE_S is over; for a dead one, three of them and then the end."""
        end = time.monotonic() + self.seconds() / state.FAULTS.speed()
        for n in itertools.count():
            if self.dead and n == 3:
                self.stop()
            if time.monotonic() >= end and not self.dead:
                return
            yield n
            state.wait(every)


class SlowLoad(Shape):
    lines, load_factor = True, 10.0

    def at_shard(self, i, of):
        if self.dead and i == of // 2:
            self.stop()


class Mount(Shape):
    lines = True

    def at_shard(self, i, of):
        if i == of // 2:
            ledger.stamp("shape", kind=self.name, dead=self.dead)
            self.stop() if self.dead else wait_in_kernel(self.seconds())


def wait_in_kernel(seconds):
    """In state D for so long, as a reader of a file server that has gone quiet: clone(CLONE_VFORK) waits for its child's end."""
    clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    if ctypes.CDLL(None).syscall(clone, 0x4000 | 17, 0, 0, 0, 0) == 0:
        time.sleep(seconds)
        os._exit(0)
    os.wait()


class Draft(SlowLoad):
    load_factor, point = 2.0, "loaded"

    def at_shard(self, i, of):
        pass

    def act(self):
        state.log("Load weight begin. avail mem=20.11 GB", 0)
        for n in self.ticks(2.0):
            state.claim("load", 60000 + 100 * n)
            sys.stderr.write(f"\rLoading safetensors checkpoint shards: {min(99, 10 * n):3d}% Completed | {n}/10 [00:01<00:03,  1.00s/it]\n")
            sys.stderr.flush()


class SilentMemory(Shape):
    point = "init"

    def act(self):
        for n in self.ticks():
            state.claim("load", 600 + 64 * n)


class Reading(Shape):
    point = "init"

    def act(self):
        files = itertools.cycle(sorted(Path(state.ARGS.model_path).iterdir()))
        for _ in self.ticks(0.5):
            path = next(files)
            fd = os.open(str(path), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # so that it really comes from the disk, where there is one
            while os.read(fd, 1 << 20):
                pass
            os.close(fd)


class Compile(Shape):
    point = "capture"

    def act(self):
        compile_for(self.seconds() / state.FAULTS.speed(), asleep=self.dead, shape=self)


def compile_for(seconds, asleep, shape):
    """Compiler children one after the other, at work or asleep."""
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end or asleep:
        n += 1
        child = subprocess.Popen([f"{COMPILER}/nvcc", "-gencode=arch=compute_120a,code=sm_120a", "-O3", "-c", f"batch_prefill_{n}.cu", "-o", f"/tmp/batch_prefill_{n}.o"],
                                 env={**os.environ, "COMPILE_S": "1e6" if asleep else f"{min(4.0, max(0.3, end - time.monotonic())):.2f}", "COMPILE_ASLEEP": "1" if asleep else ""})
        if asleep:
            shape.stop()
        child.wait()


class Cache(Shape):
    point = "capture"

    def act(self):
        folder = Path.home() / ".cache/flashinfer/0.7.4/120a/cached_ops/batch_decode"
        folder.mkdir(parents=True, exist_ok=True)
        for n in self.ticks(2.0):
            (folder / f"kernel_{os.getpid()}_{n}.cuda.o").write_bytes(os.urandom(4096))


class Capture(Shape):
    point = "capture"

    def act(self):
        held = next((c["mib"] for c in gpu.claims() if c["pid"] == os.getpid()), 1000)
        for n in self.ticks(2.0):
            state.claim("capture", held + 16 * n)


class Waiting(Shape):
    point = "init"

    def act(self):
        start = time.monotonic()
        for n in itertools.count():
            if self.dead and n == 3:
                ledger.stamp("fault", kind="shape:waiting-dead", start=state.FAULTS.start)
            if not self.dead and time.monotonic() - start > self.seconds() / state.FAULTS.speed():
                return
            print(time.strftime(f"(EngineCore_DP0 pid={os.getpid()}) INFO %m-%d %H:%M:%S {WAITING}"), flush=True)
            if not self.dead or n < 3:
                state.claim("load", 600 + 64 * n)
            state.wait(2.0)


class Bursts(Shape):
    point = "init"

    def act(self):
        gap = state.FAULTS.get("SHAPE_GAP_S", 8.0)
        for n in self.ticks(gap):
            state.claim("load", 600 + 500 * n)
            state.log(f"Using model weights format ['*.safetensors'], part {n}", 0)


class Nccl(Shape):
    point = "init"

    def act(self):
        if self.dead:
            state.claim("spin", 620)
            self.stop(spin=True)
        state.wait(self.seconds())


class Warm(Shape):
    point = "warm"

    def act(self):
        if self.dead:
            self.stop()
        compile_for(self.seconds() / state.FAULTS.speed(), asleep=False, shape=self)


class Drain(Shape):
    """Acts at SIGTERM: launch_server asks for its name."""


PLAIN = Shape()
SHAPES = {"slow-load": SlowLoad, "silent-memory": SilentMemory, "reading": Reading, "compile": Compile, "cache": Cache, "capture": Capture,
          "waiting": Waiting, "bursts": Bursts, "draft": Draft, "nccl": Nccl, "warm": Warm, "mount": Mount, "drain": Drain}


def chosen():
    name = state.FAULTS.get("SHAPE")
    dead = name.endswith("-dead")
    name = name[:-5] if dead else name
    return SHAPES[name](name, dead) if name in SHAPES else PLAIN
