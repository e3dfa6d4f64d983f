"""Sessions: following a run that lives, ends or dies, and playing one that is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ddtop import events as ev
from ddtop.errors import JournalError, RefusedError
from ddtop.journal.fold.apply import apply, fold
from ddtop.journal.fold.state import State
from ddtop.journal.read.reader import Follower, JournalReader
from ddtop.journal.read.replay import ReplaySession
from ddtop.journal.read.session import Batch, LiveSession, Session, fold_batch
from ddtop.journal.read.timeline import Timeline
from ddtop.journal.write.writer import JournalWriter
from tests.journal.made import sweep
from tests.waiting import HANG_S

T = {"at_s": 1.7e9 + 500, "mono_s": 500.0, "host": "ct200"}


def write(path: Path, events: list[ev.Event]) -> Path:
    with JournalWriter.open(path) as journal:
        journal.extend(events)
    return path


class Viewer:
    """Folds what a session gives, as a dashboard does."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.state = State()
        self.resets = 0
        self.events: list[ev.Event] = []

    async def run(self) -> None:
        async for batch in self.session.events():
            self.resets += batch.reset
            self.state = fold_batch(self.state, batch)
            self.events = [*([] if batch.reset else self.events), *batch]

    async def until(self, seq: int) -> None:
        async with asyncio.timeout(HANG_S):
            while self.state.seq != seq:
                await asyncio.sleep(0.005)


@pytest.fixture
async def watch() -> AsyncIterator[list[Viewer]]:
    """Append viewers; they run until the test ends, and their failure is the test's."""
    viewers: list[Viewer] = []
    tasks: list[asyncio.Task[None]] = []

    class Watching(list[Viewer]):
        def append(self, viewer: Viewer) -> None:
            viewers.append(viewer)
            tasks.append(asyncio.create_task(viewer.run()))

    yield Watching()
    for viewer in viewers:
        viewer.session.close()
    async with asyncio.timeout(HANG_S):
        await asyncio.gather(*tasks)


async def test_a_live_session_follows_sends_and_follows_the_next_runner(
    tmp_path: Path, watch: list[Viewer]
) -> None:
    path = tmp_path / "a.ddtop"
    session = LiveSession(path, viewer="v1")
    viewer = Viewer(session)
    watch.append(viewer)  # before there is a file
    events = sweep()
    journal = JournalWriter.open(path)
    journal.extend(events[:10])
    await viewer.until(10)
    assert session.live
    await session.send(ev.Pause(id="k", viewer="v1", at_s=1.0))
    assert journal.pending_commands() == [ev.Pause(id="k", viewer="v1", at_s=1.0)]
    journal.extend(events[10:])
    journal.append(ev.RunEnded(**T, outcome="stopped", exit_code=0))
    await viewer.until(len(events) + 1)
    journal.close()
    assert viewer.state.run.ended is not None
    async with asyncio.timeout(HANG_S):
        while session.live or path.with_name("a.ddtop-wal").exists():
            await asyncio.sleep(0.02)
    with pytest.raises(RefusedError, match="nothing is running"):
        await session.send(ev.Pause(id="k2", viewer="v1", at_s=1.0))
    with JournalWriter.open(path) as again:
        again.append(ev.RunStarted(**T, run_id="r1", name="demo", mode="sweep", segment=1))
        await viewer.until(len(events) + 2)
    assert viewer.state.run.ended is None and viewer.resets == 0


async def test_a_recording_that_never_appears_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddtop.journal.read.session.APPEAR_S", 0.15)
    with pytest.raises(JournalError, match="did not appear"):
        await Viewer(LiveSession(tmp_path / "x.ddtop", viewer="v")).run()


async def test_a_replay_gives_the_same_state_as_the_run(tmp_path: Path, watch: list[Viewer]) -> None:
    replay = ReplaySession(write(tmp_path / "a.ddtop", sweep()), speed=4096.0)
    viewer = Viewer(replay)
    watch.append(viewer)
    await viewer.until(len(sweep()))
    assert viewer.state == fold(sweep()) and not replay.live and not replay.playing
    with pytest.raises(RefusedError, match="is a replay"):
        await replay.send(ev.Pause(id="k", viewer="v", at_s=1.0))


