"""Raising an alert: its text joined to what only the running sweep knows, recorded as one event."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ddtop.events import AlertRaised
from ddtop.sweep.shared.context import SweepContext
from ddtop.sweep.tell.alerts import AlertText

_TEXT_FIELDS = tuple(f.name for f in fields(AlertText))


def raise_alert(ctx: SweepContext, ident: str, text: AlertText, **more: Any) -> None:
    """Records `text` as the alert `ident`. `more`: further fields of AlertRaised (cells, unit, policy, …)."""
    ctx.emit(AlertRaised, alert_id=ident, **{name: getattr(text, name) for name in _TEXT_FIELDS}, **more)


def is_open(ctx: SweepContext, ident: str) -> bool:
    alert = ctx.state.alerts.get(ident)
    return alert is not None and alert.open
