"""Writing a recording down and reading it back: every event, every process, every moment of death."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtop import events as ev
from ddtop.errors import DiskFullError, JournalError, RefusedError
from ddtop.journal.commands import append_command
from ddtop.journal.database import fail, tidy
from ddtop.journal.fold.apply import fold
from ddtop.journal.locks import Lock, host_lock, is_live, live_recording
from ddtop.journal.read.export import export
from ddtop.journal.read.reader import Follower, JournalReader, read_state
from ddtop.journal.tables import RECORDING, clean
from ddtop.journal.write.writer import JournalWriter
from tests.journal.made import any_event, sweep
from tests.waiting import HANG_S

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where hypothesis makes its many recordings: it tries our logic there, not the disk."""

T = {"at_s": 1.7e9, "mono_s": 5.0, "host": "ct200"}


def write(path: Path, events: list[ev.Event]) -> None:
    """In one transaction: a commit for each event would only try the disk's patience."""
    with JournalWriter.open(path) as journal:
        journal.extend(events)


def read(path: Path) -> list[ev.Event]:
    with JournalReader(path) as reader:
        return [event for _seq, event in reader.since()]


def test_a_sweep_comes_back_as_it_was_and_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    write(path, sweep())
    assert read(path) == sweep()
    assert read_state(path) == fold(sweep())
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["a.ddtop"], "no -wal, no lock remains"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(any_event(), min_size=1, max_size=15))
def test_every_event_comes_back(events: list[ev.Event]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "a.ddtop"
        with JournalWriter.open(path) as journal:
            journal.extend(events)
        with JournalReader(path) as reader:
            back = list(reader.since())
            assert reader.unreadable == []
        assert [seq for seq, _event in back] == list(range(1, len(events) + 1))
        assert [event for _seq, event in back] == [clean(event) for event in events]


def test_text_that_is_no_unicode_is_written_with_marks_instead_of_lost(tmp_path: Path) -> None:
    bad = b"caf\xe9 \xff".decode("utf-8", "surrogateescape")
    write(tmp_path / "a.ddtop", [ev.LogRead(**T, unit="u", lines=(ev.LogLine(text=bad),))])
    (event,) = read(tmp_path / "a.ddtop")
    assert isinstance(event, ev.LogRead) and event.lines[0].text == "caf? ?"


def test_telemetry_stands_in_typed_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    write(path, sweep())
    db = sqlite3.connect(path)
    rows = db.execute("SELECT gpu, power_w, mem_used_mib, tensor_active_pct FROM gpu_samples").fetchall()
    assert rows == [(0, 400.0, 1000.0, None), (1, 401.0, 1000.0, None)]
    assert db.execute("SELECT unit, text FROM log_lines").fetchall() == [("s.service", "Load weight begin")]
    db.close()


def test_since_reads_on(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    write(path, sweep())
    with JournalReader(path) as reader:
        assert [seq for seq, _event in reader.since(10, limit=3)] == [11, 12, 13]
        assert list(reader.since(reader.last_seq())) == []
        kinds = reader.kinds(["alert", "alert-resolved"])
        assert [type(event) for _seq, event in kinds] == [ev.AlertRaised, ev.AlertResolved]


def test_durable_events_are_committed_at_once_and_synced(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    said: list[str] = []
    with JournalWriter.open(path) as journal:
        journal._db.set_trace_callback(said.append)  # type: ignore[union-attr]
        journal.append(ev.Note(**T, level="info", text="waits"))
        assert journal.waiting == 1
        journal.append(ev.CellStateSet(**T, cell_id="a", state="done"))
        assert journal.waiting == 0
        assert said.index("PRAGMA synchronous = FULL") < said.index("BEGIN IMMEDIATE") < said.index("COMMIT")
        assert [type(e).__name__ for e in read(path)] == ["Note", "CellStateSet"], "others see both now"


def test_others_are_committed_within_a_tenth_of_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("ddtop.journal.write.writer.time.monotonic", lambda: now[0])
    with JournalWriter.open(tmp_path / "a.ddtop") as journal:
        journal.append(ev.RttMeasured(**T, rtt_ms=1.0))
        now[0] += 0.09
        journal.append(ev.RttMeasured(**T, rtt_ms=2.0))
        assert journal.waiting == 2
        now[0] += 0.02
        journal.append(ev.RttMeasured(**T, rtt_ms=3.0))
        assert journal.waiting == 0


async def test_keep_flushed_needs_no_further_event(tmp_path: Path) -> None:
    import asyncio

    with JournalWriter.open(tmp_path / "a.ddtop") as journal:
        journal.append(ev.RttMeasured(**T, rtt_ms=1.0))
        task = asyncio.create_task(journal.keep_flushed())
        async with asyncio.timeout(HANG_S):
            while journal.waiting:
                await asyncio.sleep(0.01)
        task.cancel()


_KILLED = """
import os, sys
from pathlib import Path
from ddtop.journal.write.writer import JournalWriter
from tests.journal.made import sweep
from ddtop.events import DURABLE
journal = JournalWriter.open(Path(sys.argv[1]), host="ct200")
for number, event in enumerate(sweep()):
    journal.append(event)
    if number == int(sys.argv[2]):
        sys.stdout.write("there"); sys.stdout.flush()
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("stop", [0, 1, 7, 15, 23, len(sweep()) - 1])
def test_killed_after_any_event_no_durable_one_is_lost_and_the_run_goes_on(tmp_path: Path, stop: int) -> None:
    path = tmp_path / "a.ddtop"
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path), str(stop)], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"there"), done.stderr
    given_out = sweep()[: stop + 1]
    durable = max((i for i, e in enumerate(given_out) if isinstance(e, ev.DURABLE)), default=-1)
    back = read(path)
    assert back[: durable + 1] == given_out[: durable + 1]
    assert back == given_out[: len(back)], "what else is there is a prefix: nothing is doubled or reordered"
    assert not is_live(path) and live_recording("ct200") is None, "the kernel gave the locks back"
    with JournalWriter.open(path, host="ct200") as journal:
        assert journal.seq == len(back)
        journal.append(ev.RunEnded(**T, outcome="stopped", exit_code=0))
    assert read(path) == [*back, ev.RunEnded(**T, outcome="stopped", exit_code=0)]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(sweep()) - 1))
def test_a_process_that_ends_anywhere_leaves_a_prefix(stop: int) -> None:
    """As above at random moments, by fork and _exit: quick, and as sudden for SQLite."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "a.ddtop"
        child = os.fork()
        if child == 0:
            try:
                journal = JournalWriter.open(path)
                for event in sweep()[: stop + 1]:
                    journal.append(event)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        back = read(path)
        given_out = sweep()[: stop + 1]
        durable = max((i for i, e in enumerate(given_out) if isinstance(e, ev.DURABLE)), default=-1)
        assert len(back) > durable and back == given_out[: len(back)]
        assert tidy(path) and not path.with_name("a.ddtop-wal").exists()
        assert read(path) == back


_FOLLOW = """
import sys, time
from pathlib import Path
from ddtop.events import RunEnded
from ddtop.journal.read.reader import Follower
follower = Follower(Path(sys.argv[1]))
seen, ended, deadline = [], False, time.monotonic() + 30
print("ready", flush=True)
while not ended and time.monotonic() < deadline:
    for seq, event in follower.poll(limit=7):
        seen.append(seq)
        ended = ended or isinstance(event, RunEnded)
    time.sleep(0.002)
follower.close()
print(len(seen), seen == list(range(1, len(seen) + 1)), flush=True)
"""


def test_a_second_process_sees_every_event_once_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    journal = JournalWriter.open(path)
    follower = subprocess.Popen([sys.executable, "-c", _FOLLOW, str(path)], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None and follower.stdout.readline() == "ready\n"
    for round_ in range(20):
        for event in sweep():
            journal.append(event)
        journal.flush()
        assert round_ < 20
    journal.append(ev.RunEnded(**T, outcome="done", exit_code=0))
    said = follower.stdout.readline().split()
    journal.close()
    assert follower.wait(30) == 0
    assert said == [str(20 * len(sweep()) + 1), "True"]
    assert not path.with_name("a.ddtop-wal").exists()


def test_a_follower_that_is_slow_to_let_go_leaves_one_file_too(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    journal = JournalWriter.open(path)
    journal.append(sweep()[0])
    follower = Follower(path)
    follower.poll()
    journal.close()
    follower.close()
    assert not path.with_name("a.ddtop-wal").exists() and len(read(path)) == 1


def test_a_follower_of_some_kinds_reads_each_of_them_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    wanted = ("log", "cell-state")
    with JournalWriter.open(path) as journal:
        journal.extend(sweep())
        journal.flush()
        follower = Follower(path, kinds=wanted)
        got = []
        while batch := follower.poll(3):
            got += batch
        assert follower.poll() == []
        journal.extend(sweep())
        journal.flush()
        got += follower.poll()
        follower.close()
        with JournalReader(path, check=False) as reader:
            every = [(seq, e) for seq, e in reader.since() if e.__struct_config__.tag in wanted]
    assert got == every and any(isinstance(e, ev.LogRead) and e.lines for _, e in got)


def test_two_writers_are_refused_on_a_recording_and_on_a_host(tmp_path: Path) -> None:
    with JournalWriter.open(tmp_path / "a.ddtop", host="ct200") as journal:
        assert is_live(journal.path) and live_recording("ct200") == journal.path
        with pytest.raises(RefusedError, match=f"process {os.getpid()} already runs"):
            JournalWriter.open(tmp_path / "a.ddtop")
        with pytest.raises(RefusedError, match="already runs ct200") as caught:
            JournalWriter.open(tmp_path / "b.ddtop", host="ct200")
        assert "ddtop connect ct200" in str(caught.value) and caught.value.exit_code == 12
        assert not (tmp_path / "b.ddtop").exists()
        JournalWriter.open(tmp_path / "b.ddtop", host="b300").close()
    JournalWriter.open(tmp_path / "a.ddtop", host="ct200").close()


def test_a_lock_is_tried_again_while_somebody_merely_looks(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path / "x.lock")
    lock.release()
    assert not (tmp_path / "x.lock").exists()
    Lock.take(host_lock("ümlaut/../host"), host="x").release()
    assert host_lock("a/b") != host_lock("a_b")


def test_commands_reach_the_runner_once_and_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    skip = ev.Skip(id="k1", viewer="v1", at_s=1.0, config="b8")
    with JournalWriter.open(path) as journal:
        append_command(path, skip)
        append_command(path, skip)
        append_command(path, ev.Attend(id="k2", viewer="v1", at_s=1.0))
        assert journal.pending_commands() == [skip, ev.Attend(id="k2", viewer="v1", at_s=1.0)]
        assert journal.pending_commands() == []
    with pytest.raises(RefusedError, match="nothing is running"):
        append_command(path, skip)
    with JournalWriter.open(path) as journal:
        assert journal.pending_commands() == [skip], "unanswered: the next runner refuses it as late"
        journal.append(ev.CommandSeen(**T, command_id="k1", viewer="v1", command="skip", outcome="late"))
    with JournalWriter.open(path) as journal:
        assert journal.pending_commands() == []


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    journal = JournalWriter.open(path)
    journal.append(sweep()[0])
    db = journal._db
    assert db is not None
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    big = ev.CellMeasured(**T, cell_id="a1", attempt=1, validity="VALID", raw={"x": "y" * 50_000})
    sample = ev.GpuSampled(**T, gpus=(ev.GpuReading(index=0, uuid="GPU-1", name="H"),))
    with pytest.raises(JournalError, match="the disk is full") as caught:
        journal.extend([sample, big])
    assert "free space" in str(caught.value)
    assert read(path) == [sweep()[0]], "what was committed is untouched"
    assert journal.waiting == 2
    db.execute("PRAGMA max_page_count = 100000")
    journal.flush()
    journal.close()
    assert read(path) == [sweep()[0], sample, big]


def refused(number: int) -> Callable[..., NoReturn]:
    def write(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return write


@pytest.mark.parametrize(
    ("number", "full"), [(errno.EDQUOT, True), (errno.ENOSPC, True), (errno.EIO, False), (0, False)]
)
def test_a_quota_that_is_used_up_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, full: bool
) -> None:
    """SQLite calls whatever but ENOSPC an I/O error: what a write of ours is refused with decides."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_WRITE"  # type: ignore[misc]
    if number:
        monkeypatch.setattr("ddtop.journal.database.tempfile.TemporaryFile", refused(number))
    with pytest.raises(JournalError) as caught:
        fail(tmp_path / "a.ddtop", error, "write")
    assert isinstance(caught.value, DiskFullError) is full
    assert ("free space" in str(caught.value)) is full and "a.ddtop" in str(caught.value)


def test_a_disk_that_is_full_before_the_run_begins_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddtop.journal.locks.os.pwrite", refused(errno.ENOSPC))
    with pytest.raises(JournalError, match="No space left") as caught:
        JournalWriter.open(tmp_path / "a.ddtop", host="h")
    assert "nothing was begun" in str(caught.value) and "free space" in str(caught.value)
    monkeypatch.undo()
    JournalWriter.open(tmp_path / "a.ddtop", host="h").close()


_FULL = """
import subprocess, sys
from pathlib import Path
from ddtop import events as ev
from ddtop.errors import JournalError
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.write.writer import JournalWriter
folder = Path(sys.argv[1])
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder]).returncode:
    sys.exit(77)
journal = JournalWriter.open(folder / "a.ddtop")
acked = 0
try:
    while True:
        event = ev.CellMeasured(at_s=1, mono_s=1, cell_id="a", attempt=acked, validity="VALID", raw={"x": "y" * 500})
        journal.append(event)
        acked += 1
except JournalError as error:
    assert "the disk is full" in str(error), error
def count():
    with JournalReader(folder / "a.ddtop") as reader:
        return len(list(reader.since()))
assert count() == acked > 0, (count(), acked)
subprocess.run(["mount", "-o", "remount,size=4m", folder], check=True)
journal.close()
assert count() == acked + 1
print("whole")
"""


def test_a_really_full_disk_loses_nothing(tmp_path: Path) -> None:
    """On a tmpfs of 400 kB, in a mount namespace of its own; needs root."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    command = ["unshare", "-m", sys.executable, "-c", _FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode in (1, 77) and "whole" not in done.stdout and "Traceback" not in done.stderr:
        pytest.skip("may not mount here")
    assert done.stdout == "whole\n", done.stderr


def test_an_older_form_is_updated_and_a_newer_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ddtop"
    write(path, sweep())
    later = [*RECORDING._steps, lambda db: db.execute("ALTER TABLE events ADD COLUMN extra TEXT")]
    monkeypatch.setattr(RECORDING, "_steps", later)
    before = path.read_bytes()
    assert read(path) == sweep(), "read in a copy in memory"
    assert path.read_bytes() == before
    with JournalWriter.open(path) as journal:
        journal.append(ev.Note(**T, level="info", text="x"))
    assert len(read(path)) == len(sweep()) + 1
    monkeypatch.setattr(RECORDING, "_steps", later[:1])
    with pytest.raises(JournalError, match=r"newer ddtop.*version 2.*up to 1"):
        read(path)
    with pytest.raises(JournalError, match="newer ddtop"):
        JournalWriter.open(path)
    assert not is_live(path), "a refusal gives the lock back"


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ddtop"
    write(path, sweep())

    def broken(db: sqlite3.Connection) -> None:
        db.execute("DROP TABLE log")
        db.execute("SELECT nonsense")

    good = list(RECORDING._steps)
    monkeypatch.setattr(RECORDING, "_steps", [*good, broken])
    with pytest.raises(JournalError):
        JournalWriter.open(path)
    monkeypatch.setattr(RECORDING, "_steps", good)
    assert read(path) == sweep()


def test_what_is_no_recording_gets_a_sentence(tmp_path: Path) -> None:
    cases: dict[str, str] = {}
    (tmp_path / "garbage").write_bytes(b"Hello, this is a log file\n" * 100)
    cases["garbage"] = "is not a ddtop recording"
    (tmp_path / "empty").touch()
    cases["empty"] = "is empty"
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE x (y)")
    other.close()
    cases["other"] = "an SQLite file of another program"
    (tmp_path / "folder").mkdir()
    cases["folder"] = "is a folder"
    cases["missing"] = "is not there"
    write(tmp_path / "whole", sweep() * 30)
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) * 2 // 3])
    cases["cut"] = "is damaged"
    (tmp_path / "tiny").write_bytes(whole[:50])
    cases["tiny"] = "is damaged"
    holed = bytearray(whole)
    holed[8192:20480] = b"\xa5" * 12288
    (tmp_path / "holed").write_bytes(holed)
    cases["holed"] = "is damaged"
    for name, words in cases.items():
        with pytest.raises(JournalError, match=words) as caught:
            JournalReader(tmp_path / name)
        assert "Traceback" not in str(caught.value)
        if name not in ("missing", "empty"):
            with pytest.raises(JournalError):
                JournalWriter.open(tmp_path / name)
    assert (tmp_path / "garbage").read_bytes().startswith(b"Hello")


def test_an_event_of_a_newer_kind_is_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.ddtop"
    write(path, sweep())
    db = sqlite3.connect(path)
    with db:
        db.execute('UPDATE events SET body = \'{"type":"telepathy"}\' WHERE seq = 5')
        db.execute("UPDATE events SET body = 'nonsense' WHERE seq = 9")
    db.close()
    with JournalReader(path) as reader:
        assert len(list(reader.since())) == len(sweep()) - 2
        assert [seq for seq, _why in reader.unreadable] == [5, 9]


def test_export_copies_a_live_run_into_one_file(tmp_path: Path) -> None:
    with JournalWriter.open(tmp_path / "a.ddtop") as journal:
        journal.extend(sweep())
        append_command(journal.path, ev.Pause(id="k", viewer="v", at_s=1.0))
        assert export(journal.path, tmp_path / "copy.ddtop") > 10_000
        with pytest.raises(JournalError, match="already exists"):
            export(journal.path, tmp_path / "copy.ddtop")
        with pytest.raises(JournalError, match="is not a folder"):
            export(journal.path, tmp_path / "nowhere" / "copy.ddtop")
        assert journal.pending_commands() != []
    assert read(tmp_path / "copy.ddtop") == sweep()
    db = sqlite3.connect(tmp_path / "copy.ddtop")
    assert db.execute("SELECT count(*) FROM commands").fetchone() == (0,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    db.close()
    assert sorted(p.name for p in tmp_path.glob("copy*")) == ["copy.ddtop"]


def test_a_recording_in_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    write(folder / "a.ddtop", sweep())
    drop = "os.setuid(65534)" if os.getuid() == 0 else "pass"
    code = f"""
import os
from pathlib import Path
from ddtop.journal.read.reader import read_state
{drop}
print(len(read_state(Path({str(folder / "a.ddtop")!r})).cells), os.access({str(folder)!r}, os.W_OK))
"""
    folder.chmod(0o555)
    for parent in [folder, *folder.parents][:5]:
        if str(parent).startswith(tempfile.gettempdir()) and parent != Path(tempfile.gettempdir()):
            parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    folder.chmod(0o755)
    assert done.stdout.split() == ["5", "False"], done.stderr
