"""One trial: a sweep of six cells, its faults, the person who starts ddtop again, and the verdict of the oracle."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddtop.errors import JournalError
from ddtop.events import (
    AlertRaised,
    CellMeasured,
    CellStarted,
    CellStateSet,
    Event,
    PhaseSeen,
    RestartReady,
    RunEnded,
    RunStarted,
    SearchStep,
    StageProgress,
    StepTaken,
)
from ddtop.journal.fold.apply import fold
from ddtop.journal.read.reader import JournalReader
from tests.bed.client import BedError
from tests.campaign.draw import Fault, Trial
from tests.campaign.inject import FILE, STATE, UNIT, Injector, VoidError, build_clock
from tests.campaign.oracle import (
    PAUSED,
    Seen,
    Violation,
    false_alarms,
    judge,
    judge_figures,
    judge_residue,
    judge_telling,
    named_by_pid,
)
from tests.campaign.shapes import SHAPES, plan_of, undecided
from tests.stories.harness import Runner, left_behind

LIMIT_S = 240.0
"""After the last fault is undone a run of seconds has ended by then, whatever its retries."""
SMALL_DISK_MIB = 24
SMALL_STATE = (
    f"mkdir -p {STATE} /mnt/small /var/empty; mount -t tmpfs -o size=8m tmpfs /mnt/small; mkdir /mnt/small/up /mnt/small/work;"
    f" mount -t overlay -o lowerdir=/var/empty,upperdir=/mnt/small/up,workdir=/mnt/small/work overlay {STATE}"
)
"""The agent keeps nothing on a tmpfs: a small disk over one, for the fault that fills it."""
OWNERS = ("stop-server", "restart-server", "suspend-server")
"""Hands on the unit, which is the owner's again once the host is put back."""
EDITS = {"edit-unit": FILE, "owner-drop-in": f"{FILE}.d/50-owner.conf"}
"""What the owner writes meanwhile stays as written."""
OF_RUNNER = ("kill-runner", "suspend-runner", "end-runner", "stop-run", "pause")
ENDS = ("end-runner", "stop-run")
OURS = (
    "find /tmp /var/tmp /dev/shm /root /run/lock /run/systemd/system /run/systemd/transient /run/systemd/system.control"
    " -path '*/sglang/*' -prune -o -print 2>/dev/null | grep -i ddtop | grep -ve ddtop-bed -e /.ddtop-staged.json"
)
"""Files and folders on the host with our name, but the manifest of a staged model, which stays with it."""
KEPT = ("/root/.local/state/ddtop", "/run/lock/ddtop-lease")
"""What a run may leave: the agent's state folder, and the mark of a lease that was given back."""
LEARNED = ("history.db", "recordings-elsewhere")
"""What a run adds to for later runs of this machine, in its state folder."""
MOST_OPEN = 80
"""Descriptors of a runner."""
OTHERS_MAY_STAY = (
    "/dev/shm/models",
    "/dev/shm/Qwen3.6-27B",
    "/dev/shm/Kimi-K2.6",
    "systemd-journald.service",
    "/run/systemd/transient/session-",
)
"""What a fault itself leaves: a journald that was killed beside a jump of the clock runs into systemd's start limit; sshd holds
the login of a connection that was cut for minutes, until TCP gives it up."""


@dataclass
class Row:
    """What became of a trial; a line of the campaign's file."""

    host: str
    seed: int
    faults: list[dict[str, Any]] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    violations: list[list[str]] = field(default_factory=list)
    done: int = 0
    anew: int = 0
    codes: list[int] = field(default_factory=list)
    alerts: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    shape: str = "plain"
    descriptors: int = 0
    """The most that a runner had open."""
    resident_mib: float = 0.0


