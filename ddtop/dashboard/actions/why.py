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
    **dict.fromkeys(
        ("d", "D", "i", "I", "X", "Y", "ctrl+x", "ctrl+y", "F"), "the plots: v, and v again, opens them"
    ),
}
"""Key that no screen but one has → where it acts."""


def why_not(app: Dashboard, key: str, character: str | None) -> str | None:
    """Why `key` does nothing now; None where something takes it. `character`: what it types, if anything."""
    if isinstance(app.focused, Input) and (character is not None or key in ("up", "down")):
        return None
    why: str | None = None
    for node, bindings in app.screen._modal_binding_chain:
        for binding in bindings.key_to_bindings.get(key, ()):
            target, action, parameters = app._parse_action(binding.action, node)
            if target.check_action(action, parameters) is not False:
                return None
            explain = getattr(target, "why_not", None)
            if explain is not None and why is None:
                why = explain(action, parameters)
    if why is not None:
        return why
    typed = character is not None and character.isprintable()
    name = character if character is not None and typed else key
    if not typed and name not in ELSEWHERE:
        return None
    if isinstance(app.screen, DdModal):
        return f"`{name}` does nothing in this box: esc closes it."
    alert = app.here.alert
    if alert is not None and action_on(alert, name) is not None:
        return None  # a key of a later version, which the screen itself takes
    if name in ELSEWHERE:
        return f"`{name}` is a key of {ELSEWHERE[name]}."
    return f"`{name}` is no key of this screen: ? shows those that are."
