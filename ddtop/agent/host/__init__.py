"""Readings of the host itself: facts, processes, ports, files, HTTP on loopback."""