class Tape:
    """The recording, read on as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.seq, self.events = path, 0, list[Event]()

    def more(self) -> list[Event]:
        """The events since the last call; [] while there is no recording."""
        new: list[Event] = []
        with contextlib.suppress(JournalError, OSError):
            if self.path.exists():
                with JournalReader(self.path, check=False) as reader:
                    for seq, event in reader.since(self.seq):
                        self.seq = seq
                        new.append(event)
        self.events += new
        return new


def came(event: str, events: list[Event]) -> bool:
    """Whether the run has come to a moment that faults wait for."""
    for e in events:
        match event:
            case "staging":
                hit = isinstance(e, StageProgress | PhaseSeen)
            case "loading":
                hit = isinstance(e, PhaseSeen) and e.phase == "loading"
            case "measuring":
                hit = isinstance(e, CellStarted)
            case "noted":
                hit = isinstance(e, StepTaken) and e.step_id.startswith("seen:")
            case "finished":
                hit = isinstance(e, CellStateSet) and e.state == "done"
            case _:
                hit = isinstance(e, StepTaken) and e.action == "restore"
        if hit:
            return True
    return False


def phase_of(before: str, events: list[Event]) -> str:
    """Where the run is, after `events`."""
    for e in events:
        match e:
            case StageProgress():
                before = "staging"
            case PhaseSeen():
                before = e.phase
            case RestartReady():
                before = "ready"
            case CellStarted():
                before = "measuring"
            case StepTaken(action="restore"):
                before = "leaving"
            case RunStarted():
                before = "connecting"
    return before


def ledger(host: Any, *, process: bool = False) -> list[dict[str, Any]]:
    """All lines in the order in which they were written; [] while the host is dark. `process`: of a plain process."""
    try:
        text = host.sh("cat /var/lib/ddtop-bed/ledger.jsonl 2>/dev/null || true")
    except (BedError, OSError, subprocess.TimeoutExpired):
        return []
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    return named_by_pid(found) if process else found


def prepare(host: Any, trial: Trial) -> None:
    """The host as the trial finds it."""
    host.restore()
    if host.name != "ct200":  # the plan's unit, on a host that has none of this name
        text = (Path(__file__).parent / "../bed/rootfs/ct200/etc/systemd/system" / UNIT).read_text()
        path = f"/etc/systemd/system/{UNIT}"
        text = text.replace("/dev/shm/Qwen3.6-27B", host.spec.model).replace("--tp-size 1", "--tp-size 8")
        host.sh(f"cat > {path}; systemctl daemon-reload", stdin=text)
    if "host-disk-full" in trial.kinds:
        host.sh(SMALL_STATE)
    if trial.staged:
        host.stage()
    host.fault(*SHAPES[trial.shape].faults)
    if trial.was_active:
        host.sh(f"systemctl start {UNIT}")
        host.wait("ready", timeout_s=60)


def clock_of_host(host: Any, library: Path | None) -> None:
    """Preloads the clock in every new process of the host; without a library it is taken away."""
    if library is None:
        host.sh("rm -f /etc/ld.so.preload /etc/ddtop-bed/clock")
        return
    import base64

    data = base64.b64encode(library.read_bytes()).decode()
    host.sh("base64 -d > /usr/lib/ddtop-bed-clock.so; chmod 755 /usr/lib/ddtop-bed-clock.so", stdin=data)
    host.sh("echo /usr/lib/ddtop-bed-clock.so > /etc/ld.so.preload; systemctl restart ssh systemd-journald")


@contextlib.contextmanager
def small_disk(folder: Path, wanted: bool) -> Iterator[Path]:
    """Where the recording lies: a disk of its own where it is to fill up."""
    place = folder / "rec"
    place.mkdir()
    if not wanted:
        yield place
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MIB}m", "tmpfs", str(place)], check=True)
    try:
        yield place
        for file in place.glob("run*"):
            shutil.copy(file, folder / file.name)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def run(host: Any, folder: Path, trial: Trial) -> Row:
    """Runs one trial in `folder` (new). The row says what happened; harness errors are raised."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    row = Row(host.name, trial.seed, shape=trial.shape)
    clock = build_clock(folder) if trial.kinds & {"host-clock", "client-clock"} else None
    prepare(host, trial)
    try:
        if "host-clock" in trial.kinds and clock is not None:
            clock_of_host(host, clock)
        before = host.snapshot()
        with small_disk(folder, "client-disk-full" in trial.kinds) as place:
            _Play(host, folder, place, trial, row, clock).play(before)
    finally:
        if "host-clock" in trial.kinds:
            host.wait_on()
            clock_of_host(host, None)
        if "host-disk-full" in trial.kinds:
            host.sh(f"umount -l {STATE}; umount -l /mnt/small; rmdir /mnt/small; true")
    return row


