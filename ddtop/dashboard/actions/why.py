"""Why a key does nothing on the screen in front, in a sentence: a choice that cannot be carried out now, or a key of another screen."""

from __future__ import annotations

from textual.widgets import Input

from ddtop.dashboard.interface import Dashboard
from ddtop.dashboard.screens.base import DdModal
from ddtop.journal.read.select import action_on

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("e", "E", "f"), "the log: l opens it"),
    **dict.fromkeys(("L", "U"), "the log: l opens it"),
    **dict.fromkeys(("o", "O"), "the results: v opens them"),
    **dict.fromkeys(("d", "D", "i", "I", "A"), "the plots: v, and v again, opens them"),
}
"""Key that no screen but one has → where it acts."""


def why_not(app: Dashboard, key: str, character: str | None) -> str | None:
    """Why `key` does nothing now; None where something takes it. `character`: what it types, if anything."""
    if isinstance(app.focused, Input) and (character is not None or key in ("up", "down")):
        return None
    why = None
    for node, bindings in app.screen._modal_binding_chain:
        for binding in bindings.key_to_bindings.get(key, ()):
            target, action, parameters = app._parse_action(binding.action, node)
            if target.check_action(action, parameters) is not False:
                return None
            explain = getattr(target, "why_not", None)
            if explain is not None and why is None:
                why = explain(action, parameters)
    if why is not None or character is None or not character.isprintable():
        return why
    shown = f"`{character}`"
    if isinstance(app.screen, DdModal):
        return f"{shown} does nothing in this box: esc closes it."
    alert = app.here.alert
    if alert is not None and action_on(alert, character) is not None:
        return None  # a key of a later version, which the screen itself takes
    if character in ELSEWHERE:
        return f"{shown} is a key of {ELSEWHERE[character]}."
    return f"{shown} is no key of this screen: ? shows those that are."
