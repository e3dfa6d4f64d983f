"""The lease: which run has this host, whose it is and since when. Taken before a run touches anything.

Every login of the host sees it: it lies in the first folder of FOLDERS in which everybody may write and nobody may
delete another's file. Each user has one file there and believes only files that belong to the user in their name, so a
link or a file put there by somebody else is none. What is read and written is decided under one lock.

A lease holds while the agent of its runner lives, while a detached job of its run goes on, and for `grace_s` after it was
last renewed. A reboot ends it: the boot is written in it. Of a run of the same login that is not connected, the machine on
which its runner ran may know that it is dead: then nothing is waited for but its jobs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import tempfile
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ..context import Context
from ..errors import OpError, from_os_error
from .facts import boot_identity, read_text, start_ticks_of
from .processes import cmdline

SCHEMA = 1
FOLDERS = ("/run/lock", "/dev/shm", "/tmp")
FOLDER_ENV = "DDTOP_LEASE_DIR"
"""Names another folder, for a simulated host that shares its machine with others."""
HOLD, LINE = "ddtop-lease.", "ddtop-line."
LOCK = "ddtop-lease.lock"
MOST_B = 64 << 10
LOCK_S = 3.0
MOST_GRACE_S = 3600.0
UNSEEN_S = 60.0
"""Where other users' processes are hidden, a holder that renewed within this time lives."""
ACTIONS = ("show", "take", "wait", "leave-line", "release")

Claim = Dict[str, Any]


class Now(NamedTuple):
    """The host at the moment of a decision. `alive(pid, ticks)` is None where that cannot be seen."""

    boot: str
    mono_s: float
    at_s: float
    alive: Callable[[int, int], Optional[bool]]
    has_jobs: Callable[[str], bool]


class Me(NamedTuple):
    """Who asks: this login, and the agent's own process."""

    uid: int
    login: str
    origin: str
    pid: int
    start_ticks: int


def state_of(claim: Claim, now: Now) -> Tuple[str, str]:
    """(`live` | `away` | `stale`, why) of a claim.

    Away: its link is lost, and it comes back or its jobs go on. Stale: dead.
    """
    if not same_boot(claim.get("boot"), now.boot):
        return "stale", "the host was rebooted since"
    alive = now.alive(int(claim.get("pid") or 0), int(claim.get("start_ticks") or 0))
    quiet_s = max(0.0, now.mono_s - float(claim.get("renewed_mono_s") or 0.0))
    if alive or (alive is None and quiet_s < UNSEEN_S):
        return "live", "its runner is connected"
    ago = "%.0f s" % quiet_s if quiet_s < 120 else "%.0f min" % (quiet_s / 60)
    if now.has_jobs(str(claim.get("run"))):
        return "away", "its runner is not connected since %s; its jobs go on" % ago
    if quiet_s < float(claim.get("grace_s") or 0.0):
        return "away", "its runner is not connected since %s and may come back" % ago
    return "stale", "its runner is gone since %s, and none of its jobs runs" % ago


def same_boot(one: Any, other: str) -> bool:
    """Whether two boot identities are of one boot: a login that cannot see pid 1 (hidepid) knows only its first half.

    >>> same_boot("b/?", "b/12"), same_boot("b/11", "b/12"), same_boot("a/?", "b/?")
    (True, False, False)
    """
    (boot, _, first), (boot_2, _, first_2) = str(one).partition("/"), other.partition("/")
    return boot == boot_2 and (first == first_2 or "?" in (first, first_2))


def decide(
    run: str, held: List[Claim], line: List[Claim], now: Now, dead: Iterable[str] = ()
) -> Tuple[bool, Optional[Claim], List[Claim]]:
    """(whether `run` may have the host, who has it instead, who waits before it). Pure in its arguments.

    `dead`: runs whose runner is known to be dead by the machine on which it ran.
    """
    mine = any(c.get("run") == run and not c.get("released") for c in held)
    others = [
        c
        for c in held
        if c.get("run") != run
        and not c.get("released")
        and state_of({**c, "grace_s": 0.0} if str(c.get("run")) in dead else c, now)[0] != "stale"
    ]
    if others:
        return False, min(others, key=since_of), _before(run, line, now)
    ahead = [] if mine else _before(run, line, now)
    return not ahead, None, ahead


