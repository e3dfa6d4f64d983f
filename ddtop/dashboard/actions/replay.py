"""Keys of a replay: pause, step, go to a time, jump to alerts, faster and slower."""

from __future__ import annotations

from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.panels.timeline.typed import GO_TO_HINT, parse_time
from ddtop.dashboard.screens.modals import AskScreen
from ddtop.dashboard.sessions import Replay, is_replay


class ReplayActions:
    """The keys on a replay's time; the bindings in `keys.py` name it `replay`."""

    def __init__(self, app: Dashboard) -> None:
        self.app = app

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which of the keys do something now: these are shown."""
        return self.why_not(action, parameters) is None

    def why_not(self, action: str, parameters: tuple[object, ...] = ()) -> str | None:
        """Why the key of `action` does nothing now, in a sentence; None where it acts."""
        replay = self.playback
        if replay is None:
            return "This is a key of a replay, and this is no replay: ddtop replay RUN plays a recording."
        step = next((p for p in parameters if isinstance(p, int)), 0)
        if action in ("alert", "to_alert") and not replay.alerts[1]:
            return "This recording has no alert."
        if action == "to_alert" and replay.at_alert == (1 if step == 0 else replay.alerts[1]):
            return f"The {'first' if step == 0 else 'last'} alert is shown already."
        if action == "alert" and not replay.can("alert", step):
            when = "comes after" if step > 0 else "came before"
            return f"No alert {when} this moment: ( goes to the first, ) to the last."
        if action == "step" and not replay.can("step", step):
            return f"The recording {'ends' if step > 0 else 'begins'} here."
        if action == "speed" and not replay.can("speed", step):
            return f"It goes no {'faster' if step > 0 else 'slower'} than {replay.speed:g}×."
        return None

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
