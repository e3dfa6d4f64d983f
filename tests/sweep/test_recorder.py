"""A recording that cannot be written any more ends the run in order, and only that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ddtop.errors import JournalError
from ddtop.events import Note
from ddtop.journal.read.reader import JournalReader
from ddtop.journal.write.writer import JournalWriter
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
