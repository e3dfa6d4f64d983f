"""The protocol between ddtop and its agent: JSON lines over the agent's standard input and output.

    client → agent   {"id": 7, "op": "probe", "args": {...}}        a request; `id` is unique in this connection
                     {"id": 7, "op": "cancel"}                     end the request or stream 7
                     {"id": 7, "op": "ack", "args": {"n": 4}}      n more batches of stream 7 were taken
    agent → client   {"hello": {...}}                               first line, once
                     {"id": 7, "ok": {...}}                         the answer; the request is over
                     {"id": 7, "err": {"code": "...", "what": "...", "do": "..."}}
                     {"id": 7, "items": [...]}                      a batch of a stream, at most 10 a second
                     {"id": 7, "end": {...}}                        the stream is over, and why

Every line is at most MAX_LINE bytes (a longer answer is cut by its op, never by the wire; a partial line is a
protocol error). A stream waits once STREAM_CREDIT of its batches were not acknowledged, or more of its bytes than the way and
the reader take in a moment (agent/lines.py: Window), so that a slow reader slows its own source and nothing else, and no
answer waits long behind a stream. The client acknowledges what holds WINDOW_LEAST_B / 2 bytes, or a quarter of the batches. Requests run side by side: a blocking one must not silence the others.
The agent ends itself when it has heard nothing for DEADLINE_S seconds (the client pings every PING_S). Its detached jobs do not end.

Times named `mono_s` are the agent's CLOCK_MONOTONIC in seconds; `at_s` is its wall clock. The client never
compares them with its own. What cannot be read for want of rights is absent and named in `unknown`
(a list of words), never guessed; a list that was read and is empty is [].

OPS below is the whole protocol: name → (kind, what it takes, what it gives). Tests hold the agent to it.
"""

PROTOCOL = 1
MAX_LINE = 1 << 20
PING_S = 3.0
DEADLINE_S = 30.0
BATCH_S = 0.1
STREAM_CREDIT = 32
WINDOW_LEAST_B = 4 << 10

ERROR_CODES = (
    "bad-request",  # unknown op, wrong arguments
    "not-permitted",  # this login may not do it
    "not-found",  # no such file, unit, process, tool
    "timeout",  # the time limit of the request passed
    "failed",  # it was done and failed: `what` says how, with rc and the last lines
    "disk",  # no space, read-only, I/O error
    "cancelled",
    "internal",  # a bug of the agent: `what` carries the exception
)

HELLO = """
{"protocol": 1, "agent": sha256 hex of the zip, "python": "3.11.2", "pid": int, "uid": 0, "user": "root",
 "boot": "BOOT_ID/START_OF_PID1", "at_s": float, "mono_s": float, "hostname": str, "state_dir": str|null, "state_why": why not,
 "can": ["restart", "override", "journal", "ports", "processes", "jobs", "systemd", "user-units", "sudo", ...],
 "unknown": [...]}
`can` words: systemd (PID 1 is systemd), restart (may restart system units: root or sudo -n), override (may write
run-time drop-ins), journal (may read the system journal), ports (sees owners of all listeners), processes (sees
other users' processes), jobs (may start detached jobs that outlive this session), user-units (a --user manager
with linger), sudo (rights come by sudo -n), nvidia-smi, docker, gpm (dmon --gpm-metrics gives values; in `unknown`
until gpm-follow has looked once since the boot).
"""

