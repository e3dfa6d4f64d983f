"""Kernel log lines that decide a cell's fate."""
