"""A container whose children stand where `draw/layout.py` puts them."""

from __future__ import annotations

from textual.containers import Container
from textual.geometry import NULL_SPACING, Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from ddtop.dashboard.draw.layout import Places


class _Placed(Layout):
    """Puts each child where `places` says by its id."""

    name = "placed"

    def __init__(self) -> None:
        self.places: Places = {}

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        out: list[WidgetPlacement] = []
        for order, child in enumerate(children):
            place = self.places.get(child.id or "")
            if place is None:
                continue
            region = Region(place.x, place.y, place.width, place.height)
            out.append(WidgetPlacement(region, Offset(0, 0), NULL_SPACING, child, order))
        return out


class PlacedContainer(Container):
    """Children by their ids in the places given last; a child without a place is not shown."""

    def __init__(self, *children: Widget, id: str | None = None) -> None:
        super().__init__(*children, id=id)
        self._placed = _Placed()

    @property
    def layout(self) -> Layout:
        return self._placed

    @property
    def places(self) -> Places:
        """Where the children stand now."""
        return self._placed.places

    def put(self, places: Places) -> None:
        """Move the children, where anything changed."""
        if places != self._placed.places:
            self._placed.places = places
            for child in self.children:
                child.display = (child.id or "") in places
                # Of the child, not of the container: only that forgets the container's former arrangement.
                child.refresh(layout=True)
