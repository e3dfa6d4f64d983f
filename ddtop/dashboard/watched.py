"""One host on the screen: its session, the state folded from it, its log window and the cursor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ddtop.dashboard.draw.grid import Cursor, Shape, cell_at, clamp, find, in_sight
from ddtop.dashboard.draw.metrics import TOK_S, Metric, metric_of
from ddtop.dashboard.log_window import LogBuffer
from ddtop.dashboard.panels.header import Recording
from ddtop.dashboard.panels.timeline.strip import Run, Strip, expected, strip
from ddtop.dashboard.sessions import is_replay
from ddtop.events import (
    CellMeasured,
    CellsPlanned,
    CellStarted,
    CellStateSet,
    RunEnded,
    RunStarted,
    SearchStep,
    StartProvenance,
    StepsPlanned,
)
from ddtop.journal.act.seat import Seat, orphaned
from ddtop.journal.fold.apply import apply
from ddtop.journal.fold.state import State
from ddtop.journal.fold.views import AlertView, CellView
from ddtop.journal.read.eta import Eta, sweep_eta
from ddtop.journal.read.select import advised_alert, busy, questions, running_cell, tps
from ddtop.journal.results.field import Matrix, MatrixCell
from ddtop.journal.results.matrix import matrix, progress_pct
from ddtop.journal.results.per_gpu import GpuPoint, per_gpu
from ddtop.journal.scale import horizon

if TYPE_CHECKING:
    from ddtop.journal.read.session import Batch, Session


CELL_EVENTS = (
    CellsPlanned,
    CellStarted,
    SearchStep,
    CellMeasured,
    CellStateSet,
    RunStarted,
    StartProvenance,
)
"""Events that can change the matrix."""


LEAST_AHEAD_S = 30.0
"""What the timeline shows of the time to come, at least, while only a limit of it is known; else as much as of the past."""


RESULT_EVENTS = (CellsPlanned, SearchStep, CellMeasured, CellStateSet, RunStarted, StartProvenance)
"""Events that can change a plot: progress alone does not."""


class Watched:
    """What is known of one session. Changed by `take` and by the person's cursor alone."""

    def __init__(self, session: Session, number: int | None = None, *, starts: bool = False) -> None:
        """`starts`: a runner can be started from here for a recording that has none."""
        self.session = session
        self.number = number
        self.starts = starts
        self.state = State()
        self.log = LogBuffer()
        self.metric: Metric = TOK_S
        self.baseline: str | None = None
        """Chosen by the person; None: the plan's."""
        self.shape = Shape()
        self.proposed: StepsPlanned | None = None
        """The steps proposed last, until the run says that they are over."""
        self.chosen_alert: str | None = None
        """The alert that the person turned to; None: the one to be answered first."""
        self.drained = False
        """True once the session has ended and everything of it is here."""
        self.caught_up = False
        """True once all that was recorded before is here."""
        self.looked_s: float | None = None
        """When this person last looked at this run before; None where that is not known, or it was the run's begin."""
        self.error: str | None = None
        """Why the session could not be read on."""
        self._tp: int | None = None
        self._cursor: Cursor | None = None
        self.cells_version = 0
        """Grows with every event that can change the matrix."""
        self._matrices: dict[str, tuple[tuple[object, ...], Matrix]] = {}
        self.results_version = 0
        """Grows with every event that can change a plot."""
        self._per_gpu: tuple[int, list[GpuPoint]] | None = None
        self._eta: tuple[tuple[object, ...], Eta] | None = None
        self._horizon_s: float | None = None
        self._strip: tuple[tuple[object, ...], Strip] | None = None

    @property
    def replay(self) -> bool:
        return is_replay(self.session)

    @property
    def seat(self) -> Seat:
        """Whether a runner hears what is asked here."""
        return Seat(held=self.session.live, replay=self.replay, starts=self.starts)

    @property
    def orphaned(self) -> bool:
        """True for a sweep that was begun and not ended, and whose runner is gone: nothing goes on."""
        return orphaned(self.state, self.seat)

    @property
    def alert(self) -> AlertView | None:
        """The alert that bar and keys are about: the one turned to while it is open, else the first that asks."""
        chosen = self.state.alerts.get(self.chosen_alert or "")
        return chosen if chosen is not None and chosen.open else advised_alert(self.state)

    def turn_alert(self, step: int) -> AlertView | None:
        """Turn to the next (or previous) open alert; None where none is open."""
        known = questions(self.state)
        if not known:
            return None
        shown = self.alert
        at = known.index(shown) if shown in known else 0
        turned = known[(at + step) % len(known)]
        self.chosen_alert = turned.id
        return turned

    @property
    def name(self) -> str:
        return self.state.host.name or self.session.path.stem

    def take(self, batch: Batch) -> None:
        """Fold a batch of events; one marked `reset` begins anew."""
        if batch.reset:
            self.state = State()
            self.log.clear()
            self.proposed = None
            self.cells_version += 1
            self.results_version += 1
        for event, seq in zip(batch, batch.seqs, strict=True):
            apply(self.state, event, seq)
            self.log.take(event)
            if isinstance(event, StepsPlanned):
                self.proposed = event if event.steps else None
            elif isinstance(event, RunStarted | RunEnded):
                self.proposed = None
            if isinstance(event, CELL_EVENTS):
                self.cells_version += 1
            if isinstance(event, RESULT_EVENTS):
                self.results_version += 1

    def now_s(self) -> float:
        """Wall time as this session sees it: now where it is live, the replay's own time elsewhere."""
        if is_replay(self.session):
            return self.session.position
        if not self.session.live and self.state.run.ended is not None:
            return self.state.at_s
        return time.time()

    def recording(self) -> Recording:
        """What the header says about the file."""
        session = self.session
        if is_replay(session):
            return Recording(
                live=False,
                speed=session.speed,
                playing=session.playing,
                position_s=self.now_s(),
                number=self.number,
            )
        held = session.live
        return Recording(live=True, held=held, size_b=self._size_b(), number=self.number)

    def leaving_lines(self) -> list[str]:
        """What to print about this host once the screen is gone; nothing for a replay."""
        run, path = self.state.run, self.session.path
        if self.replay:
            return []
        name = run.run_id or path.stem
        if run.ended is not None or not self.session.live:
            how = run.ended.outcome if run.ended is not None else "no runner"
            return [f"{self.name}: the run {name} has ended ({how}).", f"  results:   ddtop report {path}"]
        return [
            f"{self.name}: the run {name} goes on without this dashboard.",
            f"  come back: ddtop connect {self.name}",
            f"  stop it:   ddtop stop {name}",
        ]

    def _size_b(self) -> int | None:
        total = 0
        for suffix in ("", "-wal"):
            try:
                total += self.session.path.with_name(self.session.path.name + suffix).stat().st_size
            except OSError:
                if not suffix:
                    return None
        return total

    # ------------------------------------------------------------------------------------ the matrix

    @property
    def tp(self) -> int | None:
        """The TP shown: the person's choice, else that of the cell or start at work, else the first."""
        if self._tp is not None:
            return self._tp
        running = running_cell(self.state)
        if running is not None:
            return running.spec.tp
        restarting = self.state.restarting
        if restarting is not None and restarting.tp in tps(self.state):
            return restarting.tp
        return None

    def turn_tp(self, step: int) -> None:
        """Show the next (or previous) TP of the plan."""
        known = tps(self.state)
        if not known:
            return
        shown = self.tp if self.tp in known else known[0]
        self._tp = known[(known.index(shown) + step) % len(known)] if shown is not None else known[0]
        self._cursor = None

    def matrix(self) -> Matrix:
        """The matrix of the TP, metric and baseline chosen; made anew where a cell changed or the choice did."""
        return self._made("first", self.metric)

    def second(self) -> Matrix | None:
        """The matrix of the metric in the second line of each row; None where that shows no other metric."""
        if self.shape.second in ("", "interval"):
            return None
        return self._made("second", metric_of(self.shape.second))

    def _made(self, name: str, metric: Metric) -> Matrix:
        key = (self.cells_version, self.tp, metric.key, self.baseline)
        if (kept := self._matrices.get(name)) is None or kept[0] != key:
            made = matrix(
                self.state, self.tp, metric.key, self.baseline, lower_is_better=metric.lower_is_better
            )
            self._matrices[name] = kept = (key, made)
        return kept[1]

    def per_gpu(self) -> list[GpuPoint]:
        """The results per GPU and per user; made anew where a cell changed."""
        if self._per_gpu is None or self._per_gpu[0] != self.cells_version:
            self._per_gpu = (self.cells_version, per_gpu(self.state))
        return self._per_gpu[1]

    # ---------------------------------------------------------------------------------- the timeline

    def eta(self) -> Eta:
        """How long the rest takes, as of this second."""
        key = (self.cells_version, self.state.track.version, int(self.now_s()))
        if self._eta is None or self._eta[0] != key:
            self._eta = (key, sweep_eta(self.state, self.now_s()))
        return self._eta[1]

    @property
    def has_line(self) -> bool:
        """Whether the run has a timeline: a host that is only watched has none."""
        if is_replay(self.session):
            return bool(self.session.track.lanes["cell"] or self.session.track.lanes["start"])
        return bool(self.state.plan_cells)

    def run_line(self) -> Run:
        """The run for the timeline: of a replay the whole recording, else up to now and what is expected."""
        state, now_s = self.state, self.now_s()
        if is_replay(self.session):
            track = self.session.track
            return Run(track, now_s, track.end_s, True, self.session.alerts)
        track, raised = state.track, (len(state.alerts), len(state.alerts))
        if track.ended or track.begin_s is None or not self.session.live:
            self._horizon_s = None
            return Run(track, track.end_s, track.end_s, alerts=raised)
        eta = self.eta()
        finish_s = eta.ends_by(now_s) if eta.cells else None
        wanted_s = finish_s or now_s
        if eta.total_s is None:  # a mere limit is far off, and would leave the past no room
            wanted_s = min(wanted_s, now_s + max(LEAST_AHEAD_S, now_s - track.begin_s))
        self._horizon_s = horizon(self._horizon_s, wanted_s, track.begin_s)
        ahead = expected(state, eta.cell_s, eta.restart_s, eta.restarts)
        return Run(track, now_s, self._horizon_s, False, raised, ahead, finish_s)

    def strip(self, width: int, height: int) -> Strip:
        """The timeline in so many columns and rows; drawn anew where something shows in it."""
        run = self.run_line()
        column_s = max(0.1, (run.end_s - (run.track.begin_s or 0.0)) / max(1, width) / 2)
        minute = int((run.finish_s or 0.0) / 60)
        key = (
            id(run.track),
            run.track.version,
            width,
            height,
            int(run.now_s / column_s),
            run.end_s,
            run.alerts,
            minute,
        )
        if self._strip is None or self._strip[0] != key:
            self._strip = (key, strip(run, width, height))
        return self._strip[1]

    def cursor(self, shown: Matrix) -> Cursor:
        """Where the cursor stands: where the person put it, else at the cell at work."""
        if self._cursor is not None:
            return clamp(shown, self._cursor)
        running = running_cell(self.state)
        found = find(shown, running.id) if running is not None else None
        if found is not None:
            return found
        restart = self.state.restart
        asked = restart is not None and (restart.outcome == "running" or bool(self.state.open_alerts))
        for number, row in enumerate(shown.rows):
            if restart is not None and asked and row.config == restart.config:
                return Cursor(number, 0)
        return next(
            (
                Cursor(n, 0)
                for n, row in enumerate(shown.rows)
                if (cell := row.cells[0]) and cell.rank == "best"
            ),
            Cursor(0, 0),
        )

    @property
    def folded(self) -> int:
        """Rows and columns of the matrix that are folded away."""
        sight = in_sight(shown := self.matrix(), self.cursor(shown), self.shape)
        return sight.folded_rows + sight.folded_columns

    def put_cursor(self, cursor: Cursor) -> None:
        """The person moved the cursor."""
        self._cursor = cursor

    def select_cell(self, cell_id: str) -> None:
        """Put the cursor on a cell, turning to its TP."""
        cell = self.state.cells.get(cell_id)
        if cell is None:
            return
        self._tp = cell.spec.tp
        self._cursor = find(self.matrix(), cell_id)

    @property
    def progress(self) -> str:
        """How far the cell in flight is; empty where it has not said."""
        running = running_cell(self.state)
        done = progress_pct(running) if running is not None else None
        return f"{done:.0f}%" if done is not None else ""

    @property
    def busy(self) -> str | None:
        """Name of the configuration at work."""
        return busy(self.state)

    def selected(self) -> tuple[str | None, MatrixCell | None]:
        """(configuration, field) under the cursor; the field is None on a configuration's name."""
        shown = self.matrix()
        cursor = self.cursor(shown)
        if not shown.rows:
            return None, None
        return shown.rows[cursor.row].config, cell_at(shown, cursor)

    def selected_cell(self) -> CellView | None:
        """The cell under the cursor: of several repeats the one that is not done, else the last."""
        _, field = self.selected()
        if field is None:
            return None
        cells = [self.state.cells[cell_id] for cell_id in field.ids if cell_id in self.state.cells]
        for cell in cells:
            if cell.state != "done":
                return cell
        return cells[-1] if cells else None

    def cell_to_open(self) -> CellView | None:
        """The cell under the cursor that has most to show: one that runs, else one that has gone wrong, else the last result."""
        _, field = self.selected()
        cells = [
            self.state.cells[i] for i in (field.ids if field is not None else ()) if i in self.state.cells
        ]
        for wanted in (("running",), ("failed", "broken", "interrupted")):
            if found := next((c for c in cells if c.state in wanted), None):
                return found
        done = [c for c in cells if c.state == "done"]
        plain = [c for c in done if not c.spec.sentinel] or done
        return plain[-1] if plain else self.selected_cell()