OPS = {
    # ---- life
    "ping": ("request", "{}", '{"mono_s", "at_s"}'),
    # ---- one round trip about everything
    "probe": (
        "request",
        '{"units": [str], "port": int|null, "model": path|null, "sources": [path], "results": [path],'
        ' "disks": [path], "timeout_s": 10}',
        '{"boot", "uptime_s", "at_s", "mono_s", "hostname", "kernel", "can": [..], "unknown": [..],'
        ' "unknown_why": {word: sentence}, "gpus": {"csv": str, "fields": [..]} | {"error": str}   (raw nvidia-smi text; parsed by sources/gpu),'
        ' "gpu_apps": {"csv": str} | {"error": str},'
        ' "gpu_procs": [{"pid", "comm", "cmdline": [..], "cgroup", "unit"|null, "mem_mib", "user"|absent,'
        ' "pgrp"|absent}],'
        ' "units": {unit: {PROP: text}}   (all of systemctl show\'s properties that UNIT_PROPS names),'
        ' "listeners": [LISTENER], "model": MODEL|null, "sources": {path: MODEL}, "disks": {path: {"fs", "size_b",'
        ' "free_b", "tmpfs": bool}}, "memory": {"total_b", "available_b", "cgroup_limit_b"|absent},'
        ' "results": {path: {"exists", "files": int, "newest_at_s"}}, "jobs": [JOB], "overrides": [OVERRIDE],'
        ' "lease": {"holder": LEASE|null, "line": [LEASE], "path", "shared"},'
        ' "psi": {"cpu_some_avg10", ...}, "servers": [SERVER]   (serving processes found by command line),'
        ' "remove_ipc": bool|absent, "linger": bool|absent, "took_ms": {section: ms}}'
        '  A section that failed or ran out of time holds {"error": str} and costs only itself.',
    ),
    "lease": (
        "request",
        '{"action": "show"|"take"|"wait"|"leave-line"|"release", "run": id, "plan", "who": str, "grace_s": float,'
        ' "wants": bool=false, "former": {unit: {...}}}  take is also renew; wait stands in line and takes when it is free',
        '{"held": bool|absent, "holder": LEASE|null, "line": [LEASE] (who waits; before us where it is not held),'
        ' "before": LEASE|null|absent (a dead run that had the host), "path", "shared": bool}',
    ),
    # ---- processes, units, ports
    "unit-show": ("request", '{"unit", "user": bool=false}', '{"props": {PROP: text}, "mono_s"}'),
    "unit-watch": (
        "stream",
        '{"unit", "user": bool=false, "poll_s": 5}',
        '{"props": {...}, "mono_s", "seen_mono_s", "by": "dbus"|"pidfd"|"poll"|"first"}  one at once, then one'
        " after each kernel or D-Bus signal (0.7–4 ms) and at each slow poll if something changed",
    ),
    "unit-action": (
        "request",
        '{"unit", "action": "start"|"stop"|"restart"|"reset-failed"|"daemon-reload"|"kill", "user": bool,'
        ' "signal": str|absent}  start/stop/restart are --no-block',
        '{"rc", "stderr", "mono_s"}',
    ),
    "override-write": (
        "request",
        '{"unit", "user": bool, "run": id, "expires_at_s", "exec_argv": [..], "env": {..}, "extra": {"Restart": "no"}}'
        "  writes /run/systemd/system/UNIT.d/50-ddtop.conf (empty ExecStart= first), daemon-reload",
        '{"path", "need_reload": bool, "text": str}',
    ),
    "override-remove": (
        "request",
        '{"unit", "user": bool}',
        '{"removed": [path], "need_reload": bool|absent}',
    ),
    "unit-cat": ("request", '{"unit", "user": bool}', '{"text"}'),
    "listeners": (
        "request",
        '{"port"}',
        '{"listeners": [{"addr", "port", "pid"|absent, "comm"|absent, "cgroup"|absent, "unit"|null, "inode",'
        ' "docker"|absent, "pgrp"|absent}], "mono_s", "unknown": [..]}',
    ),
    "processes": (
        "request",
        '{"unit"|"cgroup"|"pids"|"pid" (and all below it): ...}',
        '{"processes": [{"pid", "ppid", "comm", "cmdline": [..], "start_ticks", "cpu_s", "rss_mib", "read_b"|absent,'
        ' "write_b"|absent, "state", "uid", "wait_status"|absent (of a zombie)}], "mono_s", "unknown"}',
    ),
    "activity": (
        "stream",
        '{"unit"|"cgroup"|"pid", "user": bool, "every_s": 1, "gpu": bool, "caches": [path]}',
        '{"mono_s", "pids": int, "cpu_s": float, "read_b": int|absent, "write_b": int|absent, "rss_mib": float,'
        ' "gpu_mem_mib": float|absent, "compilers": [comm], "cache_files": int|absent, "states": {"R": n, "S": n, "D": n},'
        ' "storage_wait": bool|absent}'
        "  evidence of progress of all processes of a unit; gpu_mem_mib comes once for each reading",
    ),
    "ticket": (
        "request",
        '{"pid", "env"?: [name, ..]}',
        '{"start_ticks", "cmdline": [..], "cwd", "invocation"|absent, "cgroup", "stdout": path|"socket"|"pipe"|absent,'
        ' "env"|absent: {name: value} of the names asked for, null where it may not be read}',
    ),
    "signal": ("request", '{"pid", "start_ticks", "signal": "TERM"}', "{}   only if start_ticks still match"),
    # ---- logs and files
    "journal-follow": (
        "stream",
        '{"unit", "user": bool, "after_cursor": str|null, "invocation": str|null, "lines": int=0, "boot": bool=true}',
        '{"text", "at_s", "mono_us", "cursor", "invocation"|absent, "pid"|absent, "priority"|absent, "boot"|absent}'
        "  MESSAGE arrays and nulls handled, CR bars cut to the last piece, split lines joined",
    ),
    "journal-read": (
        "request",
        '{"unit", "user", "after_cursor"|null, "invocation"|null, "lines": 2000}',
        '{"entries": [...], "more": bool}',
    ),
    "kernel-follow": ("stream", '{"after_cursor": str|null}', "as journal-follow, kernel transport only"),
    "file-follow": (
        "stream",
        '{"path", "offset": int|null, "inode": int|null, "partial": bool=false}  a missing file is waited for',
        '{"text", "offset", "inode", "rotated": bool, "partial"|absent}',
    ),
    "file-read": (
        "request",
        '{"path", "offset": 0, "max_b": 500000, "b64": false}',
        '{"text"|"b64", "size_b", "inode", "eof": bool}',
    ),
    "file-write": (
        "request",
        '{"path", "text"|"b64", "mode": 420, "mkdir": bool}',
        '{"size_b"}   tmp, fsync, rename',
    ),
    "stat": ("request", '{"paths": [..]}', '{"paths": {path: {"size_b", "blocks", "mtime_s", "type"}|null}}'),
    # ---- GPUs
    "gpu-follow": (
        "stream",
        '{"every_ms": 1000, "fields": [..]}',
        '{"line", "mono_s"} raw csv lines (noheader,nounits), {"fields": [..]} first and whenever they changed,'
        ' {"error": text}; restarted with back-off when nvidia-smi ends',
    ),
    "gpm-follow": ("stream", '{"every_s": 2}', '{"line", "mono_s"} of dmon --gpm-metrics where supported'),
    # ---- the engine
    "http": (
        "request",
        '{"method", "url" (loopback or this host only), "headers": {..}, "body": str|null, "timeout_s": 5,'
        ' "key_env": name|null, "max_b": 500000}',
        '{"status", "headers", "body", "elapsed_ms", "truncated": bool}  refused/timeout come as {"error": word}',
    ),
    # ---- running things
    "exec": (
        "request",
        '{"argv": [..], "timeout_s", "env": {..}, "cwd", "stdin": str|null, "max_b": 200000}',
        '{"rc", "stdout", "stderr", "elapsed_s", "truncated": bool}',
    ),
    "job-start": (
        "request",
        '{"job": id, "kind": "loadgen"|"stage"|"exec"|"supervise"|"selftest", "spec": {...}, "limit_s": float, "env": {..}}',
        '{"job", "unit"|"pid", "dir", "existed": bool, "state"}  idempotent by id: an existing job is answered, not started'
        " twice. Specs: see agent/jobs/worker.py and agent/model/stage.py",
    ),
    "job-list": ("request", "{}", '{"jobs": [JOB]}'),
    "job-show": ("request", '{"job"}', "JOB"),
    "job-watch": (
        "stream",
        '{"job", "known": [cell ids]}',
        '{"progress": {...}} | RESULT | {"state": JOB}, and the end state last. RESULT is {"id": cell, "result": {...}}, or'
        ' {"id", "file": path, "size_b"} if a line cannot hold it: the client reads that file',
    ),
    "job-collect": ("request", '{"job", "known": [..]}', '{"results": [RESULT], "more": bool, "job": JOB}'),
    "job-stop": ("request", '{"job"}', "JOB"),
    "job-forget": ("request", '{"job"}', "{}   deletes the files of an ended job that ddtop wrote"),
    # ---- the `process` service: a plain command under a small supervisor in the state folder
    "proc-start": (
        "request",
        '{"name", "argv", "env", "cwd", "stop_s": 30, "log_mib": 64}',
        '{"pid", "generation", "log"}',
    ),
    "proc-show": (
        "request",
        '{"name"}',
        '{"active", "pid"|absent, "start_ticks"|absent, "generation"|absent, "exit": {"code"}|{"signal"}|{"error"}|absent,'
        ' "log", "mono_s", "argv", "supervised": bool, "ending": bool, "started_at_s", "ended_at_s"|absent}',
    ),
    "proc-watch": ("stream", '{"name"}', "as proc-show, one at once and one after each change (pidfd)"),
    "proc-stop": ("request", '{"name", "stop_s"}', '{"exit"}  begins the stop, does not wait'),
    "proc-keep": (
        "request",
        '{"name", "run": id}',
        '{"kept": bool}  keeps on the host how the present start was asked for (argv, env, cwd, limits), for proc-restore',
    ),
    "proc-restore": (
        "request",
        '{"name", "run": id}',
        "as proc-start: starts what proc-keep kept for this run, and forgets it; not-found where nothing is kept",
    ),
    # ---- model directories
    "model-check": ("request", '{"path", "hashes": false}', "MODEL (see agent/model/check.py)"),
    "tokens": ("request", '{"url", "text", "key_env"}', '{"count"}'),
    "provenance": (
        "request",
        '{"unit"|"cgroup"|"pid" (of the server), "main_pid": int|null, "container": id|null, "model": path|null, "timeout_s": 10}',
        '{"facts": {"held": [GPU uuid], "gpu": {"gpus": [{field: text}], "driver", "cuda", "topology"}, "machine": {..},'
        ' "packages": {name: {"version", "revision"|absent}}, "image": {..}, "environment": {..}, "command": [..],'
        ' "model": {"path", "files", "size_b", "revision"|absent, "sha256", "covers"}}, "unknown": {section: why}}',
    ),
    "metrics-follow": (
        "stream",
        '{"url" (this host only), "names": [series], "every_s": 1, "key_env": name|null}',
        '{"rows": [[name, labels, value]], "mono_s", "took_ms"} | {"error": word} once for each change; asked less often'
        " where the answer takes long (2% of the time)",
    ),
}

