"""Where the dashboard's panes go in a given size. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SLIM = 60
"""Below so many columns two panes side by side show nothing: all stand one below the other."""
NARROW = 100
"""Below so many columns the panes have a line above instead of a box around."""
HUGE = 160
"""From so many columns on the log stands below the matrix, and the moment beside it down to the bottom."""

GPUS_NARROW = 36
"""Columns of the GPUs beside the matrix on a narrow screen."""
LEAST_LEFT = 46
"""Columns that GPUs and moment keep where the matrix could use them all."""


@dataclass(frozen=True)
class Rect:
    """A place in the body, in cells."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Wants:
    """What the panes would show if there were room, frames left out."""

    gpus: int
    """Lines."""
    moment: int
    """Lines; it uses more where nothing else wants them."""
    sweep: int
    """Lines of the matrix with its head; 0 where there is no matrix: the moment takes its place."""
    sweep_width: int = 0
    """Columns of the whole matrix."""
    text: bool = False
    """True where the moment shows lines of a log, which want the whole width."""


Places = dict[str, Rect]
"""Name of a pane (`gpus`, `sweep`, `moment`, `log-pane`) → its place; one without a place is not shown."""


def frame(width: int) -> int:
    """Lines that a pane's frame takes: a line above, or a box."""
    return 1 if width < NARROW else 2


def places(width: int, height: int, wants: Wants) -> Places:
    """Places of all panes in a body of `width` × `height` cells. They cover it without overlap."""
    if width < SLIM:
        body = _slim(width, height, wants)
    elif width < NARROW:
        body = _narrow(width, height, wants)
    elif width < HUGE:
        body = _wide(width, height, wants)
    else:
        body = _huge(width, height, wants)
    return {name: place for name, place in body.items() if place.height > 0 and place.width > 0}


def _stack(x: int, width: int, y: int, *heights: tuple[str, int]) -> Places:
    out: Places = {}
    for name, height in heights:
        out[name] = Rect(x, y, width, max(0, height))
        y += max(0, height)
    return out


def _slim(width: int, height: int, wants: Wants) -> Places:
    """All one below the other; the log takes what is left."""
    gpus = min(wants.gpus + 1, 2 if height < 14 else 4)
    moment = min(wants.moment + 1, max(2, (height - gpus) // 3))
    sweep = min(wants.sweep + 1, max(3, height - gpus - moment - 3)) if wants.sweep else 0
    log = height - gpus - moment - sweep
    if log < 2:
        moment, log = moment + log, 0
    return _stack(0, width, 0, ("gpus", gpus), ("sweep", sweep), ("moment", moment), ("log-pane", log))


def _narrow(width: int, height: int, wants: Wants) -> Places:
    """GPUs beside the matrix (or the moment), the moment below, the log at the bottom."""
    least_log = 4 if height < 22 else 5
    left = GPUS_NARROW
    if not wants.sweep:
        first = min(max(wants.gpus, wants.moment) + 1, height - least_log)
        return {
            "gpus": Rect(0, 0, left, first),
            "moment": Rect(left + 1, 0, width - left - 1, first),
            "log-pane": Rect(0, first, width, height - first),
        }
    first = max(wants.gpus, min(wants.sweep, 9 if height < 30 else 14)) + 1
    first = min(first, max(4, height - least_log - 5))
    second = min(wants.moment + 1, max(3, height - first - least_log))
    if height < 30:
        second = min(second, 6)
    elif height < 46:
        second = min(second, 13)
    return {
        "gpus": Rect(0, 0, left, first),
        "sweep": Rect(left + 1, 0, width - left - 1, first),
        "moment": Rect(0, first, width, second),
        "log-pane": Rect(0, first + second, width, height - first - second),
    }


def _columns(width: int, wants: Wants) -> int:
    """Width of the left column: what the matrix does not need, within bounds."""
    if not wants.sweep:
        return max(LEAST_LEFT, width * 2 // 5)
    need = wants.sweep_width + 4
    most = width // 2
    least = max(LEAST_LEFT, width * 2 // 5)
    return min(most, max(least, width - need))


def _wide(width: int, height: int, wants: Wants) -> Places:
    """GPUs over the moment, the matrix beside both, the log below all."""
    left = _columns(width, wants)
    least_log = 5 if height < 26 else max(7, height // 4)
    top = height - least_log
    wanted = max(wants.gpus + 2 + wants.moment + 2, wants.sweep + 2)
    top = max(min(7, top), min(top, wanted))
    log = Rect(0, top, width, height - top)
    if not wants.sweep:
        return {
            "gpus": Rect(0, 0, left, top),
            "moment": Rect(left, 0, width - left, top),
            "log-pane": log,
        }
    if wants.text:
        least_log = min(least_log, 6)  # the evidence is in the moment already
        first = min(max(wants.gpus, wants.sweep) + 2, max(6, height - least_log - min(wants.moment + 2, 14)))
        second = max(3, min(wants.moment + 2, height - first - least_log))
        return {
            "gpus": Rect(0, 0, left, first),
            "sweep": Rect(left, 0, width - left, first),
            **_stack(0, width, first, ("moment", second), ("log-pane", height - first - second)),
        }
    gpus = min(wants.gpus + 2, max(3, top - min(wants.moment + 2, 8)))
    return {
        **_stack(0, left, 0, ("gpus", gpus), ("moment", top - gpus)),
        "sweep": Rect(left, 0, width - left, top),
        "log-pane": log,
    }


def _huge(width: int, height: int, wants: Wants) -> Places:
    """Two columns: GPUs over the moment, the matrix over the log; where the moment does not fill its column, the log has
    the whole width below."""
    if wants.sweep and not wants.text and height - (wants.gpus + wants.moment + 4) >= height // 3:
        return _wide(width, height, wants)
    left = _columns(width, wants)
    right = width - left
    if not wants.sweep:
        gpus = min(wants.gpus + 2, height // 2)
        return {
            **_stack(0, left, 0, ("gpus", gpus), ("moment", height - gpus)),
            "log-pane": Rect(left, 0, right, height),
        }
    gpus = min(wants.gpus + 2, max(3, height - min(wants.moment + 2, height * 2 // 3)))
    least_log = max(5, height // 4)
    sweep = min(max(wants.sweep + 2, height * 2 // 5), height - least_log)
    return {
        **_stack(0, left, 0, ("gpus", gpus), ("moment", height - gpus)),
        **_stack(left, right, 0, ("sweep", sweep), ("log-pane", height - sweep)),
    }
