"""Widgets that are not about any one panel: drawing lines, the log window, plots."""