def since_of(claim: Claim) -> float:
    return float(claim.get("since_mono_s") or 0.0)


def _before(run: str, line: List[Claim], now: Now) -> List[Claim]:
    """Those in line before `run` whose runner waits there still."""
    found: List[Claim] = []
    for claim in sorted(line, key=since_of):
        if claim.get("run") == run:
            break
        if state_of({**claim, "grace_s": 0}, now)[0] == "live":
            found.append(claim)
    return found


def dead_before(held: List[Claim], run: str, now: Now) -> Optional[Claim]:
    """The dead run that had this host last, where nobody has put the host back since."""
    newest = max(held, key=lambda c: float(c.get("renewed_mono_s") or 0.0), default=None)
    if newest is None or newest.get("released") or newest.get("run") == run:
        return None
    if not same_boot(newest.get("boot"), now.boot):
        return None
    return newest


def believed(former: Any, own: bool) -> Dict[str, Any]:
    """Of the units' states in a claim, those that may be put back. `own`: it is this user's claim, or root's.

    Another user may write anything there. How a plain process is started is not believed of him: it would run as us.
    """
    found: Dict[str, Any] = {}
    for unit, said in former.items() if isinstance(former, dict) else ():
        if not isinstance(said, dict) or said.get("unit") != unit or not isinstance(said.get("active"), bool):
            continue
        words = said.get("argv") or []
        texts = [said.get(key) for key in ("kind", "was", "run")]
        if not (isinstance(words, list) and all(isinstance(text, str) for text in [*words, *texts])):
            continue
        generation = said.get("generation")
        if (generation is None or isinstance(generation, str)) and (own or said["kind"] != "process"):
            found[unit] = {**said, "argv": words, "user": bool(said.get("user"))}
    return found


def taken_from(claim: Claim) -> Optional[Claim]:
    """The dead run, as it was told, whose host a run has taken over and not touched yet."""
    found = claim.get("taken_from")
    return found if isinstance(found, dict) and isinstance(found.get("former"), dict) else None


def view(claim: Optional[Claim], now: Now) -> Optional[Claim]:
    """A claim as it is told: without what only its own runner needs."""
    if claim is None:
        return None
    state, why = state_of(claim, now)
    shown = {
        k: claim.get(k)
        for k in ("run", "plan", "who", "login", "uid", "from", "since_at_s", "client", "former")
    }
    shown.update(held_s=round(max(0.0, now.mono_s - since_of(claim)), 1), state=state, why=why)
    shown["wants"] = bool(claim.get("wants"))
    return shown


def answer(folder: str, args: Dict[str, Any], me: Me, now: Now) -> Dict[str, Any]:
    """The op's work in `folder`: reads, decides and writes under the lock."""
    action, run = str(args.get("action", "show")), str(args.get("run") or "")
    if action not in ACTIONS or (action != "show" and not run):
        raise OpError("bad-request", "lease: %r of run %r" % (action, run))
    if action == "show":
        held, line = read_claims(folder, HOLD), read_claims(folder, LINE)
        holder = decide("", held, line, now)[1]
        waits = [view(c, now) for c in _before("", line, now)]
        return {"holder": view(holder, now), "line": waits, "path": folder}
    with locked(folder):
        return _write(folder, action, run, args, me, now)


