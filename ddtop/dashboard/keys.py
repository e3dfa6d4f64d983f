"""Every key of the dashboard, once. Each binding has an id, so that `[keys]` of the config can move it.

The bindings in `APP` and `REPLAY` act everywhere. Their actions name the object that does them and its method:
`sweep.skip` is `SweepActions.action_skip` in `actions/sweep.py`, `view.…` is in `actions/view.py`, `replay.…` in
`actions/replay.py`. So this file and one of those three tell what a key does, down to the command it sends.
Bindings of panes and lists stand with their widgets. `GROUPS` orders all of them for the help screen.
"""

from __future__ import annotations

from textual.binding import Binding


def bind(key: str, action: str, description: str, identity: str, *, show: bool = True) -> Binding:
    """A binding with an id."""
    return Binding(key, action, description, id=identity, show=show)


APP: list[Binding] = [
    bind("question_mark", "view.help", "Help: the available keys", "help"),
    bind("q", "view.leave", "Leave the dashboard; the sweep goes on", "leave"),
    bind("S", "sweep.stop_run", "Stop the run", "stop-run"),
    bind("space", "sweep.pause", "Pause the sweep, or go on", "pause"),
    bind("r", "sweep.again", "Retry, resume or go on: what the alert names", "again"),
    bind("a", "view.alert", "The open alert: evidence and choices; again: the next one", "alert"),
    bind("s", "sweep.restage", "Re-stage the model", "restage"),
    bind("R", "sweep.restart_service", "Restart the service", "restart-service"),
    bind("x", "sweep.skip", "Skip the cell or configuration", "skip"),
    bind("t", "sweep.try_again", "Retry the cell or configuration under the cursor", "try-again"),
    bind("b", "sweep.broken", "Mark as broken, or remove the mark", "broken"),
    bind("w", "sweep.wait", "Give a stalled start more time", "wait"),
    bind("u", "sweep.undo", "Undo the last skip, mark or retry", "undo"),
    bind("l", "view.log", "The whole log", "log"),
    bind("p", "view.previous_log", "Log of the previous start, and back", "previous-log"),
    bind("slash", "view.filter", "Filter the log", "filter"),
    bind("n", "view.hit(1)", "Next hit", "next-hit"),
    bind("N", "view.hit(-1)", "Previous hit", "previous-hit"),
    bind("v", "view.results", "Results and plots", "results"),
    bind("G", "view.groups", "Results by group of prompts", "groups"),
    bind("B", "view.baseline", "Compare against this configuration", "baseline"),
    bind("m", "view.metric", "Show another metric", "metric"),
    bind("M", "view.second", "Second line: interval, acceptance length, J/token, …", "second-line"),
    bind("c", "view.axis(1)", "Columns: by load, context, workload, output tokens, or all", "axis"),
    bind("C", "view.swap", "Swap rows and columns", "swap"),
    bind("full_stop", "view.slice(1)", "Next slice: what the columns hold still", "next-slice"),
    bind("comma", "view.slice(-1)", "Previous slice", "previous-slice"),
    bind("z", "view.unfold", "Show or hide what is skipped throughout", "unfold"),
    bind("plus", "view.turn_tp(1)", "Next TP", "next-tp"),
    bind("minus", "view.turn_tp(-1)", "Previous TP", "previous-tp"),
    bind("h", "view.hosts", "Hosts", "hosts"),
    bind("H", "view.history", "History: what happened so far", "history"),
    bind("W", "view.changes", "What changed since you last looked", "changes"),
    bind("P", "view.plan", "Plan: what ran, what is left", "plan"),
    bind("T", "view.theme", "Next theme", "theme"),
    bind("y", "view.copy", "Copy what is on the screen", "copy"),
    bind("f12", "view.screenshot_svg", "Screenshot as SVG", "screenshot"),
    *[
        bind(str(n), f"view.number({n})", f"Host or pane {n}", f"number-{n}", show=False)
        for n in range(1, 10)
    ],
]

REPLAY: list[Binding] = [
    bind("left_square_bracket", "replay.step(-1)", "Step back", "replay-back"),
    bind("right_square_bracket", "replay.step(1)", "Step forward", "replay-step"),
    bind("left_curly_bracket", "replay.alert(-1)", "Previous alert", "replay-previous-alert"),
    bind("right_curly_bracket", "replay.alert(1)", "Next alert", "replay-next-alert"),
    bind("left_parenthesis", "replay.to_alert(0)", "First alert", "replay-first-alert"),
    bind("right_parenthesis", "replay.to_alert(-1)", "Last alert", "replay-last-alert"),
    bind("less_than_sign", "replay.speed(-1)", "Slower", "replay-slower"),
    bind("greater_than_sign", "replay.speed(1)", "Faster", "replay-faster"),
    bind("g", "replay.goto", "Go to a time", "replay-goto"),
]

MOVE: list[Binding] = [
    bind("up,k", "move(-1, 0)", "Up", "up"),
    bind("down,j", "move(1, 0)", "Down", "down"),
    bind("left", "move(0, -1)", "Left", "left"),
    bind("right", "move(0, 1)", "Right", "right"),
    bind("enter", "open", "Open", "open"),
]