class _Play:
    def __init__(
        self, host: Any, folder: Path, place: Path, trial: Trial, row: Row, clock: Path | None
    ) -> None:
        self.host, self.folder, self.trial, self.row = host, folder, trial, row
        self.told = folder / "told.txt"
        tp = "tp = [8]\n" if host.name != "ct200" else ""
        text = plan_of(f"campaign-{trial.seed}", trial.shape, host.name, self.told)
        text = text.replace("[matrix]\n", "[matrix]\n" + tp).replace("/dev/shm/Qwen3.6-27B", host.spec.model)
        self.plan = text.replace("/data/models/Qwen3.6-27B", host.spec.source).replace(
            '"Qwen3.6-27B"', f'"{Path(host.spec.model).name}"'
        )
        other = self.plan.replace(f"campaign-{trial.seed}", "other").partition("[notify]")[0]
        (folder / "other.toml").write_text(other)
        self.recording, self.home = place / "run.ddtop", folder / "home"
        self.env = (
            {"LD_PRELOAD": str(clock), "CLOCK_FILE": str(folder / "clock")}
            if clock is not None and "client-clock" in trial.kinds
            else {}
        )
        self.tape, self.seen = Tape(self.recording), Seen()
        self.injector = Injector(host, folder, lambda: self.runner, process=trial.shape == "process")
        self.phase, self.sampled_at = "connecting", 0.0
        self.texts: list[str] = []
        self.ours = self._ours()
        self.began = time.monotonic()
        self.runner = self._start()

    def _start(self) -> Runner:
        return Runner(self.host.bed, self.plan, self.recording, self.home, more_env=self.env)

    def _look(self) -> None:
        new = self.tape.more()
        self.phase = phase_of(self.phase, new)
        if new:
            self.seen.take(new, ledger(self.host, process=self.trial.shape == "process"))
        if time.monotonic() >= self.sampled_at + 1.0:
            self.sampled_at = time.monotonic()
            with contextlib.suppress(OSError):
                pid = self.runner.process.pid
                self.row.descriptors = max(self.row.descriptors, len(os.listdir(f"/proc/{pid}/fd")))
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                self.row.resident_mib = max(self.row.resident_mib, round(pages / 256, 1))

    def play(self, before: dict[str, Any]) -> None:
        todo = sorted(self.trial.faults, key=lambda f: f.at_s)
        at: dict[str, float] = {}
        until = time.monotonic() + LIMIT_S
        ended = False
        while not ended:
            time.sleep(0.1)
            self._look()
            now = time.monotonic()
            for name in {f.event for f in todo if f.event} - at.keys():
                if came(name, self.tape.events):
                    at[name] = now
            for fault in [f for f in todo if self._due(f, now, at)]:
                todo.remove(fault)
                self._inject(fault)
                until = time.monotonic() + LIMIT_S + fault.lasts_s
            ended = self._ended()
            if time.monotonic() > until:
                self._bad(
                    "stuck", f"not done {LIMIT_S:.0f} s after the last fault: {self.runner.text()[-600:]}"
                )
                break
        self.injector.wait()
        self.row.notes += self.injector.troubles
        self._judge(before)

    def _due(self, fault: Fault, now: float, at: dict[str, float]) -> bool:
        began = at.get(fault.event) if fault.event else self.began
        return began is not None and now >= began + fault.at_s

    def _inject(self, fault: Fault) -> None:
        alive = self.runner.process.poll() is None and self.injector.ends_s is None
        if fault.kind in OF_RUNNER and (self.injector.again_at is not None or not alive):
            self.row.void.append(f"{fault.kind}: no runner is alive, or it ends")
            return
        if fault.kind in ("second-connect", *OWNERS) and came("leaving", self.tape.events):
            self.row.void.append(f"{fault.kind}: the host is its owner's again, or the next run's")
            return
        ends = fault.kind in ("kill-server", "reboot", "power-loss") and self.trial.was_active
        early = fault.kind in ("second-connect", *OWNERS)
        events = self.tape.events
        over = max((n for n, e in enumerate(events) if isinstance(e, RunEnded)), default=-1)
        if (ends or early) and not came("noted", events[over + 1 :]):
            self.row.void.append(
                f"{fault.kind}: the run has not looked at the host yet, so this is how it found it"
            )
            return
        try:
            self.injector.inject(fault)
        except VoidError as error:
            self.row.void.append(str(error))
            return
        at = round(time.monotonic() - self.began, 1)
        told = {"kind": fault.kind, "at_s": at, "lasts_s": fault.lasts_s, "event": fault.event}
        self.row.faults.append({**told, "phase": self.phase})

    def _ended(self) -> bool:
        """Whether the run is over; starts the runner again where it was killed, or where a person would."""
        code = self.runner.process.poll()
        if code is None:
            return False
        if self.injector.again_at is not None:
            if time.monotonic() >= self.injector.again_at:
                self.injector.again_at = None
                self._again()
            return False
        if self.injector.ends_s is not None and code != 0:
            self.row.notes.append(f"asked to end: exit code {code}")
            self.injector.again_at = time.monotonic() + self.injector.ends_s
            self.injector.ends_s = None
            return False
        if code == 12 and "the disk is full: " in self.runner.text():
            self.row.notes.append("started on a full disk: refused, and started again")
            self.injector.again_at = time.monotonic() + 3.0
            return False
        self.row.codes.append(code)
        if code == 0 or len(self.row.codes) > 2:
            return True
        self.row.notes.append(f"exit code {code}: {self.runner.text()[-500:]}")
        self._again()
        return False

    def _again(self) -> None:
        self.texts.append(self.runner.text())
        self.runner.kill()
        self.runner = self._start()

    def _ours(self) -> list[str]:
        """Files with our name on the host that no run may leave."""
        lines = self.host.sh(OURS + "; true").splitlines()
        return [line for line in lines if not line.startswith(KEPT)]

    def _here(self) -> list[str]:
        """Files that no ended run leaves on this machine, beside its recording, what it learned and how viewers looked."""
        files = [p for place in (self.home, self.recording.parent) for p in place.rglob("*") if p.is_file()]
        return [
            str(p) for p in files if p != self.recording and p.name not in LEARNED and "looks" not in p.parts
        ]

    def _leases(self) -> list[dict[str, Any]]:
        text = self.host.sh(
            "for f in /run/lock/ddtop-lease.[0-9]*; do cat $f && echo; done 2>/dev/null; true"
        )
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def _bad(self, kind: str, text: str) -> None:
        self.row.violations.append([kind, text])

    def _judge(self, before: dict[str, Any]) -> None:
        host, row = self.host, self.row
        self._look()
        self.runner.kill()
        self.texts.append(self.runner.text())
        (self.folder / "out.txt").write_text("\n=====\n".join(self.texts))
        host.wait_on()
        lines = ledger(host, process=self.trial.shape == "process")
        (self.folder / "ledger.jsonl").write_text("".join(json.dumps(e) + "\n" for e in lines))
        fresh = Tape(self.recording)
        fresh.more()
        shape, faults = SHAPES[self.trial.shape], len(row.faults)
        alarms = false_alarms(fresh.events, self.trial.explained)
        found = [*self.seen.violations, *alarms]
        pauses = sum(isinstance(e, CellMeasured | SearchStep) and PAUSED in e.reasons for e in fresh.events)
        kept = [*fold(fresh.events).plan_cells, *(e for e in fresh.events if isinstance(e, SearchStep))]
        paused = any(PAUSED in one.reasons for one in kept)
        faults += pauses  # each is measured again, once
        if paused:
            row.notes.append("a pause of the server is said of a result: decisions by it are not judged")
        else:
            found += undecided(self.trial.shape, fresh.events)
        if shape.plain:
            more, row.anew = judge(
                seen=self.seen,
                events=fresh.events,
                ledger=lines,
                marks=shape.marks,
                requests=shape.requests,
                faults=faults,
            )
            found += more
        if "host-clock" not in self.trial.kinds:
            more, untold = judge_figures(fresh.events, lines, shape.marks, faults)
            found += more
            row.anew = row.anew if shape.plain else untold
        told = self.told.read_text().splitlines() if self.told.exists() else []
        killed = bool(self.trial.kinds & {"kill-runner", "client-disk-full"})
        found += judge_telling(fresh.events, [line.split(" ", 1)[0] for line in told], killed)
        found += judge_residue(self.ours, [*self._ours(), *self._here()], self._leases())
        with JournalReader(self.recording, check=True):  # raises where it is damaged
            state = fold(fresh.events)
        if state.strays:
            self._bad("recording", f"{state.strays} events name an unknown cell, restart or alert")
        row.done = sum(c.state == "done" for c in state.plan_cells)
        raised = [e for e in fresh.events if isinstance(e, AlertRaised)]
        row.alerts = [[round(a.at_s, 1), a.title, a.verdict, a.cause] for a in raised]
        for item in found:
            self._bad(item.kind, item.text)
        left = [
            f"{c.spec.label} {c.state}: {c.reason}"
            for c in state.plan_cells
            if c.state != "done" and not (c.state == "skipped" and c.by == "race")
        ]
        if left or (len(state.plan_cells) < shape.cells and not paused):
            self._bad("not-all-measured", f"{len(state.plan_cells)} planned; {'; '.join(left)[:600]}")
        if row.descriptors > MOST_OPEN:
            self._bad("descriptors", f"the runner had {row.descriptors} open")
        ended = [e for e in fresh.events if isinstance(e, RunEnded)]
        said = " ".join(ended[-1].left_behind) if ended else ""
        if len(row.codes) > 1 and "was started again and ended" not in said:
            self._bad("needed-a-person", f"exit codes {row.codes}")
        if any("Traceback" in text or "bug in ddtop" in text for text in self.texts):
            self._bad(
                "traceback", next(t for t in self.texts if "Traceback" in t or "bug in ddtop" in t)[-800:]
            )
        for kind, path in EDITS.items():
            if any(f["kind"] == kind for f in row.faults):
                now = host.snapshot()["unit_files"].get(path)
                if now in (None, before["unit_files"].get(path)):
                    self._bad("not-as-found", f"what its owner wrote is gone: {path}")
                before["unit_files"][path] = now
        for line in left_behind(host, before, OTHERS_MAY_STAY):
            if UNIT in line and "was started again and ended" in said:
                row.notes.append(f"left behind, and said: {said[:300]}")  # its model went with the power
            else:
                self._bad("not-as-found", line)
        row.seconds = round(time.monotonic() - self.began, 1)


__all__ = ["Row", "Violation", "run"]
