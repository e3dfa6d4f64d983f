"""What was at work when, in few words: starts, cells, staging, alerts, lost links, pauses, reboots, absent runners.

Kept by the fold beside the state, so that a whole run can be drawn as one line without looking at its events again. It
stays small however long a run is: of each lane LANE_MOST stretches are kept, and what lies closest together is joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ddtop import events as ev

Lane = Literal["start", "cell", "stage", "alert", "lost", "paused", "absent", "reboot"]
"""`absent`: no runner wrote the recording. A reboot has no length."""
LANES: tuple[Lane, ...] = get_args(Lane)

LANE_MOST = 2000
"""Stretches kept of each lane: ten for each column of a wide terminal."""

_WORST = ("broken", "failed", "interrupted", "suspect", "running", "open", "done", "ready", "")
"""Which state two joined stretches have, the worst first."""


@dataclass(slots=True)
class Stretch:
    """From when to when something lasted. Wall time."""

    begin_s: float
    end_s: float | None = None
    """None while it lasts."""
    state: str = ""
    """Of a cell: running, done, suspect (done, with doubts), failed, broken, interrupted. Of a start: running, ready,
    failed, interrupted. Of staging: running, done, failed. Of an alert: open or done."""
    what: str = ""
    """Cell id, `b15 tp1`, model path, alert id; several joined have none."""
    count: int = 1
    """How many were joined."""


@dataclass(slots=True)
class Track:
    """The lanes of a run, each in the order of time."""

    lanes: dict[Lane, list[Stretch]] = field(default_factory=lambda: {lane: [] for lane in LANES})
    begin_s: float | None = None
    """When the run began."""
    end_s: float = 0.0
    """The latest moment seen: a wall clock that steps back stands still here until it has caught up."""
    ended: bool = False
    version: int = 0
    """Grows with every change."""
    unwatched: Stretch | None = None
    """The last time in which no dashboard was open. None: there was always one, or this was not recorded."""
    _open: dict[tuple[Lane, str], Stretch] = field(default_factory=dict)
    _last: dict[str, Stretch] = field(default_factory=dict)
    """Cell id → its last stretch, whose state a later judgement changes."""
    _suspect: set[str] = field(default_factory=set)

    def note(self, event: ev.Event, before_s: float) -> None:
        """Take in an event. `before_s`: wall time of the event before it, of any kind; 0 where there is none."""
        handler = HANDLERS.get(type(event))
        if handler is not None:
            self.end_s = at_s = max(self.end_s, event.at_s)
            self.version += 1
            handler(self, event, at_s, before_s)

    def begin(self, lane: Lane, what: str, at_s: float, state: str = "running", key: str = "") -> Stretch:
        """Begin a stretch; one of the same key that still lasts goes on. `what` is its key where none is given."""
        known = self._open.get((lane, key or what))
        if known is not None:
            return known
        stretch = Stretch(at_s, None, state, what)
        self._open[lane, key or what] = stretch
        self._add(lane, stretch)
        return stretch

    def end(self, lane: Lane, key: str, at_s: float, state: str = "") -> Stretch | None:
        """End a stretch, if one lasts."""
        stretch = self._open.pop((lane, key), None)
        if stretch is not None:
            stretch.end_s, stretch.state = max(stretch.begin_s, at_s), state
        return stretch

    def end_all(self, at_s: float, state: str, *, keep: tuple[Lane, ...] = ()) -> None:
        """End whatever lasts, but for some lanes."""
        for lane, key in list(self._open):
            if lane not in keep:
                work = lane in ("cell", "start", "stage")
                self.end(lane, key, at_s, state if work else "done")

    def span(self, lane: Lane, begin_s: float, end_s: float) -> None:
        """A stretch that is over, or a moment."""
        self._add(lane, Stretch(begin_s, max(begin_s, end_s)))

    def _add(self, lane: Lane, stretch: Stretch) -> None:
        self.lanes[lane].append(stretch)
        if len(self.lanes[lane]) > LANE_MOST:
            self.lanes[lane] = _joined(self.lanes[lane], LANE_MOST // 2)
            self._last = {c: s for c, s in self._last.items() if s.what}


def _joined(lane: list[Stretch], most: int) -> list[Stretch]:
    """At most `most` stretches, or what is open: the closest ones become one, with the worst state of all."""
    apart_s = max(0.001, (lane[-1].begin_s - lane[0].begin_s) / (2 * most))
    while True:
        out: list[Stretch] = []
        for one in lane:
            before = out[-1] if out else None
            if (
                before is not None
                and before.end_s is not None
                and one.end_s is not None
                and one.begin_s - before.end_s <= apart_s
                and one.end_s - before.begin_s <= 2 * apart_s
            ):
                before.end_s = max(before.end_s, one.end_s)
                before.state = min(before.state, one.state, key=_rank)
                before.count += one.count
                before.what = one.what = ""
            else:
                out.append(one)
        if len(out) <= most or sum(one.end_s is None for one in out) > most // 2:
            return out
        lane, apart_s = out, 2 * apart_s


def _rank(state: str) -> int:
    return _WORST.index(state) if state in _WORST else len(_WORST)


# ------------------------------------------------------------------------------------------------ events


def _run_started(track: Track, event: ev.RunStarted, at_s: float, before_s: float) -> None:
    if track.begin_s is None:
        track.begin_s = at_s
        track.unwatched = Stretch(at_s)
    else:
        # A wall clock that stepped back puts no absence before the one that is known.
        since = next((s.end_s for s in track.lanes["absent"][-1:] if s.end_s is not None), track.begin_s)
        stopped = min(at_s, max(before_s, since))
        track.end_all(stopped, "interrupted", keep=("alert",))
        track.span("absent", stopped, at_s)
        if track.unwatched is None or track.unwatched.end_s is not None:
            track.unwatched = Stretch(stopped)  # viewers belonged to the runner that is gone
    track.ended = False
    if event.attended and track.unwatched is not None and track.unwatched.end_s is None:
        track.unwatched.end_s = at_s


def _run_ended(track: Track, _event: ev.RunEnded, at_s: float, _before_s: float) -> None:
    track.end_all(at_s, "interrupted", keep=("alert",))
    track.ended = True


def _restart_started(track: Track, event: ev.RestartStarted, at_s: float, _before_s: float) -> None:
    for lane, key in list(track._open):
        if lane == "start":  # its end was not recorded: another start took its place
            track.end("start", key, at_s, "interrupted")
    track.begin("start", f"{event.config} tp{event.tp}", at_s, key=event.attempt_id)


def _restart_ready(track: Track, event: ev.RestartReady, at_s: float, _before_s: float) -> None:
    track.end("start", event.attempt_id, at_s, "ready")


def _restart_failed(track: Track, event: ev.RestartFailed, at_s: float, _before_s: float) -> None:
    track.end("start", event.attempt_id, at_s, "failed")


def _cell_started(track: Track, event: ev.CellStarted, at_s: float, _before_s: float) -> None:
    track._last[event.cell_id] = track.begin("cell", event.cell_id, at_s)
    track._suspect.discard(event.cell_id)


def _cell_measured(track: Track, event: ev.CellMeasured, _at_s: float, _before_s: float) -> None:
    if event.validity == "VALID":
        track._suspect.discard(event.cell_id)
    else:
        track._suspect.add(event.cell_id)
    _judge(track, event.cell_id, "done" if event.validity == "VALID" else "suspect")


def _judge(track: Track, cell_id: str, state: str) -> None:
    """A doubt that comes, or goes, after the cell was done."""
    last = track._last.get(cell_id)
    if last is not None and last.end_s is not None and last.state in ("done", "suspect"):
        last.state = state


def _cell_state(track: Track, event: ev.CellStateSet, at_s: float, _before_s: float) -> None:
    if event.state == "running":
        return
    state: str = event.state
    if state == "done" and event.cell_id in track._suspect:
        state = "suspect"
    if track.end(
        "cell", event.cell_id, at_s, state if state not in ("planned", "skipped") else "interrupted"
    ):
        return
    last = track._last.get(event.cell_id)
    if last is not None and last.end_s is not None and state not in ("planned", "skipped"):
        last.state = state  # collected after a loss, or marked by a person


def _stage(track: Track, event: ev.StageProgress, at_s: float, _before_s: float) -> None:
    if event.state in ("done", "failed"):
        track.end("stage", event.target, at_s, event.state)
    else:
        track.begin("stage", event.target, at_s)


def _alert(track: Track, event: ev.AlertRaised, at_s: float, _before_s: float) -> None:
    track.begin("alert", event.alert_id, at_s, "open")


def _alert_resolved(track: Track, event: ev.AlertResolved, at_s: float, _before_s: float) -> None:
    track.end("alert", event.alert_id, at_s, "done")


def _lost(track: Track, _event: ev.HostLost, at_s: float, _before_s: float) -> None:
    track.begin("lost", "link", at_s, "")


def _connected(track: Track, _event: ev.HostConnected, at_s: float, _before_s: float) -> None:
    track.end("lost", "link", at_s)


def _rebooted(track: Track, _event: ev.HostRebooted, at_s: float, _before_s: float) -> None:
    track.span("reboot", at_s, at_s)


def _paused(track: Track, _event: ev.SweepPaused, at_s: float, _before_s: float) -> None:
    track.begin("paused", "sweep", at_s, "")


def _resumed(track: Track, _event: ev.SweepResumed, at_s: float, _before_s: float) -> None:
    track.end("paused", "sweep", at_s)


def _viewers(track: Track, event: ev.ViewersSeen, at_s: float, _before_s: float) -> None:
    lasts = track.unwatched is not None and track.unwatched.end_s is None
    if event.count == 0 and not lasts:
        track.unwatched = Stretch(at_s)
    elif event.count and track.unwatched is not None and lasts:
        track.unwatched.end_s = at_s


HANDLERS: Mapping[type[ev.Event], Callable[[Track, Any, float, float], None]] = {
    ev.RunStarted: _run_started,
    ev.RunEnded: _run_ended,
    ev.RestartStarted: _restart_started,
    ev.RestartReady: _restart_ready,
    ev.RestartFailed: _restart_failed,
    ev.CellStarted: _cell_started,
    ev.CellMeasured: _cell_measured,
    ev.CellStateSet: _cell_state,
    ev.StageProgress: _stage,
    ev.AlertRaised: _alert,
    ev.AlertResolved: _alert_resolved,
    ev.HostLost: _lost,
    ev.HostConnected: _connected,
    ev.HostRebooted: _rebooted,
    ev.SweepPaused: _paused,
    ev.SweepResumed: _resumed,
    ev.ViewersSeen: _viewers,
}
"""The kinds of event that change a track."""