JOB = """
{"job": id, "kind": str, "state": "running"|"done"|"failed"|"killed"|"lost", "unit"|"pid", "started_at_s",
 "boot": str, "ended_at_s"|absent, "exit"|absent, "why"|absent, "progress": {...}, "results": int, "run": str,
 "spec_hash": str, "schema": int}
Files in STATE_DIR/jobs/ID/: spec.json, state.json, progress.json, results/*.json, log; each written to a temporary
name, fsynced, renamed. `lost` means: said to be running, but its boot is over or its unit and pid are gone.
"""

LEASE = """
{"run", "plan", "who": as the client names its person, "login", "uid", "from": address, "held_s", "since_at_s",
 "state": "live"|"away"|"stale", "why", "wants": bool, "former": {unit: state before the run}}
A lease is stale once its boot is over, or its agent and jobs are gone and `grace_s` has passed since it was renewed.
"""

OVERRIDE = """
{"unit": str, "path": str, "run": str, "expires_at_s": float, "user": bool}
"""

UNIT_PROPS = (
    "Id Names LoadState LoadError ActiveState SubState Result UnitFileState FragmentPath DropInPaths NeedDaemonReload Job"
    " MainPID ControlPID ExecMainPID ExecMainCode ExecMainStatus ExecMainStartTimestampMonotonic"
    " ExecMainExitTimestampMonotonic ActiveEnterTimestampMonotonic InactiveEnterTimestampMonotonic"
    " StateChangeTimestampMonotonic InvocationID NRestarts Restart Type ExecStart ControlGroup"
    " ConditionResult AssertResult ConditionTimestampMonotonic TimeoutStopUSec TimeoutStartUSec StatusText"
    " StartLimitBurst MemoryCurrent User WorkingDirectory Environment Requires BindsTo Requisite"
).split()