def _write(folder: str, action: str, run: str, args: Dict[str, Any], me: Me, now: Now) -> Dict[str, Any]:
    held, line = read_claims(folder, HOLD), read_claims(folder, LINE)
    own = os.path.join(folder, HOLD + str(me.uid))
    in_line = os.path.join(folder, LINE + "%d.%s" % (me.uid, run))
    old = next((c for c in held if c.get("run") == run and not c.get("released")), None)
    if action == "leave-line":
        _unlink(in_line)
        return {"held": old is not None, "holder": None, "line": []}
    if action == "release":
        _unlink(in_line)
        if old is not None:  # kept as a mark: what an older, dead run had taken over is put back now
            _put(
                own, {**old, "released": True, "renewed_mono_s": now.mono_s, "former": {}, "taken_from": None}
            )
        return {"held": False, "holder": None, "line": []}
    if action == "wait":
        waiting = next((c for c in line if c.get("run") == run), None)
        entry = _claim(args, run, me, now, since=waiting)
        _put(in_line, entry)
        line = [c for c in line if c.get("run") != run] + [entry]
    told_dead = {str(item) for item in args.get("dead") or ()}
    dead = [str(c["run"]) for c in held if c["run"] in told_dead and c["uid"] == me.uid]
    free, holder, ahead = decide(run, held, line, now, dead)
    waits = [view(c, now) for c in _before("", line, now) if c.get("run") != run]
    if not free:
        return {
            "held": False,
            "holder": view(holder, now),
            "line": [view(c, now) for c in ahead],
            "path": folder,
        }
    entry = _claim(args, run, me, now, since=old)
    before = view(dead_before(held, run, now), now) if old is None else taken_from(old)
    if before is not None:
        before["former"] = believed(before["former"], before.get("uid") in (0, me.uid))
    if before is not None and not entry["former"]:
        # Until this run has touched something: it may die before, or not have heard of this answer.
        entry.update(taken_from=before, former=before["former"])
    else:
        before = before if old is None else None
    _put(own, entry)
    _unlink(in_line)
    return {"held": True, "holder": None, "before": before, "line": waits, "path": folder}


def _claim(args: Dict[str, Any], run: str, me: Me, now: Now, *, since: Optional[Claim]) -> Claim:
    former = args.get("former")
    return {
        "schema": SCHEMA,
        "run": run,
        "plan": str(args.get("plan") or "")[:200],
        "who": str(args.get("who") or "")[:200],
        "login": me.login,
        "client": str(args.get("client") or "")[:400],
        "uid": me.uid,
        "from": me.origin,
        "boot": now.boot,
        "pid": me.pid,
        "start_ticks": me.start_ticks,
        "since_mono_s": since_of(since) if since is not None else now.mono_s,
        "since_at_s": since.get("since_at_s") if since is not None else now.at_s,
        "renewed_mono_s": now.mono_s,
        "grace_s": float(args.get("grace_s") or 0.0),
        "wants": bool(args.get("wants")),
        "former": former if isinstance(former, dict) else {},
    }


# ---- files


def read_claims(folder: str, prefix: str) -> List[Claim]:
    """The claims in `folder` that belong to the user in their name; all else is skipped."""
    found = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        uid = name[len(prefix) :].partition(".")[0] if name.startswith(prefix) else ""
        number = int(uid) if uid.isdecimal() and uid.isascii() else None
        claim = _read_own(os.path.join(folder, name), number) if number is not None else None
        if claim is not None:
            found.append(claim)
    return found