LOG: list[Binding] = [
    bind("j", "scroll_down", "Down", "log-down", show=False),
    bind("k", "scroll_up", "Up", "log-up", show=False),
    bind("e", "error(1)", "Next error", "next-error"),
    bind("E", "error(-1)", "Previous error", "previous-error"),
    bind("f", "follow", "Follow the end", "follow"),
]

STRIP: list[Binding] = [
    bind("left", "turn(-1)", "Earlier on the timeline", "timeline-left", show=False),
    bind("right", "turn(1)", "Later on the timeline", "timeline-right", show=False),
    bind("home", "turn(-1000000)", "Begin of the timeline", "timeline-begin", show=False),
    bind("end", "turn(1000000)", "End of the timeline", "timeline-end", show=False),
]
"""In a replay, on the timeline."""

PLOT: list[Binding] = [
    bind("d", "turn_plot('what', 1)", "Next plot", "plot-next"),
    bind("D", "turn_plot('what', -1)", "Previous plot", "plot-previous"),
    bind("X", "turn_plot('x', 1)", "Next x axis", "plot-x"),
    bind("ctrl+x", "turn_plot('x', -1)", "Previous x axis", "plot-x-back", show=False),
    bind("Y", "turn_plot('y', 1)", "Next y axis", "plot-y"),
    bind("ctrl+y", "turn_plot('y', -1)", "Previous y axis", "plot-y-back", show=False),
    bind("i", "turn_plot('by', 1)", "Split the points by the next name", "plot-by"),
    bind("I", "turn_plot('by', -1)", "Split the points by the name before", "plot-by-back", show=False),
    bind("F", "save_plot", "Save the plot as SVG", "plot-save"),
]
"""On the results screen, where a plot is in sight. No key of them means something else on another screen."""

BACK = bind("escape", "back", "Back", "back")

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("When something is wrong", ("alert", "again", "restage", "restart-service", "wait", "undo")),
    ("The sweep", ("pause", "skip", "try-again", "broken", "stop-run")),
    (
        "Views",
        ("open", "results", "groups", "plan", "changes", "history", "hosts"),
    ),
    (
        "The matrix",
        (
            *("baseline", "metric", "second-line", "axis", "next-slice", "previous-slice"),
            *("swap", "unfold", "next-tp", "previous-tp"),
        ),
    ),
    (
        "The log",
        (
            "log",
            "filter",
            "next-hit",
            "previous-hit",
            "previous-log",
            "next-error",
            "previous-error",
            "follow",
        ),
    ),
    ("Plots", ("plot-next", "plot-previous", "plot-x", "plot-y", "plot-by", "plot-save")),
    (
        "Replay",
        (
            "replay-back",
            "replay-step",
            "replay-previous-alert",
            "replay-next-alert",
            "replay-first-alert",
            "replay-last-alert",
            "replay-slower",
            "replay-faster",
            "replay-goto",
        ),
    ),
    ("The screen", ("help", "leave", "back", "theme", "copy", "screenshot")),
)
"""Headings of the help screen and the ids of the bindings under each."""

SHORT = {
    "again": "Retry",
    "alert": "Alert",
    "restage": "Re-stage",
    "pause": "Pause",
    "filter": "Filter",
    "help": "Help",
    "log": "Log",
    "results": "Results",
    "groups": "Groups",
    "plan": "Plan",
    "hosts": "Hosts",
    "changes": "What changed",
    "history": "History",
    "skip": "Skip",
    "try-again": "Retry cell",
    "broken": "Mark broken",
    "undo": "Undo",
    "leave": "Leave",
    "back": "Back",
    "open": "Open",
    "metric": "Metric",
    "baseline": "Baseline",
    "second-line": "2nd line",
    "axis": "Columns",
    "swap": "Swap",
    "next-slice": "Slice",
    "unfold": "Skipped",
    "previous-log": "Previous start",
    "next-hit": "Next hit",
    "next-error": "Next error",
    "follow": "Follow",
    "copy": "Copy",
    "theme": "Theme",
    "replay-last-alert": "Last alert",
    "next-tp": "TP",
    "replay-back": "Back",
    "replay-step": "Step",
    "replay-next-alert": "Next alert",
    "replay-slower": "Slower",
    "replay-faster": "Faster",
    "replay-goto": "Go to",
    "stop-run": "Stop",
    "restart-service": "Restart",
    "sort": "Sort",
    "plot-next": "Plot",
    "plot-x": "x axis",
    "plot-y": "y axis",
    "plot-by": "Split",
    "plot-save": "Save",
    "sort-reverse": "Reverse",
    "log-level": "Level",
    "log-unit": "Unit",
    "next-cell": "Next",
    "previous-cell": "Previous",
}
"""Labels of the bottom line."""

GLYPHS = {
    "question_mark": "?",
    "slash": "/",
    "plus": "+",
    "full_stop": ".",
    "comma": ",",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "esc",
    "up,k": "↑ k",
    "down,j": "↓ j",
    "left": "←",
    "right": "→",
}


def shown_key(key: str) -> str:
    """A key as people write it."""
    return GLYPHS.get(key, key)