async def test_a_replay_is_stepped_sought_and_goes_from_alert_to_alert(
    tmp_path: Path, watch: list[Viewer]
) -> None:
    events = sweep()
    alert = next(i for i, e in enumerate(events) if isinstance(e, ev.AlertRaised))
    replay = ReplaySession(write(tmp_path / "a.ddtop", events))
    viewer = Viewer(replay)
    replay.pause()
    watch.append(viewer)
    replay.step()
    await viewer.until(2)
    replay.step(3)
    await viewer.until(5)
    replay.step(-2)
    await viewer.until(3)
    assert viewer.resets == 1 and viewer.events == events[:3]
    replay.next_alert()
    await viewer.until(alert + 1)
    assert viewer.state.open_alerts and not replay.playing
    assert replay.position == events[alert].at_s
    replay.next_alert()  # there is none: stays
    replay.step()
    await viewer.until(alert + 2)
    replay.previous_alert()
    await viewer.until(alert + 1)
    replay.seek(events[6].at_s)
    await viewer.until(max(i for i, e in enumerate(events) if e.at_s <= events[6].at_s) + 1)
    replay.seek(9e9)
    await viewer.until(len(events))
    assert viewer.state == fold(events)
    replay.seek(0.0)
    await viewer.until(1)
    replay.step(-99)
    await viewer.until(0)
    assert viewer.events == []


async def test_speed_is_kept_within_bounds(tmp_path: Path) -> None:
    replay = ReplaySession(write(tmp_path / "a.ddtop", sweep()))
    for _ in range(30):
        replay.faster()
    assert replay.speed == 4096.0
    for _ in range(30):
        replay.slower()
    assert replay.speed == 1 / 16
    replay.close()


def test_playing_time_shortens_silences_and_forgives_a_clock_that_steps_back() -> None:
    line = Timeline([(1, 100.0), (2, 104.0), (4, 50_000.0), (5, 49_000.0), (6, 50_003.0)], alerts=[4])
    forward = Timeline([(1, 100.0), (2, 104.0), (3, 105.0)])
    assert (forward.play, forward.wall) == ([0.0, 4.0, 5.0], [100.0, 104.0, 105.0])
    assert line.play == [0.0, 4.0, 6.0, 6.0, 9.0]
    assert (line.due(5.9), line.due(6.0), line.due(-1.0)) == (2, 4, 0)
    assert line.play_at(102.0) == 2.0 and line.play_at(1000.0) == 6.0 and line.play_at(0.0) == 0.0
    assert line.wall_at(2.0) == 102.0 and line.wall_at(9.0) == 50_003.0
    assert (line.next_alert(0), line.next_alert(3), line.previous_alert(4), line.previous_alert(3)) == (
        2,
        None,
        2,
        None,
    )
    assert Timeline([]).length_s == 0.0 and Timeline([]).wall_at(1.0) == 0.0


async def test_a_long_replay_begins_before_all_its_times_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = sweep()
    path = write(tmp_path / "a.ddtop", events)
    whole = ReplaySession(path)
    monkeypatch.setattr("ddtop.journal.read.replay.BEGIN", 10)
    for going_on in ("time", "step", "seek", "alert", "waiting"):
        monkeypatch.setattr("ddtop.journal.read.replay.SETTLED_S", 0.0 if going_on == "waiting" else 1e9)
        session = ReplaySession(path, speed=4096.0)
        assert session._partly and len(session._line) == 10
        assert session.track == whole.track and session.alerts[1] == whole.alerts[1]
        viewer = Viewer(session)
        if going_on != "time":
            session.pause()
        task = asyncio.create_task(viewer.run())
        if going_on == "step":
            session.step(len(events))
        elif going_on == "seek":
            session.seek(whole.timeline.wall[-1])
        elif going_on == "alert":
            session.next_alert()
        elif going_on == "waiting":
            async with asyncio.timeout(HANG_S):
                while session._partly:
                    await asyncio.sleep(0.005)
        if going_on in ("time", "step", "seek"):
            await viewer.until(len(events))
            assert viewer.state == fold(events), going_on
        session.close()
        await task
        assert not session._partly, going_on
        assert session.timeline.play == whole.timeline.play


