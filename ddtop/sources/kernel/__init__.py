"""Kernel log lines that decide whether a cell counts."""
