"""Metrics of a cell, by the definitions of docs/measuring.md."""
