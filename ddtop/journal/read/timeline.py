"""The time of a replay: when each event of a recording is due, in seconds of playing. Pure.

Long silences (a runner that was dead for hours) are shortened, and a wall clock that stepped back stands
still until it has caught up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice
from operator import gt, sub

LONG_GAP_S = 10.0
SHORT_GAP_S = 2.0
"""A silence longer than the first is played as one of the second."""


class Timeline:
    """Wall times of the events of a recording, and their places in playing time. Index 0 is the first event."""

    def __init__(self, times: Sequence[tuple[int, float]], alerts: Sequence[int] = ()) -> None:
        """`times`: (seq, at_s) of every event, in order. `alerts`: seqs of those that raise an alert; one that is raised again,
        because more is known, is no other alert."""
        # A day has 400,000 events: each list in one go.
        self.seqs: list[int] = [seq for seq, _at in times]
        walls = [at_s for _seq, at_s in times]
        back = any(map(gt, walls, islice(walls, 1, None)))
        self.wall: list[float] = list(accumulate(walls, max)) if back else walls
        gaps = list(map(sub, islice(self.wall, 1, None), self.wall))
        if gaps and max(gaps) > LONG_GAP_S:
            gaps = [SHORT_GAP_S if gap > LONG_GAP_S else gap for gap in gaps]
        self.play: list[float] = list(accumulate(gaps, initial=0.0)) if self.wall else []
        self.alerts: list[int] = [bisect_left(self.seqs, seq) for seq in alerts]

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def length_s(self) -> float:
        """Playing time of the whole."""
        return self.play[-1] if self.play else 0.0

    def due(self, play_s: float) -> int:
        """How many events are due at playing time `play_s`."""
        return bisect_right(self.play, play_s)

    def play_at(self, at_s: float) -> float:
        """Playing time of wall time `at_s`: that of the last event not after it."""
        index = bisect_right(self.wall, at_s) - 1
        if index < 0:
            return 0.0
        last = index + 1 >= len(self)
        room = 0.0 if last else self.play[index + 1] - self.play[index]
        return self.play[index] + min(max(0.0, at_s - self.wall[index]), room)

    def wall_at(self, play_s: float) -> float:
        """Wall time at playing time `play_s`; 0 where there are no events."""
        index = self.due(play_s) - 1
        if index < 0:
            return self.wall[0] if self.wall else 0.0
        return self.wall[index] + (play_s - self.play[index] if index + 1 < len(self) else 0.0)

    def alerts_passed(self, count: int) -> int:
        """How many alerts are among the first `count` events."""
        return bisect_left(self.alerts, count)

    def next_alert(self, count: int) -> int | None:
        """Index of the first alert among the events after the first `count`."""
        return next((i for i in self.alerts if i >= count), None)

    def previous_alert(self, count: int) -> int | None:
        """Index of the last alert before the event that was shown last."""
        return next((i for i in reversed(self.alerts) if i < count - 1), None)
