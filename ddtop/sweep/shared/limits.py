"""How long is too long: one table of every limit after which the sweep judges or gives up, in seconds.

Proposals made from public logs (SGLang, vLLM) and the engines' own limits. The quiet limits of a start's phases are
replaced by what starts on this host teach (`learned_limits`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ddtop.events import Phase

# ---- a start (start/watchdog.py, start/restart.py)

TABLE_S: Mapping[Phase, float] = {
    "stopping": 120.0,  # the unit's TimeoutStopSec goes before it
    "stopped": 60.0,
    "launching": 180.0,  # imports, after an image pull
    "initialising": 120.0,  # NCCL init takes < 10 s; a P2P hang never ends
    "loading": 600.0,
    "kv": 180.0,
    "capturing": 900.0,  # the progress bar has no newline: silence is normal
    "listening": 60.0,
    "warming": 600.0,  # the engine's own limit
    "answering": 120.0,  # a first request may compile kernels: twice TOKEN_S
}
"""Time without evidence of progress after which a phase counts as stalled, where nothing was learned."""
OTHER_PHASE_S = 180.0
JIT_S = 1800.0
COMPILE_S = 1200.0
"""JIT and torch.compile take minutes without a log line."""
LEARNED_FACTOR = 3.0
"""A learned limit: LEARNED_FACTOR times the longest gap ever seen in the phase, FLOOR_S at least."""
FLOOR_S: Mapping[Phase, float] = {
    "stopping": 45.0,  # a stop that ends in SIGKILL after 30 s is one
    "stopped": 30.0,
    "launching": 90.0,  # imports with a cold page cache
    "initialising": 90.0,  # all ranks meet; a hung collective is told by its GPUs, in HUNG_GPU_S
    "loading": 90.0,  # until memory or bytes move in it, then LOADING_MOVED_S
    "kv": 90.0,
    "capturing": 180.0,  # what was captured from a warm cache may have to be compiled anew
    "listening": 60.0,
    "warming": 180.0,
    "answering": 120.0,
}
"""No phase of a start is called hung earlier, however quick it was before: a cache that was warm may be cold, a mount
slow, a kernel compiled anew. What one quick start teaches must not kill the next healthy one."""
LOADING_MOVED_S = 30.0
"""The least quiet in `loading` once memory or bytes have moved in it, and its processes are seen not to wait for a disk or
a mount: weights then come without long pauses."""
STORAGE_WAIT_S = 300.0
"""The least quiet in `loading` while its processes wait for a disk or a mount: a file server that stumbles takes minutes
to come back, and the kernel itself calls it unreachable after three."""
STORAGE_FRESH_S = 5.0
"""Such a wait seen within this time is seen now."""
OTHER_FLOOR_S = 90.0
HTTP_LIVE_S = 240.0
"""The least quiet while a server responds that it is not ready (HTTP 503): its process is alive."""
HTTP_FRESH_S = 10.0
"""A response seen within this time is seen now."""
SECOND_TRY_MOST = 8.0
"""After each try of a configuration that was called hung, the next one has twice the time, up to so many times."""
CPU_GRACE_S = 120.0
"""CPU time counts as progress so long after memory or bytes last moved."""
CPU_FRESH_S = 5.0
"""CPU time or a compiler seen within this time is seen now."""
HUNG_GPU_S = 60.0
"""Busy GPUs at low power with flat memory, after the log's last line was NCCL's."""
DOOMED_S = 5.0
"""After the log has named a fatal cause, with nothing moving any more: the process lives on and will not start."""
NEVER_BEGAN_S = 5.0
"""After the restart call returned, until a start must show."""
HOLDER_SETTLE_S = 3.0
"""nvidia-smi may list a process that has just died, and its memory, for a moment: a foreign holder is still there then."""
LATE_LINES_S = 1.5
"""For the first line of a start that has failed already, its program's own, where its journal can be read."""
SETTLE_S = 0.3
"""A unit that systemd will restart passes through `failed` for a moment: one sample is not final."""
STOP_SHARE = 0.75
"""Share of the unit's TimeoutStopSec that a silent stop may take."""
STOP_WAIT_S = 600.0
"""A unit that is asked to stop must be gone."""
COOL_DOWN_S = 3.0
"""For the port and GPU memory of a stopped server to become free, before the next start is tried all the same."""
UNPROVEN_S = 10.0
"""A gate part that cannot be known refuses once everything else has been ready for so long."""
SCRIPT_GRACE_S = 10.0
"""The reconfigure script of a failed start may end by itself."""
TOKEN_S = 60.0
"""The trial generation: a first request may compile kernels."""

# ---- a measurement (cell/)

NO_TOKEN_S = 300.0
"""No byte while requests run, though the server works: it hangs. The engines' own watchdogs have the same limit."""
LIFELESS_S = 15.0
LIFELESS_EXPECT_MOST_S = 30.0
"""A silent server that does nothing at all hangs so long after it should have spoken, which is at most the second."""
DOUBTFUL_S = 60.0
"""The same where its signs of life contradict each other (a loop that spins), or none can be read."""
CPU_ALONE_S = 120.0
"""CPU time is the only sign of life, and the configuration is known to need far less: at least so long."""
SLOWEST_PREFILL_TOK_S = 20.0
"""A server that works reads prompts at this rate at least: 32 k tokens take half an hour on a slow CPU."""
UNREAD_PREFILL_TOK_S = 1000.0
"""The same where no sign of life can be read: a long prompt is then likelier than a hang."""
STILL_S = 8.0
"""The CPU time of the server's processes stands still once it has not moved for so long."""
CPU_EVERY_S = 4.0
"""Between two looks at the CPU time of the server that is measured."""
ASK_AFTER_S = 6.0
ASK_EVERY_S = 5.0
ASK_MOST_S = 2.0
"""A server that was silent so long is asked for its counters, so often, for so long."""
DYING_S = 12.0
"""A server whose log names its end: for its process to end (vLLM takes 5 s after its core was killed)."""
STANDING_STILL_S = 20.0
MOVING_WITHIN_S = 5.0
"""Without a chunk for longer than the first, tokens do not come; for less than the second, they do; else unknown."""
JOB_SPARE_S = 180.0
"""What a cell's job may take beyond the cell's own time limit."""

# ---- a failure and its cause

FAULT_LOOKBACK_S = 30.0
"""A kernel fault so long before a failure explains it."""
KERNEL_LINE_S = 0.7
"""After a server ended, for the kernel's line that explains it."""
DRIVER_REPLY_S = 2.5
"""After a kernel fault, for a reading of what the driver asks for."""
SHUTDOWN_S = 1.5
"""The units of a host that is shut down end within this time, sshd among them."""

# ---- the host

STAGE_S = 6 * 3600.0
"""A job that copies or downloads the model."""
RESTORE_S = 30.0
RESTORE_MOST_S = 90.0
"""A unit that is put back: its own stop limit within these two."""
LEAVE_S = 120.0
"""Everything at the end of a run, a reconnect included."""
PROBE_S = 10.0
LEASE_GRACE_S = 900.0
"""A run that is not connected keeps its lease so long after it was last renewed, `host_lost_wait_min` at most; while its
jobs go on, for ever."""
OVERRIDE_EXPIRY_S = 7 * 86400.0
"""After this time any run may remove an override that its run left behind."""
