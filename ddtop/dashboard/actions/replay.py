"""Keys of a replay: pause, step, go to a time, jump to alerts, faster and slower."""

from __future__ import annotations

import time

from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.screens.modals import AskScreen
from ddtop.dashboard.sessions import Replay, is_replay

GO_TO_HINT = "14:03 or 14:03:59, +10m or -90s from here, or 2026-11-30 14:03"


class ReplayActions:
    """The keys on a replay's time; the bindings in `keys.py` name it `replay`."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Valid in a replay only."""
        return self.app.here.replay

    @property
    def playback(self) -> Replay | None:
        """The replay on the screen, if it is one."""
        session = self.app.here.session
        return session if is_replay(session) else None

    def toggle(self) -> None:
        """`space`: pause or play."""
        if (replay := self.playback) is not None:
            if replay.playing:
                replay.pause()
            else:
                replay.play()
            self.app.touch()

    def action_step(self, step: int) -> None:
        """`[` and `]`: pause, and go one step."""
        if (replay := self.playback) is not None:
            replay.pause()
            replay.step(step)
            self.app.touch()

    def action_alert(self, step: int) -> None:
        """`{` and `}`: the previous alert or the next."""
        if (replay := self.playback) is not None:
            (replay.next_alert if step > 0 else replay.previous_alert)()
            self.app.touch()

    def action_to_alert(self, number: int) -> None:
        """`(` and `)`: the first alert, the last."""
        if (replay := self.playback) is not None:
            replay.to_alert(number)
            self.app.touch()

    def seek(self, at_s: float) -> None:
        """A moment was chosen on the timeline."""
        if (replay := self.playback) is not None:
            replay.seek(at_s)
            self.app.touch()

    def action_speed(self, step: int) -> None:
        """`<` and `>`: slower or faster."""
        if (replay := self.playback) is not None:
            (replay.faster if step > 0 else replay.slower)()
            self.app.touch()

    def action_goto(self) -> None:
        """`g`: ask for a time and go there."""
        replay = self.playback
        if replay is None:
            return

        def take(text: str) -> str | None:
            target = parse_time(text, self.app.here.now_s(), self.app.here.state.run.started_at_s)
            if target is None:
                return f"`{text}` is not a time. Examples: {GO_TO_HINT}"
            replay.seek(target)
            self.app.touch()
            return None

        self.app.push_screen(AskScreen("Go to a time", GO_TO_HINT, take))


def parse_time(text: str, here_s: float, started_s: float | None) -> float | None:
    """Wall time that `text` means, seen from `here_s`; None where it is no time.

    `14:03` is the first such time after the run's start; `+10m`, `-90s`, `+1h` count from here.
    """
    text = text.strip().lower()
    if text[:1] in "+-" and text[1:]:
        return _relative(text, here_s)
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dt%H:%M:%S"):
        try:
            return time.mktime(time.strptime(text, form))
        except ValueError:
            continue
    for form in ("%H:%M:%S", "%H:%M"):
        try:
            of_day = time.strptime(text, form)
        except ValueError:
            continue
        origin = started_s if started_s is not None else here_s
        day = time.localtime(origin)
        at = time.mktime((*day[:3], of_day.tm_hour, of_day.tm_min, of_day.tm_sec, 0, 0, -1))
        return at if at >= origin - 1 else at + 86400
    return None


def _relative(text: str, here_s: float) -> float | None:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    sign = -1 if text[0] == "-" else 1
    unit = units.get(text[-1])
    number = text[1:-1] if unit is not None else text[1:]
    try:
        return here_s + sign * float(number) * (unit or 1)
    except ValueError:
        return None
