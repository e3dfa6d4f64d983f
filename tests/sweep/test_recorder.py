"""A recording that cannot be written any more ends the run in order, and only that."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ddtop.errors import DiskFullError, JournalError
from ddtop.events import CellStateSet, LogLine, LogRead, Note, RttMeasured
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.write.reserve import PIECES, RESERVE_B, Reserve
from ddtop.journal.write.writer import JournalWriter
from ddtop.sweep import recorder as room
from ddtop.sweep.recorder import STOPPED_BY, Recorder


def note(text: str) -> Note:
    return Note(at_s=1.0, mono_s=1.0, host="h", level="info", text=text)


async def test_the_first_error_stops_the_run_and_no_later_one_is_raised(tmp_path: Path) -> None:
    writer = JournalWriter.open(tmp_path / "x.ddtop")
    recorder, stopped = Recorder(writer), []
    recorder.stop = stopped.append
    recorder.append(note("kept"))
    assert recorder.pending_commands() == [] and recorder.trouble is None and recorder.error() is None
    writer.close()  # as good as any way to make it fail: every further write raises JournalError

    flushing = asyncio.create_task(recorder.keep_flushed())
    recorder.append(note("lost"))
    recorder.append(note("lost too"))
    await asyncio.sleep(0.3)
    assert not flushing.done(), "a task that fails would end the run at once, and leave the host as it is"
    flushing.cancel()
    assert recorder.pending_commands() == []
    assert stopped == [STOPPED_BY]
    error = recorder.error()
    assert error is not None and error.exit_code == 12
    assert "the run was ended:" in str(error) and "the host is as it was found" in str(error)
    left = recorder.error(("x.service could not be stopped",))
    assert left is not None and "left behind: x.service could not be stopped" in str(left)
    with JournalReader(tmp_path / "x.ddtop") as reader:
        assert [e.text for _, e in reader.since() if isinstance(e, Note)] == ["kept"]


def test_before_there_is_a_run_the_error_is_raised(tmp_path: Path) -> None:
    writer = JournalWriter.open(tmp_path / "x.ddtop")
    writer.close()
    recorder = Recorder(writer)
    with pytest.raises(JournalError):
        for _ in range(2000):
            recorder.append(note("x"))


class FullDisk:
    """A recorder whose disk can be filled, and a clock that the test moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writer, self.full, self.now = JournalWriter.open(folder / "x.ddtop"), False, 100.0
        commit = self.writer._commit
        reserve = [True]

        def try_to(*, durable: bool) -> None:
            if self.full and not self.spare:
                raise DiskFullError("the disk is full: x.ddtop cannot be written")
            commit(durable=durable)

        monkeypatch.setattr(self.writer, "_commit", try_to)
        self.recorder = Recorder(self.writer, mono=lambda: self.now)
        self.spare = False
        self.told: list[str] = []
        monkeypatch.setattr(self.recorder._reserve, "release", lambda: setattr(self, "spare", reserve.pop()))
        monkeypatch.setattr(self.recorder._reserve, "free_b", lambda: 0 if self.full else 1 << 40)
        self.recorder.stop = lambda by: self.told.append(f"stop: {by}")
        self.recorder.filled = lambda _: self._filled()
        self.recorder.room = lambda dropped: self.told.append(f"room: {dropped}")

    def _filled(self) -> None:
        self.told.append("full")
        self.recorder.append(cell("alert"))  # durable, as an alert is
        self.spare = False

    def texts(self) -> list[str]:
        with JournalReader(self.writer.path) as reader:
            return [
                e.text if isinstance(e, Note) else e.cell_id
                for _, e in reader.since()
                if isinstance(e, Note | CellStateSet)
            ]


def cell(ident: str) -> CellStateSet:
    return CellStateSet(at_s=1.0, mono_s=1.0, host="h", cell_id=ident, state="done", by="t")


def test_a_full_disk_pauses_and_all_that_waited_is_written_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(tmp_path, monkeypatch)
    disk.recorder.append(cell("before"))
    disk.full = True
    disk.recorder.append(cell("first"))
    assert disk.told == ["full"], "paused, not stopped"
    assert disk.texts() == ["before", "first", "alert"], (
        "the alert is on disk, in the room that was kept for it"
    )
    for n in range(3):
        disk.recorder.append(cell(f"c{n}"))
        disk.recorder.append(note(f"n{n}"))
    for _ in range(50):
        disk.now += 1.0
        disk.recorder._look_for_room()
    assert disk.recorder.full is not None and disk.recorder.trouble is None
    assert not disk.recorder.shows(note("x")), "what is not on disk is not shown"
    disk.full = False
    disk.recorder._look_for_room()
    assert disk.recorder.full is not None, "it looks every two seconds only"
    disk.now += 5.0
    disk.recorder._look_for_room()
    assert disk.told == ["full", "room: 0"] and disk.recorder.error() is None
    assert disk.texts() == ["before", "first", "alert", "c0", "n0", "c1", "n1", "c2", "n2"]
    assert disk.recorder.shows(note("x"))


def test_what_waits_has_a_bound_and_no_result_falls_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "HELD_B", 100_000)
    disk = FullDisk(tmp_path, monkeypatch)
    disk.full = True
    disk.recorder.append(cell("first"))
    line = LogLine(text="x" * 1000)
    for n in range(500):
        disk.recorder.append(LogRead(at_s=1.0, mono_s=1.0, host="h", unit="u", lines=(line,) * 10))
        disk.recorder.append(RttMeasured(at_s=1.0, mono_s=1.0, host="h", rtt_ms=1.0))
        disk.recorder.append(cell(f"c{n}"))
    assert len(disk.recorder._held) < 700
    disk.full, disk.now = False, 200.0
    disk.recorder._look_for_room()
    assert disk.texts() == ["first", "alert", *[f"c{n}" for n in range(500)]]
    assert int(disk.told[-1].removeprefix("room: ")) > 800


@pytest.mark.parametrize("free", [True, False])
def test_the_end_of_a_run_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: bool
) -> None:
    disk = FullDisk(tmp_path, monkeypatch)
    disk.full = True
    disk.recorder.append(cell("first"))
    disk.recorder.append(cell("late"))
    disk.full = not free
    error = disk.recorder.error()
    assert (error is None) is free
    if error is not None:
        assert error.exit_code == 12 and "the run was ended: the disk is full" in str(error)
    assert ("late" in disk.texts()) is free


def test_the_room_that_is_kept_is_real_and_leaves_no_file(tmp_path: Path) -> None:
    made = Reserve(tmp_path)
    assert list(tmp_path.iterdir()) == [] and len(made._files) == PIECES
    assert sum(os.fstat(f.fileno()).st_blocks * 512 for f in made._files) >= RESERVE_B
    for _ in range(PIECES + 1):
        made.release()
    assert made._files == []
    made.take()
    assert len(made._files) == PIECES
    nowhere = Reserve(tmp_path / "nothing")
    assert nowhere._files == [] and nowhere.free_b() is None
