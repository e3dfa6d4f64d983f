"""What is wrong with the `[keys]` of the settings: an unknown action, an unknown key, a key used twice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import KEY_ALIASES, KEY_NAME_REPLACEMENTS, Keys

from ddtop.dashboard import keys
from ddtop.dashboard.screens.base import DdModal, DdScreen
from ddtop.dashboard.widgets.listpanel import ListPanel
from ddtop.dashboard.widgets.logpane import KeyedLogView
from ddtop.dashboard.widgets.sweeppanel import SweepPanel

_NAMES = {
    *(key.value for key in Keys),
    *KEY_NAME_REPLACEMENTS.values(),
    *KEY_ALIASES,
    *(name for group in KEY_ALIASES.values() for name in group),
    *(key for key in keys.GLYPHS if "," not in key),
}
_HELD = ("ctrl+", "shift+", "alt+", "super+", "meta+")


def bindings() -> dict[str, Binding]:
    """Every binding that has an id: the app's, and those of screens and panes."""
    from ddtop.dashboard.screens import cell, help, history, hosts, log, modals, plan, results, steps  # noqa: F401

    found = {b.id: b for b in (*keys.APP, *keys.REPLAY, *keys.MOVE, *keys.LOG, keys.BACK) if b.id}
    owners: list[type[DOMNode]] = [*_below(DdScreen), *_below(DdModal), KeyedLogView, ListPanel, SweepPanel]
    for owner in owners:
        found |= {b.id: b for b in owner.BINDINGS if isinstance(b, Binding) and b.id and b.id not in found}
    return found


def _below(owner: type[DOMNode]) -> Iterable[type[DOMNode]]:
    child: type[DOMNode]
    for child in owner.__subclasses__():
        yield child
        yield from _below(child)


def is_key(name: str) -> bool:
    """True for what Textual calls a key: `x`, `f5`, `ctrl+x`, `question_mark`."""
    bare = name
    while bare.startswith(_HELD):
        bare = bare.partition("+")[2]
    return len(bare) == 1 or bare in _NAMES or name in _NAMES


def key_faults(wanted: Mapping[str, str]) -> list[str]:
    """A sentence for each entry of `[keys]` that does not do what it says."""
    known = bindings()
    out: list[str] = []
    for action, text in wanted.items():
        if action not in known:
            near = difflib.get_close_matches(action, known, 1)
            out.append(f"{action}: unknown action" + (f"; did you mean `{near[0]}`?" if near else ""))
            continue
        strange = [key for key in _split(text) if not is_key(key)]
        if strange:
            out.append(f"{action}: `{strange[0]}` is not a key. Write x, f5, ctrl+x or question_mark.")
        app = {b.id for b in keys.APP}
        for other in keys.APP:
            taken = set(_split(text)) & set(_split(wanted.get(other.id or "", other.key)))
            if action in app and other.id and other.id != action and taken:
                out.append(
                    f"{action}: `{taken.pop()}` is also the key of {other.id}; give {other.id} another key"
                )
    return out


def normal(text: str) -> str:
    """A key as Textual names it, where a person wrote the character: `?` is `question_mark`."""
    return ",".join(_split(text))


def _split(text: str) -> list[str]:
    written = ",".join(key.strip() for key in text.split(",") if key.strip()) or ","
    if written == ",":
        return ["comma"]
    return [binding.key for binding in Binding.make_bindings([Binding(written, "", "")])]