async def test_damage_in_a_long_recording_is_said_beside_its_first_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddtop.journal.read.replay.CHECKED_LATER_B", 0)
    lines = tuple(ev.LogLine(text="x" * 200) for _ in range(100))
    path = write(tmp_path / "a.ddtop", [ev.LogRead(**T, unit="u", lines=lines) for _ in range(40)])
    sound = ReplaySession(path)
    async for batch in sound.events():
        assert len(batch) == 40
        sound.close()
    page = bytearray(path.read_bytes())
    page[len(page) // 2 : len(page) // 2 + 9000] = (
        b"\xa5" * 9000
    )  # among the lines, which opening it does not read
    path.write_bytes(page)
    session = ReplaySession(path)
    session.pause()
    session.step(-40)
    with pytest.raises(JournalError, match="is damaged"):
        async with asyncio.timeout(HANG_S):
            async for _ in session.events():
                pass


def test_a_batch_with_reset_folds_from_nothing() -> None:
    state = fold(sweep())
    again = fold_batch(state, Batch(enumerate(sweep()[:2], start=1), reset=True))
    assert again is not state and again.seq == 2 and len(again.cells) == 5


async def test_a_hand_on_the_timeline_is_followed_while_events_still_go_out(tmp_path: Path) -> None:
    """A drag to the left during the way to the right, in a replay that stands still: the last place asked for is shown."""
    events: list[ev.Event] = [
        ev.RttMeasured(at_s=1.7e9 + n, mono_s=float(n), host="ct200", rtt_ms=1.0) for n in range(5000)
    ]
    session = ReplaySession(write(tmp_path / "run.ddtop", events))
    session.pause()
    session.seek(1.7e9 + 4999)
    state, asked = State(), False
    async with asyncio.timeout(HANG_S):
        async for batch in session.events():
            state = fold_batch(state, batch)
            if not asked:
                asked = True
                session.seek(1.7e9 + 99)
            elif state.seq == 100:
                break
    session.close()
    assert state.seq == 100


async def test_commands_are_written_apart_from_the_loop_and_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "run.ddtop"
    with JournalWriter.open(path) as journal:
        journal.extend(sweep()[:5])
        session = LiveSession(path, viewer="v1")
        commands = [ev.Pause(id=f"k{n}", viewer="v1", at_s=1.7e9 + n) for n in range(20)]
        await asyncio.gather(*(session.send(command) for command in commands))
        assert [command.id for command in journal.pending_commands()] == [f"k{n}" for n in range(20)]
        session.close()


def samples(count: int) -> list[ev.Event]:
    """GPU samples with a line of log between them; GPU 1 is gone for good after a third, GPU 2 comes back after two."""

    def gpus(n: int) -> tuple[ev.GpuReading, ...]:
        there = [
            i
            for i in range(3)
            if not (i == 1 and n > count / 3) and not (i == 2 and count / 4 < n < count / 2)
        ]
        return tuple(
            ev.GpuReading(
                index=i, uuid=f"GPU-{i}", power_w=400.0 + n, mem_used_mib=1.0 * n, util_gpu_pct=50.0
            )
            for i in there
        )

    out: list[ev.Event] = []
    for n in range(count):
        at = {**T, "at_s": T["at_s"] + n, "mono_s": 500.0 + n}
        out.append(ev.GpuSampled(**at, gpus=gpus(n)))
        out.append(ev.LogRead(**at, unit="u", lines=(ev.LogLine(text=f"line {n}"),)))
    return out


@pytest.mark.parametrize("live", [False, True])
async def test_reading_far_ahead_in_brief_gives_the_state_that_all_events_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    for name in ("journal.fold.views", "journal.short"):
        monkeypatch.setattr(f"ddtop.{name}.GPU_HISTORY", 7)
    monkeypatch.setattr("ddtop.journal.read.replay.BATCH", 10)
    events = samples(60)
    path = write(tmp_path / "run.ddtop", events)
    if live:
        follower, state = Follower(path), State()
        while batch := follower.poll(limit=10):
            for seq, event in batch:
                apply(state, event, seq)
        assert state == fold(events)
        with JournalReader(path) as reader:
            brief, _seq = reader.batch(0, len(events))
        assert sum(g.uuid is None for _, e in brief if isinstance(e, ev.GpuSampled) for g in e.gpus) > 100
        return
    session = ReplaySession(path)
    viewer = Viewer(session)
    task = asyncio.create_task(viewer.run())
    try:
        for count in (len(events), 50, 33, 90, 1, 119):
            session.step(count - session.shown)
            await viewer.until(count)
            assert viewer.state == fold(events[:count]), count
    finally:
        session.close()
        await task