def _read_own(path: str, uid: int) -> Optional[Claim]:
    """A claim from a regular file of user `uid`. Never follows a link, never waits for a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != uid or info.st_size > MOST_B:
            return None
        claim = json.loads(os.read(handle, MOST_B).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(handle)
    return _checked(claim, uid)


def _checked(claim: Any, uid: int) -> Optional[Claim]:
    """What a file says, as far as it is a claim: another user may write anything into his own."""
    if not isinstance(claim, dict) or not isinstance(claim.get("run"), str):
        return None
    try:
        for key in ("since_mono_s", "renewed_mono_s", "grace_s", "since_at_s"):
            claim[key] = float(claim[key])
        for key in ("pid", "start_ticks"):
            claim[key] = int(claim[key])
        claim["grace_s"] = min(claim["grace_s"], MOST_GRACE_S)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return {**claim, "uid": uid}


def _put(path: str, claim: Claim) -> None:
    """Writes a claim whole, owned by us whatever the folder's owner is. Needs no fsync: a reboot ends it anyway."""
    data = json.dumps(claim, separators=(",", ":")).encode()
    if len(data) > MOST_B:
        data = json.dumps({**claim, "former": {}, "taken_from": None}, separators=(",", ":")).encode()
    try:
        handle, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".ddtop-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
            os.rename(name, path)
        except BaseException:
            _unlink(name)
            raise
    except OSError as error:
        raise from_os_error(error, path) from error


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Holds the folder's lock, which every user may take. Raises OpError `failed` where another keeps it for LOCK_S."""
    path = os.path.join(folder, LOCK)
    handle = _open_lock(path)
    try:
        until = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                    raise from_os_error(error, path) from error
                if time.monotonic() > until:
                    raise OpError(
                        "failed", "%s is held by another process for %.0f s" % (path, LOCK_S)
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _open_lock(path: str) -> int:
    """The lock file, opened to read: no right to write another user's file is needed to lock it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(10):
        try:
            handle = os.open(path, flags)
        except FileNotFoundError:
            try:
                handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
                os.fchmod(handle, 0o644)
            except FileExistsError:
                continue
            except OSError as error:
                raise from_os_error(error, path) from error
        except OSError as error:
            raise from_os_error(error, path) from error
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        break
    raise OpError("failed", path + " is no regular file: somebody has put something else there")


def shared_folder(state_dir: Optional[str]) -> Tuple[str, bool]:
    """(folder, whether every login sees it). It is chosen by what the folders are, never by who asks."""
    wanted = os.environ.get(FOLDER_ENV)
    if wanted:
        return wanted, True
    root = os.stat("/").st_uid
    for folder in FOLDERS:
        try:
            info = os.lstat(folder)
        except OSError:
            continue
        mode = stat.S_IMODE(info.st_mode)
        if stat.S_ISDIR(info.st_mode) and info.st_uid == root and mode & 0o1002 == 0o1002:
            return folder, True
    if state_dir is None:
        raise OpError("not-permitted", "no folder of %s is everybody's" % ", ".join(FOLDERS))
    return state_dir, False


# ---- the host


def alive(pid: int, ticks: int) -> Optional[bool]:
    """Whether the process with this pid and start time runs; None where other users' processes are hidden."""
    text = read_text("/proc/%d/stat" % pid) if pid > 0 else None
    if text:
        return start_ticks_of(text) == ticks and text.rpartition(") ")[2][:1] not in "ZX"
    return False if os.path.exists("/proc/1/stat") else None


def has_jobs(run: str) -> bool:
    """Whether a detached job of `run` goes on: its process names its folder, which begins with the run's id."""
    mark = "/jobs/%s-" % run
    for name in os.listdir("/proc"):
        if name.isdigit():
            words = cmdline(int(name))
            if "job" in words and any(mark in word for word in words):
                return True
    return False


def _me(context: Context) -> Me:
    origin = (os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_CLIENT") or "").split(" ")[0]
    own = read_text("/proc/self/stat")
    ticks = start_ticks_of(own) if own else 0
    return Me(os.geteuid(), context.rights.user, origin, os.getpid(), ticks)


def _now() -> Now:
    return Now(boot_identity(), time.monotonic(), time.time(), alive, has_jobs)


async def lease(context: Context, args: Dict[str, Any]) -> Dict[str, Any]:
    """The op `lease`."""
    folder, shared = shared_folder(context.state_dir)
    found = await context.thread(answer, folder, args, _me(context), _now())
    return {**found, "shared": shared}
