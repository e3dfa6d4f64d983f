"""Help: the available keys, in groups, and what the glyphs mean."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.containers import Vertical

from ddtop.dashboard import keys
from ddtop.dashboard.draw.paint import Item, Line, crop, line
from ddtop.dashboard.draw.text import CELL_GLYPH, CELL_ROLE
from ddtop.dashboard.screens.base import DdModal
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.panel import set_title

LEGEND = (
    ("?", "warn", "after a number: SUSPECT, the result is kept but doubtful; enter shows why"),
    ("(≈)", "dim", "not different from the baseline, by the spread between starts (or repeats)"),
    ("~", "dim", "before a speed-up: measured with another engine version than the baseline"),
    ("█░≡", "label", "timeline: cells, starts, staging; ✗ failed, ? suspect, ‖ interrupted"),
    (
        "!↻~",
        "warn",
        "timeline: alert, reboot, host lost; ┄ an alert waits, = paused, ⋯ no runner, ·: expected",
    ),
    ("░", "track", "power bar: watts of the power limit; the curve after it is its history"),
)


class HelpScreen(DdModal):
    """The keys of the screen it was called from."""

    BINDINGS = [keys.bind("question_mark,q", "back", "Close", "help-close")]
    FOCUS = "#keys"
    DEFAULT_CSS = """
    HelpScreen .box { height: 90%; }
    HelpScreen ListPanel { background: $surface; }
    """

    def __init__(self, active: Sequence[ActiveBinding]) -> None:
        super().__init__()
        self._active = [entry for entry in active if entry.enabled]

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            set_title(box, "Available keys", "esc closes · ctrl+p finds an action by name")
            yield ListPanel(id="keys")

    def opened(self) -> None:
        width = max(20, self.query_one(ListPanel).size.width or 70)
        self.query_one(ListPanel).show((), [Item(crop(row, max(width, 60))) for row in self._lines()])

    def _lines(self) -> list[Line]:
        found: dict[str, ActiveBinding] = {}
        shown: dict[str, list[str]] = {}
        for entry in self._active:
            identity = entry.binding.id or entry.binding.action
            found.setdefault(identity, entry)
            shown.setdefault(identity, []).append(keys.shown_key(entry.binding.key))
        out: list[Line] = []
        for heading, identities in keys.GROUPS:
            rows: list[Line] = []
            for identity in identities:
                if identity not in found:
                    continue
                label = self.dd.view.label_of(identity)
                text = found[identity].binding.description + (f": {label}" if label else "")
                rows.append(line((f"  {' '.join(shown[identity]):<9}", "key"), (text, "text")))
            if rows:
                out.extend([line((heading, "title")), *rows, ()])
        out.append(
            line(
                (f"  {'tab':<9}", "key"),
                "next pane   ",
                ("1-9 ", "key"),
                "host or pane   ",
                ("mouse ", "key"),
            )
        )
        out[-1] = (*out[-1], *line("works too"))
        out.extend([(), line(("States", "title"))])
        out.extend(
            line((f"  {glyph:<3}", CELL_ROLE[state]), (state, "text")) for state, glyph in CELL_GLYPH.items()
        )
        out.extend(line((f"  {glyph:<4}", role), (text, "label")) for glyph, role, text in LEGEND)
        return out
